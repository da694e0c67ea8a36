# SPDX-License-Identifier: Apache-2.0
"""The generated C on its own: it compiles without a warning, and a driver without Python runs it under sanitizers."""

from __future__ import annotations

import itertools
import os
import random
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from convgrad.isa import ISAS, list_isas
from convgrad.kernel import Kernel
from convgrad.kernel_table import KERNELS
from convgrad.planner import STRATEGIES, Schedule, kernel_isa, list_schedules
from convgrad.summation import FAN_OUT
from reference.kernel_cases import SCHEDULE_FIELDS, list_fields, random_geometry

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "generated" / "convgrad" / "kernels"
DRIVER = ROOT / "tests" / "driver" / "kernel_cases.c"
WARNINGS = ["-std=c11", "-ffp-contract=off", "-Wall", "-Wextra", "-Wpedantic", "-Wconversion", "-Wshadow", "-Werror"]
COMPILERS = ("gcc", "clang")
MATRIX = os.environ.get("CONVGRAD_MATRIX") == "1"
CASES_OF_KERNEL = int(os.environ.get("CONVGRAD_KERNEL_CASES", "40"))


# What some headers ask for in front of them.
ELEMENT = '#include <stdint.h>\n#include "element_f32.h"\n'
LAYOUT = """#include "sizes.h"
#define CHANNELS_LAST 0
#define PLAIN_STEP 1
#define PLAIN_CHANNEL (OH * OW)
#define WINDOWED_STEP 1
#define WINDOWED_CHANNEL (IH * IW)
"""
PREAMBLES = {"store.h": ELEMENT, "packing.h": LAYOUT, "outer.h": LAYOUT, "lanes.h": LAYOUT}


def compile_file(compiler: str, source: Path, out: Path, *arguments: str) -> None:
    command = [compiler, *WARNINGS, "-I", str(FOLDER), "-c", str(source), "-o", str(out), *arguments]
    result = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert result.returncode == 0, result.stderr


def list_sanitized() -> Iterator[Any]:
    """Every kernel on one row, in turn; a longer run takes every row, which test_sanitized_kernels.py has as well."""
    builds = list_builds()
    for number, kernel in enumerate(KERNELS):
        rows = [isa for built, isa in builds if built == kernel]
        for isa in rows if os.environ.get("CONVGRAD_LONG") == "1" else [rows[number % len(rows)]]:
            yield pytest.param(kernel, isa, marks=() if kernel.rank == 2 else pytest.mark.matrix)


def list_warned() -> Iterator[Any]:
    """Every compiler and row of instruction sets; gcc and the best row stand for all but in the matrix."""
    for compiler, isa in itertools.product(COMPILERS, ISAS):
        usual = (compiler, isa) == (COMPILERS[0], [*ISAS][-1])
        yield pytest.param(compiler, isa, marks=() if usual else pytest.mark.matrix)


def list_builds() -> list[tuple[Kernel, str]]:
    """Every kernel on every row of instruction sets that it is compiled for."""
    return [(kernel, isa) for kernel in KERNELS for isa in ISAS if kernel_isa(kernel.dtype, isa) == isa]


@pytest.mark.parametrize(("compiler", "isa"), [*list_warned()])
def test_every_file_compiles_alone_without_a_warning(compiler: str, isa: str, tmp_path: Path) -> None:
    if shutil.which(compiler) is None:
        pytest.skip(f"{compiler} is not installed")
    compiled = 0
    for kernel, row in list_builds():
        if row == isa:
            for asserts in ("-UNDEBUG", "-DNDEBUG"):
                # The optimiser finds more, and takes its time: the file is the same on every row, so once is enough.
                level = "-O2" if asserts == "-DNDEBUG" and isa == [*ISAS][-1] and MATRIX else "-O0"
                compile_file(
                    compiler, FOLDER / kernel.file, tmp_path / "kernel.o", level, asserts, *ISAS[isa].arguments
                )
            compiled += 1
    compile_file(compiler, FOLDER / "wgrad_runtime.c", tmp_path / "runtime.o", "-O2", "-pthread", *ISAS[isa].arguments)
    files = len(list(FOLDER.glob("wgrad_[123]d_*.c")))
    assert files == len(KERNELS) == 30
    assert compiled == (files if isa == "base" else sum(kernel.dtype == "f32" for kernel in KERNELS)) >= 18


