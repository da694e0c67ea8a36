# SPDX-License-Identifier: Apache-2.0
"""The same bits on random reals, whatever is chosen for speed.

The order of every sum follows from the batch and the extents of the plain tensor. So bits are the same for every
strategy, every register tile, kernels for any size and specialised ones, any number of threads, with slabs or without,
any order of work items, any alignment, and for both data layouts. Rows of instruction sets with a fused multiply-add
agree with each other; the base row, which rounds every product, has bits of its own.
"""

from __future__ import annotations

import itertools
import os
import random
from collections import Counter
from math import prod

import numpy as np
import pytest

import convgrad
from convgrad.geometry import Geometry
from convgrad.isa import ISAS, list_isas
from convgrad.planner import Schedule, list_schedules, plan_schedule
from convgrad.strategies.draft import Problem, count_live_rows
from convgrad.summation import merge_axes, plan_summation
from reference.kernel_runs import (
    Floats,
    allocate,
    compute,
    draw_geometry,
    draw_tensors,
    place_gradient,
    run_items,
    small_caches,
)

LONG_RUN = os.environ.get("CONVGRAD_LONG") == "1"
GEOMETRIES = 1600 if LONG_RUN else 240
SPECIALISED = 160 if LONG_RUN else 24
PARTS = 4
STRATEGIES = ("outer", "lanes", "direct")
FUSED = tuple(isa for isa in list_isas() if isa != "base")


def assert_same(found: Floats, expected: Floats, schedule: Schedule, reason: object = "") -> None:
    differing = np.count_nonzero(found.view(np.int32) != expected.view(np.int32))
    assert differing == 0, f"{differing} of {expected.size} elements differ {reason}: {schedule}\n  {schedule.geometry}"


def direct(geometry: Geometry, isa: str, plain: Floats, windowed: Floats) -> Floats:
    return compute(plan_schedule(geometry, "f32", isa, strategy="direct"), plain, windowed)


@pytest.mark.parametrize("part", range(PARTS))
def test_strategies_tiles_and_instruction_sets(part: int) -> None:
    compared = 0
    for number in range(part, GEOMETRIES, PARTS):
        rng = random.Random(f"bits {number}")
        geometry = draw_geometry(rng)
        plain, windowed = draw_tensors(geometry, number)
        for isas in (("base",), FUSED):
            expected = direct(geometry, isas[0], plain, windowed) if isas else None
            for isa, strategy, threads in itertools.product(isas, STRATEGIES, (1, 8)):
                for schedule in list_schedules(geometry, "f32", isa, threads=threads, strategy=strategy):
                    if schedule.slabs == 1:
                        order = rng.sample(range(schedule.items), schedule.items) if threads > 1 else None
                        assert_same(compute(schedule, plain, windowed, order), expected, schedule)
                        compared += 1
    assert compared >= 4 * GEOMETRIES // PARTS


