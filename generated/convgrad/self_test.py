# SPDX-License-Identifier: Apache-2.0
"""What a kernel just compiled has to pass before it is published: small integers, whose sums are exact in every element
type and in every order, so one wrong bit shows.

A kernel for any size is compared with sums worked out here, on a tiny geometry. A kernel with fixed sizes takes its own
sizes only: it is compared with the one for any size.
"""

from __future__ import annotations

import itertools
import math
import struct
from typing import Any

import numpy as np
import numpy.typing as npt

from convgrad.errors import CompileError
from convgrad.geometry import Geometry
from convgrad.kernel import Kernel
from convgrad.planner import Schedule, list_schedules, plan_schedule

_AXES = (  # output, input, kernel, stride, dilation, pad: padded at both ends, or with input that no tap reaches
    (2, 3, 2, 2, 1, 1),
    (4, 5, 3, 1, 2, 2),
    (5, 11, 3, 2, 1, 1),
)
_FUNCTION = "void (*)(const wgrad_geometry *, const void *, const void *, void *, void *, int64_t, int64_t)"
_UNUSED_AXIS = (1, 1, 1, 1, 1, 0)
_BATCH = 2
_CHANNELS = (2, 3, 2)
"""Groups, plain channels and windowed channels in one group."""
_GUARD_BYTES = 256


class _Tensor:
    """An input of the self-test: `pattern` over and over, as values and as the bytes that the kernel reads."""

    def __init__(self, kernel: Kernel, channels: int, extents: tuple[int, ...], pattern: tuple[int, ...]) -> None:
        self.channels, self.extents, self.channels_last = channels, extents, kernel.data_format == "NXC"
        self.values = list(itertools.islice(itertools.cycle(pattern), _BATCH * channels * math.prod(extents)))
        self.bytes = b"".join(_encode(kernel, value) for value in self.values)

    def at(self, n: int, channel: int, position: tuple[int, ...]) -> int:
        """Return the value there, 0 outside."""
        if not all(0 <= x < extent for x, extent in zip(position, self.extents, strict=True)):
            return 0
        depth, height, width = position
        x = (depth * self.extents[1] + height) * self.extents[2] + width
        if self.channels_last:
            return self.values[(n * math.prod(self.extents) + x) * self.channels + channel]
        return self.values[(n * self.channels + channel) * math.prod(self.extents) + x]


def _encode(kernel: Kernel, value: int) -> bytes:
    """Return a small integer as one element of the kernel's type, in the machine's byte order."""
    if kernel.dtype == "f16":
        return struct.pack("=e", value)
    if kernel.dtype == "f32":
        return struct.pack("=f", value)
    return struct.pack("=H", struct.unpack("=I", struct.pack("=f", value))[0] >> 16)


def check_any_size(kernel: Kernel, isa: str, address: int, ffi: Any) -> None:
    """Call the kernel, item by item, on a tiny geometry. Raise CompileError unless every bit is right, every element is
    written, and nothing beside them is."""
    groups, plain_channels, windowed_channels = _CHANNELS
    outputs, inputs, taps, strides, dilations, pads = zip(
        *(_UNUSED_AXIS,) * (3 - kernel.rank), *_AXES[3 - kernel.rank :], strict=True
    )
    plain = _Tensor(kernel, groups * plain_channels, outputs, (1, -2, 1, 2, -1, 1, -1))
    windowed = _Tensor(kernel, groups * windowed_channels, inputs, (2, -1, 1, 1, -1))

    def exact(tap: tuple[int, ...], w: int, g: int, p: int) -> int:
        total = 0
        for n, output in itertools.product(range(_BATCH), itertools.product(*map(range, outputs))):
            axes = zip(output, strides, tap, dilations, pads, strict=True)
            position = tuple(o * stride + k * dilation - pad for o, stride, k, dilation, pad in axes)
            total += plain.at(n, g * plain_channels + p, output) * windowed.at(n, g * windowed_channels + w, position)
        return total

    # Stored as [taps][windowed channel][group][plain channel]: no framework's layout, for all strides have to work.
    order = (itertools.product(*map(range, taps)), range(windowed_channels), range(groups), range(plain_channels))
    expected = [_encode(kernel, exact(*index)) for index in itertools.product(*order)]
    row = groups * plain_channels * windowed_channels
    schedule = plan_schedule(
        Geometry(
            rank=kernel.rank, data_format=kernel.data_format, reading="", plain="", weights_shape=(len(expected),),
            N=_BATCH, G=groups, P=plain_channels, W=windowed_channels,
            O=outputs, I=inputs, K=taps, stride=strides, dilation=dilations, pad=pads,
            out_group=plain_channels, out_plain=1, out_windowed=groups * plain_channels,
            out_tap=(taps[1] * taps[2] * row, taps[2] * row, row),
        ),
        kernel.dtype, isa, strategy=kernel.strategy,
    )  # fmt: skip
    sizes = ("N", "G", "P", "W", "O", "I", "K", "stride", "dilation", "pad")
    places = ("out_group", "out_plain", "out_windowed", "out_tap")
    geometry = {name: getattr(schedule.geometry, name) for name in (*sizes, *places)} | dict(schedule.fields)

    size = len(expected[0])
    guard, unwritten = b"\xff" * _GUARD_BYTES, b"\xff" * size  # a NaN in every element type
    memory = ffi.new("char[]", guard + unwritten * len(expected) + guard)
    scratch = ffi.new("char[]", schedule.scratch_bytes + 64)
    aligned = scratch + -int(ffi.cast("uintptr_t", scratch)) % 64
    operands = ffi.new("wgrad_geometry *", geometry), ffi.new("char[]", plain.bytes), ffi.new("char[]", windowed.bytes)
    function = ffi.cast(_FUNCTION, address)
    for item in range(schedule.items):
        function(*operands, memory + _GUARD_BYTES, aligned, item, item + 1)
    found = bytes(ffi.buffer(memory, 2 * _GUARD_BYTES + size * len(expected)))
    elements = [found[at : at + size] for at in range(_GUARD_BYTES, len(found) - _GUARD_BYTES, size)]
    wrong = sum(a != b for a, b in zip(elements, expected, strict=True))
    if wrong or found[:_GUARD_BYTES] != guard or found[-_GUARD_BYTES:] != guard:
        raise CompileError(
            f"{kernel.symbol} was compiled, but fails its self-test: {wrong} of {len(expected)} gradient elements are "
            f"wrong{'' if wrong else ', and memory beside them was written'}. It is not used. The compiler is to "
            f"blame, or its flags: set CONVGRAD_CC to another."
        )


