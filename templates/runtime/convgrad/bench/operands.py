# SPDX-License-Identifier: Apache-2.0
"""The tensors of a problem in memory, and its gradient in float64."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from convgrad.bench.problem import Problem, Shape
from convgrad.vocabulary import NUMPY_DTYPES

_ALIGNMENT = 64
_BLOCK = 1 << 22  # elements that are drawn at a time

LAYOUTS: dict[str, tuple[str, str]] = {
    "NXC": ("NXC", "XIO"),
    "NCX": ("NCX", "OIX"),
    "NXC+OIX": ("NXC", "OIX"),
    "NCX+XIO": ("NCX", "XIO"),
}
"""Layouts of the data and of the weights, by what the command line calls them."""


@dataclass(frozen=True, slots=True)
class Operands:
    """One problem's data.

    layout      key of LAYOUTS
    transposed  whether the transposed operation is asked: its src is dst of the problem, and the other way round
    src, dst    (N, X..., C) for NXC, (N, C, X...) for NCX; `dst` is the gradient at the convolution's output
    """

    problem: Problem
    dtype: str
    layout: str
    transposed: bool
    src: NDArray[Any]
    dst: NDArray[Any]

    @property
    def data_format(self) -> str:
        """ "NXC" or "NCX"."""
        return LAYOUTS[self.layout][0]

    @property
    def weights_format(self) -> str:
        """ "XIO" or "OIX", in the convolution's words."""
        return LAYOUTS[self.layout][1]

    @property
    def weights_shape(self) -> Shape:
        """Shape of the gradient in memory."""
        return weights_shape(self.problem, self.weights_format)

    @property
    def byte_count(self) -> int:
        """What has to pass through memory at least: both inputs once, the gradient once."""
        return self.src.nbytes + self.dst.nbytes + self.src.itemsize * math.prod(self.weights_shape)

    def make_out(self) -> NDArray[Any]:
        """Memory for a gradient, filled with NaN: nothing that is left out can go unnoticed."""
        out = make_aligned(self.weights_shape, self.dtype)
        out.fill(np.nan)
        return out

    def canonical(self, gradient: NDArray[Any]) -> NDArray[np.float64]:
        """A gradient in this weights layout as (OC, IC / G, K...) in float64."""
        values = gradient.astype(np.float64)
        if self.weights_format == "XIO":
            return np.ascontiguousarray(np.moveaxis(values, (-1, -2), (0, 1)))
        return values


def weights_shape(problem: Problem, weights_format: str) -> Shape:
    """(OC, IC / G, K...) for OIX, (K..., IC / G, OC) for XIO."""
    outputs, inputs = problem.output_channels, problem.group_inputs
    return (outputs, inputs, *problem.kernel) if weights_format == "OIX" else (*problem.kernel, inputs, outputs)


def data_shape(batch: int, channels: int, extents: Shape, data_format: str) -> Shape:
    """The shape of a data tensor."""
    return (batch, channels, *extents) if data_format == "NCX" else (batch, *extents, channels)


def make_operands(problem: Problem, dtype: str, layout: str, *, transposed: bool, seed: int = 0) -> Operands:
    """Draw both inputs from N(0, 1), rounded to `dtype`; `layout` is a key of LAYOUTS."""
    data_format, _ = LAYOUTS[layout]
    random = np.random.default_rng(seed)
    src = make_aligned(data_shape(problem.batch, problem.input_channels, problem.input, data_format), dtype)
    dst = make_aligned(data_shape(problem.batch, problem.output_channels, problem.output, data_format), dtype)
    for array in (src, dst):
        flat = array.reshape(-1)
        for start in range(0, flat.size, _BLOCK):
            part = flat[start : start + _BLOCK]
            part[:] = random.standard_normal(part.size, np.float32)
    return Operands(problem, dtype, layout, transposed, src, dst)


def make_aligned(shape: Shape, dtype: str) -> NDArray[Any]:
    """An uninitialised array that starts at a cache line, as torch's tensors do: the same memory for everybody."""
    kind = NUMPY_DTYPES[dtype]
    size = math.prod(shape) * kind.itemsize
    memory = np.empty(size + _ALIGNMENT, np.uint8)
    start = -memory.ctypes.data % _ALIGNMENT
    return memory[start : start + size].view(kind).reshape(shape)


def exact_gradient(operands: Operands) -> NDArray[np.float64]:
    """The gradient as (OC, IC / G, K...), summed in float64, one image and one tap at a time.

    A product of matrices for each, and terms that meet padding left out: nothing is shared with the kernels.
    """
    problem = operands.problem
    groups, inputs = problem.groups, problem.group_inputs
    outputs = problem.output_channels // groups
    total = np.zeros((groups, outputs, inputs, *problem.kernel))
    for image in range(problem.batch):
        src, dst = (_channels_first(operands, tensor[image], groups) for tensor in (operands.src, operands.dst))
        for tap in np.ndindex(*problem.kernel):
            places = [_reach(problem, axis, k) for axis, k in enumerate(tap)]
            if any(positions.stop <= positions.start for positions, _ in places):
                continue
            part = _cut(dst, [positions for positions, _ in places]).reshape(groups, outputs, -1)
            seen = _cut(src, [window for _, window in places]).reshape(groups, inputs, -1)
            if outputs == inputs == 1:
                total[(..., *tap)] += np.einsum("gpo,gwo->gpw", part, seen)
            else:
                total[(..., *tap)] += part @ seen.swapaxes(1, 2)
    return total.reshape(problem.output_channels, inputs, *problem.kernel)


def _channels_first(operands: Operands, image: NDArray[Any], groups: int) -> NDArray[np.float64]:
    if operands.data_format == "NXC":
        image = np.moveaxis(image, -1, 0)
    return np.ascontiguousarray(image, np.float64).reshape(groups, -1, *image.shape[1:])


def _cut(image: NDArray[np.float64], spatial: list[slice]) -> NDArray[np.float64]:
    return image[(slice(None), slice(None), *spatial)]


def _reach(problem: Problem, axis: int, tap: int) -> tuple[slice, slice]:
    """The positions of dst that reach a place inside src through a tap, and those places."""
    stride = problem.strides[axis]
    offset = tap * problem.dilations[axis] - problem.pads_begin[axis]
    inside = [o for o in range(problem.output[axis]) if 0 <= o * stride + offset < problem.input[axis]]
    if not inside:
        return slice(0, 0), slice(0, 0)
    first, last = inside[0], inside[-1]
    return slice(first, last + 1), slice(first * stride + offset, last * stride + offset + 1, stride)
