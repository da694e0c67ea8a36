# SPDX-License-Identifier: Apache-2.0
"""Threads: how many, the C runtime that runs them, and that neither forks, exits nor each other disturb them."""

from __future__ import annotations

import errno
import os
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import convgrad
from convgrad import cpus, threads
from convgrad.compiler import Compiler, find_compiler
from convgrad.errors import SpecError
from convgrad.loader import KERNEL_FOLDER, load_runtime
from reference.sanitizers import SANITIZERS, require_sanitizer

DRIVER = Path(__file__).resolve().parents[1] / "driver" / "runtime_stress.c"
WARNINGS = ("-Wall", "-Wextra", "-Wpedantic", "-Wconversion", "-Wshadow", "-Werror")
TIME_LIMIT = 300.0


# The C runtime alone, and under sanitizers.


@pytest.mark.parametrize("sanitizer", SANITIZERS)
def test_the_runtime_under_stress(sanitizer: str, tmp_path: Path) -> None:
    compiler = find_compiler()
    prefix = require_sanitizer(compiler, sanitizer, tmp_path)
    program = _build(compiler, DRIVER, sanitizer, tmp_path)
    run = _run([*prefix, str(program), "8", "500"])
    report = f"{run.stdout[-4000:]}\n{run.stderr[-4000:]}"
    assert run.returncode == 0, report
    counts = re.fullmatch(r"(\d+) passed, 0 failed", run.stdout.splitlines()[-1])
    assert counts is not None and int(counts[1]) >= 5000, report
    # Of what sanitizers print, only the two allocations that cannot be made may be there.
    reported = [line for line in run.stderr.splitlines() if "Sanitizer" in line or "runtime error" in line]
    assert all("failed to allocate" in line for line in reported), report


def _build(compiler: Compiler, source: Path, sanitizer: str, folder: Path) -> Path:
    program = folder / source.stem
    flags = ["-std=c11", "-O1", "-g", "-ffp-contract=off", "-pthread", *WARNINGS, *SANITIZERS[sanitizer]]
    built = _run([*compiler.argv, *flags, f"-I{KERNEL_FOLDER}", str(source), "-o", str(program), "-lm"])
    assert built.returncode == 0, built.stderr
    return program


# The number of threads.


