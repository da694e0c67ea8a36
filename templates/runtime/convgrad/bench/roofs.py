# SPDX-License-Identifier: Apache-2.0
"""What the machine could do at best: multiply-adds, and reading, on as many threads as the kernels have.

A problem that moves b bytes is bound by how fast b bytes can be read again and again: from the cache that holds them,
or from memory. So the bandwidth is measured on a buffer of just that size.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from convgrad.bench.clock import load_clock
from convgrad.isa import detect_isa

_ROWS = {"base": 0, "avx2": 1, "avx512": 2, "neon": 3, "avx512_bf16": 4}  # enum wgrad_clock_row
_GRAIN = 1024  # bytes that the reading loop takes in one step
_SAMPLE_SECONDS = 4e-4
_READ_SECONDS = 4e-3
_LARGEST = 256 << 20
_CACHES = Path("/sys/devices/system/cpu/cpu0/cache")


def find_row(dtype: str) -> str:
    """The arithmetic of the instruction set that kernels use, for sums of products of a dtype.

    Products of f16 are made in f32. Those of bf16 are too, unless there is an instruction for pairs of them.
    """
    _, lib = load_clock()
    row = detect_isa()
    if dtype == "bf16" and row == "avx512" and lib.wgrad_clock_has(_ROWS["avx512_bf16"]):
        return "avx512_bf16"
    return row


def read_cache_sizes() -> dict[str, int]:
    """Bytes of each data cache of the first CPU, as Linux tells them; nothing where it does not."""
    sizes: dict[str, int] = {}
    for index in sorted(_CACHES.glob("index*")):
        try:
            level, kind, size = ((index / name).read_text().strip() for name in ("level", "type", "size"))
        except OSError:
            continue
        if kind != "Instruction" and size[:-1].isdigit():
            sizes[f"L{level}"] = int(size[:-1]) << {"K": 10, "M": 20}.get(size[-1], 0)
    return sizes


class Roofs:
    """Measures roofs for a dtype on a number of threads. One buffer serves all sizes; it grows as needed."""

    def __init__(self, dtype: str, threads: int) -> None:
        self.row = find_row(dtype)
        self.threads = threads
        self._clock = "cpu" if threads == 1 else "wall"
        self._memory: NDArray[np.uint8] = np.zeros(0, np.uint8)
        self._known: dict[int, float] = {}
        self._rounds = 1 << 12
        while self._time(lambda taken: self._compute(taken, self._rounds))[1] < _SAMPLE_SECONDS:
            self._rounds *= 2

    def measure_arithmetic(self, samples: int = 3) -> float:
        """FLOPs a second now: the best of a few short samples, all threads together."""
        return max(self._rate(lambda taken, _: self._compute(taken, self._rounds)) for _ in range(samples))

    def measure_bandwidth(self, size: int) -> float:
        """Bytes a second from a buffer of about `size` bytes (at most 256 MiB), all threads together."""
        size = min(max(size, 4 * _GRAIN * self.threads), _LARGEST)
        # Sizes within a tenth of each other share a measurement.
        step = round(math.log(size, 1.1))
        if step not in self._known:
            self._known[step] = self._read_again_and_again(size)
        return self._known[step]

    def measure_levels(self) -> dict[str, float]:
        """Bytes a second from half of each cache, and from memory."""
        caches = read_cache_sizes()
        sizes = {name: size // 2 for name, size in caches.items()}
        sizes["memory"] = _LARGEST
        return {
            name: self.measure_bandwidth(size * (self.threads if name in ("L1", "L2") else 1))
            for name, size in sizes.items()
        }

    def _read_again_and_again(self, size: int) -> float:
        _, lib = load_clock()
        if self._memory.nbytes < size + 64:
            self._memory = np.ones(size + 64, np.uint8)
        start = self._memory.ctypes.data
        start += -start % 64
        share = size // self.threads // _GRAIN * _GRAIN
        row, ffi = _ROWS[self.row], load_clock()[0]

        def read(taken: Any, place: int) -> float:
            return float(lib.wgrad_clock_read(row, ffi.cast("void *", start + place * share), share, repeats, taken))

        repeats = 1
        _, seconds = self._time(lambda taken: read(taken, 0))
        repeats = max(1, int(_READ_SECONDS / max(seconds, 1e-9)))
        return max(self._rate(read) for _ in range(5))

    def _compute(self, taken: Any, rounds: int) -> float:
        return float(load_clock()[1].wgrad_clock_arithmetic(_ROWS[self.row], rounds, taken))

    def _time(self, work: Callable[[Any], float]) -> tuple[float, float]:
        taken = load_clock()[0].new("wgrad_time *")
        done = work(taken)
        return done, float(getattr(taken, self._clock))

    def _rate(self, work: Callable[[Any, int], float]) -> float:
        """Work a second, summed over all threads, which begin together."""
        if self.threads == 1:
            done, seconds = self._time(lambda taken: work(taken, 0))
            return done / seconds
        barrier = threading.Barrier(self.threads)

        def run(place: int) -> float:
            barrier.wait()
            done, seconds = self._time(lambda taken: work(taken, place))
            return done / seconds

        with ThreadPoolExecutor(self.threads) as executor:
            return sum(executor.map(run, range(self.threads)))
