# SPDX-License-Identifier: Apache-2.0
"""Schedules run kernel by kernel, below the package's interface: on memory of one's own, in any order of work items.

Also geometries for that, in terms of roles, and their gradient in float64.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import hashlib
import itertools
import random
import subprocess
import tempfile
from collections.abc import Iterable, Iterator
from math import prod
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import numpy.typing as npt

from convgrad.compiler import FLAGS, find_compiler
from convgrad.geometry import Geometry
from convgrad.isa import ISAS
from convgrad.loader import KERNEL_FOLDER, load_kernel, load_runtime
from convgrad.planner import Schedule
from convgrad.strategies import lanes, outer

Floats = npt.NDArray[np.float32]

SIZES = ("N", "G", "P", "W", "O", "I", "K", "stride", "dilation", "pad")
PLACES = ("out_group", "out_plain", "out_windowed", "out_tap")
CACHE_LINE = 64
_FUNCTION = "void (*)(const wgrad_geometry *, const void *, const void *, void *, void *, int64_t, int64_t)"


@contextlib.contextmanager
def small_caches() -> Iterator[None]:
    """Plan for caches so small that rows go in strips, tiles take turns, and all that can be is packed, at any size."""
    machine = outer.MACHINE._replace(l2_bytes=0, far_bytes=0, l1_ways=1, way_bytes=4)
    reads = {"VECTOR_READS": {16: {0: 1}, 32: {0: 1}}, "ROW_READS": {0: 1}, "ROW_READS_NCX": 1}
    with (
        mock.patch.multiple(outer, MACHINE=machine, **reads),
        mock.patch.multiple(lanes, MEMORY_BYTES=0, TURN_BYTES=1 << 40),
    ):
        yield


def make_geometry(schedule: Schedule, accumulate: bool = False) -> Any:
    """The C struct of a schedule, for f32."""
    ffi, _ = load_runtime()
    values = {name: getattr(schedule.geometry, name) for name in (*SIZES, *PLACES)}
    return ffi.new("wgrad_geometry *", {**values, **schedule.fields, "out_f32": 1, "accumulate": int(accumulate)})


def load_address(schedule: Schedule) -> int:
    """The kernel of a schedule: that for any size, or one that is compiled here with the schedule's sizes."""
    if schedule.sizes is None:
        return load_kernel(schedule.kernel, schedule.isa)
    return _compile_sizes(schedule.kernel.symbol, schedule.isa, tuple(sorted(schedule.sizes.items())))


@functools.cache
def _folder() -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory(prefix="convgrad-test-kernels-")


