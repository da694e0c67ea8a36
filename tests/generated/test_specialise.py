# SPDX-License-Identifier: Apache-2.0
"""Kernels with fixed sizes: when they are compiled, that they change no bit, and how many of them there are."""

from __future__ import annotations

import json
import os
import random
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import filelock
import numpy as np
import pytest

import convgrad
import convgrad.cache
from convgrad import eviction, loader
from convgrad.cache import Cache, Recipe, cache_directory, look_up, obtain
from convgrad.compiler import Compiler, find_compiler
from convgrad.errors import CompileError, SpecError
from convgrad.planner import Schedule, plan_schedule
from convgrad.specialise import calls_needed

SETUP = """
import gc, json, os, sys, threading, time, warnings
import numpy as np
import convgrad
from convgrad import eviction, loader, specialise

def layer(length=9, channels=5, batch=2):
    # A 1-D layer of 3 taps: (operation, src, diff_dst), the numbers always the same.
    operation = convgrad.ConvolutionBackwardWeights(
        strides=[1], pads_begin=[0], pads_end=[0], dilations=[1], weights_shape=[3, channels, 4]
    )
    rng = np.random.default_rng(length)
    src = rng.standard_normal((batch, length, channels), dtype=np.float32)
    return operation, src, rng.standard_normal((batch, length - 2, 4), dtype=np.float32)

def call(length=9, channels=5, batch=2):
    operation, src, diff_dst = layer(length, channels, batch)
    return operation(src, diff_dst).tobytes().hex()

def expect(*arguments):
    mode = convgrad.get_specialize()
    convgrad.set_specialize("never")
    result = call(*arguments)
    convgrad.set_specialize(mode)
    return result

def idle():
    # Wait for the thread in the background.
    while (thread := specialise._thread) is not None:
        thread.join()

def mapped():
    # The kernels with fixed sizes that are in memory.
    gc.collect()
    with open("/proc/self/maps") as lines:
        return len({line.split(maxsplit=5)[5] for line in lines if ".sized-" in line})

def follow(plan):
    return plan._find_execution(convgrad.get_num_threads()).follower

def report(**facts):
    print(json.dumps({"failed": sum(one.failed for one in specialise._known.values()), **facts}))
"""

# The real compiler; it logs what it compiles, and does worse to kernels with fixed sizes when it is told to.
COMPILER = """#!/bin/sh
case "$*" in
*--version*) ;;
*-DWGRAD_SIZES*)
    echo "sized $$" >> "$LOG"
    [ -z "$DELAY" ] || sleep "$DELAY"
    case "$FAULT" in
    fail) echo "no fixed sizes today"; exit 1;;
    wrong) sed -i 's/include "\\(wgrad_[a-z0-9_]*\\)\\.c"/include "\\1.c"\\n#define BROKEN \\1/' module.c
        symbol=$(sed -n 's/.*BROKEN //p' module.c)
        sed -i "1i #define $symbol renamed" module.c
        printf '#undef %s\\nvoid %s(const wgrad_geometry *geometry, const void *plain, const void *windowed, void *out,
            void *scratch, int64_t first, int64_t last) { if (first == 0) *(float *)out = 1; }\\n' \\
            "$symbol" "$symbol" >> module.c;;
    esac;;
*) echo "any $$" >> "$LOG";;
esac
"""


class Bench:
    """The cache and the log of one test, and processes that use them."""

    def __init__(self, path: Path, compiler: Path) -> None:
        self.folder, self.log = path / "cache", path / "log"
        path.mkdir(parents=True, exist_ok=True)
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("CONVGRAD_", "XDG_", "CC"))}
        packages = os.pathsep.join([str(Path(convgrad.__file__).parent.parent), *filter(None, sys.path)])
        self.environment = {**kept, "PYTHONPATH": packages, "CONVGRAD_CC": str(compiler), "LOG": str(self.log)}
        self.environment["CONVGRAD_CACHE_DIR"] = str(self.folder)

    def start(self, program: str, **environment: str) -> subprocess.Popen[str]:
        command = [sys.executable, "-c", SETUP + program]
        environment = {**self.environment, **environment}
        return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def run(self, program: str, **environment: str) -> Any:
        return finish(self.start(program, **environment))

    @property
    def compiled(self) -> int:
        """How often the compiler was started for fixed sizes."""
        return self.log.read_text().count("sized") if self.log.exists() else 0

    def entries(self) -> list[str]:
        return sorted(path.name for path in (self.folder / "entries").iterdir() if ".sized-" in path.name)


