# SPDX-License-Identifier: Apache-2.0
"""The gradient once more in NumPy and float64, straight from the sum: what the kernels are checked against.

Nothing is shared with the way to a kernel: no geometry, no plan, no strides of the gradient, no C. It is slow on
purpose, one tap at a time. Source: the operations' documents, whose four sums are one:

    gradient[g, p, w, k] = sum over n, o of plain[n, g*P + p, o] * windowed[n, g*W + w, o*stride + k*dilation - pad]

with P plain and W windowed channels in each of G groups. Terms whose position lies outside the windowed tensor do not
take part: they are left out, not multiplied by zero.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from convgrad.description import Description, Reading

Float64Array = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class ReferenceSum:
    """A gradient in float64, and what its rounding errors are measured by.

    gradient    the sums, in the shape and order of the weights layout that was asked for
    magnitudes  the sums of the absolute values of the same products
    """

    gradient: Float64Array
    magnitudes: Float64Array


def reference_gradient(
    description: Description,
    reading: Reading,
    first: NDArray[Any],
    second: NDArray[Any],
    kernel: Sequence[int],
    *,
    strides: Sequence[int],
    dilations: Sequence[int],
    pads_begin: Sequence[int],
    groups: int,
    data_format: str,
    weights_format: str,
) -> ReferenceSum:
    """Return the gradient of an operation's weights, summed in float64.

    Args:
        description: the operation, which says what its inputs are called.
        reading: which input is plain, and the axes of each weights layout.
        first: the operation's first input, (N, C, X...) for NCX or (N, X..., C) for NXC, of any real type.
        second: its second input, likewise.
        kernel: the kernel's extent on each spatial axis.
        strides, dilations, pads_begin: one for each spatial axis; pads as numbers, whatever rule they came from.
        groups: divides the channels of both inputs.
        data_format: "NCX" or "NXC".
        weights_format: one of the reading's layouts.
    """
    tensors = {
        data_input.name: _channels_first(tensor, data_format)
        for data_input, tensor in zip(description.inputs, (first, second), strict=True)
    }
    symbols = {data_input.name: data_input.channels for data_input in description.inputs}
    (windowed_name,) = tensors.keys() - {reading.plain}
    plain, windowed = (_split_groups(tensors[name], groups) for name in (reading.plain, windowed_name))
    sums = _sum_by_tap(plain, windowed, tuple(kernel), strides, dilations, pads_begin)
    magnitudes = _sum_by_tap(np.abs(plain), np.abs(windowed), tuple(kernel), strides, dilations, pads_begin)
    layout = reading.layouts[weights_format]
    channel_symbols = symbols[reading.plain], symbols[windowed_name]
    return ReferenceSum(_lay_out(sums, layout, *channel_symbols), _lay_out(magnitudes, layout, *channel_symbols))


def _channels_first(tensor: NDArray[Any], data_format: str) -> Float64Array:
    return (np.moveaxis(tensor, -1, 1) if data_format == "NXC" else tensor).astype(np.float64)


def _split_groups(tensor: Float64Array, groups: int) -> Float64Array:
    """(N, G*C, X...) as (N, G, C, X...)."""
    return tensor.reshape(tensor.shape[0], groups, tensor.shape[1] // groups, *tensor.shape[2:])


def _sum_by_tap(
    plain: Float64Array,
    windowed: Float64Array,
    kernel: tuple[int, ...],
    strides: Sequence[int],
    dilations: Sequence[int],
    pads: Sequence[int],
) -> Float64Array:
    """(N, G, P, O...) and (N, G, W, I...) to (G, P, W, K...)."""
    result = np.zeros((plain.shape[1], plain.shape[2], windowed.shape[2], *kernel))
    for tap in np.ndindex(*kernel):
        plain_part, windowed_part = plain, windowed
        for axis, k in enumerate(tap, start=3):
            # All positions along the axis, and which of them the tap finds inside the windowed tensor.
            o = np.arange(plain.shape[axis])
            i = o * strides[axis - 3] + k * dilations[axis - 3] - pads[axis - 3]
            inside = (i >= 0) & (i < windowed.shape[axis])
            plain_part = np.take(plain_part, o[inside], axis)
            windowed_part = np.take(windowed_part, i[inside], axis)
        result[(..., *tap)] = np.einsum(
            "ngpo,ngwo->gpw", _flatten_positions(plain_part), _flatten_positions(windowed_part), optimize=True
        )
    return result


def _flatten_positions(tensor: Float64Array) -> Float64Array:
    return tensor.reshape(*tensor.shape[:3], math.prod(tensor.shape[3:]))


def _lay_out(sums: Float64Array, layout: Sequence[str], plain: str, windowed: str) -> Float64Array:
    """(G, P, W, K...) in the order of a weights layout; its undivided channel axis holds one group after the other."""
    groups, plain_channels, windowed_channels, *kernel = sums.shape
    if plain in layout:
        merged = sums.reshape(groups * plain_channels, windowed_channels, *kernel)
    else:
        merged = np.swapaxes(sums, 0, 1).reshape(plain_channels, groups * windowed_channels, *kernel)
    order: list[int] = []
    for axis in layout:
        symbol = axis.partition("/")[0]
        order.extend(range(2, merged.ndim) if symbol == "X" else [(plain, windowed).index(symbol)])
    return np.ascontiguousarray(merged.transpose(order))
