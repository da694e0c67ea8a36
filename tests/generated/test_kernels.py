# SPDX-License-Identifier: Apache-2.0
"""The generated C on its own: it compiles without a warning, and a driver without Python runs it under sanitizers."""

from __future__ import annotations

import os
import random
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from convgrad.geometry import Geometry
from convgrad.kernel import Kernel
from convgrad.kernel_table import KERNELS
from convgrad.planner import SUMMATION_RUNGS, plan_schedule

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "generated" / "convgrad" / "kernels"
DRIVER = ROOT / "tests" / "driver" / "kernel_cases.c"
WARNINGS = ["-std=c11", "-ffp-contract=off", "-Wall", "-Wextra", "-Wpedantic", "-Wconversion", "-Wshadow", "-Werror"]
COMPILERS = ("gcc", "clang")
CASES_OF_KERNEL = int(os.environ.get("CONVGRAD_KERNEL_CASES", "120"))


def compile_file(compiler: str, source: Path, out: Path, *arguments: str) -> None:
    command = [compiler, *WARNINGS, "-O1", "-I", str(FOLDER), "-c", str(source), "-o", str(out), *arguments]
    result = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert result.returncode == 0, result.stderr


@pytest.mark.parametrize("compiler", COMPILERS)
def test_every_file_compiles_alone_without_a_warning(compiler: str, tmp_path: Path) -> None:
    if shutil.which(compiler) is None:
        pytest.skip(f"{compiler} is not installed")
    compiled = 0
    for kernel in KERNELS:
        for asserts in ("-UNDEBUG", "-DNDEBUG"):
            compile_file(compiler, FOLDER / kernel.file, tmp_path / "kernel.o", asserts)
        compiled += 1
    compile_file(compiler, FOLDER / "wgrad_runtime.c", tmp_path / "runtime.o", "-pthread")
    assert compiled == len(list(FOLDER.glob("wgrad_[123]d_*.c"))) >= 18


@pytest.mark.parametrize("compiler", COMPILERS)
def test_every_header_compiles_alone_without_a_warning(compiler: str, tmp_path: Path) -> None:
    if shutil.which(compiler) is None:
        pytest.skip(f"{compiler} is not installed")
    headers = sorted(FOLDER.glob("*.h"))
    for header in headers:
        source = tmp_path / "alone.c"
        needs_element = header.name == "store.h"
        source.write_text(
            ('#include <stdint.h>\n#include "element_f32.h"\n' if needs_element else "")
            + f'#include "{header.name}"\ntypedef int not_empty;\n'
        )
        compile_file(compiler, source, tmp_path / "alone.o", "-Wno-unused-function")
    assert len(headers) >= 8


def test_generated_files_are_short_and_say_what_they_are() -> None:
    for kernel in KERNELS:
        text = (FOLDER / kernel.file).read_text()
        assert len(text.splitlines()) <= 400
        assert max(map(len, text.splitlines())) <= 120, kernel.file
        for word in (kernel.symbol, "Gradient of a", kernel.data_format, "Requires", "assert(", "Generated from"):
            assert word in text, (kernel.file, word)


def test_constants_in_c_and_python_agree() -> None:
    match = re.search(r"WGRAD_RUNGS = (\d+)", (FOLDER / "summation.h").read_text())
    assert match is not None and int(match[1]) == SUMMATION_RUNGS


def random_geometry(rng: random.Random, kernel: Kernel) -> Geometry:
    """A small geometry of the kernel's rank and layout; every kind of edge has its share."""

    def axis() -> tuple[int, int, int, int, int, int]:
        while True:
            I, K, s, d = rng.randint(1, 9), rng.randint(1, 4), rng.randint(1, 4), rng.randint(1, 3)
            pad, behind = rng.choice((0, 0, 1, 2, 5, 12)), rng.choice((0, 0, 1, 3, 11))
            O = (I + pad + behind - (K - 1) * d - 1) // s + 1
            if O >= 1 and I + pad + behind >= (K - 1) * d + 1:
                return O, I, K, s, d, pad

    axes = [(1, 1, 1, 1, 1, 0)] * (3 - kernel.rank) + [axis() for _ in range(kernel.rank)]
    G = rng.choice((1, 1, 1, 2, 3, 5))
    P, W = rng.choice((1, 2, 7, 8, 9, 17)), rng.choice((1, 2, 3, 4, 5, 9))
    O, I, K, stride, dilation, pad = zip(*axes, strict=True)
    shape = (G * P, W, *K[3 - kernel.rank :])
    order = rng.sample(range(2 + kernel.rank), 2 + kernel.rank)  # any order of the weights' axes
    strides, step = [0] * len(shape), 1
    for place in order:
        strides[place], step = step, step * shape[place]
    return Geometry(
        rank=kernel.rank,
        data_format=kernel.data_format,
        reading="document",
        plain="plain",
        weights_shape=shape,
        N=rng.choice((0, 1, 1, 2, 3)),
        G=G,
        P=P,
        W=W,
        O=O,
        I=I,
        K=K,
        stride=stride,
        dilation=dilation,
        pad=pad,
        out_group=P * strides[0],
        out_plain=strides[0],
        out_windowed=strides[1],
        out_tap=(0,) * (3 - kernel.rank) + tuple(strides[2:]),
    )


def write_cases(kernel: Kernel, count: int) -> Iterator[str]:
    rng = random.Random(kernel.symbol)
    for _ in range(count):
        geometry = random_geometry(rng, kernel)
        schedule = plan_schedule(geometry, kernel.dtype)
        out_f32 = 1 if kernel.dtype == "f32" else rng.randint(0, 1)
        accumulate = out_f32 and rng.randint(0, 1)
        fields = ("N", "G", "P", "W", "O", "I", "K", "stride", "dilation", "pad")
        numbers: list[int] = []
        for field in (*fields, "out_group", "out_plain", "out_windowed", "out_tap"):
            value = getattr(geometry, field)
            numbers += value if isinstance(value, tuple) else [value]
        yield " ".join(map(str, [*numbers, out_f32, accumulate, schedule.items, schedule.scratch_bytes]))


@pytest.mark.parametrize("kernel", KERNELS, ids=lambda kernel: kernel.symbol)
def test_driver_under_sanitizers(kernel: Kernel, tmp_path: Path) -> None:
    program = tmp_path / "driver"
    command = [
        *("gcc", *WARNINGS, "-O1", "-g", "-fsanitize=address,undefined", "-fno-sanitize-recover=all"),
        *(f"-DKERNEL={kernel.symbol}", f"-DNXC={int(kernel.data_format == 'NXC')}"),
        *(f'-DELEMENT_HEADER="element_{kernel.dtype}.h"', "-D_POSIX_C_SOURCE=200809L", "-I", str(FOLDER)),
        *(str(DRIVER), str(FOLDER / kernel.file), "-o", str(program)),
    ]
    built = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    if "cannot find" in built.stderr and "san" in built.stderr:
        pytest.skip("this compiler has no sanitizer runtime")
    assert built.returncode == 0, built.stderr
    cases = list(write_cases(kernel, CASES_OF_KERNEL))
    result = subprocess.run(
        [program], input="\n".join(cases) + "\n", capture_output=True, text=True, timeout=600, check=False
    )
    assert result.returncode == 0, result.stdout[-2000:] + result.stderr[-4000:]
    trivial, passed, failed = map(int, re.findall(r"(\d+) (?:trivial|passed|failed)", result.stdout))
    assert failed == 0 and passed + trivial == len(cases) and passed >= 0.6 * len(cases), result.stdout