def finish(process: subprocess.Popen[str]) -> Any:
    output, errors = process.communicate(timeout=300)
    assert process.returncode == 0 and errors == "", errors
    return json.loads(output)


@pytest.fixture(scope="session")
def warm_cache(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """(the compiler, a cache that has all kernels for any size that the tests use)."""
    path = tmp_path_factory.mktemp("specialise")
    compiler = path / "cc"
    compiler.write_text(f'{COMPILER}exec {" ".join(find_compiler().argv)} "$@"\n', encoding="utf-8")
    compiler.chmod(0o755)
    bench = Bench(path / "warm", compiler)
    bench.run("call()\nreport()", CONVGRAD_SPECIALIZE="never")
    assert bench.compiled == 0
    return compiler, bench.folder


@pytest.fixture
def bench(tmp_path: Path, warm_cache: tuple[Path, Path]) -> Bench:
    compiler, folder = warm_cache
    made = Bench(tmp_path / "bench", compiler)
    shutil.copytree(folder, made.folder)
    return made


# When


def test_what_comes_back_is_compiled_in_the_background_and_later_processes_have_it_at_once(bench: Bench) -> None:
    program = """
operation, src, diff_dst = layer()
results = [operation(src, diff_dst).tobytes().hex()]
idle()
first = mapped()
results.append(operation(src, diff_dst).tobytes().hex())
idle()
second = mapped()
results.append(operation(src, diff_dst).tobytes().hex())
report(mapped=[first, second], same=set(results) == {expect()}, threads=threading.active_count())
"""
    assert bench.run(program) == {"failed": 0, "mapped": [0, 1], "same": True, "threads": 1}
    assert bench.compiled == 1
    assert bench.run(program) == {"failed": 0, "mapped": [1, 1], "same": True, "threads": 1}
    assert bench.compiled == 1, "from the cache at its first call"


def test_a_call_of_the_function_form_comes_back_too(bench: Bench) -> None:
    program = """
_, src, diff_dst = layer()
for _ in range(3):
    convgrad.convolution_backward_weights(
        src, diff_dst, [3, 5, 4], strides=[1], pads_begin=[0], pads_end=[0], dilations=[1]
    )
    idle()
report(mapped=mapped())
"""
    assert bench.run(program) == {"failed": 0, "mapped": 1}
    assert bench.compiled == 1


def test_prepare_waits(bench: Bench) -> None:
    program = """
operation, src, diff_dst = layer()
plan = operation.prepare(src, diff_dst)
report(mapped=mapped(), same=plan(src, diff_dst).tobytes().hex() == expect(), threads=threading.active_count())
"""
    assert bench.run(program) == {"failed": 0, "mapped": 1, "same": True, "threads": 1}
    assert bench.compiled == 1


def test_prepare_waits_for_what_the_background_is_about(bench: Bench) -> None:
    program = """
operation, src, diff_dst = layer()
operation(src, diff_dst)
operation(src, diff_dst)
operation.prepare(src, diff_dst)
report(mapped=mapped())
"""
    assert bench.run(program, DELAY="0.5") == {"failed": 0, "mapped": 1}
    assert bench.compiled == 1


@pytest.mark.parametrize(("mode", "compiled"), [("wait", 1), ("never", 0), ("auto", 0)])
@pytest.mark.parametrize("how", ["variable", "function"])
def test_the_mode_decides_about_the_first_call(mode: str, compiled: int, how: str, bench: Bench) -> None:
    program = f"convgrad.set_specialize({mode!r})\n" if how == "function" else ""
    program += "call()\nidle()\nreport(mapped=mapped(), mode=convgrad.get_specialize())"
    environment = {"CONVGRAD_SPECIALIZE": {"function": "wait", "variable": mode}[how]}
    assert bench.run(program, **environment) == {"failed": 0, "mapped": compiled, "mode": mode}
    assert bench.compiled == compiled


def test_never_holds_from_the_next_call_on_and_for_prepare_and_for_the_disk(bench: Bench) -> None:
    program = """
operation, src, diff_dst = layer()
plan = operation.prepare(src, diff_dst)
convgrad.set_specialize("never")
taken = [follow(plan).note_call() is not None]
other, src, diff_dst = layer(11)
other.prepare(src, diff_dst)
for _ in range(5):
    other(src, diff_dst)
convgrad.set_specialize("auto")
taken.append(follow(plan).note_call() is not None)
idle()
report(mapped=mapped(), taken=taken)
"""
    assert bench.run(program) == {"failed": 0, "mapped": 1, "taken": [False, True]}
    assert bench.compiled == 1
    assert bench.run("call()\ncall()\nreport(mapped=mapped())", CONVGRAD_SPECIALIZE="never")["mapped"] == 0


def test_a_wrong_mode_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("convgrad.mode._mode", None)
    with pytest.raises(SpecError, match=r"mode='always': expected \"auto\", \"wait\" or \"never\""):
        convgrad.set_specialize("always")  # type: ignore[arg-type]
    monkeypatch.setenv("CONVGRAD_SPECIALIZE", "1")
    with pytest.raises(SpecError, match=r"CONVGRAD_SPECIALIZE='1': expected \"auto\", \"wait\" or \"never\""):
        convgrad.get_specialize()
    monkeypatch.setenv("CONVGRAD_SPECIALIZE", " never ")
    assert convgrad.get_specialize() == "never"
    monkeypatch.setattr("convgrad.mode._mode", None)
    monkeypatch.setenv("CONVGRAD_SPECIALIZE", "")
    assert convgrad.get_specialize() == "auto"


def test_all_batch_sizes_share_one_kernel(bench: Bench) -> None:
    program = """
same = []
for batch in (3, 1, 2, 7, 40):
    same.append(call(9, 5, batch) == expect(9, 5, batch))
    same.append(call(9, 5, batch) == expect(9, 5, batch))
    idle()
report(mapped=mapped(), same=all(same))
"""
    assert bench.run(program) == {"failed": 0, "mapped": 1, "same": True}
    assert bench.compiled == 1


def test_threads_and_processes_at_once_compile_it_once(bench: Bench) -> None:
    program = """
from concurrent.futures import ThreadPoolExecutor
with ThreadPoolExecutor(8) as executor:
    results = list(executor.map(lambda _: call(), range(64)))
idle()
report(results=len(set(results)), mapped=mapped())
"""
    started = [bench.start(program, DELAY="0.3") for _ in range(3)]
    assert [finish(process) for process in started] == [{"failed": 0, "results": 1, "mapped": 1}] * 3
    assert bench.compiled == 1


# How many


def test_a_thousand_random_lengths_start_at_most_twenty_compilations(bench: Bench) -> None:
    lengths = random.Random(1).choices(range(3, 1500), k=1000)
    program = f"""
operation, _, _ = layer()
src, diff_dst = np.ones((1, 1500, 5), np.float32), np.ones((1, 1500, 4), np.float32)
sums = set()
for turn in range(3):
    for length in {lengths}:
        sums.add(float(operation(src[:, :length], diff_dst[:, : length - 2])[0, 0, 0]) == length - 2)
        if specialise._thread is not None and turn == 0:
            time.sleep(0.001)  # as an adversary: the queue is never full
for turn in range(200):  # one that comes back often enough is worth it all the same
    sums.add(float(operation(src[:, :777], diff_dst[:, :775])[0, 0, 0]) == 775)
idle()
report(sums=list(sums), known=len(specialise._known))
"""
    result = bench.run(program)
    assert result == {"failed": 0, "sums": [True], "known": len({*lengths, 777})}
    assert 1 <= bench.compiled <= 20


def test_calls_needed_grows_with_what_a_layer_has_had() -> None:
    assert calls_needed(1, 0) == calls_needed(16, 3) == 2
    assert calls_needed(16, 4) == 8 and calls_needed(16, 8) == 32 and calls_needed(16, 15) == 128
    assert calls_needed(1000, 0) == 125
    assert calls_needed(1, 16) is None
    started = 0
    for distinct in range(1, 100_000):
        # Each geometry is called 1,000 times as soon as it is seen.
        if (needed := calls_needed(distinct, started)) is not None and needed <= 1000:
            started += 1
    assert started <= 20


def test_what_finds_the_queue_full_asks_again(bench: Bench) -> None:
    program = """
specialise.QUEUE_LIMIT = 1
layers = [layer(length) for length in (9, 10, 11, 12)]
most = 0
for _ in range(2):
    for operation, src, diff_dst in layers:
        operation(src, diff_dst)
        most = max(most, len(specialise._queue))
idle()
first = mapped()
for _ in range(4):
    for operation, src, diff_dst in layers:
        operation(src, diff_dst)
        idle()
report(first=first < 4, mapped=mapped(), most=most)
"""
    assert bench.run(program, DELAY="0.2") == {"failed": 0, "first": True, "mapped": 4, "most": 1}
    assert bench.compiled == 4


def test_a_bounded_number_is_in_memory_and_what_runs_stays_open(bench: Bench) -> None:
    program = """
specialise.LOADED_LIMIT = 2
plans = []
for length in (9, 10, 11):
    operation, src, diff_dst = layer(length)
    plans.append((operation.prepare(src, diff_dst), src, diff_dst))
    if length == 9:
        running = follow(plans[0][0]).note_call()  # a call that takes long
counts = [mapped()]
del running
counts.append(mapped())
evicted = [follow(plan)._specialisation.evictions for plan, _, _ in plans]
same = [plan(src, diff_dst).tobytes().hex() == expect(9 + place) for place, (plan, src, diff_dst) in enumerate(plans)]
for _ in range(4):  # it comes back, from the disk, and another one has to go
    plans[0][0](*plans[0][1:])
    idle()
back = follow(plans[0][0]).note_call() is not None
report(counts=counts, evicted=evicted, same=all(same), back=back, mapped=mapped())
"""
    assert bench.run(program) == {
        "failed": 0, "counts": [3, 2], "evicted": [1, 0, 0], "same": True, "back": True, "mapped": 2,
    }  # fmt: skip
    assert bench.compiled == 3


def test_eviction_under_running_threads_harms_nobody(bench: Bench) -> None:
    program = """
specialise.LOADED_LIMIT = 2
expected = {length: expect(length) for length in range(9, 15)}
stop = time.monotonic() + 3
wrong, loads = [], 0
def work(place):
    turn = place
    while time.monotonic() < stop:
        length = 9 + turn % 6
        if call(length) != expected[length]:
            wrong.append(length)
        turn += 1
        if turn % 50 == 0:  # what was thrown out comes back at once
            for one in list(specialise._known.values()):
                one.evictions = min(one.evictions, 1)
threads = [threading.Thread(target=work, args=(place,)) for place in range(6)]
for thread in threads: thread.start()
for thread in threads: thread.join()
idle()
report(wrong=wrong, mapped=mapped())
"""
    assert bench.run(program) == {"failed": 0, "wrong": [], "mapped": 2}
    assert bench.compiled == 6


# Faults


def test_a_failed_compilation_warns_once_and_is_not_tried_again(bench: Bench) -> None:
    program = """
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    same = []
    for length in (9, 10):
        for _ in range(6):
            same.append(call(length) == expect(length))
            idle()
operation, src, diff_dst = layer(9)
prepared = operation.prepare(src, diff_dst).wait()
report(same=all(same), warnings=[str(warning.message) for warning in caught], mapped=mapped(), prepared=prepared)
"""
    result = bench.run(program, FAULT="fail")
    (warning,) = result.pop("warnings")
    assert result == {"failed": 2, "same": True, "mapped": 0, "prepared": False} and bench.compiled == 2
    assert "no fixed sizes today" in warning and "CONVGRAD_SPECIALIZE=never" in warning and "wgrad_1d_" in warning
    program = """
warnings.simplefilter("error")
results = {call() for _ in range(9)}
idle()
report(results=len(results | {call()}))
"""
    assert bench.run(program, FAULT="fail") == {"failed": 1, "results": 1}, "no error of a call that has its result"


@pytest.mark.parametrize("mode", ["auto", "wait"])
def test_one_that_computes_wrongly_is_never_published(mode: str, bench: Bench) -> None:
    program = """
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    results = set()
    for _ in range(3):
        results.add(call())
        idle()
report(same=results == {expect()}, warnings=[str(warning.message) for warning in caught])
"""
    result = bench.run(program, FAULT="wrong", CONVGRAD_SPECIALIZE=mode)
    (warning,) = result.pop("warnings")
    assert result == {"failed": 1, "same": True} and bench.compiled == 1
    assert "compiled with fixed sizes, but fails its self-test" in warning
    assert bench.entries() == [] and list((bench.folder / "builds").iterdir()) == []


def test_the_end_of_the_process_stops_the_compiler(bench: Bench) -> None:
    program = """
for _ in range(2):
    call()
while not os.path.exists(os.environ["LOG"]):
    time.sleep(0.01)
report()
sys.stdout.close()
os.close(1)
"""
    process = bench.start(program, DELAY="100")
    assert process.stdout is not None
    process.stdout.read()
    start = time.monotonic()
    finish_quietly(process)
    assert time.monotonic() - start < 5, "a daemon, and its compiler is killed"
    assert bench.compiled == 1
    pid = int(bench.log.read_text().split()[1])
    assert not Path(f"/proc/{pid}").exists()
    assert bench.entries() == [] and list((bench.folder / "builds").iterdir()) == []
    assert bench.run("call()\ncall()\nidle()\nreport(mapped=mapped())")["mapped"] == 1


def finish_quietly(process: subprocess.Popen[str]) -> None:
    assert process.stdout is not None and process.stderr is not None
    with process.stdout, process.stderr:
        assert process.wait(60) == 0 and process.stderr.read() == ""


def test_a_fork_during_a_compilation_goes_on_alone(bench: Bench) -> None:
    program = """
expected = expect(), expect(10)
call()
call()
while not os.path.exists(os.environ["LOG"]):
    time.sleep(0.01)
pids = []
for _ in range(4):
    if (pid := os.fork()) == 0:
        code = 1
        try:
            results = [call(), call(), call(10), call(10)]  # the first waits for nobody
            operation, src, diff_dst = layer(9)
            operation.prepare(src, diff_dst)
            results += [call(), call(10)]
            idle()
            right = [expected[0]] * 2 + [expected[1]] * 2 + list(expected)
            code = 0 if results == right and mapped() == 2 else 2
        finally:
            os._exit(code)
    pids.append(pid)
codes = [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in pids]
idle()
report(codes=codes, mapped=mapped(), same=call() == expected[0])
"""
    assert bench.run(program, DELAY="0.3") == {"failed": 0, "codes": [0] * 4, "mapped": 1, "same": True}
    assert bench.compiled == 2, "one for each geometry, whoever it was"


def test_a_cache_that_cannot_be_written_serves_what_it_has(bench: Bench) -> None:
    bench.run("call()\ncall()\nidle()\nreport()")
    paths = [bench.folder, *bench.folder.rglob("*")]
    for path in paths:
        path.chmod(0o500 if path.is_dir() else 0o400)
    try:
        assert bench.run("call()\nreport(mapped=mapped())") == {"failed": 0, "mapped": 1}
    finally:
        for path in paths:
            path.chmod(0o700)
    assert bench.compiled == 1


def test_a_damaged_entry_is_compiled_again(bench: Bench) -> None:
    bench.run("call()\ncall()\nidle()\nreport()")
    binary = bench.folder / "entries" / bench.entries()[0] / "module.so"
    data = bytearray(binary.read_bytes())
    data[len(data) // 2] ^= 1
    binary.write_bytes(data)
    assert bench.run("call()\nfirst = mapped()\ncall()\nidle()\nreport(mapped=[first, mapped()])")["mapped"] == [0, 1]
    assert bench.compiled == 2


# In this process


@pytest.fixture
def schedule() -> Schedule:
    operation = convgrad.ConvolutionBackwardWeights(
        strides=[1], pads_begin=[0], pads_end=[0], dilations=[1], weights_shape=[3, 5, 4]
    )
    plan = operation.prepare((2, 9, 5), (2, 7, 4), dtype="f32")
    return plan_schedule(plan.geometry, "f32", plan.isa, specialised=True)


@pytest.mark.parametrize("sizes", [None, {}, {"WGRAD_OH=1 -x": 1}, {"a": 1}, {"WGRAD_OH": 1.5}, {"WGRAD_OH": True}])
def test_sizes_are_integers_and_plain_definitions(sizes: Any, schedule: Schedule) -> None:
    with pytest.raises(ValueError, match="sizes="):
        loader.open_specialised(schedule._replace(sizes=sizes))


def test_loading_gives_an_address_that_stays(schedule: Schedule) -> None:
    address = loader.load_specialised(schedule)
    assert address == loader.load_specialised(schedule) != loader.load_kernel(schedule.kernel, schedule.isa)


def test_one_evicted_by_another_process_before_it_was_opened_is_made_again(
    schedule: Schedule, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = []

    def obtain_and_lose(*arguments: Any) -> Path:
        path = obtain(*arguments)
        calls.append(path)
        if len(calls) == 1:
            shutil.rmtree(path.parent)
        return path

    monkeypatch.setattr(loader, "obtain", obtain_and_lose)
    assert schedule.sizes is not None
    schedule = schedule._replace(sizes={**schedule.sizes, "WGRAD_UNUSED": 7})  # nobody has this one open
    assert loader.open_specialised(schedule).path == calls[1] and len(calls) == 2


def test_a_file_that_is_no_shared_object_is_an_error_of_its_own(schedule: Schedule, tmp_path: Path) -> None:
    path = tmp_path / "module.so"
    path.write_bytes(b"\x7fELF" + bytes(100))
    with pytest.raises(CompileError, match=r"module\.so cannot be loaded: "):
        loader.SharedObject(path, "symbol", loader.load_runtime())
    there = loader.open_specialised(schedule).path
    with pytest.raises(CompileError, match=r"module\.so has no function symbol: "):
        loader.SharedObject(there, "symbol", loader.load_runtime())


# On the disk, with something shorter than a kernel

RECIPE = Recipe("toy.sized", (("toy.c", "int x;"),), ("-O2",), "base", ("linux x86_64",))
COMPILER_OF_TOYS = Compiler(("/usr/bin/cc",), "/usr/bin/cc", "cc 1.0", "PATH")


def produce(compiler: Compiler, folder: Path) -> Path:
    (folder / "module.so").write_bytes(bytes(1000))
    return folder / "module.so"


def get(number: int, recipe: Recipe = RECIPE) -> str:
    return obtain(recipe._replace(arguments=(f"-D{number}",)), lambda: COMPILER_OF_TOYS, produce).parent.name


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("CONVGRAD_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr(convgrad.cache, "_warned", False)
    monkeypatch.setattr(eviction, "ENTRY_LIMIT", 3)
    return cache_directory()


def names(folder: Path, what: str = "entries") -> set[str]:
    return {name.removesuffix(".lock") for name in os.listdir(folder / what)}


def test_the_disk_keeps_those_used_last(folder: Path) -> None:
    zero, one, two = (get(number) for number in range(3))
    any_size = [get(number, RECIPE._replace(module="_toy")) for number in range(5)]
    assert names(folder) == {zero, one, two, *any_size}
    assert get(0) == zero, "used again: one is the oldest now"
    three = get(3)
    assert names(folder) == {zero, two, three, *any_size} == names(folder, "locks")
    assert look_up(RECIPE._replace(arguments=("-D2",)), lambda: COMPILER_OF_TOYS) is not None
    four = get(4)
    assert names(folder) == {two, three, four, *any_size} == names(folder, "locks")
    assert get(1) == one and names(folder, "builds") == set()


def test_the_disk_is_bounded_in_bytes(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(eviction, "BYTE_LIMIT", 4000)
    zero = get(0)
    size = sum(path.stat().st_size for path in (folder / "entries" / zero).iterdir())
    monkeypatch.setattr(eviction, "BYTE_LIMIT", 2 * size)
    one, two = get(1), get(2)
    assert names(folder) == {one, two}
    monkeypatch.setattr(eviction, "BYTE_LIMIT", 1)
    three = get(3)
    assert names(folder) == {three}, "the one just made stays, or nothing ever would"


def test_an_entry_whose_lock_is_held_is_not_evicted(folder: Path) -> None:
    zero, one, two = (get(number) for number in range(3))
    with filelock.FileLock(folder / "locks" / f"{zero}.lock"):
        three = get(3)
        assert names(folder) == {zero, two, three}, "the next one went"
    four = get(4)
    assert names(folder) == {two, three, four} and one not in names(folder, "locks")


def test_one_that_is_used_while_it_is_about_to_go_stays(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    zero, one, two = (get(number) for number in range(3))
    real = eviction.evict_entries

    def evict(*arguments: Any) -> list[str]:
        locked: Callable[[str], Any] = arguments[-1]

        def lock(name: str) -> Any:
            if name == zero:
                time.sleep(0.01)
                assert get(0) == zero
            return locked(name)

        return real(*arguments[:-1], lock)

    monkeypatch.setattr(convgrad.cache, "evict_entries", evict)
    three = get(3)
    assert names(folder) == {zero, two, three} and one not in names(folder, "locks")


def test_what_an_eviction_that_was_killed_left_is_swept(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(3):
        get(number)

    def die(*arguments: Any, **keywords: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as context, pytest.raises(KeyboardInterrupt):
        context.setattr(eviction.shutil, "rmtree", die)
        context.setattr(Cache, "_sweep", lambda *arguments: None)
        get(3)
    get(4)
    assert names(folder, "builds") == set() and len(names(folder)) == 3


def test_processes_that_evict_each_others_entries(bench: Bench) -> None:
    program = """
import random
eviction.ENTRY_LIMIT = 3
_, src, diff_dst = layer()
plan = layer()[0].prepare(src, diff_dst)
schedule = specialise.plan_schedule(plan.geometry, "f32", plan.isa, specialised=True)
known = set()
for turn in range(15):
    number = random.randrange(6)
    variant = schedule._replace(sizes={**schedule.sizes, "WGRAD_UNUSED": number})
    known.add(loader.open_specialised(variant).address != 0)
report(known=list(known))
"""
    started = [bench.start(program) for _ in range(3)]
    assert [finish(process) for process in started] == [{"failed": 0, "known": [True]}] * 3
    assert len(bench.entries()) <= 6 and list((bench.folder / "builds").iterdir()) == []


def test_threads_that_evict_each_others_entries(folder: Path) -> None:
    with ThreadPoolExecutor(8) as executor:
        list(executor.map(lambda turn: get(turn * 7 % 10), range(400)))
    get(11)
    assert len(names(folder)) == 3 and names(folder, "builds") == set()


# The bits


@pytest.mark.parametrize("data_format", ["NXC", "NCX"])
@pytest.mark.parametrize("rank", [1, 2, 3])
def test_the_bits_are_those_of_the_kernel_for_any_size(
    rank: int, data_format: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = np.random.default_rng(rank)
    for groups, channels, outputs in ((1, 5, 4), (4, 4, 8), (6, 6, 6), (1, 37, 33)):
        extents = tuple(int(x) for x in rng.integers(5, 12, rank))
        taps = tuple(int(x) for x in rng.integers(1, 4, rank))
        reached = [(i + 2 - k) // 2 + 1 for i, k in zip(extents, taps, strict=True)]
        shapes = [(3, channels, *extents), (3, outputs, *reached)]
        if data_format == "NXC":
            shapes = [(n, *rest, c) for n, c, *rest in shapes]
        src, diff_dst = (rng.standard_normal(shape, dtype=np.float32) for shape in shapes)
        operation = convgrad.ConvolutionBackwardWeights(
            strides=[2] * rank, pads_begin=[1] * rank, pads_end=[1] * rank, dilations=[1] * rank, groups=groups,
            data_format=data_format, weights_format="OIX", weights_shape=[outputs, channels // groups, *taps],
        )  # fmt: skip
        results = []
        for mode in ("never", "wait"):
            monkeypatch.setattr("convgrad.mode._mode", mode)
            plan = operation.prepare(src, diff_dst)
            results += [plan(src, diff_dst, num_threads=threads).tobytes() for threads in (1, 3)]
            assert plan.schedule.specialised == (mode == "wait")
        assert len(set(results)) == 1
