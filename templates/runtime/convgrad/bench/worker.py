# SPDX-License-Identifier: Apache-2.0
"""The child process of a benchmark: one problem after the other, all contenders interleaved in this one process.

It is a process of its own because the number of OpenMP's threads is read when its library is loaded, because a peer
that ends its process must not end the benchmark, and so that nothing that the caller has loaded is in the way.

Requests come on standard input, answers go to standard output, one JSON document in each line. An answer with "stage"
says what is tried next: if the process ends there, that is who ended it.
"""

from __future__ import annotations

import gc
import json
import os
import signal
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from convgrad.bench import contender, onednn_peer, torch_peer
from convgrad.bench.contender import ONEDNN, OURS, TORCH, Contender, OwnKernel, UnavailableError
from convgrad.bench.operands import exact_gradient, make_operands
from convgrad.bench.problem import Problem
from convgrad.bench.roofs import Roofs, read_cache_sizes
from convgrad.errors import CompileError, SpecError
from convgrad.mode import set_specialize
from convgrad.processor import read_processor

FAILED = 4
"""Exit code after an error that has been reported."""

_SAMPLE_SECONDS = 0.004
"""What one sample takes at least: far more than a clock's grain, far less than a neighbour's time slice."""
_WARM_SECONDS = 0.01
"""A contender that is faster than this runs once unmeasured before each sample, to find its data as it left it."""
_SLOW_SECONDS = 0.1
"""A contender that takes longer is tried once, not twice, before it is known how often it fits into a sample."""
_PAUSE_SECONDS = 0.002
"""Between contenders on several threads: OpenMP's helpers spin for a while after their work, on cores that are not
theirs."""
_FEWEST_ROUNDS = 6
"""From this many pairs on, the extremes hold the median with 95 %."""
_LARGEST_BYTES = 8 << 30
"""A layer that needs more memory is left out."""
_MEMORY_SHARE = 0.6
"""Of the memory that is free; the rest is for what the contenders themselves ask for."""


@dataclass(frozen=True, slots=True)
class Settings:
    """What holds for all problems of a run.

    rounds   pairs to measure; fewer when `seconds` are over, but never fewer than six
    seconds  for one problem
    any_size whether the kernels for any size are measured, instead of those with compile-time sizes
    """

    dtype: str
    layout: str
    threads: int
    rounds: int
    seconds: float
    peers: tuple[str, ...]
    any_size: bool = False


