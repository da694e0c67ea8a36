# SPDX-License-Identifier: Apache-2.0
"""Loops and clocks in C (kernels/wgrad_clock.h), compiled and cached like every other module of the package."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable
from typing import Any, NamedTuple

from convgrad.loader import load_module

MODULE = "wgrad_clock"


class Times(NamedTuple):
    """Seconds of one call: by the wall's clock, and by the CPU clock of the calling thread."""

    wall: float
    cpu: float


@functools.cache
def load_clock() -> tuple[Any, Any]:
    """Return (ffi, lib) of wgrad_clock.h. Raises CompileError if it can be neither found nor built."""
    return load_module(MODULE)


def time_in_c(function: Callable[..., int], *arguments: object, repeats: int) -> Times:
    """Time one of wgrad_clock.h's loops, per call. Raises RuntimeError for a status other than 0."""
    ffi, _ = load_clock()
    taken = ffi.new("wgrad_time *")
    status = function(*arguments, repeats, taken)
    if status != 0:
        raise RuntimeError(f"status {status}")
    return Times(taken.wall / repeats, taken.cpu / repeats)


def time_in_python(call: Callable[[], object], repeats: int) -> Times:
    """Time a Python loop, per call."""
    passes = range(repeats)
    wall, cpu = time.perf_counter(), time.thread_time()
    for _ in passes:
        call()
    cpu, wall = time.thread_time() - cpu, time.perf_counter() - wall
    return Times(wall / repeats, cpu / repeats)
