# SPDX-License-Identifier: Apache-2.0
"""Formulas, sums, sentences and code as sequences of small pieces, which all templates of a page place alike."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from specs.expressions import parse_formula
from specs.index_notation import Factor, parse_term
from specs.model import Operation, Reading

_MINUS = "\N{MINUS SIGN}"
_OPERATORS: dict[type[ast.operator], tuple[str, int]] = {
    ast.Add: (" + ", 1),
    ast.Sub: (f" {_MINUS} ", 1),
    ast.Mult: (" · ", 2),
    ast.Mod: (" mod ", 2),
}
_COMPARISONS: dict[type[ast.cmpop], str] = {
    ast.Eq: " = ",
    ast.GtE: " ≥ ",
    ast.Gt: " > ",
    ast.LtE: " ≤ ",
    ast.Lt: " < ",
}
_SUBSCRIPTS = {"ICg": ("IC", "g"), "OCg": ("OC", "g"), "pb": ("p", "b"), "pe": ("p", "e")}
"""Symbols that are set as a letter with a subscript where the format has subscripts."""

_PYTHON = re.compile(
    r"(?P<comment>#[^\n]*)|(?P<string>\"\"\".*?\"\"\"|\"[^\"\n]*\"|'[^'\n]*')"
    r"|(?P<keyword>\b(?:assert|def|for|from|import|in|return|True|False|None)\b)|(?P<number>\b\d[\d_.]*\b)",
    re.DOTALL,
)


@dataclass(frozen=True, slots=True)
class Piece:
    """A run of text of one kind: of a formula (symbol, plain), a sentence (code, plain) or a program."""

    text: str
    kind: str = "plain"
    base: str = ""
    """Of a symbol: its letters without the subscript."""
    subscript: str = ""


Pieces = tuple[Piece, ...]


@dataclass(frozen=True, slots=True)
class IndexContext:
    """An index of a sum: its letter, and what it runs along or what it equals."""

    symbol: Pieces
    along: Pieces


@dataclass(frozen=True, slots=True)
class FactorContext:
    """One tensor of the product with its three indices."""

    tensor: str
    indices: tuple[Pieces, ...]


@dataclass(frozen=True, slots=True)
class SumContext:
    """The sum of one reading."""

    output: str
    indices: tuple[Pieces, ...]
    over: tuple[Pieces, ...]
    factors: tuple[FactorContext, FactorContext]
    runs: tuple[IndexContext, ...]
    """What each index of the gradient and of the sum runs along."""
    where: tuple[IndexContext, ...]

    @property
    def line(self) -> str:
        """The sum as one line of plain text."""
        gradient = f"{self.output}[{', '.join(map(plain_text, self.indices))}]"
        product = " · ".join(f"{row.tensor}[{', '.join(map(plain_text, row.indices))}]" for row in self.factors)
        return f"{gradient} = Σ over {', '.join(map(plain_text, self.over))} of {product}"


def plain_text(pieces: Iterable[Piece]) -> str:
    """The pieces as one string."""
    return "".join(piece.text for piece in pieces)


def typeset_symbol(name: str) -> Pieces:
    """One symbol."""
    base, subscript = _SUBSCRIPTS.get(name, (name, ""))
    return (Piece(name, "symbol", base, subscript),)


def typeset_formula(text: str) -> Pieces:
    """A formula in the notation of mathematics: floor brackets for `//`, mod for `%`."""
    return _merge(_typeset(parse_formula(text), 0))


def _typeset(node: ast.expr, precedence: int) -> Iterator[Piece]:
    """The pieces of a node inside an operator that binds with `precedence`."""
    match node:
        case ast.Constant(value=value):
            yield Piece(str(value))
        case ast.Name(id=name):
            yield from typeset_symbol(name)
        case ast.UnaryOp(operand=operand):
            yield from _enclose(precedence > 1, (Piece(_MINUS), *_typeset(operand, 3)))
        case ast.BinOp(left=left, op=ast.FloorDiv(), right=right):
            yield from (Piece("⌊"), *_typeset(left, 2), Piece(" / "), *_typeset(right, 3), Piece("⌋"))
        case ast.BinOp(left=left, op=operator, right=right):
            sign, own = _OPERATORS[type(operator)]
            # The right side of - and mod must not be regrouped, so equal precedence gets parentheses there.
            inner = (*_typeset(left, own), Piece(sign), *_typeset(right, own + 1))
            yield from _enclose(own < precedence, inner)
        case ast.Compare(left=left, ops=[comparison], comparators=[right]):
            yield from (*_typeset(left, 0), Piece(_COMPARISONS[type(comparison)]), *_typeset(right, 0))
        case ast.IfExp(test=test, body=body, orelse=orelse):
            inner = (*_typeset(body, 0), Piece(" if "), *_typeset(test, 0), Piece(", else "), *_typeset(orelse, 0))
            yield from _enclose(precedence > 0, inner)
        case ast.Call(func=ast.Name(id=function), args=arguments):
            yield Piece(f"{function}(")
            for place, argument in enumerate(arguments):
                yield Piece(", " if place else "")
                yield from _typeset(argument, 0)
            yield Piece(")")


def _enclose(parentheses: bool, pieces: Iterable[Piece]) -> Iterator[Piece]:
    if parentheses:
        yield Piece("(")
    yield from pieces
    if parentheses:
        yield Piece(")")


def _merge(pieces: Iterable[Piece]) -> Pieces:
    """Neighbouring plain pieces become one."""
    merged: list[Piece] = []
    for piece in pieces:
        if merged and piece.kind == merged[-1].kind == "plain":
            merged[-1] = Piece(merged[-1].text + piece.text)
        elif piece.text:
            merged.append(piece)
    return tuple(merged)


def typeset_axis(axis: str) -> Pieces:
    """An axis of the weights: channels, whole or divided by groups, or X for the kernel axes."""
    symbol, _, divisor = axis.partition("/")
    if axis == "X":
        return (*typeset_symbol("K"), Piece("…"))
    return (*typeset_symbol(symbol), *((Piece(" / "), *typeset_symbol(divisor)) if divisor else ()))


def typeset_sum(operation: Operation, reading: Reading) -> SumContext:
    """The sum of a reading, factor by factor."""
    runs = [
        IndexContext(typeset_symbol(index), (*typeset_axis(axis), Piece(", the kernel taps" if axis == "X" else "")))
        for index, axis in reading.sum.gradient.items()
    ]
    runs += [
        IndexContext(typeset_symbol(index), (*typeset_symbol(extent), Piece(", summed")))
        for index, extent in reading.sum.over.items()
    ]
    first, second = parse_term(reading.sum.term)
    return SumContext(
        output=operation.outputs[0].name,
        indices=tuple(typeset_symbol(index) for index in reading.sum.gradient),
        over=tuple(typeset_symbol(index) for index in reading.sum.over),
        factors=(_typeset_factor(first), _typeset_factor(second)),
        runs=tuple(runs),
        where=tuple(
            IndexContext(typeset_symbol(name), typeset_formula(row)) for name, row in reading.sum.where.items()
        ),
    )


def _typeset_factor(factor: Factor) -> FactorContext:
    formulas = (factor.batch, factor.channel, factor.spatial)
    return FactorContext(factor.tensor, tuple(typeset_formula(formula) for formula in formulas))


class SentenceSetter:
    """Sets the names that an operation defines as code in its sentences.

    Names that are also plain English (strides, groups, none) stay as they are, because a sentence may mean the word;
    between backticks they are code as well.
    """

    def __init__(self, operation: Operation) -> None:
        tensors = {row.name for row in (*operation.inputs, *operation.outputs)}
        attributes = {row.name for row in operation.attributes}
        words = {word for attribute in operation.attributes for word in attribute.words}
        code = tensors | {name for name in attributes | words if "_" in name}
        # A stem with a star stands for several words, such as same_upper and same_lower.
        stems = {f"{word.partition('_')[0]}_*" for word in words if "_" in word}
        choices = "|".join(re.escape(name) for name in sorted(code | stems, key=lambda name: (-len(name), name)))
        self._pattern = re.compile(rf"`([^`]+)`|(?<!\w)(?:{choices})(?!\w)")

    def __call__(self, text: str) -> Pieces:
        text = " ".join(text.split()).replace(" * ", " · ")
        pieces: list[Piece] = []
        end = 0
        for match in self._pattern.finditer(text):
            pieces += [Piece(text[end : match.start()]), Piece(match[1] or match[0], "code")]
            end = match.end()
        pieces.append(Piece(text[end:]))
        return tuple(piece for piece in pieces if piece.text)


@dataclass(frozen=True, slots=True)
class CodeContext:
    """A Python program, whole and in coloured pieces."""

    text: str
    pieces: Pieces


def set_code(text: str) -> CodeContext:
    """Python source; the text ends without a newline."""
    text = text.strip("\n")
    pieces: list[Piece] = []
    end = 0
    for match in _PYTHON.finditer(text):
        pieces += [Piece(text[end : match.start()]), Piece(match[0], match.lastgroup or "plain")]
        end = match.end()
    pieces.append(Piece(text[end:]))
    return CodeContext(text, tuple(piece for piece in pieces if piece.text))
