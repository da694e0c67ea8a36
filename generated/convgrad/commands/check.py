# SPDX-License-Identifier: Apache-2.0
"""Every operation once, on one grouped and strided geometry, against the sum in float64."""

from __future__ import annotations

import statistics
import time
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from convgrad.commands.reference import reference_gradient
from convgrad.description import Description
from convgrad.operation import WeightsGradient

BOUND = 32 * 2.0**-24
"""Largest error that an f32 gradient element may have, as a part of the sum of the absolute values of its products."""

_BATCH, _GROUPS, _INPUT_CHANNELS, _OUTPUT_CHANNELS = 4, 2, 32, 48
_INPUT, _KERNEL = (40, 37), (3, 3)
_ROLES: dict[str, tuple[int, ...]] = {
    "strides": (2, 1),
    "dilations": (1, 2),
    "pads_begin": (1, 2),
    "pads_end": (1, 1),
}
_CALLS = 5

PROBLEM = f"f32, N {_BATCH}, IC {_INPUT_CHANNELS}, OC {_OUTPUT_CHANNELS}, {_GROUPS} groups, " + ", ".join(
    f"{name} {'x'.join(map(str, extents))}" for name, extents in {"I": _INPUT, "K": _KERNEL, **_ROLES}.items()
)
"""What all checks have in common, for people."""


@dataclass(frozen=True, slots=True)
class Check:
    """How an operation did.

    operation       its name
    layouts         of the inputs and of the weights
    weights_shape   in its layout
    relative_error  the largest error of an element, as a part of the largest |element|
    bound_used      the largest error as a part of what that element may have (`BOUND`): at most 1 is right
    milliseconds    median time of a call
    """

    operation: str
    layouts: str
    weights_shape: tuple[int, ...]
    relative_error: float
    bound_used: float
    milliseconds: float

    @property
    def passed(self) -> bool:
        """Whether every element is inside its bound."""
        return self.bound_used <= 1  # false for NaN as well


def check_operation(operation: type[WeightsGradient], seed: int = 3) -> Check:
    """Compute one gradient with the operation's default layouts in f32, and compare it with the float64 sum.

    Raises CompileError if its kernel cannot be compiled.
    """
    description: Description = operation.description
    defaults = {attribute.role: attribute.default for attribute in description.attributes}
    data_format, weights_format = str(defaults["data_format"]), str(defaults["weights_format"])
    extents = {"I": _INPUT, "O": _output_extents(description)}
    channels = {"IC": _INPUT_CHANNELS, "OC": _OUTPUT_CHANNELS}
    random = np.random.default_rng(seed)
    tensors: list[NDArray[np.float32]] = []
    for data_input in description.inputs:
        axes = (channels[data_input.channels], *extents[data_input.spatial])
        shape = (_BATCH, *axes) if data_format == "NCX" else (_BATCH, *axes[1:], axes[0])
        tensors.append(random.standard_normal(shape, np.float32))
    reading = description.readings[0]
    weights_shape: list[int] = []
    for axis in reading.layouts[weights_format]:
        symbol, _, divided = axis.partition("/")
        weights_shape += _KERNEL if symbol == "X" else [channels[symbol] // (_GROUPS if divided else 1)]

    words: dict[str, Any] = {"groups": _GROUPS, "data_format": data_format, "weights_format": weights_format}
    attributes = {description.attribute_name(role): value for role, value in (words | _ROLES).items()}
    generated: Any = operation  # each has the signature of its own specification
    plan = generated(**attributes).prepare(*tensors, weights_shape)
    gradient = plan(*tensors)
    seconds = []
    for _ in range(_CALLS):
        start = time.perf_counter()
        plan(*tensors, out=gradient)
        seconds.append(time.perf_counter() - start)

    expected = reference_gradient(
        description, reading, tensors[0], tensors[1], _KERNEL,
        strides=_ROLES["strides"], dilations=_ROLES["dilations"], pads_begin=_ROLES["pads_begin"], **words,
    )  # fmt: skip
    errors = np.abs(gradient.astype(np.float64) - expected.gradient)
    return Check(
        operation=description.name,
        layouts=f"{data_format} {weights_format}",
        weights_shape=tuple(weights_shape),
        relative_error=float(errors.max() / np.abs(expected.gradient).max()),
        bound_used=float((errors / (BOUND * expected.magnitudes)).max()),
        milliseconds=1e3 * statistics.median(seconds),
    )


def _output_extents(description: Description) -> tuple[int, ...]:
    """Return the forward output's extents, by the rule of the specification that ties O to the rest."""
    rule = next(rule for rule in description.rules if rule.per_axis and rule.left.names == ("O",))
    extents = []
    for axis, (extent, kernel) in enumerate(zip(_INPUT, _KERNEL, strict=True)):
        values = {"I": extent, "K": kernel, "op": 0}
        symbols = {"s": "strides", "d": "dilations", "pb": "pads_begin", "pe": "pads_end"}
        values |= {symbol: _ROLES[role][axis] for symbol, role in symbols.items()}
        for definition in description.definitions:
            if definition.per_axis:
                values[definition.symbol] = definition.formula.evaluate(values)
        extents.append(rule.right.evaluate(values))
    return tuple(extents)
