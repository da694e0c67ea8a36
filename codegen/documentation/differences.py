# SPDX-License-Identifier: Apache-2.0
"""What differs between an operation and the same operation in the other generation, found by comparing the two."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from codegen.documentation.text import Piece, Pieces, plain_text, typeset_axis, typeset_formula
from specs.model import Attribute, Operation, Reading

Lines = tuple[Pieces, ...]


@dataclass(frozen=True, slots=True)
class DifferenceContext:
    """One row: an aspect, and the lines that each of the two operations has for it."""

    aspect: str
    here: Lines
    there: Lines


@dataclass(frozen=True, slots=True)
class ComparisonContext:
    """The comparison with the counterpart."""

    name: str
    generation: str
    page: str
    """File name of its page, without the ending."""
    differences: tuple[DifferenceContext, ...]
    same: tuple[str, ...]
    """Aspects in which the two agree."""
    same_attributes: tuple[str, ...]
    """Attributes that are the same in name, words or range, default, and whether they are required."""


def compare_operations(here: Operation, there: Operation) -> ComparisonContext:
    """Everything in which the two operations differ, and what they share."""
    differences, same = [], []
    for aspect, left, right in _aspects(here, there):
        if left == right:
            same.append(aspect)
        else:
            differences.append(DifferenceContext(aspect, left, right))
    return ComparisonContext(
        name=there.versioned_name,
        generation=there.generation,
        page=there.name,
        differences=tuple(differences),
        same=tuple(same),
        same_attributes=tuple(
            row.name
            for row in here.attributes
            if (other := there.attribute(row.role)) is not None
            and all(left == right for _, left, right in _compare_attributes(row, other))
        ),
    )


def _aspects(here: Operation, there: Operation) -> Iterator[tuple[str, Lines, Lines]]:
    yield "versioned name", _code(here.versioned_name), _code(there.versioned_name)
    yield "index of the first input", _plain(str(here.index_base)), _plain(str(there.index_base))
    for place, ordinal in enumerate(("first", "second")):
        left, right = here.data_inputs[place], there.data_inputs[place]
        yield f"{ordinal} input", _code(left.name), _code(right.name)
    yield "output", _code(here.outputs[0].name), _code(there.outputs[0].name)
    roles = dict.fromkeys(attribute.role for attribute in (*here.attributes, *there.attributes))
    for role in roles:
        mine, other = here.attribute(role), there.attribute(role)
        if mine is None or other is None:
            yield f"attribute for {role}", _name(mine), _name(other)
        else:
            yield from (row for row in _compare_attributes(mine, other) if row[1] != row[2])
    yield "weights layouts", _layouts(here), _layouts(there)
    yield "channel axis of the weights that groups divide", _grouped(here), _grouped(there)
    yield "the sum", _sums(here), _sums(there)
    yield "shape relations", _rules(here), _rules(there)
    yield "total padding of same_upper and same_lower", _total(here), _total(there)
    yield "types", _types(here), _types(there)
    yield "decisions that the other page does not have", _questions(here, there), _questions(there, here)


def _compare_attributes(here: Attribute, there: Attribute) -> Iterator[tuple[str, Lines, Lines]]:
    yield f"attribute {here.name}", _code(here.name), _code(there.name)
    if here.role != "weights_format":  # whose words are the layouts, compared axis by axis
        yield f"words or range of {here.name}", _allowed(here), _allowed(there)
    yield f"default of {here.name}", _code(_default(here)), _code(_default(there))
    yield f"whether {here.name} is required", _plain(_given(here)), _plain(_given(there))


def _name(attribute: Attribute | None) -> Lines:
    return _plain("none") if attribute is None else _code(attribute.name)


def _allowed(attribute: Attribute) -> Lines:
    return _code(*attribute.words) if attribute.words else _plain(f"{attribute.kind} {attribute.range}")


def _default(attribute: Attribute) -> str:
    return "none given" if attribute.default is None else str(attribute.default)


def _given(attribute: Attribute) -> str:
    if attribute.ignored_when is not None:
        when = attribute.ignored_when
        return f"{'required' if attribute.required else 'optional'}, ignored unless {when.attribute} is {when.unless}"
    return "required" if attribute.required else "optional"


def _layouts(operation: Operation) -> Lines:
    lines = []
    for reading in operation.readings:
        for name, axes in reading.layouts.items():
            text = ", ".join(plain_text(typeset_axis(axis)) for axis in axes)
            lines.append((Piece(name, "code"), Piece(f": {text}{_which(operation, reading)}")))
    return tuple(lines)


def _grouped(operation: Operation) -> Lines:
    lines = []
    for reading in operation.readings:
        divided = [axis.partition("/")[0] for axis in reading.sum.gradient.values() if "/" in axis]
        lines.append((*(Piece(symbol, "symbol", symbol) for symbol in divided), Piece(_which(operation, reading))))
    return tuple(lines)


def _sums(operation: Operation) -> Lines:
    """The terms with the inputs called by their place, so that a mere renaming is no difference."""
    first, second = (row.name for row in operation.data_inputs)
    lines = []
    for reading in operation.readings:
        text = re.sub(rf"\b{second}\b", "second", re.sub(rf"\b{first}\b", "first", reading.sum.term))
        lines.append((Piece(text, "code"), Piece(_which(operation, reading))))
    return tuple(lines)


def _which(operation: Operation, reading: Reading) -> str:
    """The reading, where there are several."""
    return f" ({reading.id})" if len(operation.readings) > 1 else ""


def _rules(operation: Operation) -> Lines:
    return tuple(typeset_formula(rule.formula) for rule in operation.rules)


def _total(operation: Operation) -> Lines:
    return (typeset_formula(operation.padding.same_total),)


def _types(operation: Operation) -> Lines:
    return tuple((Piece(f"{row.name}: {', '.join(row.types)}"),) for row in operation.type_variables)


def _questions(operation: Operation, other: Operation) -> Lines:
    numbers = {row.number for row in other.decisions}
    return _plain(", ".join(str(row.number) for row in operation.decisions if row.number not in numbers) or "none")


def _code(*texts: str) -> Lines:
    return tuple((Piece(text, "code"),) for text in texts)


def _plain(*texts: str) -> Lines:
    return tuple((Piece(text),) for text in texts)
