# SPDX-License-Identifier: Apache-2.0
"""The command line as its users meet it: run as a program, judged by exit code and output."""

from __future__ import annotations

import contextlib
import json
import os
import pty
import shutil
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import convgrad
from convgrad.isa import ISAS
from convgrad.kernel_table import KERNELS

ROOT = str(Path(convgrad.__file__).resolve().parents[1])
LAYER = 'ic16ih12oc24kh3ph1n"a layer"'
MODULES = ["wgrad_runtime", *(kernel.symbol for kernel in KERNELS)]


def environment(cache: Path, **changes: str) -> dict[str, str]:
    """The environment of a user without settings of ours, but for the cache and `changes`."""
    ours = ("CONVGRAD_", "FORCE_COLOR", "NO_COLOR", "COLUMNS", "CC")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(ours)}
    return {**kept, "PYTHONPATH": ROOT, "CONVGRAD_CACHE_DIR": str(cache), **changes}


def run(cache: Path, *arguments: str, **changes: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "convgrad", *arguments],
        env=environment(cache, **changes),
        capture_output=True,
        text=True,
        encoding="utf-8",
        timeout=240,
        check=False,
    )


def run_json(cache: Path, *arguments: str, **changes: str) -> tuple[int, dict[str, Any]]:
    done = run(cache, *arguments, "--json", **changes)
    document = json.loads(done.stdout)
    assert isinstance(document, dict)
    return done.returncode, document


def run_on_terminal(cache: Path, *arguments: str, **changes: str) -> tuple[int, str]:
    """Run with a terminal for all three streams."""
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "convgrad", *arguments],
        env=environment(cache, TERM="xterm-256color", **changes),
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        start_new_session=True,
    )
    os.close(theirs)
    chunks = []
    # Reading fails when the other end has closed.
    with contextlib.suppress(OSError):
        while chunk := os.read(ours, 1 << 16):
            chunks.append(chunk)
    os.close(ours)
    return process.wait(240), b"".join(chunks).decode("utf-8")


def listing(folder: Path) -> list[tuple[str, int]]:
    return sorted((str(path), path.lstat().st_mtime_ns) for path in [folder, *folder.rglob("*")])


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    """A cache that `build` has filled, and what it said."""
    cache = tmp_path_factory.mktemp("cache") / "convgrad"
    code, report = run_json(cache, "build")
    assert code == 0
    return cache, report


# Usage


def test_help_names_every_command_and_the_exit_codes(tmp_path: Path) -> None:
    done = run(tmp_path / "cache", "--help", COLUMNS="120")
    assert done.returncode == 0
    for text in ("build", "doctor", "demo", "bench", "explain", "2 wrong usage", "3 no C compiler"):
        assert text in done.stdout


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["nonsense"], "nonsense"),
        (["doctor", "--nonsense"], "--nonsense"),
        (["build", "--jobs", "0"], "--jobs"),
        (["demo", "--steps", "0"], "--steps"),
        (["demo", "--size", "1000"], "--size"),
        (["explain"], "shape"),
        (["explain", "ic3ih8oc4kh"], "kh has no number"),
        (["explain", LAYER, "--dtype", "f64"], "f64"),
        (["explain", LAYER, "--layout", "nchw"], "NXC+OIX"),
        (["explain", LAYER, "--isa", "mmx"], "mmx"),
        (["explain", LAYER, "--threads", "0"], "--threads"),
        (["explain", LAYER, "--alternatives", "-1"], "--alternatives"),
        (["demo", "--out", "/no/such/folder/picture.png"], "/no/such/folder"),
    ],
)
def test_wrong_usage_is_exit_code_2_and_names_what_is_wrong(tmp_path: Path, arguments: list[str], named: str) -> None:
    done = run(tmp_path / "cache", *arguments, COLUMNS="120")
    assert done.returncode == 2, done.stderr
    assert named in done.stderr
    assert done.stdout == ""
    assert not (tmp_path / "cache").exists()


