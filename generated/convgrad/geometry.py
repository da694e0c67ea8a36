# SPDX-License-Identifier: Apache-2.0
"""From attributes and shapes to resolved numbers: padding, roles, strides of the gradient. Kernels get only these."""

from __future__ import annotations

import os
from collections.abc import Mapping
from math import prod
from typing import NamedTuple

from convgrad.attributes import INT64_MAX, Settings
from convgrad.description import Description, Input, Reading, Rule
from convgrad.errors import SpecError, quote_value
from convgrad.vocabulary import DATA_LAYOUTS, SPATIAL_AXES

Shape = tuple[int, ...]


class Geometry(NamedTuple):
    """One problem in the terms of roles; spatial tuples hold (depth, height, width), unused leading axes at 1 or 0."""

    rank: int
    data_format: str
    reading: str
    plain: str
    """Name of the input that is read at its own positions; the other is read through a moving window."""
    weights_shape: Shape
    N: int
    G: int
    P: int
    W: int
    O: Shape
    I: Shape
    K: Shape
    stride: Shape
    dilation: Shape
    pad: Shape
    out_group: int
    out_plain: int
    out_windowed: int
    out_tap: Shape
    patches: bool = False
    """In NCX, whether the windowed tensor is [N][I...][W] in memory: see summation.take_patches."""


def resolve_geometry(
    description: Description, settings: Settings, first: Shape, second: Shape, weights_shape: Shape
) -> Geometry:
    """Check shapes against attributes and against each other, the cheapest checks first, and resolve every number.

    Args:
        description: the operation.
        settings: its checked attributes.
        first: shape of its first data input (src or input_forward).
        second: shape of its second data input (diff_dst or output_delta).
        weights_shape: checked entries, in the order of the operation's weights layout.

    Raises:
        SpecError: names the tensor or attribute, the value, what was expected, and the formula with its numbers.
    """
    for data_input, shape in zip(description.inputs, (first, second), strict=True):
        _check_extents(description, settings, data_input, shape)
    batch = _axis_extents(settings, first)[0]
    if _axis_extents(settings, second)[0] != batch:
        raise SpecError(
            f"{description.name}: {description.inputs[1].name} has N = {_axis_extents(settings, second)[0]} "
            f"(axis 0 of {second}), but {description.inputs[0].name} has N = {batch} (axis 0 of {first}); "
            f"expected the same batch size"
        )
    call_values = {"N": batch, "groups": settings.groups}
    spatial: dict[str, Shape] = {}
    for data_input, shape in zip(description.inputs, (first, second), strict=True):
        call_values[data_input.channels], spatial[data_input.spatial] = _axis_extents(settings, shape)[1:]
    subjects: dict[str, object] = {
        description.inputs[0].name: first,
        description.inputs[1].name: second,
        description.attribute_name("groups"): settings.groups,
    }
    for rule in description.rules:
        if not rule.per_axis:
            _check_rule(description, rule, call_values, subjects, "")
    for definition in description.definitions:
        if not definition.per_axis:
            call_values[definition.symbol] = definition.formula.evaluate(call_values)
    reading = _find_reading(description, settings, call_values, weights_shape)
    layout = reading.layouts[settings.weights_format]
    kernel = weights_shape[layout.index("X") : layout.index("X") + settings.rank]
    axes = [
        _resolve_axis(description, settings, place, {**call_values, **_axis_values(settings, spatial, kernel, place)})
        for place in range(settings.rank)
    ]
    for place, values in enumerate(axes):
        axis = f" on spatial axis {place} ({SPATIAL_AXES[settings.rank][place]})"
        for rule in description.rules:
            if rule.per_axis:
                _check_rule(description, rule, values, subjects, axis)
    _check_sizes(description, (first, second), weights_shape, axes)
    return _make_geometry(description, settings, reading, call_values, axes, weights_shape)


