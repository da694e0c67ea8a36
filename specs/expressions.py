# SPDX-License-Identifier: Apache-2.0
"""The formula language of operation files: integer arithmetic and comparisons over named symbols, in Python's spelling.

A formula is data. It is evaluated here, printed in the documentation, and rendered into the generated validators, so
it is restricted to what means the same in all three places: integers, names, `+ - * // %`, comparisons, `max`,
`min` and the conditional expression.
"""

from __future__ import annotations

import ast
import copy
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache

_OPERATORS: tuple[type[ast.operator], ...] = (ast.Add, ast.Sub, ast.Mult, ast.FloorDiv, ast.Mod)
_COMPARISONS: dict[type[ast.cmpop], str] = {
    ast.Eq: "==",
    ast.GtE: ">=",
    ast.Gt: ">",
    ast.LtE: "<=",
    ast.Lt: "<",
}
_FUNCTIONS = ("max", "min")


@dataclass(frozen=True, slots=True)
class Comparison:
    """A formula that is one comparison, taken apart so that an error can print the value of each side."""

    left: str
    operator: str
    right: str


@lru_cache(maxsize=4096)
def parse_formula(text: str) -> ast.expr:
    """The syntax tree of a formula. It is shared: read it, or change a copy.

    Raises:
        ValueError: the text is no expression, or uses anything outside the formula language.
    """
    tree = parse_expression(text, "formula")
    called = [node.func for node in ast.walk(tree) if isinstance(node, ast.Call)]
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and node.id in _FUNCTIONS and node not in called:
            raise ValueError(f"not a formula: {text!r} ({node.id} is a function)")
        _check_node(node, text)
    return tree


def parse_expression(text: str, kind: str) -> ast.expr:
    """The syntax tree of an expression on one line; `kind` says in errors what it should have been.

    Raises:
        ValueError: the text is no expression.
    """
    # What stands behind a # would be read by nobody here, and swallow what a generated line has behind the formula.
    if not text.isascii() or not text.isprintable() or "#" in text:
        raise ValueError(f"not a {kind}: {text!r} (expected one line of ASCII without #)")
    try:
        return ast.parse(text, mode="eval").body
    except SyntaxError as error:
        raise ValueError(f"not a {kind}: {text!r} ({error.msg})") from None
    except (MemoryError, RecursionError):
        raise ValueError(f"not a {kind}: {text[:40]!r}... (too deeply nested)") from None


def _check_node(node: ast.AST, text: str) -> None:
    match node:
        case ast.Constant(value=bool()):
            problem = "True and False are not numbers here"
        case ast.Constant(value=int()) | ast.Name() | ast.Load() | ast.operator() | ast.cmpop() | ast.USub():
            if isinstance(node, ast.operator) and not isinstance(node, _OPERATORS):
                problem = f"operator {type(node).__name__} is not in the formula language"
            elif isinstance(node, ast.cmpop) and type(node) not in _COMPARISONS:
                problem = f"comparison {type(node).__name__} is not in the formula language"
            else:
                return
        case ast.BinOp() | ast.IfExp() | ast.UnaryOp(op=ast.USub()):
            return
        case ast.Compare():
            if len(node.ops) == 1:
                return
            problem = "a chain of comparisons is not in the formula language"
        case ast.Call(func=ast.Name(id=function), args=arguments, keywords=[]) if function in _FUNCTIONS:
            if len(arguments) > 1:
                return
            problem = f"{function} takes two numbers or more"
        case _:
            problem = f"{type(node).__name__} is not in the formula language"
    raise ValueError(f"not a formula: {text!r} ({problem})")


def check_formula(text: str) -> str:
    """The text itself, when it is a formula; for use as a Pydantic validator."""
    parse_formula(text)
    return text


@lru_cache(maxsize=1024)
def formula_names(text: str) -> tuple[str, ...]:
    """The symbols of a formula in order of first appearance."""
    names = [node for node in ast.walk(parse_formula(text)) if isinstance(node, ast.Name) and node.id not in _FUNCTIONS]
    return tuple(dict.fromkeys(node.id for node in sorted(names, key=lambda node: node.col_offset)))


def split_comparison(text: str) -> Comparison:
    """The two sides of a formula that is one comparison.

    Raises:
        ValueError: the formula is not a comparison.
    """
    tree = parse_formula(text)
    if not isinstance(tree, ast.Compare):
        raise ValueError(f"not a comparison: {text!r}")
    operator = _COMPARISONS[type(tree.ops[0])]
    return Comparison(ast.unparse(tree.left), operator, ast.unparse(tree.comparators[0]))


def substitute_formulas(text: str, definitions: Mapping[str, str]) -> str:
    """The formula with each defined symbol replaced by the formula that defines it, until none is left."""

    class Substitution(ast.NodeTransformer):
        def visit_Name(self, node: ast.Name) -> ast.expr:
            if node.id not in definitions:
                return node
            replaced: ast.expr = self.visit(copy.deepcopy(parse_formula(definitions[node.id])))
            return replaced

    tree = copy.deepcopy(parse_formula(text))
    return ast.unparse(ast.fix_missing_locations(Substitution().visit(tree)))


def evaluate_formula(text: str, values: Mapping[str, int]) -> int:
    """The value of a formula; comparisons give 0 or 1.

    Raises:
        KeyError: a symbol has no value.
        ZeroDivisionError: a divisor is 0.
    """
    return _evaluate(parse_formula(text), values)


def _evaluate(node: ast.expr, values: Mapping[str, int]) -> int:
    match node:
        case ast.Constant(value=int(number)):
            return number
        case ast.Name(id=name):
            return values[name]
        case ast.UnaryOp(operand=operand):
            return -_evaluate(operand, values)
        case ast.BinOp(left=left, op=operator, right=right):
            return _calculate(operator, _evaluate(left, values), _evaluate(right, values))
        case ast.IfExp(test=test, body=body, orelse=orelse):
            return _evaluate(body if _evaluate(test, values) else orelse, values)
        case ast.Compare(left=left, ops=[comparison], comparators=[right]):
            return _compare(comparison, _evaluate(left, values), _evaluate(right, values))
        case ast.Call(func=ast.Name(id=function), args=arguments):
            numbers = [_evaluate(argument, values) for argument in arguments]
            return max(numbers) if function == "max" else min(numbers)
    raise AssertionError(f"parse_formula let {ast.dump(node)} pass")


def _calculate(operator: ast.operator, left: int, right: int) -> int:
    match operator:
        case ast.Add():
            return left + right
        case ast.Sub():
            return left - right
        case ast.Mult():
            return left * right
        case ast.FloorDiv():
            return left // right
    return left % right


def _compare(comparison: ast.cmpop, left: int, right: int) -> int:
    match comparison:
        case ast.Eq():
            return int(left == right)
        case ast.GtE():
            return int(left >= right)
        case ast.Gt():
            return int(left > right)
        case ast.LtE():
            return int(left <= right)
    return int(left < right)
