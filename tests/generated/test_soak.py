# SPDX-License-Identifier: Apache-2.0
"""Hours of use in seconds: many Python threads, many forks, worker processes; always the same bits, no hang, no growth.

Twenty problems stand for everything: all operations, ranks, element types and layouts. Each is computed once on one
thread and checked against the float64 reference; whatever comes later, from wherever, is compared with that bit by bit.

The tests run this file as a program of its own (`python test_soak.py threads 8 1000`): its memory is nobody else's,
a hang ends at a time limit, and worker processes that are spawned find everything again.

CONVGRAD_LONG=1 makes this the long run: 64 threads x 10,000 calls, 500 forks.
"""

from __future__ import annotations

import ctypes
import gc
import itertools
import json
import math
import multiprocessing
import os
import random
import signal
import statistics
import subprocess
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import pytest

import convgrad
from convgrad.loader import load_runtime
from reference.geometries import (
    DATA_FORMATS,
    DTYPES,
    OPERATIONS,
    RANKS,
    WORDS,
    Cell,
    Problem,
    SeededDraw,
    all_cells,
    draw_problem,
)
from reference.naive_gradient import reference_gradient

Array = npt.NDArray[Any]

LONG = os.environ.get("CONVGRAD_LONG") == "1"
THREADS, CALLS = (64, 10_000) if LONG else (8, 1_000)  # calls of each thread
FORKS = 500 if LONG else 50
TASKS = 2_000 if LONG else 200  # of a pool, or of a loader's workers
TIME_LIMIT = 3600.0 if LONG else 240.0  # s, for one program
FORK_SECONDS = 60  # for one forked child; a hang is none before that
MOST_GROWTH = 0.01
TURNS = 8

SHAPES = 20
UNIT_ROUNDOFF = {"f32": 2.0**-24, "bf16": 2.0**-8, "f16": 2.0**-11}


# ------------------------------------------------------------------------------------------------- problems and answers


@dataclass(frozen=True)
class Case:
    """One problem with data, ways to compute it that threads share, and what it gives."""

    problem: Problem
    source: Array
    delta: Array
    operation: Any
    plan: convgrad.Plan
    expected: bytes