def _check_extents(description: Description, settings: Settings, data_input: Input, shape: Shape) -> None:
    if len(shape) != settings.rank + 2:
        strides = description.attribute_name("strides")
        raise SpecError(
            f"{description.name}: {data_input.name} has {len(shape)} axes (shape {quote_value(shape)}); "
            f"expected {settings.rank + 2}, batch, channels and {settings.rank} spatial, because {strides} has "
            f"{settings.rank} entries"
        )
    for axis, extent in enumerate(shape):
        if extent < 0 or (extent == 0 and axis != 0):
            raise SpecError(
                f"{description.name}: {data_input.name} has extent {extent} on axis {axis} (shape {shape}); "
                f"expected at least {0 if axis == 0 else 1}; only the batch may be empty"
            )


def _axis_extents(settings: Settings, shape: Shape) -> tuple[int, int, Shape]:
    """Batch, channels and spatial extents of a data tensor."""
    if DATA_LAYOUTS[settings.data_format] == ("N", "C", "X"):
        return shape[0], shape[1], shape[2:]
    return shape[0], shape[-1], shape[1:-1]


def _axis_values(settings: Settings, spatial: Mapping[str, Shape], kernel: Shape, place: int) -> dict[str, int]:
    values = {symbol: extents[place] for symbol, extents in spatial.items()}
    values |= {"K": kernel[place], "s": settings.strides[place], "d": settings.dilations[place]}
    if settings.output_padding is not None:
        values["op"] = settings.output_padding[place]
    return values


def _resolve_axis(description: Description, settings: Settings, place: int, values: dict[str, int]) -> dict[str, int]:
    """Add what follows from the given numbers of one axis: defined symbols and padding."""
    for definition in description.definitions:
        if definition.per_axis:
            values[definition.symbol] = definition.formula.evaluate(values)
    if settings.auto_pad == "none":
        assert settings.pads_begin is not None and settings.pads_end is not None
        values["pb"], values["pe"] = settings.pads_begin[place], settings.pads_end[place]
    elif settings.auto_pad == "valid":
        values["pb"] = values["pe"] = 0
    else:
        total = description.same_total.evaluate(values)
        half = total // 2
        values["pb"], values["pe"] = (half, total - half) if settings.auto_pad == "same_upper" else (total - half, half)
    return values


def _find_reading(
    description: Description, settings: Settings, values: Mapping[str, int], weights_shape: Shape
) -> Reading:
    """The reading whose channel axes fit the shape."""
    expectations = []
    for reading in description.readings:
        expected = _expand_layout(settings, reading, values)
        if all(want is None or want == have for want, have in zip(expected, weights_shape, strict=True)):
            return reading
        axes = ", ".join(reading.layouts[settings.weights_format])
        numbers = ", ".join("any" if want is None else str(want) for want in expected)
        expectations.append(f"({axes}) = ({numbers})")
    symbols = ", ".join(f"{name} = {values[name]}" for name in ("IC", "OC", "groups"))
    raise SpecError(
        f"{description.name}: {description.shape_name} = {weights_shape} does not fit {settings.weights_format} with "
        f"{symbols}; expected {' or '.join(expectations)}"
    )