TRIAL_WORK = 1 << 30
"""Multiply-adds above which a kernel with fixed sizes is not compared: a tenth of a second or so on each side."""
TRIAL_BYTES = 256 << 20
"""The same for the memory of the three tensors."""
_EXACT_TERMS = 1 << 22
"""Products of at most 2 * 2 in one sum: up to here every partial sum is an integer of at most 24 bits."""


def plan_trial(schedule: Schedule) -> tuple[Schedule, Schedule] | None:
    """Plan the trial of a kernel with fixed sizes: (how it is run, how the kernel for any size is).

    The batch is no fixed size: it is 1 where that can leave the others as they are. None beyond TRIAL_WORK or
    TRIAL_BYTES: then the self-test is left out.
    """
    kernel, isa, geometry = schedule.kernel, schedule.isa, schedule.geometry
    small = geometry._replace(N=1)
    drafts = list_schedules(small, kernel.dtype, isa, specialised=True, strategy=kernel.strategy)
    trial = next((draft for draft in drafts if draft.sizes == schedule.sizes), schedule)
    geometry = trial.geometry
    terms = geometry.N * math.prod(geometry.O)
    weights = geometry.G * geometry.P * geometry.W * math.prod(geometry.K)
    inputs = geometry.N * geometry.G * (geometry.P * math.prod(geometry.O) + geometry.W * math.prod(geometry.I))
    if terms > _EXACT_TERMS or terms * weights > TRIAL_WORK or 4 * (inputs + 2 * weights) > TRIAL_BYTES:
        return None
    return trial, plan_schedule(geometry, kernel.dtype, isa)


def check_fixed_sizes(trial: tuple[Schedule, Schedule], addresses: tuple[int, int], runtime: tuple[Any, Any]) -> None:
    """Run both kernels of the trial, by their addresses. Raise CompileError unless all their bits are equal."""
    kernel, geometry = trial[0].kernel, trial[0].geometry
    plain = _integers(kernel, geometry.N * geometry.G * geometry.P * math.prod(geometry.O), 2654435761)
    windowed = _integers(kernel, geometry.N * geometry.G * geometry.W * math.prod(geometry.I), 2246822519)
    found, expected = (
        _run(schedule, address, plain, windowed, runtime) for schedule, address in zip(trial, addresses, strict=True)
    )
    if wrong := int(np.count_nonzero(found != expected)):
        raise CompileError(
            f"{kernel.symbol} was compiled with fixed sizes, but fails its self-test: {wrong} of {found.size} bytes "
            f"differ from those of the kernel for any size. It is not used. The compiler is to blame, or its flags: "
            f"set CONVGRAD_CC to another."
        )


def _integers(kernel: Kernel, count: int, factor: int) -> npt.NDArray[np.uint8]:
    """Return -2, -1, 1 and 2 in no apparent order, as the bytes that the kernel reads."""
    codes = np.frombuffer(b"".join(_encode(kernel, value) for value in (-2, -1, 1, 2)), f"V{len(_encode(kernel, 1))}")
    places = (np.arange(count, dtype=np.uint64) * np.uint64(factor) >> np.uint64(17)) & np.uint64(3)
    return codes[places.astype(np.intp)].view(np.uint8)


def _run(
    schedule: Schedule,
    address: int,
    plain: npt.NDArray[np.uint8],
    windowed: npt.NDArray[np.uint8],
    runtime: tuple[Any, Any],
) -> npt.NDArray[np.uint8]:
    """Return the bytes of the gradient, with those around it."""
    ffi, lib = runtime
    geometry = schedule.geometry
    size = len(_encode(schedule.kernel, 1)) * math.prod(geometry.weights_shape)
    out = np.full(size + 2 * _GUARD_BYTES, 0xFF, np.uint8)  # NaN wherever nothing is written
    fields = {name: getattr(geometry, name) for name in _FIELDS} | dict(schedule.fields)
    status = lib.wgrad_run(
        address,
        ffi.new("wgrad_geometry *", fields),
        ffi.from_buffer(plain),
        ffi.from_buffer(windowed),
        ffi.from_buffer("char[]", out[_GUARD_BYTES:], require_writable=True),
        schedule.items,
        schedule.scratch_bytes,
        1,
    )
    if status != 0:
        raise MemoryError(f"no memory for {schedule.scratch_bytes} bytes of scratch")
    return out


_FIELDS = (
    "N", "G", "P", "W", "O", "I", "K", "stride", "dilation", "pad", "out_group", "out_plain", "out_windowed", "out_tap",
)  # fmt: skip