def test_the_package_itself_imports_nothing_of_the_command_line() -> None:
    program = "import sys, convgrad; print(*sorted(sys.modules))"
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "PYTHONPATH": ROOT},
        capture_output=True,
        text=True,
        check=True,
    )
    loaded = set(done.stdout.split())
    assert "convgrad.plan" in loaded
    assert not loaded & {"typer", "rich", "matplotlib", "skimage", "convgrad.__main__", "convgrad.commands.demo"}


# build


def test_build_compiles_the_runtime_and_every_kernel(built: tuple[Path, dict[str, Any]]) -> None:
    cache, report = built
    assert report["ok"] is True and report["cache"] == str(cache)
    assert report["compiled"] == len(MODULES)
    assert sorted(step["name"] for step in report["steps"]) == sorted(MODULES)
    assert [step["position"] for step in report["steps"]] == list(range(1, len(MODULES) + 1))
    assert len(list((cache / "entries").iterdir())) == len(MODULES)


def test_build_again_compiles_nothing_and_says_so_line_by_line(built: tuple[Path, dict[str, Any]]) -> None:
    cache, _ = built
    done = run(cache, "build")
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert sorted(line.split()[1] for line in lines[: len(MODULES)]) == sorted(MODULES)
    assert all(line.endswith("in the cache already") for line in lines[: len(MODULES)])
    assert lines[len(MODULES)].startswith(f"{len(MODULES)} modules: 0 compiled, {len(MODULES)} in the cache already;")
    assert lines[-1] == f"cache: {cache}"
    assert "\x1b" not in done.stdout + done.stderr


def test_build_on_a_terminal_draws_a_bar_instead_of_lines(built: tuple[Path, dict[str, Any]]) -> None:
    code, printed = run_on_terminal(built[0], "build")
    assert code == 0
    assert "compiling" in printed and "\x1b[" in printed
    assert "in the cache already\r\n" not in printed
    assert f"{len(MODULES)} modules: 0 compiled" in printed


@pytest.mark.parametrize(
    "command", [["build"], ["build", "--json"], pytest.param(["demo", "--no-picture"], marks=pytest.mark.extra)]
)
def test_no_compiler_is_exit_code_3(tmp_path: Path, command: list[str]) -> None:
    if command[0] == "demo":
        pytest.importorskip("skimage", reason="the demo's photograph is in scikit-image")
    done = run(tmp_path / "cache", *command, CONVGRAD_CC="/nonexistent")
    assert done.returncode == 3
    assert done.stderr.startswith("error: CONVGRAD_CC='/nonexistent' cannot be used as a C compiler")
    assert "Traceback" not in done.stderr


def test_a_compiler_that_fails_is_exit_code_1(tmp_path: Path) -> None:
    broken = tmp_path / "broken-cc"
    broken.write_text('#!/bin/sh\ncase "$*" in *--version*) echo broken 1.0; exit 0;; esac\necho no luck >&2; exit 7\n')
    broken.chmod(0o755)
    done = run(tmp_path / "cache", "build", CONVGRAD_CC=str(broken))
    assert done.returncode == 1
    assert "failed with exit code 7" in done.stderr and "no luck" in done.stderr


