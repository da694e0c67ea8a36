# SPDX-License-Identifier: Apache-2.0
"""Valid problems for the four operations, drawn from a seed (or from hypothesis), each printable as one line that
calls the library.

The generator looks for trouble: extents 1..33, filters that are larger than what they see, pads larger than the
input, strides larger than the filter, rows that no window reaches, taps that meet only padding, odd channel counts,
one and 64 groups, defaults left out. Tensors stay small, so that thousands of problems cost seconds.
"""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

import ml_dtypes
import numpy as np

from reference.naive_gradient import Window as ReferenceWindow
from reference.naive_gradient import convolution_pads, effective_extent, tap_slices, transposed_pads

DTYPES: dict[str, np.dtype[Any]] = {
    "f32": np.dtype(np.float32),
    "bf16": np.dtype(ml_dtypes.bfloat16),
    "f16": np.dtype(np.float16),
}
_DTYPE_TEXT = {"f32": "np.float32", "bf16": "ml_dtypes.bfloat16", "f16": "np.float16"}


@dataclass(frozen=True)
class Words:
    """What one operation calls its Python function, its inputs, and the two attributes whose names changed between
    generations.
    """

    function: str
    source: str
    delta: str
    shape: str
    format: str
    formats: tuple[str, str]  # default first
    transposed: bool


WORDS: dict[str, Words] = {
    "ConvolutionBackwardWeights": Words(
        "convolution_backward_weights", "src", "diff_dst", "weights_shape", "weights_format", ("XIO", "OIX"), False
    ),
    "ConvTransposeBackwardWeights": Words(
        "conv_transpose_backward_weights", "src", "diff_dst", "weights_shape", "weights_format", ("XOI", "IOX"), True
    ),
    "ConvolutionBackpropFilters": Words(
        "convolution_backprop_filters",
        "input_forward",
        "output_delta",
        "filter_shape",
        "filter_format",
        ("XIO", "OIX"),
        False,
    ),
    "ConvTransposeBackpropFilters": Words(
        "conv_transpose_backprop_filters",
        "input_forward",
        "output_delta",
        "filter_shape",
        "filter_format",
        ("XIO", "OIX"),
        True,
    ),
}
OPERATIONS = tuple(WORDS)
RANKS = (1, 2, 3)
DATA_FORMATS = ("NCX", "NXC")
CHANNEL_KINDS = ("dense", "grouped", "depthwise")
AUTO_PADS = ("none", "same_upper", "same_lower", "valid")


