# SPDX-License-Identifier: Apache-2.0
"""The rows of aarch64, on any machine: kernels are cross-compiled, and run by an emulator of the processor.

Small integers have to give the exact gradient, and random reals the bits that kernels of this machine give: the row
`neon` those of any row with a fused multiply-add, the row `base` those of this machine's. Slabs and threads are the
runtime's, which is cross-compiled too.
"""

from __future__ import annotations

import itertools
import random
import shutil
from collections.abc import Iterable, Sequence
from pathlib import Path

import pytest

from convgrad.compiler import FLAGS
from convgrad.isa import ARCHITECTURES, ISAS, list_isas
from convgrad.kernel import Kernel
from convgrad.kernel_table import KERNELS
from convgrad.planner import plan_schedule
from reference.kernel_cases import draw_case
from reference.kernel_runs import compute, draw_tensors
from reference.recorded_cases import Recording

COMPILER = "aarch64-linux-gnu-gcc"
EMULATOR = "qemu-aarch64"
INTEGERS = 16
"""Geometries of each kernel with exact sums."""
REALS = 12
"""Geometries of each f32 kernel with random reals."""
SPECIALISED = 6
"""Builds with compile-time sizes, of each data layout."""


@pytest.fixture
def aarch64(monkeypatch: pytest.MonkeyPatch) -> None:
    """Plans for the rows of aarch64 can be made."""
    for tool in (COMPILER, EMULATOR):
        if shutil.which(tool) is None:
            pytest.skip(f"{tool} is not installed")
    for row in ARCHITECTURES["aarch64"]:
        monkeypatch.setitem(ISAS, row.name, row)


def test_base_row_is_planned_alike_everywhere() -> None:
    """So that the other machine's row may stand in for this one's."""
    plans = {(row.header, row.lanes, row.registers) for rows in ARCHITECTURES.values() for row in rows[:1]}
    assert plans == {("isa_base.h", 4, 16)}


def record_row(recording: Recording, kernels: Iterable[Kernel], isa: str, here: str | None) -> None:
    """Calls of these kernels on a row: exact ones, and with random reals if a row of this machine has the same bits."""
    for kernel, number in itertools.product(kernels, range(INTEGERS + REALS)):
        rng = random.Random(f"{kernel.symbol} {number}")
        slabs = number % 4 == 0 and kernel.strategy != "direct"
        geometry, schedule = draw_case(kernel, isa, rng, slabs=slabs)
        if number < INTEGERS:
            recording.add_integers(geometry, schedule, rng, threads=3)
        elif kernel.dtype == "f32" and here is not None:
            plain, windowed = draw_tensors(geometry, number)
            expected = compute(plan_schedule(geometry, "f32", here, strategy="direct"), plain, windowed)
            recording.add_reals(schedule, plain, windowed, expected, threads=3)


def record_specialised(recording: Recording, kernels: Sequence[Kernel]) -> None:
    """Exact calls of builds with compile-time sizes."""
    for number in range(SPECIALISED):
        rng = random.Random(f"specialised {kernels[0].symbol} {number}")
        kernel = kernels[number % len(kernels)]
        geometry, schedule = draw_case(kernel, "neon", rng, slabs=number % 4 == 0, specialised=True)
        recording.add_integers(geometry, schedule, rng, threads=3)


@pytest.mark.matrix
@pytest.mark.parametrize("data_format", ["NCX", "NXC"])
@pytest.mark.usefixtures("aarch64")
def test_kernels_in_the_emulator(data_format: str, tmp_path: Path) -> None:
    fused = [row for row in list_isas() if row not in ("base", "neon")]
    kernels = [kernel for kernel in KERNELS if kernel.data_format == data_format]
    vectors = [kernel for kernel in kernels if kernel.strategy != "direct"]
    recording = Recording()
    record_row(recording, kernels, "neon", fused[-1] if fused else None)
    record_row(recording, [kernel for kernel in vectors if kernel.rank == 2], "base", "base")
    record_specialised(recording, vectors)
    program = recording.build([COMPILER, FLAGS.optimisation], tmp_path, "-static")
    assert recording.run([EMULATOR, str(program)]) == "neon"
    assert {schedule.kernel for schedule in recording.schedules} == set(kernels)
    assert len(recording) == 15 * INTEGERS + (9 * REALS if fused else 0) + 2 * (INTEGERS + REALS) + SPECIALISED
    assert sum(schedule.slabs > 1 for schedule in recording.schedules) >= 6 * INTEGERS // 4
    assert sum(schedule.specialised for schedule in recording.schedules) == SPECIALISED
    if not fused:
        pytest.skip("no row of this processor has a fused multiply-add: bits of random reals were not compared")
