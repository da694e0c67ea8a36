# SPDX-License-Identifier: Apache-2.0
"""The formula language of operation files: what it accepts, what it refuses, what it computes."""

from __future__ import annotations

import itertools

import pytest

from specs.expressions import (
    evaluate_formula,
    formula_names,
    parse_formula,
    split_comparison,
    substitute_formulas,
)

FORMULAS = (
    "I + pb + pe - eff",
    "(I + pb + pe - eff) // s + 1",
    "max(0, eff - (s if I % s == 0 else I % s))",
    "I % s == 0",
    "-I * 3 - -pb",
    "min(I, pb, 7) >= eff // 2",
)


@pytest.mark.parametrize("formula", FORMULAS)
def test_value_is_that_of_the_same_python_expression(formula: str) -> None:
    names = formula_names(formula)
    checked = 0
    for numbers in itertools.product((1, 2, 3, 7, 10), repeat=len(names)):
        values = dict(zip(names, numbers, strict=True))
        assert evaluate_formula(formula, values) == int(eval(formula, {"max": max, "min": min}, values))
        checked += 1
    assert checked == 5 ** len(names)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("I +", "invalid syntax"),
        ("I ** 2", "operator Pow"),
        ("I / 2", "operator Div"),
        ("I if s else", "invalid syntax|expected"),
        ("open('x')", "Call"),
        ("I.real", "Attribute"),
        ("[I]", "List"),
        ("1 < I < 3", "a chain of comparisons"),
        ("I != 3", "comparison NotEq"),
        ("True", "True and False are not numbers"),
        ("1.5", "Constant"),
        ("I and s", "BoolOp"),
        ("max(I, key=s)", "Call"),
        ("lambda: 3", "Lambda"),
        ("max", "max is a function"),
        ("min(I)", "min takes two numbers or more"),
        ("I  # input", "expected one line of ASCII without #"),
        ("(I +\ns)", "expected one line of ASCII without #"),
        ("\N{FULLWIDTH LATIN SMALL LETTER S}", "expected one line of ASCII without #"),
        ("-" * 100_000 + "I", "too deeply nested"),
    ],
)
def test_what_is_not_in_the_language_is_refused(text: str, problem: str) -> None:
    with pytest.raises(ValueError, match=f"not a formula.*{problem}"):
        parse_formula(text)


def test_names_come_in_order_of_appearance() -> None:
    assert formula_names("(I - 1) * s + eff - max(pb, I)") == ("I", "s", "eff", "pb")


def test_comparison_is_taken_apart() -> None:
    sides = split_comparison("O == (I + pb) // s")
    assert (sides.left, sides.operator, sides.right) == ("O", "==", "(I + pb) // s")
    with pytest.raises(ValueError, match="not a comparison"):
        split_comparison("I + 1")


def test_definitions_are_substituted_until_none_is_left() -> None:
    definitions = {"eff": "(K - 1) * d + 1", "K": "taps"}
    assert substitute_formulas("I - eff", definitions) == "I - ((taps - 1) * d + 1)"