def make_problems() -> list[Problem]:
    """The twenty. Every operation has every rank and both data layouts, every element type has every operation."""
    problems = []
    for number in range(SHAPES):
        op = OPERATIONS[number % 4]
        turn = number // 4  # 0..4
        dtype, rank = tuple(DTYPES)[(turn + number) % 3], RANKS[turn % 3]
        data_format, weights_format = DATA_FORMATS[turn % 2], WORDS[op].formats[turn // 2 % 2]
        cells: list[Cell] = [
            cell
            for cell in all_cells((op,), (rank,), (dtype,))
            if (cell.data_format, cell.weights_format) == (data_format, weights_format)
        ]
        draw = SeededDraw(f"soak {number}")
        # A work item for each thread and one to contend for; and a result that is mostly zeros says little.
        while True:
            cell = cells[draw.integer(0, len(cells) - 1)]
            problem = draw_problem(draw, cell)
            if _items(problem) >= 4 and 2 * problem.empty_taps <= math.prod(problem.kernel):
                break
        problems.append(problem)
    return problems


def _items(problem: Problem) -> int:
    operation = getattr(convgrad, problem.op)(**problem.attributes)
    plan = operation.prepare(
        problem.source_shape, problem.delta_shape, problem.weights_shape, dtype=DTYPES[problem.dtype]
    )
    return int(plan.schedule.items)


def make_cases() -> list[Case]:
    """The same cases, to the bit, in every process."""
    cases = []
    for number, problem in enumerate(make_problems()):
        rng = np.random.default_rng(number)
        source, delta = (
            rng.standard_normal(shape).astype(DTYPES[problem.dtype])
            for shape in (problem.source_shape, problem.delta_shape)
        )
        operation = getattr(convgrad, problem.op)(**problem.attributes, **{problem.words.shape: problem.weights_shape})
        plan = operation.prepare(source, delta)
        gradient = plan(source, delta, num_threads=1)
        exact = reference_gradient(problem.op, source, delta, problem.weights_shape, problem.attributes)
        # The bound of float32 sums, and one rounding to the element type.
        bound = (32 * UNIT_ROUNDOFF["f32"] + UNIT_ROUNDOFF[problem.dtype]) * exact.magnitude
        assert np.all(np.abs(gradient.astype(np.float64) - exact.gradient) <= bound), str(problem)
        assert 2 * np.count_nonzero(exact.gradient) >= gradient.size, f"says little: {problem}"
        cases.append(Case(problem, source, delta, operation, plan, gradient.tobytes()))
    return cases


def gradient_bytes(case: Case, form: int, num_threads: int) -> bytes:
    """The gradient by one of four ways; operations and plans are shared by all threads."""
    if form == 0:
        result = case.plan(case.source, case.delta, num_threads=num_threads)
    elif form == 1:
        result = case.operation(case.source, case.delta, num_threads=num_threads)
    elif form == 2:
        result = np.full(case.problem.weights_shape, np.nan, case.source.dtype)
        case.operation(case.source, case.delta, out=result, num_threads=num_threads)
    else:
        function = getattr(convgrad, case.problem.words.function)
        attributes = case.problem.attributes
        result = function(case.source, case.delta, case.problem.weights_shape, **attributes, num_threads=num_threads)
    return bytes(result.tobytes())


def count_mismatches(cases: list[Case], calls: int, seed: int) -> int:
    """Call that often, in an order of its own. Returns how many results were not as expected."""
    dice = random.Random(seed)
    wrong = 0
    for _ in range(calls):
        case = cases[dice.randrange(len(cases))]
        # Making an operation and a plan takes longest; one call in ten does.
        form = 3 if dice.random() < 0.1 else dice.randrange(3)
        wrong += gradient_bytes(case, form, dice.randint(1, 3)) != case.expected
    return wrong


def all_right(cases: list[Case]) -> bool:
    """Every case, on one thread and on several."""
    return all(gradient_bytes(case, 0, num) == case.expected for case in cases for num in (1, 2, 3))


def _largest_scratch(cases: list[Case]) -> int:
    """Bytes that one thread may keep: what the most demanding schedule asks for, in whole cache lines."""
    most = max(case.plan.schedule.scratch_bytes for case in cases)
    return -(-most // 64) * 64


# -------------------------------------------------------------------- programs: each prints one line of JSON at its end


class HeapFacts(ctypes.Structure):
    """What mallinfo2 of the C library tells: ten numbers, of which two are of interest."""

    _fields_: ClassVar = [(name, ctypes.c_size_t) for name in (*"abcd", "mapped", *"ef", "used", *"gh")]


def used_bytes() -> int:
    """Memory in use. What the process holds says less: for minutes, an allocator takes more and more of fewer holes."""
    gc.collect()
    heap_facts = ctypes.CDLL(None).mallinfo2
    heap_facts.restype = HeapFacts
    facts = heap_facts()
    return int(facts.used + facts.mapped)


def soak_threads(threads: int, calls: int) -> dict[str, Any]:
    """Python threads that call at the same time; memory is measured after each of TURNS equal turns."""
    cases = make_cases()
    used: list[int] = []
    scratch: list[int] = []

    def measure() -> None:
        used.append(used_bytes())
        scratch.append(int(load_runtime()[1].wgrad_scratch_bytes()))

    # Each thread waits for the others where memory is measured: nobody is inside a call.
    barrier = threading.Barrier(threads, measure)

    def work(seed: int) -> int:
        wrong = 0
        for turn in range(TURNS):
            wrong += count_mismatches(cases, calls // TURNS, seed + turn * threads)
            barrier.wait(TIME_LIMIT)
        return wrong

    with ThreadPoolExecutor(threads) as executor:
        mismatches = sum(executor.map(work, range(threads)))
    return {
        "calls": threads * calls,
        "mismatches": mismatches,
        "used": used,
        "scratch": scratch,
        "scratch_of_a_thread": _largest_scratch(cases),
        "pool_threads": int(load_runtime()[1].wgrad_pool_threads()),
        "right": all_right(cases),
    }


def soak_geometries(threads: int, calls: int) -> dict[str, Any]:
    """One operation, shared by threads, that sees more geometries than it keeps plans for."""
    batches = 600
    operation = convgrad.ConvolutionBackwardWeights(strides=(1,), dilations=(1,), auto_pad="valid")
    rng = np.random.default_rng(0)
    source = rng.standard_normal((batches, 5, 9), np.float32)  # N, IW, IC
    delta = rng.standard_normal((batches, 3, 8), np.float32)
    shape = (3, 9, 8)

    def gradient(batch: int) -> bytes:
        return bytes(operation(source[:batch], delta[:batch], shape).tobytes())

    expected = [gradient(batch) for batch in range(1, batches + 1)]

    def work(seed: int) -> int:
        dice = random.Random(seed)
        numbers = [dice.randrange(batches) for _ in range(calls)]
        return sum(gradient(number + 1) != expected[number] for number in numbers)

    used = []
    with ThreadPoolExecutor(threads) as executor:
        mismatches = 0
        for turn in range(TURNS):
            mismatches += sum(executor.map(work, range(turn * threads, (turn + 1) * threads)))
            used.append(used_bytes())
    return {"mismatches": mismatches, "used": used, "different": len(set(expected)) == batches}


def soak_forks(count: int) -> dict[str, Any]:
    """Forks after threaded use: half of them in a quiet process, half while threads are in the middle of calls."""
    cases = make_cases()
    with ThreadPoolExecutor(4) as executor:
        mismatches = sum(executor.map(lambda seed: count_mismatches(cases, 50, seed), range(4)))
    statuses, counts, done = [], [0, 0], threading.Event()

    def call_until_done(place: int) -> None:
        while not done.is_set():
            counts[place] += count_mismatches(cases, 5, place)

    callers = [threading.Thread(target=call_until_done, args=(place,)) for place in range(2)]
    for turn in range(count):
        if turn == count // 2:
            for caller in callers:
                caller.start()
        statuses.append(fork_and_wait(cases, turn))
        mismatches += count_mismatches(cases, 5, turn)
    done.set()
    for caller in callers:
        caller.join()
    return {"statuses": statuses, "mismatches": mismatches + sum(counts), "right": all_right(cases)}


def fork_and_wait(cases: list[Case], turn: int) -> int:
    """Returns 0 if the child computed the right bits, 1 if not, else what ended it: -SIGALRM for a hang."""
    child = os.fork()
    if child == 0:
        signal.alarm(FORK_SECONDS)
        code = 1
        try:
            code = int(not _is_right_in_child(cases, turn))
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def _is_right_in_child(cases: list[Case], turn: int) -> bool:
    if load_runtime()[1].wgrad_pool_threads() != 0:
        return False  # helpers of the parent are not here
    if turn % 3 == 0:
        return all_right(cases)
    if turn % 3 == 1:
        with ThreadPoolExecutor(3) as executor:
            return sum(executor.map(lambda seed: count_mismatches(cases, 10, seed), range(3))) == 0
    # A fork of a fork, the first of which has threads of its own by then.
    return count_mismatches(cases, 10, turn) == 0 and fork_and_wait(cases, 0) == 0 and all_right(cases)


_cases: list[Case] = []
"""Of a worker process."""


def start_worker() -> None:
    """What a worker process does first. One that was forked has the cases already, and the parent's plans."""
    signal.alarm(int(TIME_LIMIT))
    if not _cases:
        _cases.extend(make_cases())


def work_on(task: int) -> tuple[int, Array]:
    """One task of a worker process: a gradient, sent back as an array."""
    case = _cases[task % SHAPES]
    return task, case.operation(case.source, case.delta, num_threads=1 + task // SHAPES % 3)


def soak_pool(method: str, tasks: int) -> dict[str, Any]:
    """A pool of processes, after threaded use, while this process goes on computing."""
    start_worker()
    right = all_right(_cases)
    mismatches = finished = 0
    with multiprocessing.get_context(method).Pool(3, start_worker) as pool:
        results = pool.imap_unordered(work_on, range(tasks))
        for turn in range(tasks):
            task, gradient = results.next(FORK_SECONDS)
            mismatches += gradient.tobytes() != _cases[task % SHAPES].expected
            mismatches += count_mismatches(_cases, 2, turn)
            finished += 1
    return {"finished": finished, "mismatches": mismatches, "right": right and all_right(_cases)}


def serve(requests: Any, answers: Any) -> None:
    """The loop of a loader's worker: until None comes, one answer for each request."""
    start_worker()
    while (task := requests.get()) is not None:
        answers.put(work_on(task))


def soak_loader(method: str, tasks: int) -> dict[str, Any]:
    """Workers like those of a data loader: a queue of requests each, two ahead, and answers taken in order.

    Two epochs: the workers of the second are started by a process whose threads have been used all through the first.
    """
    start_worker()
    right = all_right(_cases)
    mismatches = 0
    context: Any = multiprocessing.get_context(method)
    codes: list[int | None] = []
    for _ in range(2):
        answers = context.Queue()
        queues = [context.Queue() for _ in range(3)]
        workers = [context.Process(target=serve, args=(requests, answers), daemon=True) for requests in queues]
        for worker in workers:
            worker.start()
        arrived: dict[int, Array] = {}
        asked = 0
        for expected in range(tasks):
            while asked < min(tasks, expected + 6):
                queues[asked % 3].put(asked)
                asked += 1
            while expected not in arrived:
                task, gradient = answers.get(timeout=FORK_SECONDS)
                arrived[task] = gradient
            mismatches += arrived.pop(expected).tobytes() != _cases[expected % SHAPES].expected
            mismatches += count_mismatches(_cases, 2, expected)
        for requests in queues:
            requests.put(None)
        for worker in workers:
            worker.join(FORK_SECONDS)
            codes.append(worker.exitcode)
    return {"codes": codes, "mismatches": mismatches, "right": right and all_right(_cases)}


PROGRAMS: dict[str, Callable[..., dict[str, Any]]] = {
    "threads": soak_threads,
    "geometries": soak_geometries,
    "forks": soak_forks,
    "pool": soak_pool,
    "loader": soak_loader,
}


def main(name: str, *arguments: str) -> None:
    print(json.dumps(PROGRAMS[name](*(int(text) if text.isdigit() else text for text in arguments))))


# ------------------------------------------------------------------------------------------------------------ the tests


def run_program(name: str, *arguments: object) -> dict[str, Any]:
    """Run one of PROGRAMS in a process of its own, with processes of its own."""
    # One allocator and one arena, for Python's objects too: what is in use can be told to the byte.
    environment = {
        **os.environ,
        "MALLOC_ARENA_MAX": "1",
        "PYTHONMALLOC": "malloc",
        "PYTHONPATH": os.pathsep.join(path for path in sys.path if path),
    }
    command = [sys.executable, __file__, name, *map(str, arguments)]
    process = subprocess.Popen(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    try:
        output, errors = process.communicate(timeout=TIME_LIMIT)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        pytest.fail(f"{name} {arguments} hangs: not at its end after {TIME_LIMIT} s")
    assert process.returncode == 0, f"{name} {arguments}: exit code {process.returncode}\n{errors[-4000:]}"
    result: dict[str, Any] = json.loads(output)
    return result


def check_growth(used: list[int]) -> None:
    """What is made once, by whichever turn, makes one turn take more; a leak goes on."""
    assert len(used) == TURNS
    *steps, _ = sorted(after - before for before, after in itertools.pairwise(used))
    pace = statistics.mean(steps)
    most = MOST_GROWTH * used[0] / (TURNS - 1)
    assert pace <= most, f"{pace} bytes more with each turn, at most {most:.0f} are allowed: {used}"


def test_a_leak_is_seen_and_a_single_step_is_not() -> None:
    start, leak = 40_000_000, 60_000
    check_growth([start] * 2 + [start + 20 * leak] * (TURNS - 2))
    for some in (1, 2, 3):  # a leak in every turn, in every other one, in every third
        with pytest.raises(AssertionError, match="bytes more with each turn"):
            check_growth([start + turn // some * some * 3 * leak for turn in range(TURNS)])
    with pytest.raises(AssertionError, match="bytes more with each turn"):
        check_growth([start + turn * leak for turn in range(TURNS)])


def test_the_twenty_problems_are_of_every_kind() -> None:
    problems = make_problems()
    assert len(set(problems)) == SHAPES
    for op in OPERATIONS:
        own = [problem for problem in problems if problem.op == op]
        for kinds, name in ((RANKS, "rank"), (DTYPES, "dtype"), (DATA_FORMATS, "data_format")):
            assert {getattr(problem, name) for problem in own} == set(kinds), (op, name)
        assert {problem.weights_format for problem in own} == set(WORDS[op].formats), op
    assert any(problem.groups > 1 for problem in problems) and any(problem.groups == 1 for problem in problems)


def test_threads_get_the_same_bits_and_memory_does_not_grow() -> None:
    result = run_program("threads", THREADS, CALLS)
    assert result["calls"] == THREADS * CALLS and result["mismatches"] == 0 and result["right"], result
    assert result["pool_threads"] == 2, "calls with up to three threads share two helpers"
    check_growth(result["used"])
    # Scratch is for as many threads as can work at a time.
    most = (THREADS + 2) * result["scratch_of_a_thread"]
    assert result["scratch"][0] > 0 and result["scratch"] == sorted(result["scratch"]), result
    assert result["scratch"][-1] <= most, result


def test_one_operation_may_see_any_number_of_geometries() -> None:
    result = run_program("geometries", 8, CALLS // 4)
    assert result["mismatches"] == 0 and result["different"], result
    check_growth(result["used"])


def test_forks_after_threaded_use_compute_the_same_bits() -> None:
    result = run_program("forks", FORKS)
    assert result["statuses"] == [0] * FORKS, "1: wrong bits; -14: a hang"
    assert result["mismatches"] == 0 and result["right"], result


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_a_pool_of_processes(method: str) -> None:
    result = run_program("pool", method, TASKS)
    assert result == {"finished": TASKS, "mismatches": 0, "right": True}


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_workers_of_a_data_loader(method: str) -> None:
    result = run_program("loader", method, TASKS // 2)
    assert result == {"codes": [0] * 6, "mismatches": 0, "right": True}


if __name__ == "__main__":
    main(*sys.argv[1:])
