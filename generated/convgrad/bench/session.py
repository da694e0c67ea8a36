# SPDX-License-Identifier: Apache-2.0
"""`python -m convgrad bench`: layers are measured in a child process, and what comes back is worked out and shown."""

from __future__ import annotations

import json
import os
import platform
import signal
import statistics
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from rich.progress import TextColumn

from convgrad.bench.contender import OURS, PEERS, TITLES, TORCH
from convgrad.bench.statistics import Estimate, estimate_geometric_mean, estimate_median
from convgrad.bench.suites import Layer
from convgrad.bench.worker import FAILED, Settings
from convgrad.commands.console import make_console, make_progress
from convgrad.compiler import FLAGS, find_compiler
from convgrad.errors import CompileError
from convgrad.isa import detect_isa
from convgrad.processor import read_processor

LARGEST_ERROR = {"f32": 1e-5, "bf16": 2.0**-8, "f16": 2.0**-10}
"""Of a gradient element, as a part of the largest |element|: what rounding can explain. More is a wrong result."""
EXTRA = 'pip install "convgrad[bench]"'
_TELLING_FLAGS = {"avx2", "fma", "avx512f", "avx512vl", "avx512_bf16", "avx512_fp16", "amx_bf16", "asimd", "sve"}
_PACKAGE = Path(__file__).resolve().parents[2]


class BenchError(RuntimeError):
    """The benchmark cannot go on; the text says what stopped it."""


@dataclass(frozen=True, slots=True)
class Score:
    """How one contender did on one layer.

    absent   why it did not take part (then there is nothing else)
    seconds  of one gradient, kernel time
    gflops   1e9 useful FLOPs a second
    error    the largest difference from the gradient in float64, as a part of the largest |element|
    remark   how it computed it
    """

    absent: str | None = None
    seconds: Estimate | None = None
    gflops: float = 0.0
    error: float = 0.0
    remark: str = ""


