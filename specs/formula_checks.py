# SPDX-License-Identifier: Apache-2.0
"""The formulas of an operation: symbols that are known where they are used, and numbers that can be computed."""

from __future__ import annotations

import keyword
from collections.abc import Generator, Iterator
from random import Random

from specs.draft import Draft, Field, Problem
from specs.expressions import evaluate_formula, formula_names
from specs.model import Operation
from specs.vocabulary import AXIS_SYMBOLS, CALL_SYMBOLS

_PADS = ("pb", "pe")
_SAMPLES = 200
_LARGEST = {"N": 3, "IC": 6, "OC": 6, "groups": 3, "I": 9, "O": 9, "K": 4, "s": 3, "d": 3, "pb": 2, "pe": 2, "op": 2}
"""Of the small values that formulas are tried with; the smallest is 1, and 0 for padding."""
_FROM_ZERO = ("pb", "pe", "op")


def known_symbols(operation: Operation, per_axis: bool) -> set[str]:
    """All symbols, defined ones included; of the call alone, or of one spatial axis as well."""
    symbols = set(CALL_SYMBOLS) | (_axis_symbols(operation) if per_axis else set())
    return symbols | {row.symbol for row in operation.definitions if per_axis or row.per_axis is not True}


def _axis_symbols(operation: Operation) -> set[str]:
    roles = [attribute.role for attribute in operation.attributes]
    without = set() if "output_padding" in roles or None in roles else {"op"}
    return set(AXIS_SYMBOLS) - without


def check_formulas(draft: Draft) -> Iterator[Problem]:
    """Symbols are known where they are used, in the order in which a call computes them.

    That order is: rules of the call, definitions of the call, definitions of an axis, padding, rules of an axis.
    """
    operation = draft.operation
    for section, names in (
        ("rules", [rule.id for rule in operation.rules]),
        ("definitions", [row.symbol for row in operation.definitions]),
    ):
        for index, name in enumerate(names):
            if name is not None and name in names[:index]:
                yield (section, index), f"{name!r} is there twice"
    yield from _check_definitions(draft)
    everything = known_symbols(operation, per_axis=True)
    same_total = (("padding", "same_total"), operation.padding.same_total)
    yield from _unknown_symbols(*same_total, everything - set(_PADS))
    for index, rule in draft.sound("rules", operation.rules):
        known = everything if rule.per_axis else set(CALL_SYMBOLS)
        yield from _unknown_symbols(("rules", index, "formula"), rule.formula, known)
        if rule.remedy is not None:
            yield from _unknown_symbols(("rules", index, "remedy", "formula"), rule.remedy.formula, known)


def _check_definitions(draft: Draft) -> Iterator[Problem]:
    operation = draft.operation
    of_call = known_symbols(operation, per_axis=False)
    of_axis = _axis_symbols(operation) - set(_PADS)
    for index, row in draft.sound("definitions", operation.definitions):
        if row.symbol in CALL_SYMBOLS or row.symbol in AXIS_SYMBOLS or row.symbol in ("max", "min"):
            yield ("definitions", index, "symbol"), f"{row.symbol!r} has a meaning already"
        if keyword.iskeyword(row.symbol):
            yield ("definitions", index, "symbol"), f"{row.symbol!r} is a keyword of Python"
        later = {other.symbol for other in operation.definitions[index:] if bool(other.per_axis) == bool(row.per_axis)}
        known = of_call | (of_axis if row.per_axis else set())
        if row.per_axis:
            known |= {other.symbol for other in operation.definitions}
        field = ("definitions", index, "formula")
        for name in formula_names(row.formula):
            if name == row.symbol:
                yield field, f"{name!r} is defined by itself in {row.formula!r}"
            elif name in later:
                yield field, f"{name!r} is used before it is defined in {row.formula!r}"
        yield from _unknown_symbols(field, row.formula, known)


def _unknown_symbols(field: Field, formula: str, known: set[str]) -> Iterator[Problem]:
    if None in known:  # the symbol of a stand-in, which may be any
        return
    for name in formula_names(formula):
        if name not in known:
            yield field, f"unknown symbol {name!r} in {formula!r}; known are {sorted(known)}"


def check_numbers(draft: Draft) -> Iterator[Problem]:
    """Formulas are computed for small values, in the order in which a call does it.

    Nothing is divided by zero, padding is not below zero, and groups divide the channels. Each mistake is reported
    for the first values that show it.
    """
    found: dict[tuple[Field, str], str] = {}
    random = Random(0)
    for sample in range(_SAMPLES):
        values = {
            name: 1 if sample == 0 else random.randint(0 if name in _FROM_ZERO else 1, largest)
            for name, largest in _LARGEST.items()
        }
        for field, mistake, numbers in _try_numbers(draft, values):
            found.setdefault((field, mistake), f"{mistake} with {numbers}")
    for (field, _), message in found.items():
        yield field, message


_Mistakes = Iterator[tuple[Field, str, str]]
"""The field, what is wrong with it, and the numbers that show it."""


def _try_numbers(draft: Draft, values: dict[str, int]) -> _Mistakes:
    """One call; a formula that cannot be computed for want of a symbol is passed over."""
    operation = draft.operation
    if not (yield from _try_rules(draft, values, per_axis=False)):
        return
    for channels in ("IC", "OC"):
        if values[channels] % values["groups"] and draft.is_whole("rules"):
            shown = f"{channels} = {values[channels]} and groups = {values['groups']}"
            yield ("rules",), f"no rule of the call refuses {channels} that groups does not divide", shown
            return
    for per_axis in (False, True):
        for index, row in draft.sound("definitions", operation.definitions):
            if row.per_axis == per_axis:
                result = yield from _compute(("definitions", index, "formula"), row.formula, values)
                if result is not None:
                    values.setdefault(row.symbol, result)
    field = ("padding", "same_total")
    total = yield from _compute(field, operation.padding.same_total, values)
    if total is not None and total < 0:
        yield field, f"{operation.padding.same_total!r} is below zero", _shown(operation.padding.same_total, values)
    yield from _try_rules(draft, values, per_axis=True)


def _try_rules(draft: Draft, values: dict[str, int], per_axis: bool) -> Generator[tuple[Field, str, str], None, bool]:
    """Whether all hold; a rule that does not hold ends a call, after its remedy is computed."""
    for index, rule in enumerate(draft.operation.rules):
        if ("rules", index) in draft.faulty:
            return False  # it may be what keeps later formulas from wrong numbers
        if rule.per_axis != per_axis:
            continue
        if not (yield from _compute(("rules", index, "formula"), rule.formula, values)):
            if rule.remedy is not None:
                yield from _compute(("rules", index, "remedy", "formula"), rule.remedy.formula, values)
            return False
    return True


def _compute(field: Field, formula: str, values: dict[str, int]) -> Generator[tuple[Field, str, str], None, int | None]:
    if any(name not in values for name in formula_names(formula)):
        return None
    try:
        return evaluate_formula(formula, values)
    except ZeroDivisionError:
        yield field, f"{formula!r} divides by zero", _shown(formula, values)
        return None


def _shown(formula: str, values: dict[str, int]) -> str:
    return ", ".join(f"{name} = {values[name]}" for name in formula_names(formula)) or "any numbers"