def _expand_layout(settings: Settings, reading: Reading, values: Mapping[str, int]) -> list[int | None]:
    """The extent of every weights axis, None for kernel axes, which may have any."""
    extents: list[int | None] = []
    for axis in reading.layouts[settings.weights_format]:
        if axis == "X":
            extents.extend([None] * settings.rank)
        else:
            symbol, _, divided = axis.partition("/")
            extents.append(values[symbol] // settings.groups if divided else values[symbol])
    return extents


def _check_rule(
    description: Description, rule: Rule, values: Mapping[str, int], subjects: Mapping[str, object], axis: str
) -> None:
    if rule.holds(values):
        return
    sides = [
        f"{side.with_numbers(values) if side.names != (side.text,) else side.text} = {side.evaluate(values)}"
        for side in (rule.left, rule.right)
        if side.names
    ]
    abbreviations = [
        f"{row.symbol} = {row.formula.text} = {row.formula.with_numbers(values)}"
        for row in description.definitions
        if row.symbol in (*rule.left.names, *rule.right.names)
    ]
    where = f", where {', '.join(abbreviations)}" if abbreviations else ""
    remedy = ""
    if rule.remedy is not None and rule.remedy.formula.evaluate(values) >= 0:
        remedy = f"; {rule.remedy.attribute} = {rule.remedy.formula.evaluate(values)} would fit"
    what = subjects.get(rule.subject)
    noun = f"{rule.subject} = {what}" if isinstance(what, int) else f"{rule.subject} has shape {what}"
    raise SpecError(
        f"{description.name}: {noun}: expected {rule.left.text} {rule.comparison} {rule.right.text}{axis}, "
        f"but {', and '.join(sides)}{where}{remedy}. {rule.sentence}"
    )


def _check_sizes(
    description: Description, shapes: tuple[Shape, Shape], weights_shape: Shape, axes: list[dict[str, int]]
) -> None:
    """Offsets stay inside 64 bits, and the gradient inside the memory that the machine has."""
    for data_input, shape in zip(description.inputs, shapes, strict=True):
        # An empty batch makes the product zero, but kernels still multiply the other extents.
        elements = prod(max(extent, 1) for extent in shape)
        if 4 * elements > INT64_MAX:
            raise SpecError(
                f"{description.name}: {data_input.name} has shape {shape}, {elements} elements of up to 4 bytes, "
                f"beyond 64-bit sizes"
            )
    for values in axes:
        steps = (max(values["I"], values["O"]) + 1) * values["s"]
        reach = steps + values["K"] * values["d"] + values["pb"] + values["pe"]
        if reach > INT64_MAX // 4:
            raise SpecError(
                f"{description.name}: positions O * s + K * d + pb + pe go up to {reach}, beyond 64-bit integers"
            )
    needed, available = 4 * prod(weights_shape), os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    if needed > available:
        raise SpecError(
            f"{description.name}: {description.shape_name} = {weights_shape} needs {needed} bytes "
            f"(4 bytes for each of {prod(weights_shape)} elements); this machine has {available}"
        )


def _make_geometry(
    description: Description,
    settings: Settings,
    reading: Reading,
    call_values: Mapping[str, int],
    axes: list[dict[str, int]],
    weights_shape: Shape,
) -> Geometry:
    plain, windowed = description.inputs
    if plain.name != reading.plain:
        plain, windowed = windowed, plain
    element_strides = [prod(weights_shape[place + 1 :]) for place in range(len(weights_shape))]
    channel: dict[str, int] = {}
    divided: dict[str, bool] = {}
    taps: Shape = ()
    place = 0
    for axis in reading.layouts[settings.weights_format]:
        if axis == "X":
            taps = tuple(element_strides[place : place + settings.rank])
            place += settings.rank
        else:
            symbol, _, divisor = axis.partition("/")
            channel[symbol], divided[symbol] = element_strides[place], bool(divisor)
            place += 1
    groups = settings.groups
    P, W = call_values[plain.channels] // groups, call_values[windowed.channels] // groups
    # One of the two channel axes holds all groups one after the other; a step of a whole group goes along that one.
    whole = windowed if divided[plain.channels] else plain
    out_group = channel[whole.channels] * (P if whole is plain else W)

    def pad_left(values: Shape, fill: int) -> Shape:
        return (fill,) * (3 - settings.rank) + values

    def along(symbol: str, fill: int) -> Shape:
        return pad_left(tuple(values[symbol] for values in axes), fill)

    return Geometry(
        rank=settings.rank,
        data_format=settings.data_format,
        reading=reading.id,
        plain=plain.name,
        weights_shape=weights_shape,
        N=call_values["N"],
        G=groups,
        P=P,
        W=W,
        O=along(plain.spatial, 1),
        I=along(windowed.spatial, 1),
        K=along("K", 1),
        stride=along("s", 1),
        dilation=along("d", 1),
        pad=along("pb", 0),
        out_group=out_group,
        out_plain=channel[plain.channels],
        out_windowed=channel[windowed.channels],
        out_tap=pad_left(taps, 0),
    )