def test_strips_and_packing() -> None:
    """What large layers do, on small ones: strips, and vectors and rows packed that could be read in place."""
    met: Counter[str] = Counter()
    for number in range(GEOMETRIES // 3):
        rng = random.Random(f"strips {number}")
        drawn = draw_geometry(rng)
        sizes = min(drawn.N, 2), min(drawn.G, 2), rng.randint(9, 40), rng.randint(7, 30)
        axes = (drawn.O, drawn.I, drawn.K), (drawn.stride, drawn.dilation, drawn.pad)
        geometry = place_gradient(rng, drawn.rank, drawn.data_format, sizes, *axes)
        plain, windowed = draw_tensors(geometry, number)
        for isa in list_isas():
            expected = direct(geometry, isa, plain, windowed)
            with small_caches():
                schedules = list(list_schedules(geometry, "f32", isa, strategy="outer"))
            for schedule in schedules:
                assert_same(compute(schedule, plain, windowed), expected, schedule)
                fields = schedule.fields
                met["strips"] += fields["strip"] < fields["span"]
                met["vectors"] += fields["pack_vectors"]
                met["rows"] += fields["pack_rows"]
                met["all"] += fields["strip"] < fields["span"] and fields["pack_vectors"] and fields["pack_rows"]
    assert all(met[name] >= 20 for name in ("strips", "vectors", "rows", "all")), met


def test_turns_of_tiles() -> None:
    """What depthwise layers do whose tensors come from memory: all tiles go over a block before the next block."""
    turns = 0
    for number in range(24):
        rng = random.Random(f"turns {number}")
        isa = list_isas()[number % len(list_isas())]
        H, W, K, s = rng.randint(9, 40), rng.randint(3, 30), rng.randint(1, 3), 1 + number % 2
        channels = 1 + (number % 4 == 0)
        O = (1, (H + 2 - K) // s + 1, (W + 2 - K) // s + 1)
        G = 4 * ISAS[isa].lanes // channels
        windows = ((1, s, s), (1, 1, 1), (0, 1, 1))
        extents = (O, (1, H, W), (1, K, K))
        geometry = place_gradient(rng, 2, "NXC", (rng.randint(0, 3), G, channels, channels), extents, windows)
        plain, windowed = draw_tensors(geometry, number)
        expected = direct(geometry, isa, plain, windowed)
        for specialised in (False, number % 6 == 0):
            with small_caches():
                schedules = list(list_schedules(geometry, "f32", isa, specialised=specialised, strategy="lanes"))
            for schedule in schedules[:1]:
                assert_same(compute(schedule, plain, windowed), expected, schedule)
                turns += geometry.N > 0 and schedule.fields["turn_rows"] < schedule.fields["group_rows"]
    assert turns >= 12


@pytest.mark.parametrize("part", range(PARTS))
def test_specialised_kernels(part: int) -> None:
    """The tile that is planned, and any other one of each strategy."""
    compared = 0
    for number in range(part, SPECIALISED, PARTS):
        rng = random.Random(f"specialised {number}")
        geometry = draw_geometry(rng)
        isa = list_isas()[number // PARTS % len(list_isas())]
        plain, windowed = draw_tensors(geometry, number)
        expected = direct(geometry, isa, plain, windowed)
        chosen = [plan_schedule(geometry, "f32", isa, specialised=True)]
        for strategy in ("outer", "lanes"):
            with small_caches():
                schedules = list(list_schedules(geometry, "f32", isa, specialised=True, strategy=strategy))
            chosen += [rng.choice(schedules)] if schedules else []
        for schedule in chosen:
            assert schedule.specialised
            assert_same(compute(schedule, plain, windowed), expected, schedule)
            compared += 1
    assert compared >= 2 * SPECIALISED // PARTS


def test_windows_of_pairs() -> None:
    """(tap, channel) pairs that are next to each other in memory, of which a part is outside near the edges."""
    compared = 0
    for number in range(70):
        rng = random.Random(f"windows {number}")
        geometry = draw_geometry(rng, groups=(1,))._replace(data_format="NXC")
        isa = rng.choice(list_isas())
        schedules = list(list_schedules(geometry, "f32", isa, specialised=True, strategy="outer"))
        windows = [schedule for schedule in schedules if _has_windows(schedule)]
        if windows:
            schedule, tensors = rng.choice(windows), draw_tensors(geometry, number)
            assert_same(compute(schedule, *tensors), direct(geometry, isa, *tensors), schedule)
            compared += 1
    assert compared >= 12


def _has_windows(schedule: Schedule) -> bool:
    geometry, fields = schedule.geometry, schedule.fields
    taps, dilation = geometry.K[2], geometry.dilation[2]
    return taps > 1 and dilation == 1 and not fields["exchanged"] and fields["span"] == taps * geometry.W


def test_data_layouts() -> None:
    """The gradient of the same tensors, channels first and channels last."""
    for number in range(60):
        geometry = draw_geometry(random.Random(f"layouts {number}"))._replace(data_format="NCX")
        plain, windowed = draw_tensors(geometry, number)
        channels_last = [
            np.moveaxis(flat.reshape(geometry.N, geometry.G * channels, -1), 1, -1).ravel()
            for flat, channels in ((plain, geometry.P), (windowed, geometry.W))
        ]
        last = plan_schedule(geometry._replace(data_format="NXC"), "f32", list_isas()[-1])
        first = plan_schedule(geometry, "f32", list_isas()[-1])
        assert_same(compute(last, *channels_last), compute(first, plain, windowed), last)


def test_alignments() -> None:
    for number in range(40):
        geometry = draw_geometry(random.Random(f"alignments {number}"))
        plain, windowed = draw_tensors(geometry, number)
        schedule = plan_schedule(geometry, "f32", list_isas()[-1])
        expected = compute(schedule, plain, windowed)
        for offset in range(4, 64, 12):
            arrays = [allocate(array.size, offset) for array in (plain, windowed, expected)]
            arrays[0][:], arrays[1][:] = plain, windowed
            run_items(schedule, *arrays, allocate(-(-schedule.scratch_bytes // 4)))
            assert_same(arrays[2], expected, schedule, f"at an offset of {offset} bytes")


# Batch, groups, plain and windowed channels, extents, kernel. Small gradients of long sums need slabs.
LAYERS = (
    (2, 1, 8, 3, (70, 70), (3, 3)),
    (1, 1, 1, 1, (90_000,), (5,)),
    (3, 1, 4, 2, (9, 40, 40), (1, 1, 1)),
    (1, 6, 6, 6, (60, 60), (5, 5)),
    (4, 1, 40, 24, (14, 14), (3, 3)),
    (2, 32, 64, 64, (20, 20), (3, 3)),
    (1, 1, 130, 20, (12,), (1,)),
)


@pytest.mark.parametrize("layer", LAYERS, ids=str)
@pytest.mark.parametrize("data_format", ["NCX", "NXC"])
def test_threads_and_slabs(
    layer: tuple[int, int, int, int, tuple[int, ...], tuple[int, ...]], data_format: str
) -> None:
    batch, groups, plain, windowed, extents, kernel = layer
    rank, last = len(extents), data_format == "NXC"
    outputs = tuple(i - k + 1 for i, k in zip(extents, kernel, strict=True))
    rng = np.random.default_rng(batch + plain)
    shapes = [
        (batch, *space, channels) if last else (batch, channels, *space)
        for channels, space in ((windowed, extents), (plain, outputs))
    ]
    src, diff_dst = (rng.standard_normal(shape).astype(np.float32) for shape in shapes)
    operation = convgrad.ConvolutionBackwardWeights(
        strides=(1,) * rank,
        dilations=(1,) * rank,
        auto_pad="valid",
        groups=groups,
        data_format=data_format,
        weights_format="OIX",
        weights_shape=(plain, windowed // groups, *kernel),
    )
    plan = operation.prepare(src, diff_dst)
    results = {threads: plan(src, diff_dst, num_threads=threads) for threads in (*range(1, 9), 2, 1)}
    for threads, result in results.items():
        assert np.array_equal(result.view(np.int32), results[1].view(np.int32)), (threads, plan)
    out = np.full_like(results[1], 0.25)
    operation.prepare(src, diff_dst, accumulate=True)(src, diff_dst, out=out, num_threads=8)
    assert np.array_equal(out, np.float32(0.25) + results[1])


def test_some_of_the_layers_have_slabs() -> None:
    slabs = 0
    for batch, groups, plain, windowed, extents, kernel in LAYERS:
        geometry = _valid(batch, groups, plain // groups, windowed // groups, extents, kernel)
        slabs += plan_schedule(geometry, "f32", list_isas()[-1], threads=8).slabs > 1
    assert slabs >= 3


def _valid(
    batch: int, groups: int, plain: int, windowed: int, extents: tuple[int, ...], kernel: tuple[int, ...]
) -> Geometry:
    lead = (1,) * (3 - len(extents))
    outputs = tuple(i - k + 1 for i, k in zip(extents, kernel, strict=True))
    taps = prod(kernel)
    return Geometry(
        rank=len(extents),
        data_format="NCX",
        reading="document",
        plain="plain",
        weights_shape=(groups * plain, windowed, *kernel),
        N=batch,
        G=groups,
        P=plain,
        W=windowed,
        O=lead + outputs,
        I=lead + extents,
        K=lead + kernel,
        stride=(1, 1, 1),
        dilation=(1, 1, 1),
        pad=(0, 0, 0),
        out_group=plain * windowed * taps,
        out_plain=windowed * taps,
        out_windowed=taps,
        out_tap=(0,) * len(lead) + tuple(prod(kernel[i + 1 :]) for i in range(len(kernel))),
    )


def test_the_cache_of_packed_rows_has_room_for_every_group() -> None:
    """count_live_rows is a closed form; here the rows that each group meets are counted."""
    counted = 0
    for number in range(1500):
        geometry = merge_axes(draw_geometry(random.Random(f"rows {number}")))
        order = plan_summation(geometry)
        room = count_live_rows(Problem(geometry, ISAS["base"], order, False, 1))
        (OD, OH, _), (ID, IH, _) = geometry.O, geometry.I
        rows = geometry.N * OD * OH
        if rows * geometry.K[0] * geometry.K[1] > 20_000:
            continue
        for first in range(0, rows, order.group_rows):
            met = [
                (row // (OD * OH) * ID + i_d) * IH + i_h
                for row in range(first, min(first + order.group_rows, rows))
                for k_d, k_h in itertools.product(range(geometry.K[0]), range(geometry.K[1]))
                if 0 <= (i_d := row // OH % OD * geometry.stride[0] + k_d * geometry.dilation[0] - geometry.pad[0]) < ID
                if 0 <= (i_h := row % OH * geometry.stride[1] + k_h * geometry.dilation[1] - geometry.pad[1]) < IH
            ]
            assert not met or max(met) - min(met) < room, (room, geometry)
        counted += 1
    assert counted >= 1000
