# SPDX-License-Identifier: Apache-2.0
"""Vector kernels and the runtime together under sanitizers, without Python: slabs, threads, compile-time sizes.

test_kernels.py runs every kernel for any size under sanitizers, item by item; here are the calls as the package makes
them, on each row of instruction sets that this processor has. Sums are exact, so every bit is compared.
"""

from __future__ import annotations

import os
import random
from collections.abc import Iterable
from pathlib import Path

import pytest

from convgrad.compiler import find_compiler
from convgrad.isa import ISAS, list_isas
from convgrad.kernel import Kernel
from convgrad.kernel_table import KERNELS
from reference.kernel_cases import draw_case
from reference.recorded_cases import Recording
from reference.sanitizers import SANITIZERS, require_sanitizer

pytestmark = pytest.mark.matrix

CASES = 40 * int(os.environ.get("CONVGRAD_TEST_SCALE", "1"))
"""Of the kernel for any size."""
SPECIALISED_CASES = int(os.environ.get("CONVGRAD_TEST_SCALE", "1"))
"""Geometries with kernels of their own, of each strategy on each row."""
THREADS = 4

_KERNELS = {(row.rank, row.data_format, row.strategy): row for row in KERNELS if row.dtype == "f32"}
# Both strategies, both layouts and all ranks have their turn; compiling takes longer than running.
PAIRS = (
    ((2, "NCX", "outer"), (1, "NXC", "lanes")),
    ((3, "NXC", "outer"), (2, "NCX", "lanes")),
    ((1, "NCX", "outer"), (3, "NXC", "lanes")),
)
ROWS = tuple(zip(ISAS, PAIRS, strict=False))


def record(kernels: Iterable[Kernel], isa: str, *, threaded: bool) -> Recording:
    """Calls of these kernels, with slabs and without; and some with compile-time sizes."""
    recording = Recording()
    for kernel in kernels:
        # That of `lanes` for any size takes a sanitizer's compiler a minute: test_kernels.py alone has it.
        cases = CASES if kernel.strategy == "outer" else 0
        for number in range(cases + SPECIALISED_CASES):
            rng = random.Random(f"sanitized {kernel.symbol} {isa} {number}")
            slabs = threaded or number % 2 == 0
            geometry, schedule = draw_case(kernel, isa, rng, slabs=slabs, specialised=number >= cases)
            recording.add_integers(geometry, schedule, rng, threads=THREADS)
    return recording


def run_sanitized(recording: Recording, sanitizer: str, folder: Path) -> None:
    compiler = find_compiler()
    prefix = require_sanitizer(compiler, sanitizer, folder)
    program = recording.build(
        [*compiler.argv, *SANITIZERS[sanitizer], "-O0"], folder, *SANITIZERS[sanitizer]
    )  # -O1 takes four times as long
    recording.run([*prefix, str(program)])
    assert len(recording) == CASES + 2 * SPECIALISED_CASES
    assert len(recording.builds) == 1 + 2 * SPECIALISED_CASES
    assert sum(schedule.slabs > 1 for schedule in recording.schedules) >= len(recording) // 2


@pytest.mark.parametrize(("isa", "pair"), ROWS, ids=lambda value: value if isinstance(value, str) else "")
def test_addresses_and_undefined_behaviour(isa: str, pair: tuple[tuple[int, str, str], ...], tmp_path: Path) -> None:
    if isa not in list_isas():
        pytest.skip(f"this processor has no {isa}")
    recording = record([_KERNELS[key] for key in pair], isa, threaded=False)
    run_sanitized(recording, "address,undefined", tmp_path)


def test_threads_with_slabs(tmp_path: Path) -> None:
    recording = record([_KERNELS[key] for key in PAIRS[0]], list_isas()[-1], threaded=True)
    run_sanitized(recording, "thread", tmp_path)


def test_every_row_has_its_kernels() -> None:
    assert [isa for isa, _ in ROWS] == list(ISAS)