@dataclass(frozen=True)
class Problem:
    """One valid call, without its data. Per-axis numbers are in (depth, height, width) order, as many as the rank."""

    op: str
    dtype: str
    data_format: str
    weights_format: str
    batch: int
    input_channels: int
    output_channels: int
    groups: int
    input_extents: tuple[int, ...]
    output_extents: tuple[int, ...]
    kernel: tuple[int, ...]
    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    auto_pad: str
    pads_begin: tuple[int, ...] | None
    pads_end: tuple[int, ...] | None
    output_padding: tuple[int, ...] | None = None
    document_layout: bool = False  # grouped weights of the current transposed op: (IC / G, OC) and not (IC, OC / G)
    defaults_left_out: bool = False

    @property
    def rank(self) -> int:
        return len(self.kernel)

    @property
    def words(self) -> Words:
        return WORDS[self.op]

    @property
    def source_shape(self) -> tuple[int, ...]:
        return self._tensor_shape(self.input_channels, self.input_extents)

    @property
    def delta_shape(self) -> tuple[int, ...]:
        return self._tensor_shape(self.output_channels, self.output_extents)

    def _tensor_shape(self, channels: int, extents: tuple[int, ...]) -> tuple[int, ...]:
        return (self.batch, channels, *extents) if self.data_format == "NCX" else (self.batch, *extents, channels)

    @property
    def weights_shape(self) -> tuple[int, ...]:
        """The shape of the gradient in ``weights_format``."""
        inputs, outputs = self.input_channels, self.output_channels
        if not self.words.transposed or self.document_layout:
            inputs //= self.groups
        else:
            outputs //= self.groups
        extents = {"I": (inputs,), "O": (outputs,), "X": self.kernel}
        return tuple(extent for letter in self.weights_format for extent in extents[letter])

    @property
    def attributes(self) -> dict[str, Any]:
        """The attributes to pass, under the operation's own names; those at their default are absent if
        ``defaults_left_out``.
        """
        given: dict[str, Any] = {"strides": self.strides}
        if self.pads_begin is not None and self.pads_end is not None:
            given |= {"pads_begin": self.pads_begin, "pads_end": self.pads_end}
        given |= {"dilations": self.dilations, "auto_pad": self.auto_pad}
        if self.output_padding is not None:
            given["output_padding"] = self.output_padding
        given |= {"groups": self.groups, "data_format": self.data_format, self.words.format: self.weights_format}
        if self.defaults_left_out:
            defaults = {"auto_pad": "none", "groups": 1, "data_format": "NXC", self.words.format: self.words.formats[0]}
            given = {name: value for name, value in given.items() if name not in defaults or value != defaults[name]}
        return given

    @property
    def plain_extents(self) -> tuple[int, ...]:
        """Extents of the tensor that steps: the delta of a convolution, the input of a transposed one."""
        return self.input_extents if self.words.transposed else self.output_extents

    @property
    def windowed_extents(self) -> tuple[int, ...]:
        return self.output_extents if self.words.transposed else self.input_extents

    @property
    def products(self) -> int:
        """No element of the gradient sums more products than this: a tap meets each position of either tensor at
        most once.
        """
        return self.batch * min(math.prod(self.plain_extents), math.prod(self.windowed_extents))

    @property
    def resolved_pads(self) -> tuple[tuple[int, int], ...]:
        """(begin, end) per axis once auto_pad is settled."""
        begin, end = self.pads_begin or (0,) * self.rank, self.pads_end or (0,) * self.rank
        pads = []
        for axis in range(self.rank):
            effective, stride = effective_extent(self.kernel[axis], self.dilations[axis]), self.strides[axis]
            given = begin[axis], end[axis]
            if self.words.transposed:
                pads.append(transposed_pads(self.auto_pad, effective, stride, given))
            else:
                pads.append(convolution_pads(self.auto_pad, self.input_extents[axis], effective, stride, given))
        return tuple(pads)

    @property
    def empty_taps(self) -> int:
        """How many taps meet only padding: their elements are exactly 0."""
        window = ReferenceWindow(
            self.kernel, self.strides, self.dilations, tuple(begin for begin, _ in self.resolved_pads)
        )
        taps = np.ndindex(*self.kernel)
        return sum(tap_slices(tap, self.plain_extents, self.windowed_extents, window) is None for tap in taps)

    def call_text(self, tensors: str | None = None) -> str:
        """The call as valid Python; ``tensors`` is the text of its two first arguments (default: tensors of ones)."""
        if tensors is None:
            dtype = _DTYPE_TEXT[self.dtype]
            tensors = f"np.ones({self.source_shape}, {dtype}), np.ones({self.delta_shape}, {dtype})"
        attributes = ", ".join(f"{name}={value!r}" for name, value in self.attributes.items())
        return f"convgrad.{self.words.function}({tensors}, {self.weights_shape}, {attributes})"

    def __str__(self) -> str:
        return self.call_text()


@dataclass(frozen=True)
class Cell:
    """One combination of the choices that a cross product walks; a problem adds sizes to it."""

    op: str
    rank: int
    dtype: str
    data_format: str
    weights_format: str
    channels: str
    dilated: bool
    auto_pad: str


def all_cells(
    operations: Sequence[str] = OPERATIONS, ranks: Sequence[int] = RANKS, dtypes: Sequence[str] = tuple(DTYPES)
) -> Iterator[Cell]:
    """The full cross product, in a fixed order: 96 cells per operation, rank and dtype."""
    for op, rank, dtype in itertools.product(operations, ranks, dtypes):
        choices = itertools.product(DATA_FORMATS, WORDS[op].formats, CHANNEL_KINDS, (False, True), AUTO_PADS)
        for data_format, weights_format, channels, dilated, auto_pad in choices:
            yield Cell(op, rank, dtype, data_format, weights_format, channels, dilated, auto_pad)


T = TypeVar("T")


class Draw(Protocol):
    """Where a problem's numbers come from."""

    def integer(self, low: int, high: int) -> int:
        """A number in low..high, both included. A shrinking source prefers ``low``."""


class SeededDraw:
    """Numbers from Python's own generator, whose integer sequence for a seed is the same on every machine."""

    def __init__(self, seed: int | str) -> None:
        self._random = random.Random(seed)

    def integer(self, low: int, high: int) -> int:
        return self._random.randint(low, high)


def _choice(draw: Draw, options: Sequence[T]) -> T:
    return options[draw.integer(0, len(options) - 1)]