@dataclass(frozen=True, slots=True)
class LayerResult:
    """One layer, measured.

    roof        what the machine could do at best on it, 1e9 FLOPs a second: arithmetic or bandwidth
    bound       which of them: "arithmetic" or "bandwidth"
    intensity   FLOPs for each byte that has to move
    percent     of the roof that this package reaches
    better      the better peer, None if there is none
    ratio       its time over ours
    ratios      the same, pair by pair
    skipped     why it was not measured (then there is nothing else)
    raw         what the worker said
    """

    layer: Layer
    scores: dict[str, Score]
    roof: float = 0.0
    bound: str = ""
    intensity: float = 0.0
    percent: Estimate | None = None
    better: str | None = None
    ratio: Estimate | None = None
    ratios: tuple[float, ...] = ()
    skipped: str | None = None
    raw: dict[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class Run:
    """All of a benchmark: what was asked, on what, and what came of it."""

    title: str
    network: bool
    settings: Settings
    transposed: bool
    machine: dict[str, Any]
    facts: dict[str, Any]
    results: tuple[LayerResult, ...]

    @property
    def measured(self) -> tuple[LayerResult, ...]:
        """The layers that were not skipped."""
        return tuple(result for result in self.results if result.skipped is None)

    @property
    def geometric_mean(self) -> Estimate | None:
        """Of the ratios to the better peer."""
        pairs = [result.ratios for result in self.measured if result.ratios]
        return estimate_geometric_mean(pairs) if pairs else None

    @property
    def crowded(self) -> bool:
        """Whether others want the CPUs that our threads run on. One thread's own clock does not mind; several threads
        are timed by the wall's.
        """
        wanted = self.machine["load"][0] + self.settings.threads
        return self.settings.threads > 1 and bool(wanted > self.machine["cpus"] + 0.5)

    @property
    def wrong(self) -> tuple[LayerResult, ...]:
        """Layers on which this package's error is larger than rounding explains."""
        limit = LARGEST_ERROR[self.settings.dtype]
        return tuple(result for result in self.measured if not result.scores[OURS].error <= limit)  # NaN is wrong too

    def network_seconds(self) -> dict[str, float]:
        """Seconds for all layers, each as often as the network has it; only who took part in all of them."""
        totals: dict[str, float] = {}
        for name in (OURS, *self.settings.peers):
            seconds = [(result.scores[name].seconds, result.layer.count) for result in self.results if result.scores]
            if len(seconds) == len(self.results) and all(taken is not None for taken, _ in seconds):
                totals[name] = sum(taken.value * count for taken, count in seconds if taken is not None)
        return totals


def measure_layers(title: str, layers: Sequence[Layer], settings: Settings, *, network: bool, transposed: bool) -> Run:
    """Measure every layer; after an interrupt (Ctrl-C), those that were measured until then.

    Raises:
        KeyboardInterrupt: it came before anything was measured.
        BenchError: the child process failed, or this package was generated without what it was to measure.
        CompileError: there is no compiler, or it failed.
        SpecError: an environment variable of this package is wrong.
    """
    bar = make_console(stderr=True)
    machine = describe_machine()  # before anything of ours is running
    results = []
    with _Worker(settings) as worker, make_progress(bar, TextColumn("{task.fields[name]}", markup=False)) as progress:
        task = progress.add_task("measuring", total=len(layers), name="")
        try:
            for layer in layers:
                progress.update(task, name=layer.name)
                results.append(_evaluate(layer, worker.measure(layer), settings, worker.facts))
                progress.advance(task)
        except KeyboardInterrupt:
            if not results:
                raise
            title += f" (interrupted: {len(results)} of {len(layers)} layers)"
            network = False  # its sums would lack what was not measured
        facts = worker.facts
    return Run(title, network, settings, transposed, machine, facts, tuple(results))


def describe_machine() -> dict[str, Any]:
    """CPU, compiler and versions."""
    model, flags = read_processor()
    compiler = find_compiler()
    try:
        own = version("convgrad")
    except PackageNotFoundError:
        own = None
    return {
        "cpu": model,
        "cpus": os.cpu_count(),
        "architecture": platform.machine(),
        "isa": detect_isa(),
        "flags": sorted(flags & _TELLING_FLAGS),
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
        "convgrad": own,
        "compiler": compiler.version.splitlines()[0],
        "compiler_command": list(compiler.argv),
        "compiler_flags": list(FLAGS),
        "load": list(os.getloadavg()),
    }


class _Worker:
    """The child process, started again when a peer has ended it."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._process: subprocess.Popen[str] | None = None
        self.facts: dict[str, Any] = {}
        self._without: dict[str, dict[str, str]] = {}

    def __enter__(self) -> _Worker:
        try:
            self._start()
        except BaseException:
            self._stop()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._stop()

    def measure(self, layer: Layer) -> dict[str, Any]:
        """Return what the child says of a layer. A peer that ends it is left out, and that is its score."""
        without = dict(self._without)
        while True:
            task = {"problem": layer.problem.as_dict(), "transposed": layer.transposed, "without": without}
            try:
                return self._ask(task, "result")
            except _PeerEndedError as ended:
                without[ended.peer] = {"absent": ended.reason}
                self._start()

    def _start(self) -> None:
        while True:
            self._stop()
            peers = [peer for peer in self._settings.peers if peer not in self._without]
            threads = str(self._settings.threads)
            variables = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), threads)
            folders = [str(_PACKAGE), *filter(None, [os.environ.get("PYTHONPATH")])]
            # The number of OpenMP's threads has to be in the environment before its library is loaded.
            self._process = subprocess.Popen(
                [sys.executable, "-m", "convgrad.bench.worker"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                env={**os.environ, **variables, "OMP_DYNAMIC": "FALSE", "PYTHONPATH": os.pathsep.join(folders)},
                encoding="utf-8",
            )
            try:
                facts = self._ask({**asdict(self._settings), "peers": peers}, "hello")
            except _PeerEndedError as ended:  # as soon as it was loaded
                self._without[ended.peer] = {"absent": ended.reason}
                continue
            self.facts = facts if not self.facts else self.facts
            return

    def _ask(self, document: dict[str, Any], kind: str) -> dict[str, Any]:
        process = self._process
        assert process is not None
        assert process.stdin is not None
        assert process.stdout is not None
        stage = "start"
        try:
            process.stdin.write(json.dumps(document) + "\n")
            process.stdin.flush()
        except BrokenPipeError:
            pass  # how it ended is found out below
        for line in process.stdout:
            reply = json.loads(line)
            if "stage" in reply:
                stage = reply["stage"]
            elif "failed" in reply:
                raise (CompileError if reply["compiler"] else BenchError)(reply["failed"])
            else:
                found: dict[str, Any] = reply[kind]
                return found
        code = process.wait()
        if stage in PEERS and code != FAILED:
            raise _PeerEndedError(stage, f"ended the process ({_describe_exit(code)})")
        raise BenchError(f"the measuring process ended at the stage {stage!r} ({_describe_exit(code)})")

    def _stop(self) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        process.kill()
        process.wait()
        for stream in (process.stdin, process.stdout):
            if stream is not None:
                try:
                    stream.close()
                except BrokenPipeError:
                    continue  # what was not sent is for nobody


class _PeerEndedError(Exception):
    def __init__(self, peer: str, reason: str) -> None:
        super().__init__(f"{peer}: {reason}")
        self.peer, self.reason = peer, reason


def _describe_exit(code: int) -> str:
    if code >= 0:
        return f"exit code {code}"
    try:
        return signal.Signals(-code).name
    except ValueError:
        return f"signal {-code}"


def _evaluate(layer: Layer, raw: dict[str, Any], settings: Settings, facts: dict[str, Any]) -> LayerResult:
    """Work out one layer's figures."""
    if "skipped" in raw:
        return LayerResult(layer, {}, skipped=raw["skipped"])
    flops = layer.problem.flops
    times = {
        name: _kernel_seconds(name, report, settings, facts)
        for name, report in raw["contenders"].items()
        if "absent" not in report
    }
    scores = {}
    for name, report in raw["contenders"].items():
        if "absent" in report:
            scores[name] = Score(absent=report["absent"])
            continue
        seconds = estimate_median(times[name])
        scores[name] = Score(None, seconds, 1e-9 * flops / seconds.value, report["error"], report["remark"])
    intensity = flops / raw["bytes"]
    reachable = intensity * raw["bandwidth"]
    # Round by round, for the clock of a shared machine's CPU is not the same all the time.
    shares = [
        100 * flops / seconds / min(arithmetic, reachable)
        for seconds, arithmetic in zip(times[OURS], raw["arithmetic"], strict=True)
    ]
    arithmetic = statistics.median(raw["arithmetic"])
    peers = [name for name in times if name != OURS]
    better = min(peers, key=lambda name: statistics.median(times[name]), default=None)
    ratios = (
        () if better is None else tuple(theirs / own for theirs, own in zip(times[better], times[OURS], strict=True))
    )
    return LayerResult(
        layer=layer,
        scores=scores,
        roof=1e-9 * min(arithmetic, reachable),
        bound="arithmetic" if arithmetic <= reachable else "bandwidth",
        intensity=intensity,
        percent=estimate_median(shares),
        better=better,
        ratio=estimate_median(ratios) if ratios else None,
        ratios=ratios,
        raw=raw,
    )


def _kernel_seconds(name: str, report: dict[str, Any], settings: Settings, facts: dict[str, Any]) -> list[float]:
    """Seconds of one call in each round, without the cost of calling it.

    One thread is timed by its own CPU clock, several by the wall's. torch can only be called from Python, so what a
    call of it takes on a problem of one product is taken off (never more than half of the time, so that a tiny layer
    does not come out as nothing).
    """
    seconds: list[float] = report["cpu" if settings.threads == 1 else "wall"]
    if name != TORCH:
        return seconds
    call = 1e-6 * float(facts["call_microseconds"].get(TORCH, 0.0))
    return [max(taken - call, taken / 2) for taken in seconds]


def check_extras(plot: bool) -> None:
    """Raise BenchError if what draws pictures is asked for and not installed."""
    if plot and find_spec("matplotlib") is None:
        raise BenchError(f"--plot needs matplotlib, which is not installed: {EXTRA}")


__all__ = [
    "OURS", "PEERS", "TITLES", "BenchError", "LayerResult", "Run", "Score", "check_extras", "describe_machine",
    "measure_layers",
]  # fmt: skip
