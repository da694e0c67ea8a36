# SPDX-License-Identifier: Apache-2.0
"""Attribute values: kind, length and range are checked once, when an operation is constructed."""

from __future__ import annotations

import operator
import re
from collections.abc import Mapping
from typing import Any, NamedTuple, SupportsIndex, cast

import numpy as np

from convgrad.description import Attribute, Description
from convgrad.errors import SpecError, quote_value

INT64_MAX = 2**63 - 1
_RANKS = (1, 2, 3)
_INTEGER_TYPE = re.compile(r"u?int\d+")


class Settings(NamedTuple):
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
        if attribute.kind == "string":
            values[attribute.role] = _check_word(description, attribute, value)
        elif attribute.kind == "s64":
            values[attribute.role] = _check_integer(description, attribute, value, attribute.name)
        elif value is not None:
            lengths[attribute.name] = _count_entries(description, attribute.name, value)
    _check_required(description, given, values)
    # Lengths before entries: what is far too long is not even read.
    _check_lengths(description, lengths)
    rank = lengths[description.attribute_name("strides")]
    for attribute in description.attributes:
        if attribute.kind == "s64[]":
            length = lengths.get(attribute.name)
            value = given[attribute.name]
            values[attribute.role] = None if length is None else _check_entries(description, attribute, value, length)
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
    if hasattr(shape, "dtype") and hasattr(shape, "ndim") and not isinstance(shape, type):
        if shape.ndim != 1:
            raise SpecError(
                f"{description.name}: {name} has {shape.ndim} axes; expected a 1-D tensor of {rank + 2} integers"
            )
        type_name = getattr(shape.dtype, "name", None) or str(shape.dtype).removeprefix("torch.")
        if _INTEGER_TYPE.fullmatch(type_name) is None:
            raise SpecError(
                f"{description.name}: {name} has dtype {shape.dtype}; expected integers (the specified type is s32)"
            )
        tensor = cast(Any, shape)
        _check_shape_length(description, shape, len(tensor), rank)
        try:
            shape = tensor.tolist()
        except Exception as error:  # torch raises various types for tensors without readable memory
            raise SpecError(f"{description.name}: {name} cannot be read: {error}") from error
    length = _count_entries(description, name, shape)
    _check_shape_length(description, shape, length, rank)
    attribute = Attribute(name, "weights_shape", "s64[]", range="positive", length="weights")
    return _check_entries(description, attribute, shape, length)


def check_tensor_shape(description: Description, name: str, shape: object) -> tuple[int, ...]:
    """The shape of a tensor that is described instead of given: non-negative integers.

    Args:
        name: the tensor.
        shape: a list or tuple of integers.

    Raises:
        SpecError: names the tensor, the entry and what was expected.
    """
    length = _count_entries(description, name, shape)
    if length > max(_RANKS) + 2:
        raise SpecError(
            f"{description.name}: {name} has {length} axes; expected at most {max(_RANKS) + 2}, "
            f"batch, channels and {max(_RANKS)} spatial"
        )
    return _check_entries(description, Attribute(name, name, "s64[]", range="non-negative"), shape, length)


def _check_shape_length(description: Description, shape: object, length: int, rank: int) -> None:
    if length != rank + 2:
        raise SpecError(
            f"{description.name}: {description.shape_name} = {quote_value(shape)} has {length} entries; "
            f"expected {rank + 2}, two channel axes and {rank} spatial"
        )


def _check_word(description: Description, attribute: Attribute, value: object) -> str:
    allowed = ", ".join(repr(word) for word in attribute.words)
    shown = f"{description.name}: {attribute.name} = {quote_value(value)}"
    if not isinstance(value, str):
        raise SpecError(f"{shown}: expected a string, one of {allowed}")
    # str's own methods: those of a subclass could answer one thing now and another later.
    word = str.lower(value) if attribute.any_case else str.__str__(value)
    if word not in attribute.words:
        raise SpecError(f"{shown}: expected one of {allowed}")
    return word


def _check_integer(description: Description, attribute: Attribute, value: object, what: str) -> int:
    expected = "a positive integer" if attribute.range == "positive" else "a non-negative integer"
    number = read_integer(value)
    lowest = 1 if attribute.range == "positive" else 0
    if number is not None and lowest <= number <= INT64_MAX:
        return number
    shown = f"{description.name}: {what} = {quote_value(value if number is None else number)}"
    if number is None:
        raise SpecError(f"{shown}: expected {expected}, not {type(value).__name__}")
    if number < lowest:
        raise SpecError(f"{shown}: expected {expected}")
    raise SpecError(f"{shown}: expected a 64-bit integer, at most {INT64_MAX}")


def read_integer(value: object) -> int | None:
    """The value of an integer scalar as a plain int; None for anything else, bool included."""
    if type(value) is int:
        return value
    if isinstance(value, (bool, np.bool_)):
        return None
    try:
        if getattr(value, "ndim", 0) != 0 or "bool" in str(getattr(value, "dtype", "")):
            return None
        # int's own __index__ drops a subclass and whatever it overrides.
        return int.__index__(operator.index(cast(SupportsIndex, value)))
    except Exception:  # an object's __index__ may raise anything: then it is no integer
        return None


def _count_entries(description: Description, name: str, value: object) -> int:
    """Number of entries of a list, a tuple or a 1-D array, by the base class's own count."""
    if isinstance(value, np.ndarray) and value.ndim == 1:
        return int(value.shape[0])
    for kind in (list, tuple):
        if issubclass(type(value), kind):
            return int(kind.__len__(cast(Any, value)))
    raise SpecError(
        f"{description.name}: {name} = {quote_value(value)}: expected a list of integers, not {type(value).__name__}"
    )


def _check_entries(description: Description, attribute: Attribute, value: object, length: int) -> tuple[int, ...]:
    """The entries as plain ints; exactly `length` of them are read."""
    entries: list[object] = []
    for kind in (list, tuple):
        if issubclass(type(value), kind):
            entries = list(kind.__getitem__(cast(Any, value), slice(length)))
    if isinstance(value, np.ndarray):
        entries = list(value[:length])
    return tuple(
        _check_integer(description, attribute, entry, f"{attribute.name}[{place}]")
        for place, entry in enumerate(entries)
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
