# SPDX-License-Identifier: Apache-2.0
"""No kernel reads or writes outside its four buffers: each lies between pages that may not be touched.

The kernels run in a child process: a step outside ends it by a signal, and the parent names the geometry. Every
result is compared with that of `direct` on the same row of instruction sets, bit by bit, and that one with float64.
Buffers are full of NaN before, scratch included, so what is read without having been written shows.
"""

from __future__ import annotations

import ctypes
import faulthandler
import os
import random
import signal
import traceback
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from convgrad.geometry import Geometry
from convgrad.isa import list_isas
from convgrad.planner import Schedule, list_schedules, plan_schedule
from reference.kernel_runs import (
    CACHE_LINE,
    GuardedMemory,
    compute,
    draw_geometry,
    draw_tensors,
    load_address,
    reference,
    run_items,
)

LONG_RUN = os.environ.get("CONVGRAD_LONG") == "1"
GEOMETRIES = 5200 if LONG_RUN else 624
PARTS = 8
SPECIALISED_EVERY = 52
"""One geometry in so many has kernels compiled for its sizes."""
REGION_BYTES = 1 << 23


def list_guarded(geometry: Geometry, rng: random.Random, isa: str, specialised: bool) -> Iterator[Schedule]:
    """A schedule of each strategy, with any of its tiles; slabs are not for kernels alone."""
    for strategy in ("direct", "outer", "lanes"):
        for build in (False, True) if specialised else (False,):
            found = [
                schedule
                for schedule in list_schedules(
                    geometry, "f32", isa, specialised=build, threads=rng.choice((1, 8)), strategy=strategy
                )
                if schedule.slabs == 1 and schedule.scratch_bytes <= REGION_BYTES
            ]
            if found:
                yield rng.choice(found)


def check_geometry(
    geometry: Geometry, seed: int, regions: tuple[GuardedMemory, ...], isa: str, specialised: bool
) -> int:
    """Run one geometry in guarded memory, with each strategy. Returns the number of runs."""
    rng = random.Random(seed)
    plain, windowed = draw_tensors(geometry, seed)
    expected = compute(plan_schedule(geometry, "f32", isa, strategy="direct"), plain, windowed)
    wanted = reference(geometry, plain, windowed)
    assert np.abs(expected - wanted).max() <= 1e-5 * max(1.0, np.abs(wanted).max()), "direct is off"
    runs = 0
    for schedule in list_guarded(geometry, rng, isa, specialised):
        at_end = rng.random() < 0.6
        buffers = [
            region.place(size, at_end)
            for region, size in zip(regions, (plain.size, windowed.size, expected.size), strict=False)
        ]
        scratch = regions[3].place(-(-schedule.scratch_bytes // 4), at_end, CACHE_LINE)
        buffers[0][:], buffers[1][:] = plain, windowed
        order = rng.sample(range(schedule.items), schedule.items) if rng.random() < 0.5 else None
        run_items(schedule, buffers[0], buffers[1], buffers[2], scratch, order)
        wrong = np.count_nonzero(buffers[2].view(np.int32) != expected.view(np.int32))
        assert wrong == 0, f"{wrong} of {expected.size} elements differ from direct's: {schedule}"
        runs += 1
    return runs


def run_part(part: int, log: Path) -> None:
    """One share of the geometries; what is being run stands in the log."""
    regions = tuple(GuardedMemory(REGION_BYTES) for _ in range(4))
    isas = list_isas()
    runs = 0
    for number in range(part, GEOMETRIES, PARTS):
        geometry = draw_geometry(random.Random(f"guarded {number}"))
        isa = isas[number // PARTS % len(isas)]
        log.write_text(f"{runs} runs; number {number}, {isa}: {geometry}\n")
        runs += check_geometry(geometry, number, regions, isa, number // PARTS % SPECIALISED_EVERY == part)
    log.write_text(f"{runs} runs; all\n")


@pytest.mark.parametrize("part", range(PARTS))
def test_guard_pages(part: int, tmp_path: Path) -> None:
    for isa in list_isas():  # compiled here, so that the child has only to load them
        for rank, data_format in ((rank, data_format) for rank in (1, 2, 3) for data_format in ("NCX", "NXC")):
            geometry = _tiny(rank, data_format)
            for strategy in ("direct", "outer", "lanes"):
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
        pytest.fail(f"{signal.Signals(os.WTERMSIG(status)).name} in {text}")
    assert status == 0, text
    runs = int(text.split()[0])
    assert text.endswith("; all\n") and runs >= 2 * GEOMETRIES // PARTS, text


def test_a_step_outside_ends_the_child() -> None:
    memory = GuardedMemory(100)
    array = memory.place(3, at_end=True)
    child = os.fork()
    if child == 0:
        faulthandler.disable()  # nobody wants to read about this one
        (ctypes.c_float * 4).from_address(array.ctypes.data)[3]
        os._exit(0)
    _, status = os.waitpid(child, 0)
    assert os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGSEGV


def _tiny(rank: int, data_format: str) -> Geometry:
    """A geometry for which every strategy applies."""
    rng = random.Random(0)
    while True:
        geometry = draw_geometry(rng, 1000, (1,))
        if (geometry.rank, geometry.data_format) == (rank, data_format) and max(geometry.P, geometry.W) <= 4:
            return geometry