@functools.cache
def _compile_sizes(symbol: str, isa: str, sizes: tuple[tuple[str, int], ...]) -> int:
    name = hashlib.sha256(repr((symbol, isa, sizes)).encode()).hexdigest()[:16]
    library = Path(_folder().name) / f"{name}.so"
    definitions = [f"-D{name}={value}" for name, value in sizes]
    warnings = ("-Wall", "-Wextra", "-Wpedantic", "-Wconversion", "-Wshadow", "-Werror")
    command = [*find_compiler().argv, *FLAGS, *warnings, *ISAS[isa].arguments, *definitions]
    command += ["-I", str(KERNEL_FOLDER), str(KERNEL_FOLDER / f"{symbol}.c"), "-o", str(library)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    address = ctypes.cast(getattr(ctypes.CDLL(str(library)), symbol), ctypes.c_void_p).value
    assert address is not None
    return address


def run_items(
    schedule: Schedule,
    plain: Floats,
    windowed: Floats,
    out: Floats,
    scratch: Floats,
    order: Iterable[int] | None = None,
) -> None:
    """Run the work items in this order, each by itself; or all of them at once. Not for schedules with slabs."""
    assert schedule.slabs == 1
    ffi, _ = load_runtime()
    function = ffi.cast(_FUNCTION, load_address(schedule))
    operands = [ffi.cast("void *", array.ctypes.data) for array in (plain, windowed, out, scratch)]
    geometry = make_geometry(schedule)
    for first, last in ((0, schedule.items),) if order is None else ((item, item + 1) for item in order):
        function(geometry, *operands, first, last)


def allocate(elements: int, offset: int = 0) -> Floats:
    """An array of NaN that starts `offset` bytes behind a cache line."""
    raw = np.empty(4 * elements + 2 * CACHE_LINE, np.uint8)
    start = -raw.ctypes.data % CACHE_LINE + offset
    array = raw[start : start + 4 * elements].view(np.float32)
    array[:] = np.nan
    return array


def compute(schedule: Schedule, plain: Floats, windowed: Floats, order: Iterable[int] | None = None) -> Floats:
    """The gradient, flat, as the schedule's strides place it."""
    geometry = schedule.geometry
    out = allocate(geometry.G * geometry.P * geometry.W * prod(geometry.K))
    run_items(schedule, plain, windowed, out, allocate(-(-schedule.scratch_bytes // 4)), order)
    return out


def draw_geometry(rng: random.Random, budget: int = 40_000, groups: Iterable[int] = (1, 1, 2, 5, 16, 33)) -> Geometry:
    """A problem with odd extents: tails in every one, pads larger than the input, strides larger than the kernel.

    Args:
        rng: where it comes from.
        budget: elements that each tensor may have.
        groups: to choose from.
    """
    while True:
        rank = rng.choice((1, 2, 2, 3))
        axes = []
        for place in range(rank):
            longest = rng.choice((33, 300)) if rank == 1 else rng.choice((9, 33)) if place == rank - 1 else 33
            I, K = rng.randint(1, longest), rng.randint(1, rng.choice((1, 3, 5)))
            stride, dilation = rng.choice((1, 1, 2, 3, 7)), rng.choice((1, 1, 2, 3))
            pad, behind = rng.choice((0, 0, 1, 2, 9)), rng.choice((0, 0, 1, 3, 12))
            O = (I + pad + behind - (K - 1) * dilation - 1) // stride + 1
            axes.append((O, I, K, stride, dilation, pad))
        N, G = rng.choice((1, 1, 2, 5, 33)), rng.choice(tuple(groups))
        P, W = (rng.choice((1, 1, 2, 3, 4, rng.randint(1, 40))) for _ in range(2))
        if min(axis[0] for axis in axes) < 1:
            continue
        O, I, K, stride, dilation, pad = zip(*[(1, 1, 1, 1, 1, 0)] * (3 - rank), *axes, strict=True)
        if max(N * G * P * prod(O), N * G * W * prod(I), G * P * W * prod(K)) > budget:
            continue
        windows = (stride, dilation, pad)
        return place_gradient(rng, rank, rng.choice(("NCX", "NXC")), (N, G, P, W), (O, I, K), windows)


def place_gradient(
    rng: random.Random,
    rank: int,
    data_format: str,
    channels: tuple[int, int, int, int],
    extents: tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]],
    windows: tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]],
) -> Geometry:
    """The geometry of these sizes, the weights' axes in any order.

    Args:
        rng: where the order comes from.
        rank: spatial axes.
        data_format: layout of both inputs.
        channels: N, G, P, W.
        extents: O, I, K.
        windows: stride, dilation, pad.
    """
    (N, G, P, W), (O, I, K), (stride, dilation, pad) = channels, extents, windows
    shape = (G, P, W, *K[3 - rank :])
    # Groups stay in front of the plain channels, as every layout has them.
    order = rng.sample(range(1, len(shape)), len(shape) - 1)
    order.insert(order.index(1), 0)
    strides, step = [0] * len(shape), 1
    for place in reversed(order):
        strides[place], step = step, step * shape[place]
    return Geometry(
        rank=rank,
        data_format=data_format,
        reading="document",
        plain="plain",
        weights_shape=shape,
        N=N,
        G=G,
        P=P,
        W=W,
        O=O,
        I=I,
        K=K,
        stride=stride,
        dilation=dilation,
        pad=pad,
        out_group=strides[0],
        out_plain=strides[1],
        out_windowed=strides[2],
        out_tap=(0,) * (3 - rank) + tuple(strides[3:]),
    )


def draw_tensors(geometry: Geometry, seed: int) -> tuple[Floats, Floats]:
    """(plain, windowed), flat, N(0, 1)."""
    rng = np.random.default_rng(seed)
    batch = geometry.N * geometry.G
    counts = (batch * geometry.P * prod(geometry.O), batch * geometry.W * prod(geometry.I))
    plain, windowed = (rng.standard_normal(count).astype(np.float32) for count in counts)
    return plain, windowed


def reference(geometry: Geometry, plain: Floats, windowed: Floats) -> npt.NDArray[np.float64]:
    """The gradient in float64, placed as the geometry says."""

    def with_groups(flat: Floats, channels: int, extents: tuple[int, ...]) -> npt.NDArray[np.float64]:
        if geometry.data_format == "NXC":
            return np.moveaxis(
                flat.astype(np.float64).reshape(geometry.N, *extents, geometry.G, channels), (4, 5), (1, 2)
            )
        return flat.astype(np.float64).reshape(geometry.N, geometry.G, channels, *extents)

    y = with_groups(plain, geometry.P, geometry.O)
    x = with_groups(windowed, geometry.W, geometry.I)
    out = np.zeros(geometry.G * geometry.P * geometry.W * prod(geometry.K))
    places = np.add.outer(
        np.add.outer(np.arange(geometry.G) * geometry.out_group, np.arange(geometry.P) * geometry.out_plain),
        np.arange(geometry.W) * geometry.out_windowed,
    )
    for tap in itertools.product(*map(range, geometry.K)):
        outputs, inputs = [], []
        for axis, k in enumerate(tap):
            i = np.arange(geometry.O[axis]) * geometry.stride[axis] + k * geometry.dilation[axis] - geometry.pad[axis]
            inside = (i >= 0) & (i < geometry.I[axis])
            outputs.append(np.flatnonzero(inside))
            inputs.append(i[inside])
        met = np.einsum(
            "ngpdhw,ngqdhw->gpq",
            y[(slice(None), slice(None), slice(None), *np.ix_(*outputs))],
            x[(slice(None), slice(None), slice(None), *np.ix_(*inputs))],
            optimize=True,
        )
        out[places + sum(k * step for k, step in zip(tap, geometry.out_tap, strict=True))] = met
    return out
