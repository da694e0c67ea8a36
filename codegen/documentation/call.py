# SPDX-License-Identifier: Apache-2.0
"""A call with numbers: the examples of an operation and the small problem that its page is explained with."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import prod

from codegen.roles import assign_roles
from specs.expressions import evaluate_formula
from specs.model import Example, Operation, Reading, Rule, Tensor
from specs.vocabulary import DATA_LAYOUTS, Role

Shape = tuple[int, ...]
Value = str | int | Shape

CHANNELS = {"IC": 4, "OC": 6, "groups": 2}
"""Channels of the small problem. No two of IC, OC, IC / groups, OC / groups are equal but OC / groups = 3 = K."""
_TAPS, _PLAIN = 3, 3
_STEPS = ((2, 2, 2, 1), (2, 1, 1, 0), (1, 2, 1, 1), (1, 1, 1, 1), (1, 1, 0, 0))
"""Stride, dilation and pads to try: the first that an operation allows shows most."""
_LARGEST = 32


@dataclass(frozen=True, slots=True)
class NumberedCall:
    """An operation with attribute values and tensor shapes; everything else follows from the specification.

    Attributes:
        attributes: values by attribute name; an attribute that is left out has its default.
        shapes: shape of each data input, in the axis order of the data format.
    """

    operation: Operation
    attributes: Mapping[str, Value]
    shapes: Mapping[str, Shape]

    def value(self, role: Role) -> Value | None:
        """The value of the attribute that plays a role, or its default."""
        attribute = self.operation.attribute(role)
        if attribute is None:
            return None
        value = self.attributes.get(attribute.name, attribute.default)
        if isinstance(value, int) and attribute.length == "spatial":
            return (value,) * self.rank
        return value

    def numbers(self, role: Role) -> Shape:
        """The value of a list attribute."""
        value = self.value(role)
        assert isinstance(value, tuple), f"{self.operation.name}: {role} has no value in this call"
        return value

    def word(self, role: Role) -> str:
        """The value of a string attribute."""
        return str(self.value(role))

    @property
    def rank(self) -> int:
        """Number of spatial axes."""
        strides = self.operation.attribute("strides")
        assert strides is not None, "the loader requires the attribute"
        value = self.attributes[strides.name]
        assert isinstance(value, tuple)
        return len(value)

    @property
    def groups(self) -> int:
        value = self.value("groups")
        assert isinstance(value, int)
        return value

    def extents(self, tensor: Tensor) -> tuple[int, int, Shape]:
        """Batch, channels and spatial extents of a data input."""
        shape = self.shapes[tensor.name]
        if DATA_LAYOUTS[self.word("data_format")] == ("N", "C", "X"):
            return shape[0], shape[1], shape[2:]
        return shape[0], shape[-1], shape[1:-1]

    def call_values(self) -> dict[str, int]:
        """Symbols with one value for the call, defined ones included."""
        values = {"groups": self.groups}
        for tensor in self.operation.data_inputs:
            values["N"], values[str(tensor.channels)] = self.extents(tensor)[:2]
        for definition in self.operation.definitions:
            if not definition.per_axis:
                values[definition.symbol] = evaluate_formula(definition.formula, values)
        return values

    def weights_extents(self, reading: Reading) -> tuple[int | None, ...]:
        """The extents that a reading gives each weights axis; None for kernel axes, which may have any."""
        values = self.call_values()
        extents: list[int | None] = []
        for axis in reading.layouts[self.word("weights_format")]:
            symbol, _, divided = axis.partition("/")
            if axis == "X":
                extents += [None] * self.rank
            else:
                extents.append(values[symbol] // self.groups if divided else values[symbol])
        return tuple(extents)

    def reading(self) -> Reading | None:
        """The reading that the weights' shape fits."""
        shape = self.numbers("weights_shape")
        for reading in self.operation.readings:
            expected = self.weights_extents(reading)
            if all(want in (None, have) for want, have in zip(expected, shape, strict=True)):
                return reading
        return None

    def axis_values(self) -> list[dict[str, int]]:
        """For each spatial axis all symbols: sizes, attributes, padding after auto_pad, defined ones."""
        layout = (self.reading() or self.operation.readings[0]).layouts[self.word("weights_format")]
        kernel = self.numbers("weights_shape")[layout.index("X") :]
        return [self._axis_values(place, kernel[place]) for place in range(self.rank)]

    def _axis_values(self, place: int, taps: int) -> dict[str, int]:
        values = self.call_values() | {"K": taps}
        for tensor in self.operation.data_inputs:
            values[str(tensor.spatial)] = self.extents(tensor)[2][place]
        roles: tuple[tuple[str, Role], ...] = (("s", "strides"), ("d", "dilations"), ("op", "output_padding"))
        for symbol, role in roles:
            if self.value(role) is not None:
                values[symbol] = self.numbers(role)[place]
        for definition in self.operation.definitions:
            if definition.per_axis:
                values[definition.symbol] = evaluate_formula(definition.formula, values)
        pads = self.value("auto_pad") or "none"
        if pads == "none":
            return values | {"pb": self.numbers("pads_begin")[place], "pe": self.numbers("pads_end")[place]}
        total = evaluate_formula(self.operation.padding.same_total, values) if pads != "valid" else 0
        begin = total // 2 if pads == "same_upper" else total - total // 2
        return values | {"pb": begin, "pe": total - begin}

    def first_broken_rule(self) -> tuple[Rule, int] | None:
        """The first rule that does not hold, in the order in which calls are checked, with its spatial axis."""
        values = self.call_values()
        for rule in self.operation.rules:
            if not rule.per_axis and not evaluate_formula(rule.formula, values):
                return rule, 0
        if self.reading() is None:
            return None
        for place, axis in enumerate(self.axis_values()):
            for rule in self.operation.rules:
                if rule.per_axis and not evaluate_formula(rule.formula, axis):
                    return rule, place
        return None

    @property
    def fits(self) -> bool:
        """Whether the call is a right one."""
        return self.first_broken_rule() is None and self.reading() is not None

    def products(self) -> int:
        """Products that an element of the gradient sums at most: batch times positions of the plain tensor."""
        reading = self.reading()
        assert reading is not None
        batch, _, spatial = self.extents(assign_roles(self.operation, reading).plain)
        return batch * prod(spatial)

    def changed(
        self, attributes: Mapping[str, Value] | None = None, shapes: Mapping[str, Shape] | None = None
    ) -> NumberedCall:
        """The same call but for these attribute values and shapes."""
        return replace(
            self, attributes={**self.attributes, **(attributes or {})}, shapes={**self.shapes, **(shapes or {})}
        )

    def with_spatial(self, tensor: Tensor, extent: int) -> NumberedCall:
        """The same call but for the extent of a tensor on each of its spatial axes."""
        layout = DATA_LAYOUTS[self.word("data_format")]
        batch, channels, spatial = self.extents(tensor)
        extents = {"N": (batch,), "C": (channels,), "X": (extent,) * len(spatial)}
        return self.changed(shapes={tensor.name: tuple(number for axis in layout for number in extents[axis])})

    def changed_attributes(self, changed: NumberedCall) -> dict[str, Value]:
        """The attributes that another call has other values for."""
        return {name: value for name, value in changed.attributes.items() if self.attributes.get(name) != value}


