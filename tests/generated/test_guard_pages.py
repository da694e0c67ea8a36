# SPDX-License-Identifier: Apache-2.0
"""No kernel reads or writes outside its four buffers: each lies between pages that may not be touched.

Every extent takes every value from 1 to 33 on every row of instruction sets, and each geometry runs with each strategy
that applies. The kernels run in a child process: a step outside ends it by a signal, and the parent names the
geometry. Every result is compared with that of `direct` on the same row, bit by bit, and that one with float64 now and
then. Buffers are full of NaN before, scratch included, so what is read without having been written shows.
"""

from __future__ import annotations

import collections
import contextlib
import ctypes
import faulthandler
import itertools
import json
import mmap
import os
import random
import signal
import traceback
from collections.abc import Iterator
from math import prod
from pathlib import Path

import numpy as np
import pytest

from convgrad.geometry import Geometry
from convgrad.isa import list_isas
from convgrad.planner import Schedule, list_schedules, plan_schedule
from reference.guarded_memory import GuardedMemory
from reference.kernel_runs import (
    CACHE_LINE,
    compute,
    draw_geometry,
    draw_tensors,
    load_address,
    place_gradient,
    reference,
    run_items,
    small_caches,
)

STRATEGIES = ("direct", "outer", "lanes")
ISAS = list_isas()
LONGEST = 33
EXTENTS = {
    1: ("N", "G", "P", "W", "IW", "OW", "KW"),
    2: ("N", "G", "P", "W", "IH", "IW", "OH", "OW", "KH", "KW"),
    3: ("N", "G", "P", "W", "ID", "IH", "IW", "OD", "OH", "OW", "KD", "KH", "KW"),
}
CELLS = [(rank, extent) for rank, extents in EXTENTS.items() for extent in extents]
ROUND = len(CELLS) * LONGEST * len(ISAS)
"""Geometries that give every extent every length once on every row."""
LONG_RUN = os.environ.get("CONVGRAD_LONG") == "1"
GEOMETRIES = -(-(50_000 if LONG_RUN else 5_000) // ROUND) * ROUND
PARTS = 8
SPECIALISED_EVERY = 1999 if LONG_RUN else 199  # coprime to parts and rows: all of them have some
"""One geometry in so many has kernels compiled for its sizes."""
CHECKED_EVERY = 4
"""One geometry in so many is compared with float64."""
BUDGET = 4000
"""Elements that each tensor may have."""
MOST_PRODUCTS = 1_000_000
REGION_BYTES = 1 << 23


def draw_axis(rng: random.Random, name: str, fixed: dict[str, int]) -> tuple[int, int, int, int, int, int] | None:
    """(O, I, K, stride, dilation, pad) of one spatial axis; None where the draw leaves no output."""
    K = fixed.get(f"K{name}") or rng.choice((1, 1, 2, 3, 5))
    stride, dilation = rng.choice((1, 1, 2, 3, 7)), rng.choice((1, 1, 2, 3))
    pad, behind = rng.choice((0, 0, 1, 2, 9)), rng.choice((0, 0, 1, 3, 12))
    reach = (K - 1) * dilation + 1
    if O := fixed.get(f"O{name}"):
        I = (O - 1) * stride + reach + rng.randrange(stride) - pad - behind
    else:
        I = fixed.get(f"I{name}") or rng.choice((1, 2, 3, 4, 5, 7, 9, rng.randint(1, LONGEST)))
        O = (I + pad + behind - reach) // stride + 1
    return (O, I, K, stride, dilation, pad) if O >= 1 and I >= 1 else None


def draw_guarded(number: int) -> tuple[Geometry, str]:
    """A geometry in which one extent has a length of its own, and the row of instruction sets that it runs on."""
    place, row = divmod(number % ROUND, len(ISAS))
    cell, length = divmod(place, LONGEST)
    rank, extent = CELLS[cell]
    fixed = {extent: length + 1}
    rng = random.Random(f"guarded {number}")
    while True:
        axes = [draw_axis(rng, name, fixed) for name in "DHW"[3 - rank :]]
        N, G, P, W = (fixed.get(name) or rng.choice((1, 1, 2, 3, 4, 5, rng.randint(1, LONGEST))) for name in "NGPW")
        if rng.random() < 0.15:  # wide enough for several tiles of both channels
            P, W = fixed.get("P") or rng.randint(9, LONGEST), fixed.get("W") or rng.randint(7, LONGEST)
        if None in axes:
            continue
        O, I, K, stride, dilation, pad = zip(*[(1, 1, 1, 1, 1, 0)] * (3 - rank), *filter(None, axes), strict=True)
        positions, elements = N * prod(O), G * P * W * prod(K)
        largest = max(N * G * P * prod(O), N * G * W * prod(I), elements)
        if largest <= BUDGET and positions * elements <= MOST_PRODUCTS:
            break
    geometry = place_gradient(rng, rank, rng.choice(("NCX", "NXC")), (N, G, P, W), (O, I, K), (stride, dilation, pad))
    return geometry, ISAS[row]


def list_guarded(geometry: Geometry, rng: random.Random, isa: str, specialised: bool) -> Iterator[Schedule]:
    """A schedule of each strategy, with any of its tiles; slabs are not for kernels alone."""
    for strategy in STRATEGIES:
        for build in (False, True) if specialised and strategy != "direct" else (False,):
            with small_caches() if rng.random() < 0.5 else contextlib.nullcontext():
                found = [
                    schedule
                    for threads in (1, 8)
                    for schedule in list_schedules(
                        geometry, "f32", isa, specialised=build, threads=threads, strategy=strategy
                    )
                    if schedule.slabs == 1 and schedule.scratch_bytes <= REGION_BYTES
                ]
            strips = [schedule for schedule in found if schedule.fields["strip"] < schedule.fields["span"]]
            if found:
                yield rng.choice(strips or found)


def check_geometry(
    number: int, geometry: Geometry, isa: str, regions: tuple[GuardedMemory, ...], runs: collections.Counter[str]
) -> None:
    """Run one geometry in guarded memory, with each strategy."""
    rng = random.Random(number)
    plain, windowed = draw_tensors(geometry, number)
    expected = compute(plan_schedule(geometry, "f32", isa, strategy="direct"), plain, windowed)
    if number % CHECKED_EVERY == 0:
        wanted = reference(geometry, plain, windowed)
        assert np.abs(expected - wanted).max() <= 1e-5 * max(1.0, np.abs(wanted).max()), "direct is off"
    for schedule in list_guarded(geometry, rng, isa, number % SPECIALISED_EVERY == 0):
        sizes = (plain.size, windowed.size, expected.size)
        buffers = [region.place(size, rng.random() < 0.5) for region, size in zip(regions, sizes, strict=False)]
        scratch = regions[3].place(-(-schedule.scratch_bytes // 4), rng.random() < 0.5, CACHE_LINE)
        buffers[0][:], buffers[1][:] = plain, windowed
        order = rng.sample(range(schedule.items), schedule.items) if rng.random() < 0.5 else None
        run_items(schedule, buffers[0], buffers[1], buffers[2], scratch, order)
        wrong = np.count_nonzero(buffers[2].view(np.int32) != expected.view(np.int32))
        assert wrong == 0, f"{wrong} of {expected.size} elements differ from direct's: {schedule}"
        strays = [region.strays() for region in regions]
        assert not any(strays), f"{strays} words beside plain, windowed, out and scratch were written: {schedule}"
        runs[f"{schedule.kernel.strategy} {isa}{' specialised' if schedule.specialised else ''}"] += 1
        if schedule.kernel.strategy == "outer":
            runs["strips"] += schedule.fields["strip"] < schedule.fields["span"]
            runs["packed vectors"] += schedule.fields["pack_vectors"]
            runs["packed rows"] += schedule.fields["pack_rows"]
    runs["geometries"] += 1


def run_part(part: int, log: Path) -> None:
    """One share of the geometries; what is being run stands in the log."""
    regions = tuple(GuardedMemory(REGION_BYTES) for _ in range(4))
    runs: collections.Counter[str] = collections.Counter()
    with log.open("w") as file:
        for number in range(part, GEOMETRIES, PARTS):
            geometry, isa = draw_guarded(number)
            print(f"number {number}, {isa}: {geometry}", file=file, flush=True)
            check_geometry(number, geometry, isa, regions, runs)
    log.write_text(json.dumps(runs))


@pytest.mark.parametrize("part", range(PARTS))
def test_guard_pages(part: int, tmp_path: Path) -> None:
    for isa in ISAS:  # compiled here, so that the child has only to load them
        for rank, data_format in ((rank, data_format) for rank in (1, 2, 3) for data_format in ("NCX", "NXC")):
            geometry = _tiny(rank, data_format)
            for strategy in STRATEGIES:
                load_address(plan_schedule(geometry, "f32", isa, strategy=strategy))
    log = tmp_path / "log"
    child = os.fork()
    if child == 0:
        status = 1
        try:
            run_part(part, log)
            status = 0
        except BaseException:
            with log.open("a") as file:
                traceback.print_exc(file=file)
        finally:
            os._exit(status)
    _, status = os.waitpid(child, 0)
    text = log.read_text()
    if os.WIFSIGNALED(status):
        last = text.splitlines()[-1]
        pytest.fail(f"{signal.Signals(os.WTERMSIG(status)).name} in {last}")
    assert status == 0, text[-4000:]
    runs = json.loads(text)
    assert runs["geometries"] == len(range(part, GEOMETRIES, PARTS))
    for isa in ISAS:
        share = GEOMETRIES // PARTS // len(ISAS)
        assert runs[f"direct {isa}"] == runs[f"outer {isa}"] >= share - 1
        assert runs[f"lanes {isa}"] >= 0.5 * share
    assert sum(count for name, count in runs.items() if name.endswith("specialised")) >= 3, runs
    for name in ("strips", "packed vectors", "packed rows"):
        assert runs[name] >= 3, (name, runs)


def test_every_extent_has_every_length_on_every_row() -> None:
    met: collections.Counter[tuple[object, ...]] = collections.Counter()
    for number in range(ROUND):
        geometry, isa = draw_guarded(number)
        spatial = [
            (f"{name}{axis}", values[place])
            for name, values in (("O", geometry.O), ("I", geometry.I), ("K", geometry.K))
            for place, axis in enumerate("DHW")
        ]
        channels = [("N", geometry.N), ("G", geometry.G), ("P", geometry.P), ("W", geometry.W)]
        met.update((geometry.rank, isa, *extent) for extent in (*spatial, *channels))
    for (rank, extent), isa in itertools.product(CELLS, ISAS):
        assert all(met[rank, isa, extent, length] for length in range(1, LONGEST + 1)), (rank, extent, isa)
    assert GEOMETRIES >= 5000


@pytest.mark.parametrize(("at_end", "index"), [(False, -1), (True, 3)])
def test_a_step_outside_ends_the_child(at_end: bool, index: int) -> None:
    memory = GuardedMemory(3 * mmap.PAGESIZE)
    memory.place(2000, at_end=not at_end)  # leaves no page open
    array = memory.place(3, at_end)
    child = os.fork()
    if child == 0:
        faulthandler.disable()  # nobody wants to read about this one
        (ctypes.c_float * 1).from_address(array.ctypes.data + 4 * index)[0]
        os._exit(0)
    _, status = os.waitpid(child, 0)
    assert os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGSEGV


@pytest.mark.parametrize(("at_end", "index"), [(False, 3), (True, -1)])
def test_a_stray_on_the_same_page_is_seen(at_end: bool, index: int) -> None:
    memory = GuardedMemory(100)
    array = memory.place(3, at_end)
    array[:] = 1.0
    assert memory.strays() == 0
    (ctypes.c_float * 1).from_address(array.ctypes.data + 4 * index)[0] = 1.0
    assert memory.strays() == 1


def _tiny(rank: int, data_format: str) -> Geometry:
    """A geometry for which every strategy applies."""
    rng = random.Random(0)
    while True:
        geometry = draw_geometry(rng, 1000, (1,))
        if (geometry.rank, geometry.data_format) == (rank, data_format) and max(geometry.P, geometry.W) <= 4:
            return geometry
