# SPDX-License-Identifier: Apache-2.0
"""What an operation is, at run time: plain data that the generator writes out from the operation's specification."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Mapping
from typing import NamedTuple

_COMPARISONS: dict[str, Callable[[int, int], bool]] = {
    "==": operator.eq,
    ">=": operator.ge,
    ">": operator.gt,
    "<=": operator.le,
    "<": operator.lt,
}
_SYMBOL = re.compile(r"[A-Za-z_]\w*")


class Formula(NamedTuple):
    """An integer formula over named symbols: its text for people, and the same as a function."""

    text: str
    names: tuple[str, ...]
    function: Callable[..., int]

    def evaluate(self, values: Mapping[str, int]) -> int:
        """The formula's value; `values` holds at least its symbols."""
        return self.function(*(values[name] for name in self.names))

    def with_numbers(self, values: Mapping[str, int]) -> str:
        """The formula's text with each symbol replaced by its value."""
        return _SYMBOL.sub(lambda match: str(values.get(match[0], match[0])), self.text)


class Attribute(NamedTuple):
    """An attribute: how its value is checked. `role` is what it does, whatever its generation calls it."""

    name: str
    role: str
    kind: str
    range: str | None = None
    words: tuple[str, ...] = ()
    any_case: bool = False
    length: str | None = None
    required: bool = False
    default: str | int | None = None
    ignored_unless: tuple[str, str] | None = None
    """(attribute, word): the value counts only while that attribute holds that word."""


class Input(NamedTuple):
    """A data input, with the symbols of its channel count and spatial sizes."""

    name: str
    channels: str
    spatial: str


class Reading(NamedTuple):
    """One way to lay out the weights: the axes of each layout, and which input is plain (the other is windowed)."""

    id: str
    layouts: Mapping[str, tuple[str, ...]]
    plain: str


class Remedy(NamedTuple):
    """The attribute value that would have satisfied a rule."""

    attribute: str
    formula: Formula


class Rule(NamedTuple):
    """A cross-field rule: a comparison of two formulas that must hold."""

    id: str
    subject: str
    sentence: str
    per_axis: bool
    left: Formula
    comparison: str
    right: Formula
    remedy: Remedy | None = None

    def holds(self, values: Mapping[str, int]) -> bool:
        """Whether the comparison is true for these values."""
        return _COMPARISONS[self.comparison](self.left.evaluate(values), self.right.evaluate(values))


class Definition(NamedTuple):
    """A symbol that abbreviates a formula."""

    symbol: str
    per_axis: bool
    formula: Formula


class Description(NamedTuple):
    """An operation, as far as the run time needs to know it."""

    name: str
    attributes: tuple[Attribute, ...]
    inputs: tuple[Input, Input]
    shape_name: str
    """What the weights' shape is called, as an attribute and as an input."""
    dtypes: tuple[str, ...]
    definitions: tuple[Definition, ...]
    same_total: Formula
    readings: tuple[Reading, ...]
    rules: tuple[Rule, ...]

    def attribute_name(self, role: str) -> str:
        """The name of the attribute that plays a role; the role itself when the operation has none."""
        return next((attribute.name for attribute in self.attributes if attribute.role == role), role)