def attribute_name(operation: Operation, role: Role) -> str:
    """The name of the attribute that plays a role; for roles that every operation has."""
    return next(row.name for row in operation.attributes if row.role == role)


class WrongExampleError(ValueError):
    """An example of a specification breaks the rules of the same specification."""


def example_call(operation: Operation, example: Example) -> NumberedCall:
    """The call that an example of the specification describes.

    Raises:
        WrongExampleError: the example is no right call; names the rule that it breaks.
    """
    call = NumberedCall(operation, dict(example.attributes), dict(example.shapes))
    name = attribute_name(operation, "weights_shape")
    where = f"{operation.name}: example {example.title!r}"
    if name not in call.attributes:
        raise WrongExampleError(f"{where} has no {name}")
    if broken := call.first_broken_rule():
        rule, axis = broken
        raise WrongExampleError(f"{where} breaks the rule {rule.id}: {rule.formula} (axis {axis})")
    if call.reading() is None:
        raise WrongExampleError(f"{where} has {name} = {call.numbers('weights_shape')}, which no reading fits")
    return call


def small_call(operation: Operation, rank: int, reading: Reading | None = None) -> NumberedCall:
    """The problem that pages are explained with: three taps, three positions of the plain tensor.

    One channel on one spatial axis, where every number can be followed; grouped channels on more axes.

    Raises:
        ValueError: the operation's rules allow none of the small problems.
    """
    reading = reading or operation.readings[0]
    for steps in _STEPS:
        for windowed in range(1, _LARGEST):
            call = _numbered(operation, rank, reading, steps, windowed)
            if call.fits:
                return call
    raise ValueError(f"{operation.name}: its rules allow none of the small problems that documentation shows")


def _numbered(
    operation: Operation, rank: int, reading: Reading, steps: tuple[int, int, int, int], windowed: int
) -> NumberedCall:
    channels = dict.fromkeys(CHANNELS, 1) if rank == 1 else CHANNELS
    by_place_of_taps = sorted(reading.layouts.items(), key=lambda row: row[1][-1] != "X")
    format_name, weights_layout = by_place_of_taps[0]
    weights: list[int] = []
    for axis in weights_layout:
        symbol, _, divided = axis.partition("/")
        weights += [_TAPS] * rank if axis == "X" else [channels[symbol] // (channels["groups"] if divided else 1)]
    stride, dilation, begin, end = steps
    data_formats = next(row.words for row in operation.attributes if row.role == "data_format")
    data_format = "NCX" if "NCX" in data_formats else data_formats[0]
    by_role: dict[Role, Value] = {
        "strides": (stride,) * rank,
        "pads_begin": (begin,) * rank,
        "pads_end": (end,) * rank,
        "dilations": (dilation,) * rank,
        "data_format": data_format,
        "weights_format": format_name,
        "weights_shape": tuple(weights),
    }
    if channels["groups"] > 1:
        by_role["groups"] = channels["groups"]
    plain = assign_roles(operation, reading).plain
    shapes: dict[str, Shape] = {}
    for tensor in operation.data_inputs:
        extents = {"N": 1 if rank == 1 else 2, "C": channels[str(tensor.channels)]}
        spatial = (_PLAIN if tensor is plain else windowed,) * rank
        layout = DATA_LAYOUTS[data_format]
        shapes[tensor.name] = tuple(n for axis in layout for n in (spatial if axis == "X" else (extents[axis],)))
    attributes = {row.name: by_role[row.role] for row in operation.attributes if row.role in by_role}
    return NumberedCall(operation, attributes, shapes)