@pytest.fixture
def undecided(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a new process without either variable, on a machine of 6 CPUs."""
    monkeypatch.setattr(threads, "_num_threads", None)
    monkeypatch.setattr(cpus, "usable_cpus", lambda: 6)
    monkeypatch.delenv("CONVGRAD_NUM_THREADS", raising=False)
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)


@pytest.mark.parametrize(
    ("ours", "openmp", "expected"),
    [
        (None, None, 6),
        ("3", None, 3),
        ("3", "5", 3),
        (" 4 ", None, 4),
        ("007", None, 7),
        ("1024", None, 1024),
        ("", "5", 5),
        ("  ", None, 6),
        (None, "5", 5),
        (None, "5,2", 5),
        (None, " 7 , 2", 7),
        (None, "2000", 1024),
        (None, "", 6),
        (None, ",4", 6),
        (None, "0", 6),
        (None, "-1", 6),
        (None, "5x", 6),
        (None, "many", 6),
        (None, "9" * 30, 6),
    ],
)
@pytest.mark.usefixtures("undecided")
def test_the_environment_decides(
    ours: str | None, openmp: str | None, expected: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in (("CONVGRAD_NUM_THREADS", ours), ("OMP_NUM_THREADS", openmp)):
        if value is not None:
            monkeypatch.setenv(name, value)
    assert convgrad.get_num_threads() == expected
    monkeypatch.setenv("CONVGRAD_NUM_THREADS", "9")
    assert convgrad.get_num_threads() == expected, "the environment is read once"


@pytest.mark.parametrize("value", ["0", "-1", "+2", "1.5", "2,3", "1_0", "0x4", "1025", "9" * 30, "many", "\u0661"])
@pytest.mark.usefixtures("undecided")
def test_a_malformed_variable_is_an_error_until_it_is_mended(value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CONVGRAD_NUM_THREADS", value)
    monkeypatch.setenv("OMP_NUM_THREADS", "2")
    for _ in range(2):
        with pytest.raises(SpecError) as caught:
            convgrad.get_num_threads()
        assert str(caught.value) == (
            f"CONVGRAD_NUM_THREADS={value!r}: expected an integer from 1 to 1024; set it to one, or unset it to use "
            "every CPU that this process may use"
        )
    monkeypatch.setenv("CONVGRAD_NUM_THREADS", "2")
    assert convgrad.get_num_threads() == 2


@pytest.mark.usefixtures("undecided")
def test_what_is_set_wins(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CONVGRAD_NUM_THREADS", "not a number")
    for number in (1, 5, 1024, np.int64(3), np.uint8(4)):
        convgrad.set_num_threads(number)  # type: ignore[arg-type]
        assert convgrad.get_num_threads() == number
        assert type(convgrad.get_num_threads()) is int


@pytest.mark.parametrize(
    "value", [0, -1, 1025, 10**30, True, False, 2.0, "2", None, [2], np.bool_(True), np.float64(2), np.array([2, 3])]
)
@pytest.mark.usefixtures("undecided")
def test_a_number_of_threads_is_a_positive_integer(value: Any) -> None:
    convgrad.set_num_threads(3)
    with pytest.raises(SpecError) as caught:
        convgrad.set_num_threads(value)
    assert str(caught.value) == f"num_threads = {value!r}: expected an integer from 1 to 1024"
    assert convgrad.get_num_threads() == 3


def test_the_largest_number_is_that_of_the_c_runtime() -> None:
    header = (KERNEL_FOLDER / "wgrad_runtime.h").read_text("utf-8")
    assert re.findall(r"^#define WGRAD_MAX_THREADS (\d+)$", header, re.MULTILINE) == [str(threads.MAX_THREADS)]


# CPUs and quotas, from files of our own.

V2 = "sys/fs/cgroup"
V1 = "sys/fs/cgroup/cpu,cpuacct"


@pytest.mark.parametrize(
    ("cgroup", "files", "expected"),
    [
        pytest.param(None, {}, 16, id="no files"),
        pytest.param("0::/\n", {f"{V2}/cpu.max": "200000 100000\n"}, 2, id="container"),
        pytest.param("0::/\n", {f"{V2}/cpu.max": "max 100000\n"}, 16, id="no quota"),
        pytest.param("0::/\n", {f"{V2}/cpu.max": "150000 100000\n"}, 2, id="one and a half"),
        pytest.param("0::/\n", {f"{V2}/cpu.max": "5000 100000\n"}, 1, id="a twentieth"),
        pytest.param("0::/\n", {f"{V2}/cpu.max": "9900000 100000\n"}, 16, id="more than there are"),
        pytest.param(
            "0::/a/b\n",
            {f"{V2}/a/b/cpu.max": "max 100000\n", f"{V2}/a/cpu.max": "300000 100000\n", f"{V2}/other/cpu.max": "1 1\n"},
            3,
            id="set on the parent",
        ),
        pytest.param(
            "0::/a/b\n",
            {f"{V2}/a/b/cpu.max": "400000 100000\n", f"{V2}/a/cpu.max": "700000 100000\n"},
            4,
            id="the smallest binds",
        ),
        pytest.param("0::/docker/1\n", {f"{V2}/cpu.max": "200000 100000\n"}, 2, id="path of the host"),
        pytest.param("0::/../../x\n", {f"{V2}/cpu.max": "200000 100000\n"}, 2, id="outside the namespace"),
        pytest.param(
            "4:cpu,cpuacct:/docker/1\n1:name=systemd:/\n0::/\n",
            {f"{V1}/docker/1/cpu.cfs_quota_us": "250000\n", f"{V1}/docker/1/cpu.cfs_period_us": "100000\n"},
            3,
            id="version 1",
        ),
        pytest.param(
            "4:cpu,cpuacct:/docker/1\n",
            {f"{V1}/cpu.cfs_quota_us": "50000\n", f"{V1}/cpu.cfs_period_us": "25000\n"},
            2,
            id="version 1, container",
        ),
        pytest.param(
            "4:cpu,cpuacct:/\n",
            {f"{V1}/cpu.cfs_quota_us": "-1\n", f"{V1}/cpu.cfs_period_us": "100000\n"},
            16,
            id="version 1, no quota",
        ),
        pytest.param(
            "2:cpu:/a\n3:cpuset:/a\n",
            {
                f"{V2}/cpu/a/cpu.cfs_quota_us": "500000\n",
                f"{V2}/cpu/a/cpu.cfs_period_us": "100000\n",
                f"{V2}/cpuset/a/cpu.cfs_quota_us": "1\n",
                f"{V2}/cpuset/a/cpu.cfs_period_us": "1\n",
            },
            5,
            id="version 1, apart from cpuset",
        ),
        pytest.param("0::/\n", {f"{V2}/cpu.max": "200000\n"}, 16, id="one field"),
        pytest.param("0::/\n", {f"{V2}/cpu.max": "200000 0\n"}, 16, id="no period"),
        pytest.param("0::/\n", {f"{V2}/cpu.max": "many few\n"}, 16, id="words"),
        pytest.param("0::/\n", {f"{V2}/cpu.max": "\udcff\udcfe 1\n"}, 16, id="no text"),
        pytest.param("nonsense\n::\n\n", {f"{V2}/cpu.max": "max 1\n"}, 16, id="nonsense"),
    ],
)
def test_a_quota_bounds_the_cpus(
    cgroup: str | None, files: dict[str, str], expected: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(16)), raising=False)
    for name, text in {**files, **({} if cgroup is None else {"proc/self/cgroup": cgroup})}.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text.encode("utf-8", "surrogateescape"))
    assert cpus.usable_cpus(tmp_path) == expected


def test_the_affinity_mask_bounds_the_cpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / V2).mkdir(parents=True)
    (tmp_path / V2 / "cpu.max").write_text("800000 100000\n", "utf-8")
    (tmp_path / "proc/self").mkdir(parents=True)
    (tmp_path / "proc/self/cgroup").write_text("0::/\n", "utf-8")
    for count in (16, 3, 1):
        monkeypatch.setattr(os, "sched_getaffinity", lambda pid, count=count: set(range(count)), raising=False)
        assert cpus.usable_cpus(tmp_path) == min(8, count)


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="this system has no affinity mask")
def test_a_process_that_is_bound_to_one_cpu_gets_one_thread() -> None:
    _run_python(
        """
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
        assert convgrad.get_num_threads() == 1
        """,
        CONVGRAD_NUM_THREADS="",
        OMP_NUM_THREADS="",
    )


# threadpoolctl.


def test_threadpoolctl_limits_the_threads() -> None:
    _run_python(
        """
        import threadpoolctl
        convgrad.set_num_threads(5)
        assert gradient() == expected  # loads the runtime, and registers
        with threadpoolctl.threadpool_limits(2):
            assert convgrad.get_num_threads() == 2
            assert gradient() == expected
            assert pool_threads() == 4  # helpers of before stay
        assert convgrad.get_num_threads() == 5
        with threadpoolctl.threadpool_limits({"convgrad": 3}):
            assert convgrad.get_num_threads() == 3
        with threadpoolctl.threadpool_limits(1, user_api="blas"):
            assert convgrad.get_num_threads() == 5
        limited = threadpoolctl.threadpool_limits.wrap(limits=4)(convgrad.get_num_threads)
        assert (limited(), convgrad.get_num_threads()) == (4, 5)
        rows = [row for row in threadpoolctl.threadpool_info() if row["internal_api"] == "convgrad"]
        assert [(row["user_api"], row["num_threads"]) for row in rows] == [("convgrad", 5)], rows
        """
    )


def test_threadpoolctl_may_be_imported_later() -> None:
    _run_python(
        """
        convgrad.set_num_threads(5)
        assert gradient() == expected
        assert not convgrad.threads.register_with_threadpoolctl()
        import threadpoolctl
        assert convgrad.threads.register_with_threadpoolctl()
        assert convgrad.threads.register_with_threadpoolctl()
        with threadpoolctl.threadpool_limits(2):
            assert convgrad.get_num_threads() == 2
        assert convgrad.get_num_threads() == 5
        controllers = [c for c in threadpoolctl._ALL_CONTROLLERS if c.user_api == "convgrad"]
        assert len(controllers) == 1
        """
    )


def test_threadpoolctl_is_not_imported_for_it() -> None:
    _run_python(
        """
        assert gradient() == expected
        assert convgrad.get_num_threads() >= 1
        assert "threadpoolctl" not in sys.modules
        """
    )


# The runtime in Python's hands.


def test_the_bits_do_not_depend_on_threads_and_the_pool_grows_once() -> None:
    _run_python(
        """
        assert pool_threads() == 0
        assert gradient(num_threads=1) == expected
        assert pool_threads() == 0
        for num_threads in (2, 5, 3, 8, 1, 8):
            assert gradient(num_threads=num_threads) == expected
        assert pool_threads() == 7
        held = load_runtime()[1].wgrad_scratch_bytes()
        for _ in range(200):
            assert gradient(num_threads=8) == expected
        # Eight threads can work at a time, and each of them needs the same.
        assert 0 < held <= load_runtime()[1].wgrad_scratch_bytes() <= 8 * held
        assert pool_threads() == 7
        """
    )


def test_scratch_that_cannot_be_had_is_a_status_and_no_kernel_runs() -> None:
    ffi, lib = load_runtime()
    geometry = ffi.new("wgrad_geometry *")
    held = lib.wgrad_scratch_bytes()
    for num_threads in (1, 2, 8):
        for scratch_bytes in (1 << 62, (1 << 63) - 1):
            nowhere = 0  # the address of the kernel
            status = lib.wgrad_run(nowhere, geometry, ffi.NULL, ffi.NULL, ffi.NULL, 4, scratch_bytes, num_threads)
            assert status == errno.ENOMEM
    assert lib.wgrad_scratch_bytes() <= held


def test_python_threads_share_the_runtime() -> None:
    random = np.random.default_rng(0)
    problems = []
    for channels, size in ((8, 9), (16, 7), (33, 5), (5, 12)):
        src = random.standard_normal((2, channels, size, size), np.float32)
        diff_dst = random.standard_normal((2, 12, size - 2, size - 2), np.float32)
        problems.append((src, diff_dst, (12, channels, 3, 3)))

    def run(which: int, num_threads: int) -> bytes:
        src, diff_dst, shape = problems[which % len(problems)]
        operation = convgrad.ConvolutionBackwardWeights(
            strides=(1, 1),
            pads_begin=(0, 0),
            pads_end=(0, 0),
            dilations=(1, 1),
            data_format="NCX",
            weights_format="OIX",
            weights_shape=shape,
        )
        return bytes(operation(src, diff_dst, num_threads=num_threads).tobytes())

    expected = [run(which, 1) for which in range(len(problems))]
    wrong = 0
    with ThreadPoolExecutor(8) as executor:
        futures = [(n, executor.submit(run, n, 1 + n % 5)) for n in range(1000)]
        for n, future in futures:
            wrong += future.result(timeout=TIME_LIMIT) != expected[n % len(problems)]
    assert wrong == 0


def test_fifty_forks_after_threaded_use_and_in_the_middle_of_it() -> None:
    _run_python(
        """
        import signal, threading
        assert gradient(num_threads=4) == expected
        done = threading.Event()
        mismatches = []
        def call_until_done():
            while not done.is_set():
                if gradient(num_threads=3) != expected:
                    mismatches.append(1)
        callers = [threading.Thread(target=call_until_done) for _ in range(2)]
        for caller in callers:
            caller.start()
        codes = []
        for n in range(50):
            child = os.fork()
            if child == 0:
                signal.alarm(30)
                right = pool_threads() == 0 and all(gradient(num_threads=count) == expected for count in (1, 2, 4))
                os._exit(0 if right and pool_threads() == 3 else 1)
            codes.append(os.waitpid(child, 0)[1])
            assert gradient(num_threads=2) == expected
        done.set()
        for caller in callers:
            caller.join()
        assert codes == [0] * 50, codes
        assert not mismatches
        """
    )


def test_the_process_ends_while_threads_are_inside() -> None:
    _run_python(
        """
        import threading, time
        def call_for_ever():
            while True:
                gradient(num_threads=4)
        for _ in range(3):
            threading.Thread(target=call_for_ever, daemon=True).start()
        time.sleep(0.2)
        """
    )


PREAMBLE = """
import os, sys
import numpy as np
import convgrad
import convgrad.threads
from convgrad.loader import load_runtime

_random = np.random.default_rng(1)
_src = _random.standard_normal((2, 320, 6, 6), np.float32)
_diff_dst = _random.standard_normal((2, 384, 4, 4), np.float32)
_operation = convgrad.ConvolutionBackwardWeights(
    strides=(1, 1), pads_begin=(0, 0), pads_end=(0, 0), dilations=(1, 1), data_format="NCX", weights_format="OIX",
    groups=16, weights_shape=(384, 20, 3, 3),  # each group is work of its own: enough for every number of threads
)

def gradient(num_threads=None):
    return _operation(_src, _diff_dst, num_threads=num_threads).tobytes()

def pool_threads():
    return load_runtime()[1].wgrad_pool_threads()

expected = gradient(num_threads=1)
"""


def _run_python(code: str, **environment: str) -> None:
    """Run `code` in a new process, which must end well and in time."""
    body = PREAMBLE + "\n".join(line.removeprefix("        ") for line in code.splitlines())
    package = Path(convgrad.__file__).resolve().parents[1]
    run = _run([sys.executable, "-c", body], env={**os.environ, "PYTHONPATH": str(package), **environment})
    assert run.returncode == 0, f"exit code {run.returncode}\n{run.stdout[-2000:]}\n{run.stderr[-4000:]}"


def _run(command: list[str], env: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, check=False, env=env, capture_output=True, text=True, timeout=TIME_LIMIT)