def _chance(draw: Draw, percent: int) -> bool:
    return draw.integer(0, 99) >= 100 - percent


def draw_cell(
    draw: Draw,
    operations: Sequence[str] = OPERATIONS,
    ranks: Sequence[int] = RANKS,
    dtypes: Sequence[str] = tuple(DTYPES),
) -> Cell:
    op = _choice(draw, operations)
    return Cell(
        op,
        _choice(draw, ranks),
        _choice(draw, dtypes),
        _choice(draw, DATA_FORMATS),
        _choice(draw, WORDS[op].formats),
        _choice(draw, CHANNEL_KINDS),
        _chance(draw, 40),
        _choice(draw, AUTO_PADS),
    )


@dataclass(frozen=True)
class _Axis:
    """Extents and steps along one spatial axis."""

    inputs: int
    outputs: int
    kernel: int
    stride: int
    dilation: int
    begin: int = 0
    end: int = 0
    output_padding: int = 0


# Elements of the larger tensor: keeps the oracle under a millisecond for most problems.
_TENSOR_BUDGET = 6000
_TAP_BUDGET = {1: 7, 2: 25, 3: 36}
_USUAL_EXTENT = {1: 33, 2: 7, 3: 4}


def draw_problem(draw: Draw, cell: Cell, tensor_budget: int = _TENSOR_BUDGET) -> Problem:
    """A valid problem of the given cell."""
    rank, transposed = cell.rank, WORDS[cell.op].transposed
    kernel = _draw_kernel(draw, rank)
    dilations = _draw_dilations(draw, rank, cell.dilated)
    long_axis = draw.integer(0, rank - 1) if _chance(draw, 30) else -1
    axes = []
    for axis in range(rank):
        extent = draw.integer(1, 33 if axis == long_axis else _USUAL_EXTENT[rank])
        draw_axis = _draw_transposed_axis if transposed else _draw_convolution_axis
        axes.append(draw_axis(draw, cell.auto_pad, extent, kernel[axis], dilations[axis]))

    area = max(math.prod(a.inputs for a in axes), math.prod(a.outputs for a in axes))
    batch = draw.integer(1, max(1, min(4, tensor_budget // area)))
    input_channels, output_channels, groups = _draw_channels(
        draw, cell.channels, max(1, tensor_budget // (area * batch))
    )

    pads_begin: tuple[int, ...] | None = tuple(a.begin for a in axes)
    pads_end: tuple[int, ...] | None = tuple(a.end for a in axes)
    if cell.auto_pad != "none":
        # Pads next to auto_pad are ignored, whatever they say; they may also be absent.
        ignored = _chance(draw, 50)
        pads_begin = tuple(draw.integer(0, 5) for _ in axes) if ignored else None
        pads_end = tuple(draw.integer(0, 5) for _ in axes) if ignored else None
    output_padding = tuple(a.output_padding for a in axes) if transposed else None
    if output_padding is not None and not any(output_padding) and _chance(draw, 50):
        output_padding = None
    return Problem(
        op=cell.op,
        dtype=cell.dtype,
        data_format=cell.data_format,
        weights_format=cell.weights_format,
        batch=batch,
        input_channels=input_channels,
        output_channels=output_channels,
        groups=groups,
        input_extents=tuple(a.inputs for a in axes),
        output_extents=tuple(a.outputs for a in axes),
        kernel=kernel,
        strides=tuple(a.stride for a in axes),
        dilations=dilations,
        auto_pad=_choice(
            draw, (cell.auto_pad, cell.auto_pad, cell.auto_pad, cell.auto_pad.upper(), cell.auto_pad.title())
        ),
        pads_begin=pads_begin,
        pads_end=pads_end,
        output_padding=output_padding,
        document_layout=cell.op == "ConvTransposeBackwardWeights" and groups > 1 and _chance(draw, 50),
        defaults_left_out=_chance(draw, 25),
    )


def random_problems(
    seed: int | str,
    count: int,
    operations: Sequence[str] = OPERATIONS,
    ranks: Sequence[int] = RANKS,
    dtypes: Sequence[str] = tuple(DTYPES),
) -> Iterator[Problem]:
    """``count`` problems of random cells; the same ones for the same arguments, on every machine."""
    draw = SeededDraw(f"{seed} {operations} {ranks} {dtypes}")
    for _ in range(count):
        yield draw_problem(draw, draw_cell(draw, operations, ranks, dtypes))


def _draw_kernel(draw: Draw, rank: int) -> tuple[int, ...]:
    left = _TAP_BUDGET[rank]
    kernel = []
    for _ in range(rank):
        extent = draw.integer(1, min(7, left))
        if extent > 4 and _chance(draw, 40):
            extent = 3  # the common filter deserves more than its share
        kernel.append(extent)
        left //= extent
    turn = draw.integer(0, rank - 1)  # otherwise the first axis would have the longest filters
    return tuple(kernel[turn:] + kernel[:turn])


def _draw_dilations(draw: Draw, rank: int, dilated: bool) -> tuple[int, ...]:
    if not dilated:
        return (1,) * rank
    if _chance(draw, 50):
        return (draw.integer(2, 3),) * rank
    dilations = [draw.integer(1, 3) for _ in range(rank)]
    dilations[draw.integer(0, rank - 1)] = draw.integer(2, 3)
    return tuple(dilations)


def _draw_stride(draw: Draw, kernel: int) -> int:
    if _chance(draw, 15):
        return kernel + draw.integer(1, 3)
    return draw.integer(1, 3)


def _draw_convolution_axis(draw: Draw, auto_pad: str, extent: int, kernel: int, dilation: int) -> _Axis:
    stride, effective = _draw_stride(draw, kernel), effective_extent(kernel, dilation)
    begin = end = 0
    if auto_pad == "none":
        if _chance(draw, 20):
            # More padding than input: some windows, and some taps, see nothing else.
            inputs = draw.integer(1, min(extent, 3))
            begin = draw.integer(inputs, inputs + min(effective, 5))
            end = max(0, effective - inputs - begin) + draw.integer(0, 3)
        else:
            if _chance(draw, 60):
                begin, end = draw.integer(0, min(effective, 6)), draw.integer(0, min(effective, 6))
            unused = draw.integer(0, stride - 1) if _chance(draw, 50) else 0
            inputs = max(1, (extent - 1) * stride + effective - begin - end + unused)
            end = max(end, effective - inputs - begin)
    elif auto_pad == "valid":
        inputs = effective + (extent - 1) * stride + (draw.integer(0, stride - 1) if _chance(draw, 50) else 0)
    else:
        # Inputs shorter than the filter leave most taps without a term: wanted, but not most of the time.
        inputs = extent if _chance(draw, 40) else extent + draw.integer(0, effective)
        begin, end = convolution_pads(auto_pad, inputs, effective, stride, (0, 0))
    outputs = (inputs + begin + end - effective) // stride + 1
    return _Axis(inputs, outputs, kernel, stride, dilation, begin, end)


def _draw_transposed_axis(draw: Draw, auto_pad: str, extent: int, kernel: int, dilation: int) -> _Axis:
    stride, effective = _draw_stride(draw, kernel), effective_extent(kernel, dilation)
    output_padding = draw.integer(0, stride + 1) if _chance(draw, 40) else 0
    begin = end = 0
    unpadded = (extent - 1) * stride + effective + output_padding
    if auto_pad == "none":
        if _chance(draw, 20):
            # Crop nearly everything away: the pads are larger than what is left.
            begin = draw.integer(0, unpadded - 1)
            end = unpadded - begin - draw.integer(1, min(3, unpadded - begin))
        elif _chance(draw, 60):
            begin = draw.integer(0, min(effective, 6, unpadded - 1))
            end = draw.integer(0, min(effective, 6, unpadded - 1 - begin))
    elif auto_pad != "valid":
        begin, end = transposed_pads(auto_pad, effective, stride, (0, 0))
    return _Axis(extent, unpadded - begin - end, kernel, stride, dilation, begin, end, output_padding)


def _draw_channels(draw: Draw, kind: str, limit: int) -> tuple[int, int, int]:
    """(IC, OC, G); no tensor gets more than about ``limit`` channels, but a grouped problem gets its groups all the
    same.
    """
    if kind == "dense":
        return draw.integer(1, min(33, limit)), draw.integer(1, min(33, limit)), 1
    if kind == "grouped":
        groups = _choice(draw, (2, 3, 4, 5, 8))
        most = max(2, min(9, limit // groups))
        inputs, outputs = draw.integer(1, most), draw.integer(1, most)
        if inputs == 1:
            inputs = 2  # one input channel per group is the depthwise kind
        return groups * inputs, groups * outputs, groups
    groups = _choice(draw, [g for g in (2, 3, 5, 7, 16, 17, 33, 64) if g <= max(3, limit)])
    multiplier = _choice(draw, (1, 1, 1, 2, 3)) if groups <= 17 else 1
    return groups, groups * multiplier, groups