def main() -> None:
    """Serve until there are no more requests."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the parent as well, and that ends this process
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # whatever a peer prints must not look like an answer

    def answer(**document: Any) -> None:
        answers.write(json.dumps(document) + "\n")
        answers.flush()

    try:
        _serve(answer)
    except (CompileError, LookupError, SpecError) as error:
        # The last two: a package that was generated for some operations, types, ranks or layouts only.
        answer(failed=str(error), compiler=isinstance(error, CompileError))
        raise SystemExit(FAILED) from None


def _serve(answer: Callable[..., None]) -> None:
    request = json.loads(sys.stdin.readline())
    settings = Settings(**{**request, "peers": tuple(request["peers"])})
    set_specialize("never" if settings.any_size else "wait")
    roofs = Roofs(settings.dtype, settings.threads)
    _, flags = read_processor()
    answer(hello=_describe(settings, roofs, answer))
    for line in sys.stdin:
        task = json.loads(line)
        peers = tuple(peer for peer in settings.peers if peer not in task["without"])
        answer(result=_measure(task, settings, peers, roofs, flags, answer))
        gc.collect()


def _describe(settings: Settings, roofs: Roofs, answer: Callable[..., None]) -> dict[str, Any]:
    """What is the same for all problems."""
    facts: dict[str, Any] = {
        "numpy": np.__version__,
        "row": roofs.row,
        "caches": read_cache_sizes(),
        "arithmetic": roofs.measure_arithmetic(15),
        "bandwidth": roofs.measure_levels(),
        "call_microseconds": contender.measure_call_cost(settings.layout),
        "peers": {},
    }
    versions = {TORCH: torch_peer.find_version, ONEDNN: onednn_peer.find_version}
    for peer in settings.peers:
        answer(stage=peer)
        facts["peers"][peer] = versions[peer]()
    if facts["peers"].get(TORCH) is not None:
        facts["call_microseconds"][TORCH] = 1e6 * torch_peer.measure_call_cost(settings.layout)
    return facts


def _measure(
    task: dict[str, Any],
    settings: Settings,
    peers: tuple[str, ...],
    roofs: Roofs,
    cpu_flags: frozenset[str],
    answer: Callable[..., None],
) -> dict[str, Any]:
    problem = Problem.from_dict(task["problem"])
    needed, limit = _needed_bytes(problem, settings.dtype), min(_LARGEST_BYTES, _MEMORY_SHARE * _available_bytes())
    if needed > limit:
        return {"skipped": f"needs {needed / 2**30:.1f} GiB, more than {limit / 2**30:.1f} GiB"}
    operands = make_operands(problem, settings.dtype, settings.layout, transposed=task["transposed"])
    makers: dict[str, Callable[[], Contender]] = {
        OURS: lambda: OwnKernel(operands, settings.threads),
        TORCH: lambda: torch_peer.TorchGradient(operands, settings.threads),
        ONEDNN: lambda: onednn_peer.OneDnnGradient(operands, cpu_flags),
    }
    exact = exact_gradient(operands)
    scale = float(np.abs(exact).max())
    running: dict[str, Contender] = {}
    reports: dict[str, dict[str, Any]] = {peer: dict(task["without"][peer]) for peer in task["without"]}
    for name in (OURS, *peers):
        answer(stage=name)
        try:
            made = makers[name]()
            made.measure(1)
        except (UnavailableError, RuntimeError) as error:
            if name == OURS:
                raise
            reason = str(error).splitlines()[0] if str(error) else type(error).__name__
            reports[name] = {"absent": reason}
            continue
        running[name] = made
        difference = float(np.abs(made.gradient() - exact).max())
        reports[name] = {"remark": made.remark, "error": difference / scale if scale else difference}
    answer(stage="timing")
    own = running[OURS]
    assert isinstance(own, OwnKernel)
    return {
        "bytes": operands.byte_count,
        "bandwidth": roofs.measure_bandwidth(operands.byte_count),
        "plan": repr(own.plan),
        "schedule": str(own.schedule),
        "strategy": own.schedule.kernel.strategy,
        "specialised": own.schedule.specialised,
        "isa": own.schedule.isa,
        "items": own.schedule.items,
        "scratch_bytes": own.schedule.scratch_bytes,
        "arithmetic": _time_interleaved(running, reports, settings, roofs),
        "contenders": reports,
    }


def _available_bytes() -> int:
    """Memory that can be had without pushing others out: what Linux says, else what is free."""
    try:
        lines = Path("/proc/meminfo").read_text("ascii").splitlines()
    except OSError:
        lines = []
    for line in lines:
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) << 10
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_AVPHYS_PAGES")


def _needed_bytes(problem: Problem, dtype: str) -> int:
    """Inputs, three gradients, the exact one, and conversions of 16-bit inputs to f32 by torch."""
    src, dst, gradient = problem.elements
    size = 4 if dtype == "f32" else 2 + 4
    return (src + dst) * size + gradient * (3 * 4 + 3 * 8)


def _time_interleaved(
    running: dict[str, Contender], reports: dict[str, dict[str, Any]], settings: Settings, roofs: Roofs
) -> list[float]:
    """Let everybody run in turns, each round beginning with the next one. Adds the seconds of every sample to `reports`
    (the n-th ones of all belong together), and returns the arithmetic roof of every round.
    """
    names = list(running)
    repeats: dict[str, int] = {}
    warm: dict[str, bool] = {}
    for name in names:
        once = running[name].measure(1).wall
        if once < _SLOW_SECONDS:
            once = min(once, running[name].measure(1).wall)
        repeats[name] = max(1, round(_SAMPLE_SECONDS / max(once, 1e-9)))
        warm[name] = once < _WARM_SECONDS
        reports[name] |= {"repeats": repeats[name], "wall": [], "cpu": []}
    arithmetic: list[float] = []
    end = time.monotonic() + settings.seconds
    while len(arithmetic) < max(settings.rounds, _FEWEST_ROUNDS):
        if time.monotonic() > end and len(arithmetic) >= _FEWEST_ROUNDS:
            break
        shift = len(arithmetic) % len(names)
        for name in names[shift:] + names[:shift]:
            if settings.threads > 1:
                time.sleep(_PAUSE_SECONDS)
            if warm[name]:
                running[name].measure(1)
            taken = running[name].measure(repeats[name])
            reports[name]["wall"].append(taken.wall)
            reports[name]["cpu"].append(taken.cpu)
        arithmetic.append(roofs.measure_arithmetic())
    return arithmetic


if __name__ == "__main__":
    main()
