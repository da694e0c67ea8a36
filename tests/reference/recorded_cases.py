# SPDX-License-Identifier: Apache-2.0
"""Calls of kernels recorded for tests/driver/recorded_cases.c: inputs and every bit that is expected of the gradient.

The driver is compiled with the kernels that the records need, by any compiler, for any processor.
"""

from __future__ import annotations

import random
import re
import subprocess
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from convgrad.compiler import FLAGS
from convgrad.geometry import Geometry
from convgrad.isa import ISAS
from convgrad.loader import KERNEL_FOLDER
from convgrad.planner import Schedule
from reference.geometries import DTYPES
from reference.kernel_cases import list_fields
from reference.kernel_runs import Floats, draw_tensors, reference
from reference.rounding import correctly_rounded

DRIVER = Path(__file__).resolve().parents[1] / "driver" / "recorded_cases.c"
WARNINGS = ("-Wall", "-Wextra", "-Wpedantic", "-Wconversion", "-Wshadow", "-Werror")
# What the sums' bits depend on comes with the package; -fPIC and -shared do not, and asserts are for test builds.
ARGUMENTS = (FLAGS.language, FLAGS.contraction, "-pthread", *WARNINGS, "-I", str(KERNEL_FOLDER))
COMPILERS_AT_A_TIME = 2

Builds = dict[tuple[str, str, tuple[tuple[str, int], ...]], str]


class Recording:
    """Records, and the builds of kernels that they call.

    Attributes:
        builds: the name that a build's function has in the driver, by kernel, instruction set and sizes.
        schedules: of the records, in their order.
    """

    def __init__(self) -> None:
        self.builds: Builds = {}
        self.schedules: list[Schedule] = []
        self._bytes: list[bytes] = []

    def __len__(self) -> int:
        return len(self.schedules)

    def add(
        self,
        schedule: Schedule,
        tensors: Sequence[npt.NDArray[Any]],
        before: npt.NDArray[Any],
        expected: npt.NDArray[Any],
        *,
        threads: int = 1,
        accumulate: bool = False,
    ) -> None:
        """Add a call with the tensors (plain, windowed) that has to make `expected` of `before`."""
        key = (schedule.kernel.symbol, schedule.isa, tuple(sorted((schedule.sizes or {}).items())))
        self.builds.setdefault(key, f"{schedule.kernel.symbol}_{schedule.isa}_{len(self.builds)}")
        assert before.dtype == expected.dtype and before.shape == expected.shape
        head = [list(self.builds).index(key), schedule.items, schedule.scratch_bytes, threads]
        head += [array.nbytes for array in (*tensors, before)]
        head += list_fields(schedule, int(expected.dtype == np.float32), int(accumulate))
        parts = [np.array(head, np.int64), *tensors, before, expected]
        self._bytes.append(b"".join(part.tobytes() for part in parts))
        self.schedules.append(schedule)

    def add_integers(self, geometry: Geometry, schedule: Schedule, rng: random.Random, *, threads: int = 1) -> None:
        """Add a call with small integers, for which every sum is exact: expected is that in float64, rounded once."""
        dtype = schedule.kernel.dtype
        draws = np.random.default_rng(rng.getrandbits(32))
        counts = [tensor.size for tensor in draw_tensors(geometry, 0)]
        plain, windowed = (draws.choice(np.float32([-2, -1, 1, 2]), count) for count in counts)
        total = reference(geometry, plain, windowed) + 0.0
        out_f32 = dtype == "f32" or rng.random() < 0.5
        accumulate = out_f32 and rng.random() < 0.5
        before = np.full(total.size, 3.0 if accumulate else np.nan, np.float32 if out_f32 else DTYPES[dtype])
        total += 3.0 if accumulate else 0.0
        expected = total.astype(np.float32) if out_f32 else correctly_rounded(total, dtype)
        tensors = [tensor.astype(DTYPES[dtype]) for tensor in (plain, windowed)]
        self.add(schedule, tensors, before, expected, threads=threads, accumulate=accumulate)

    def add_reals(
        self, schedule: Schedule, plain: Floats, windowed: Floats, expected: Floats, *, threads: int = 1
    ) -> None:
        """Add a call with any f32 data."""
        self.add(schedule, (plain, windowed), np.full_like(expected, np.nan), expected, threads=threads)

    def build(self, compiler: Sequence[str], folder: Path, *link: str) -> Path:
        """Compile the driver and every build with a command and its flags."""
        (folder / "kernels.h").write_text("".join(f"KERNEL({name})\n" for name in self.builds.values()))
        jobs = [
            (KERNEL_FOLDER / f"{symbol}.c", name, [*ISAS[isa].arguments, f"-D{symbol}={name}", *_define(sizes)])
            for (symbol, isa, sizes), name in self.builds.items()
        ]
        jobs.append((KERNEL_FOLDER / "wgrad_runtime.c", "runtime", []))
        jobs.append((DRIVER, "driver", ['-DKERNEL_LIST="kernels.h"', "-D_POSIX_C_SOURCE=200809L", "-I", str(folder)]))

        def compile_one(job: tuple[Path, str, list[str]]) -> str:
            source, name, arguments = job
            made = folder / f"{name}.o"
            _run([*compiler, *ARGUMENTS, *arguments, "-c", str(source), "-o", str(made)])
            return str(made)

        with ThreadPoolExecutor(COMPILERS_AT_A_TIME) as executor:
            objects = list(executor.map(compile_one, jobs))
        program = folder / "driver"
        _run([*compiler, "-pthread", *link, *objects, "-o", str(program), "-lm"])
        return program

    def run(self, command: Sequence[str], seconds: float = 600.0) -> str:
        """Run the driver. Return the instruction set that it found; fail unless every record passed."""
        done = subprocess.run(command, input=b"".join(self._bytes), capture_output=True, timeout=seconds, check=False)
        printed = done.stdout.decode()
        wrong = re.findall(r"^wrong: record (\d+): .*$", printed, re.MULTILINE)
        names = "".join(f"  {number}: {self.schedules[int(number)]}\n" for number in wrong[:5])
        counts = re.search(r"^(\d+) passed, (\d+) failed$", printed, re.MULTILINE)
        report = f"{printed[-2000:]}\n{names}\n{done.stderr.decode()[-4000:]}"
        assert done.returncode == 0 and not done.stderr, report
        assert counts is not None and (int(counts[1]), int(counts[2])) == (len(self), 0), report
        return printed.split("\n", 1)[0].removeprefix("isa ")


def _define(sizes: tuple[tuple[str, int], ...]) -> list[str]:
    return [f"-D{name}={value}" for name, value in sizes]


def _run(command: Sequence[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, f"{' '.join(command)}\n{done.stderr}"
