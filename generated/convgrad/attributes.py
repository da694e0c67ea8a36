# SPDX-License-Identifier: Apache-2.0
"""Attribute values: kind, length and range are checked once, when an operation is constructed."""

from __future__ import annotations

import operator
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from convgrad.description import Attribute, Description
from convgrad.errors import SpecError

INT64_MAX = 2**63 - 1
_RANKS = (1, 2, 3)


@dataclass(frozen=True, slots=True)
class Settings:
    """Checked attribute values; lists are tuples with an entry for each spatial axis (or weights axis)."""

    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    pads_begin: tuple[int, ...] | None
    pads_end: tuple[int, ...] | None
    output_padding: tuple[int, ...] | None
    auto_pad: str
    groups: int
    data_format: str
    weights_format: str
    weights_shape: tuple[int, ...] | None

    @property
    def rank(self) -> int:
        """Number of spatial axes."""
        return len(self.strides)


def check_attributes(description: Description, given: Mapping[str, object]) -> Settings:
    """The settings that attribute values amount to; None stands for "not given".

    Raises:
        SpecError: names the attribute, its value and what was expected.
    """
    values: dict[str, object] = {}
    lengths: dict[str, int] = {}
    for attribute in description.attributes:
        value = given[attribute.name]
        if value is None and attribute.kind == "s64[]":
            values[attribute.role] = None
            continue
        checked = _check_value(description, attribute, value)
        values[attribute.role] = checked
        if isinstance(checked, tuple):
            lengths[attribute.name] = len(checked)
    _check_required(description, given, values)
    _check_lengths(description, lengths)
    rank = lengths[description.attribute_name("strides")]
    for attribute in description.attributes:
        if attribute.default is not None and attribute.length == "spatial" and values[attribute.role] is None:
            values[attribute.role] = (attribute.default,) * rank
    # An operation need not have every attribute: what it leaves out stays at the value that changes nothing.
    absent = {"auto_pad": "none", "output_padding": None, "weights_shape": None}
    return Settings(**{**absent, **values})  # type: ignore[arg-type]


def check_shape_entries(description: Description, shape: Any, rank: int) -> tuple[int, ...]:
    """A weights shape that was given at the call: positive integers, one for each weights axis.

    Args:
        shape: a list or tuple of integers, or a 1-D integer array or tensor.
        rank: number of spatial axes of the operation.

    Raises:
        SpecError: names the shape, the value and what was expected.
    """
    name = description.shape_name
    if hasattr(shape, "dtype") and hasattr(shape, "ndim"):
        if shape.ndim != 1:
            raise SpecError(
                f"{description.name}: {name} has {shape.ndim} axes; expected a 1-D tensor of {rank + 2} integers"
            )
        if "int" not in str(shape.dtype):
            raise SpecError(
                f"{description.name}: {name} has dtype {shape.dtype}; expected integers (the specified type is s32)"
            )
        shape = tuple(shape.tolist())
    attribute = Attribute(name, "weights_shape", "s64[]", range="positive", length="weights")
    entries = _check_list(description, attribute, shape)
    if len(entries) != rank + 2:
        raise SpecError(
            f"{description.name}: {name} = {entries} has {len(entries)} entries; expected {rank + 2}, "
            f"two channel axes and {rank} spatial"
        )
    return entries


def _check_value(description: Description, attribute: Attribute, value: object) -> object:
    if attribute.kind == "string":
        return _check_word(description, attribute, value)
    if attribute.kind == "s64":
        return _check_integer(description, attribute, value, attribute.name)
    return _check_list(description, attribute, value)


def _check_word(description: Description, attribute: Attribute, value: object) -> str:
    allowed = ", ".join(repr(word) for word in attribute.words)
    if not isinstance(value, str):
        raise SpecError(f"{description.name}: {attribute.name} = {value!r}: expected a string, one of {allowed}")
    word = value.lower() if attribute.any_case else value
    if word not in attribute.words:
        raise SpecError(f"{description.name}: {attribute.name} = {value!r}: expected one of {allowed}")
    return word


def _check_integer(description: Description, attribute: Attribute, value: object, what: str) -> int:
    expected = "a positive integer" if attribute.range == "positive" else "a non-negative integer"
    if isinstance(value, (bool, np.bool_)) or not hasattr(value, "__index__") or getattr(value, "ndim", 0) != 0:
        raise SpecError(f"{description.name}: {what} = {value!r}: expected {expected}, not {type(value).__name__}")
    number = operator.index(value)
    if number < (1 if attribute.range == "positive" else 0):
        raise SpecError(f"{description.name}: {what} = {number}: expected {expected}")
    if number > INT64_MAX:
        raise SpecError(f"{description.name}: {what} = {number}: expected a 64-bit integer, at most {INT64_MAX}")
    return number


def _check_list(description: Description, attribute: Attribute, value: object) -> tuple[int, ...]:
    if isinstance(value, np.ndarray) and value.ndim == 1:
        value = tuple(value)
    if not isinstance(value, (list, tuple)):
        raise SpecError(
            f"{description.name}: {attribute.name} = {value!r}: expected a list of integers, not {type(value).__name__}"
        )
    return tuple(
        _check_integer(description, attribute, entry, f"{attribute.name}[{place}]") for place, entry in enumerate(value)
    )


def _check_required(description: Description, given: Mapping[str, object], values: Mapping[str, object]) -> None:
    roles = {attribute.name: attribute.role for attribute in description.attributes}
    for attribute in description.attributes:
        if not attribute.required or given[attribute.name] is not None:
            continue
        if attribute.ignored_unless is None:
            raise SpecError(f"{description.name}: {attribute.name} is required: {_expected(attribute)}")
        other, word = attribute.ignored_unless
        if values[roles[other]] == word:
            raise SpecError(
                f"{description.name}: {attribute.name} is required while {other} is {word!r}: {_expected(attribute)}"
            )


def _expected(attribute: Attribute) -> str:
    return f"expected a list of {attribute.range} integers, one for each spatial axis"


def _check_lengths(description: Description, lengths: Mapping[str, int]) -> None:
    """All lists speak of the same number of spatial axes: that of the strides."""
    strides = description.attribute_name("strides")
    rank = lengths[strides]
    if rank not in _RANKS:
        raise SpecError(
            f"{description.name}: {strides} has {rank} entries; expected 1, 2 or 3, one for each spatial axis"
        )
    for attribute in description.attributes:
        if attribute.name not in lengths:
            continue
        expected = rank if attribute.length == "spatial" else rank + 2
        if lengths[attribute.name] != expected:
            reason = "like" if attribute.length == "spatial" else "two channel axes and the spatial axes of"
            raise SpecError(
                f"{description.name}: {attribute.name} has {lengths[attribute.name]} entries; expected {expected}, "
                f"{reason} {strides}"
            )