@pytest.mark.matrix
def test_build_fails_when_the_cache_keeps_nothing(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    code, report = run_json(tmp_path / "file" / "cache", "build", CONVGRAD_MAX_ISA="base")
    assert code == 1
    assert report["ok"] is False
    assert report["compiled"] == len(MODULES)


# doctor


def test_doctor_finds_nothing_wrong_with_a_filled_cache(built: tuple[Path, dict[str, Any]]) -> None:
    cache, _ = built
    before = listing(cache)
    code, report = run_json(cache, "doctor")
    assert code == 0 and report["ok"] is True and report["problems"] == []
    assert report["kernels"]["total"] == len(MODULES)
    assert sorted(report["kernels"]["cached"]) == sorted(MODULES) and report["kernels"]["missing"] == []
    facts = report["cache"]
    size = sum(path.stat().st_size for path in cache.rglob("*") if path.is_file())
    assert facts["folder"] == str(cache) and facts["mode"] == "0700"
    assert facts["entries"] == len(MODULES) and facts["bytes"] == size
    assert facts["owner"] == cache.owner()
    assert report["compiler"]["command"] and report["compiler"]["version"]
    assert Path(report["headers"], "Python.h").is_file()
    assert report["cpu"]["usable_cpus"] >= 1 and report["threads"] >= 1
    assert report["packages"]["numpy"] and set(report["packages"]) >= {"torch", "matplotlib", "scikit-image", "ziglang"}
    assert report["environment"]["CONVGRAD_CACHE_DIR"] == str(cache)
    assert [entry for entry, _ in listing(cache)] == [entry for entry, _ in before]


def test_doctor_prints_plain_text_to_a_file_even_in_ascii(built: tuple[Path, dict[str, Any]]) -> None:
    done = run(built[0], "doctor", PYTHONIOENCODING="ascii", LC_ALL="C")
    assert done.returncode == 0, done.stderr
    assert done.stdout.isascii() and "\x1b" not in done.stdout
    for word in ("CPU", "compiler", "headers", "cache", "kernels", "threads", "no problems found"):
        assert word in done.stdout


def test_no_color_is_obeyed_on_a_terminal(built: tuple[Path, dict[str, Any]]) -> None:
    code, coloured = run_on_terminal(built[0], "doctor")
    assert code == 0 and "\x1b[32mno problems found" in coloured
    code, plain = run_on_terminal(built[0], "doctor", NO_COLOR="1")
    assert code == 0 and "\x1b[3" not in plain and "no problems found" in plain


def test_doctor_of_an_empty_cache_makes_none(tmp_path: Path) -> None:
    code, report = run_json(tmp_path / "cache", "doctor")
    assert code == 0
    assert report["cache"] == {"folder": str(tmp_path / "cache"), "exists": False}
    assert report["kernels"]["cached"] == [] and sorted(report["kernels"]["missing"]) == sorted(MODULES)
    assert any("python -m convgrad build" in note for note in report["notes"])
    assert list(tmp_path.iterdir()) == []


def test_doctor_says_which_module_is_damaged(tmp_path: Path, built: tuple[Path, dict[str, Any]]) -> None:
    cache = tmp_path / "cache"
    shutil.copytree(built[0], cache)
    (entry,) = (cache / "entries").glob(f"_{KERNELS[0].symbol}_*")
    binary = entry / "module.so"
    data = bytearray(binary.read_bytes())
    data[len(data) // 2] ^= 1
    binary.write_bytes(data)
    code, report = run_json(cache, "doctor")
    assert code == 0  # the next use builds it again
    assert report["kernels"]["missing"] == [KERNELS[0].symbol]


def test_doctor_says_why_a_cache_is_not_trusted(tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    cache.mkdir()
    cache.chmod(0o777)
    code, report = run_json(cache, "doctor")
    assert code == 1 and report["ok"] is False
    (problem,) = report["problems"]
    assert "mode 0777" in problem and f"chmod go-w -- {cache}" in problem
    assert report["cache"]["mode"] == "0777"
    assert stat.S_IMODE(cache.stat().st_mode) == 0o777  # it has told, not mended


@pytest.mark.parametrize("kind", ["symlink", "file", "below_a_file"])
def test_doctor_says_why_a_cache_cannot_be_used(tmp_path: Path, kind: str) -> None:
    cache = tmp_path / "cache"
    if kind == "symlink":
        (tmp_path / "real").mkdir(0o700)
        cache.symlink_to(tmp_path / "real")
    else:
        cache.write_text("")
    if kind == "below_a_file":
        cache = cache / "deeper"
    done = run(cache, "doctor")
    assert done.returncode == 1
    assert "problem: " in done.stdout and str(cache) in done.stdout and "CONVGRAD_CACHE_DIR" in done.stdout
    assert "problems: 1" in done.stdout


def test_without_a_compiler_doctor_asks_whether_one_is_needed(
    tmp_path: Path, built: tuple[Path, dict[str, Any]]
) -> None:
    code, report = run_json(tmp_path / "cache", "doctor", CONVGRAD_CC="/nonexistent")
    assert code == 1 and report["compiler"] is None
    assert any("'/nonexistent'" in problem for problem in report["problems"])
    code, report = run_json(built[0], "doctor", CONVGRAD_CC="/nonexistent")
    assert code == 0 and report["compiler"] is None and report["problems"] == []
    assert any("'/nonexistent'" in note for note in report["notes"])


# explain


def test_explain_shows_both_builds_and_what_was_rejected(built: tuple[Path, dict[str, Any]]) -> None:
    before = listing(built[0])
    done = run(built[0], "explain", LAYER)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[0] == "a layer"
    assert lines[1].startswith("ConvolutionBackwardWeights, f32, NXC, ")
    for text in (
        "strategy",
        "register tile",
        "blocks of the sum",
        "scratch a thread",
        "expected cycles",
        "WINDOWED 16",
    ):
        assert text in done.stdout
    assert "Rejected, compile-time sizes: the cheapest 5 of " in done.stdout
    assert "Rejected, any size: " in done.stdout
    assert "\x1b" not in done.stdout and max(map(len, lines)) <= 160
    assert [entry for entry, _ in listing(built[0])] == [entry for entry, _ in before]  # nothing was compiled


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("layout", ["NXC", "NCX", "NXC+OIX", "NCX+XIO"])
def test_explain_for_any_instruction_set_needs_no_compiler(tmp_path: Path, isa: str, layout: str) -> None:
    options = ("--isa", isa, "--layout", layout, "--threads", "2", "--transposed", "--alternatives", "1000")
    code, document = run_json(tmp_path / "cache", "explain", LAYER, *options, CONVGRAD_CC="/nonexistent")
    assert code == 0
    assert (document["operation"], document["layout"]) == ("ConvTransposeBackwardWeights", layout)
    assert (document["isa"], document["threads"]) == (isa, 2)
    assert document["flops"] == 2 * 16 * 24 * (12 * 3 - 2) ** 2
    for build, specialised in (("specialised", True), ("any_size", False)):
        chosen, rejected = document[build]["chosen"], document[build]["rejected"]
        assert chosen["specialised"] is specialised and chosen["isa"] == isa
        assert f"strategy {chosen['strategy']} ({chosen['kernel']}, {isa}, " in chosen["schedule"]
        assert len(rejected) == document[build]["rejected_count"] > 0
        costs = [row["cycles"] for row in rejected]
        assert costs == sorted(costs) and 0 < chosen["cycles"] <= costs[0]
        assert {row["strategy"] for row in (chosen, *rejected)} >= {"outer", "direct"}
    assert document["specialised"]["chosen"]["sizes"]["WGRAD_WINDOWED"] == 16
    assert document["any_size"]["chosen"]["sizes"] is None
    assert not (tmp_path / "cache").exists()


def test_explain_shows_one_build_where_there_is_but_one(tmp_path: Path) -> None:
    done = run(tmp_path / "cache", "explain", LAYER, "--dtype", "bf16", "--isa", "base", "--alternatives", "0")
    assert done.returncode == 0, done.stderr
    assert "no compile-time constants: strategy direct" in done.stdout
    assert "compile-time sizes" not in done.stdout and "Rejected" not in done.stdout


def test_what_explain_says_is_what_a_plan_does(tmp_path: Path) -> None:
    program = (
        "import convgrad\n"
        "convgrad.set_num_threads(2)\n"
        "operation = convgrad.ConvolutionBackwardWeights(strides=(1, 1), pads_begin=(1, 1), pads_end=(1, 1), "
        "dilations=(1, 1), weights_shape=(3, 3, 16, 24))\n"
        "plan = operation.prepare((1, 12, 12, 16), (1, 12, 12, 24), dtype='f32')\n"
        "assert str(plan.schedule) in repr(plan) and str(plan.schedule) in str(plan)\n"
        "print(plan.schedule)"
    )
    for mode, build in (("auto", "specialised"), ("never", "any_size")):
        done = subprocess.run(
            [sys.executable, "-c", program],
            env=environment(tmp_path / "cache", CONVGRAD_SPECIALIZE=mode),
            capture_output=True,
            text=True,
            check=True,
        )
        _, document = run_json(tmp_path / "cache", "explain", LAYER, "--threads", "2")
        assert document[build]["chosen"]["schedule"] == done.stdout.strip()
