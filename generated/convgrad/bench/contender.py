# SPDX-License-Identifier: Apache-2.0
"""What is measured, behind one interface: this package's kernel here, torch's and oneDNN's in modules of their own."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from convgrad.bench.clock import Times, load_clock, time_in_c, time_in_python
from convgrad.bench.operands import Operands, make_operands
from convgrad.bench.operation import make_operation
from convgrad.bench.problem import Problem, parse_problem
from convgrad.loader import load_runtime
from convgrad.plan import Plan
from convgrad.threads import set_num_threads

OURS, TORCH, ONEDNN = "convgrad", "torch", "onednn"
PEERS = (TORCH, ONEDNN)
TITLES = {OURS: "convgrad", TORCH: "torch", ONEDNN: "oneDNN"}


class UnavailableError(RuntimeError):
    """This contender cannot take part; the text is the reason, short enough for a table."""


class Contender(Protocol):
    """Somebody who computes one problem's gradient."""

    remark: str
    """How it does that, for people."""

    def measure(self, repeats: int) -> Times:
        """Compute it `repeats` times; return what one took."""

    def gradient(self) -> NDArray[np.float64]:
        """The gradient, (OC, IC / G, K...), of the last time."""


class OwnKernel:
    """This package's kernel, called in a loop in C just as a plan calls it.

    Which kernel that is, of compile-time sizes or for any size, follows from `set_specialize`.
    """

    def __init__(self, operands: Operands, threads: int) -> None:
        self._operands, self._threads = operands, threads
        operation = make_operation(operands.problem, operands.layout, transposed=operands.transposed)
        first, second = (operands.dst, operands.src) if operands.transposed else (operands.src, operands.dst)
        self.inputs = first, second
        self.operation: Any = operation
        self.out = operands.make_out()
        set_num_threads(threads)  # that `prepare` waits for
        self.plan: Plan = operation.prepare(first.shape, second.shape, dtype=operands.dtype)
        self._call = self.plan.kernel_call(threads)
        self.schedule = self._call.schedule
        ffi, lib = load_runtime()
        self._run = int(ffi.cast("uintptr_t", ffi.addressof(lib, "wgrad_run")))
        self._geometry = int(ffi.cast("uintptr_t", self._call.geometry))
        self.remark = str(self.schedule)

    def measure(self, repeats: int) -> Times:
        """Time the plan's kernel."""
        _, lib = load_clock()
        operands, schedule = self._operands, self.schedule
        return time_in_c(
            lib.wgrad_clock_kernel,
            self._run, self._call.address, self._geometry,
            operands.dst.ctypes.data, operands.src.ctypes.data, self.out.ctypes.data,
            schedule.items, schedule.scratch_bytes, self._threads, repeats=repeats,
        )  # fmt: skip

    def gradient(self) -> NDArray[np.float64]:
        """What the kernel wrote."""
        return self._operands.canonical(self.out)


def measure_call_cost(layout: str, rounds: int = 15, calls: int = 400) -> dict[str, float]:
    """Microseconds that Python takes around a kernel, on a problem of one product: of a "plan", of an "operation"."""
    operands = make_operands(smallest_problem(), "f32", layout, transposed=False)
    own = OwnKernel(operands, threads=1)
    plan, operation, out = own.plan, own.operation, own.out
    src, dst = own.inputs
    taken: dict[str, list[float]] = {"plan": [], "operation": []}
    for _ in range(rounds):
        kernel = own.measure(calls).cpu
        taken["plan"].append(time_in_python(lambda: plan(src, dst, out=out, num_threads=1), calls).cpu - kernel)
        taken["operation"].append(
            time_in_python(lambda: operation(src, dst, out=out, num_threads=1), calls).cpu - kernel
        )
    return {name: 1e6 * float(np.median(values)) for name, values in taken.items()}


def smallest_problem() -> Problem:
    """One product: all that it takes is the call."""
    return parse_problem("ic1ih1oc1kh1")[0]