@pytest.mark.parametrize("compiler", COMPILERS)
def test_every_header_compiles_alone_without_a_warning(compiler: str, tmp_path: Path) -> None:
    if shutil.which(compiler) is None:
        pytest.skip(f"{compiler} is not installed")
    rows_of_header = {row.header: row for row in ISAS.values()}
    compiled = 0
    for header in sorted(FOLDER.glob("*.h")):
        if header.name.startswith("isa_") and header.name not in rows_of_header:
            continue  # another architecture's
        source = tmp_path / "alone.c"
        source.write_text(PREAMBLES.get(header.name, "") + f'#include "{header.name}"\ntypedef int not_empty;\n')
        flags = rows_of_header[header.name].flags if header.name in rows_of_header else ISAS["base"].flags
        compile_file(compiler, source, tmp_path / "alone.o", "-O1", "-Wno-unused-function", *flags)
        compiled += 1
    assert compiled >= 16


def test_every_isa_has_its_header() -> None:
    assert {row.header for row in ISAS.values()} <= {path.name for path in FOLDER.glob("isa_*.h")}
    for row in ISAS.values():
        text = (FOLDER / row.header).read_text()
        assert f"#define LANES {row.lanes}\n" in text and f"#define REGISTERS {row.registers}\n" in text


def test_generated_files_are_short_and_say_what_they_are() -> None:
    for kernel in KERNELS:
        text = (FOLDER / kernel.file).read_text()
        assert len(text.splitlines()) <= 400
        assert max(map(len, text.splitlines())) <= 120, kernel.file
        for word in (kernel.symbol, "Gradient of a", kernel.data_format, "Requires", "assert(", "Generated from"):
            assert word in text, (kernel.file, word)


def test_constants_in_c_and_python_agree() -> None:
    match = re.search(r"WGRAD_FAN_OUT = (\d+)", (FOLDER / "summation.h").read_text())
    assert match is not None and int(match[1]) == FAN_OUT


def test_every_strategy_has_kernels() -> None:
    assert {row.name for row in STRATEGIES} == {kernel.strategy for kernel in KERNELS}


def write_cases(kernel: Kernel, isa: str, count: int) -> Iterator[str]:
    rng = random.Random(kernel.symbol)
    for _ in range(count):
        schedules: list[Schedule] = []
        while not schedules:  # taps that became channels may be too many for the strategy
            geometry = random_geometry(rng, kernel)
            # Every tile has its turn, not only the cheapest; slabs are the runtime's, and not run here.
            schedules = [
                schedule
                for threads in (1, 8)
                for schedule in list_schedules(geometry, kernel.dtype, isa, threads=threads, strategy=kernel.strategy)
                if schedule.slabs == 1 and schedule.kernel == kernel
            ]
        out_f32 = 1 if kernel.dtype == "f32" else rng.randint(0, 1)
        schedule = rng.choice(schedules)
        numbers = list_fields(schedule, out_f32, out_f32 and rng.randint(0, 1))
        yield " ".join(map(str, [*numbers, schedule.items, schedule.scratch_bytes]))


def test_schedule_fields_are_those_of_the_header() -> None:
    text = (FOLDER / "wgrad_geometry.h").read_text()
    fields = re.findall(r"int64_t (\w+)(?:\[3\])?;", text)
    assert tuple(fields[-len(SCHEDULE_FIELDS) :]) == SCHEDULE_FIELDS


@pytest.mark.parametrize(("kernel", "isa"), [*list_sanitized()], ids=lambda value: getattr(value, "symbol", value))
def test_driver_under_sanitizers(kernel: Kernel, isa: str, tmp_path: Path) -> None:
    if isa not in list_isas():
        pytest.skip(f"this processor has no {isa}")
    program = tmp_path / "driver"
    command = [
        *("gcc", *WARNINGS, "-O0", "-g", "-fsanitize=address,undefined", "-fno-sanitize-recover=all"),
        *(f"-DKERNEL={kernel.symbol}", f"-DNXC={int(kernel.data_format == 'NXC')}", *ISAS[isa].arguments),
        *(f'-DELEMENT_HEADER="element_{kernel.dtype}.h"', "-D_POSIX_C_SOURCE=200809L", "-I", str(FOLDER)),
        *(str(DRIVER), str(FOLDER / kernel.file), "-o", str(program)),
    ]
    built = subprocess.run(command, capture_output=True, text=True, timeout=240, check=False)
    if "cannot find" in built.stderr and "san" in built.stderr:
        pytest.skip("this compiler has no sanitizer runtime")
    assert built.returncode == 0, built.stderr
    cases = list(write_cases(kernel, isa, CASES_OF_KERNEL))
    result = subprocess.run(
        [program], input="\n".join(cases) + "\n", capture_output=True, text=True, timeout=600, check=False
    )
    assert result.returncode == 0, result.stdout[-2000:] + result.stderr[-4000:]
    trivial, passed, failed = map(int, re.findall(r"(\d+) (?:trivial|passed|failed)", result.stdout))
    assert failed == 0 and passed + trivial == len(cases) and passed >= 0.6 * len(cases), result.stdout
