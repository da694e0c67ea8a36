# SPDX-License-Identifier: Apache-2.0
"""torch's gradient of the weights: `torch.ops.aten.convolution_backward`, asked for nothing else."""

from __future__ import annotations

import functools
import statistics
from importlib.util import find_spec
from typing import Any

import numpy as np
from numpy.typing import NDArray

from convgrad.bench.clock import Times, time_in_python
from convgrad.bench.contender import UnavailableError, smallest_problem
from convgrad.bench.operands import Operands, make_operands
from convgrad.vocabulary import TORCH_DTYPES


def find_version() -> str | None:
    """The version of torch, None if it is not installed."""
    return str(_torch().__version__) if find_spec("torch") is not None else None


def _torch() -> Any:
    import torch

    return torch


class TorchGradient:
    """torch on the very same memory: channels last is a stride to it.

    In bf16 and f16 it is whichever is faster: its own path, or conversion to f32, the gradient, and conversion back.
    """

    def __init__(self, operands: Operands, threads: int) -> None:
        problem = operands.problem
        if find_spec("torch") is None:
            raise UnavailableError("not installed")
        extra = (0,) * problem.rank
        ends = problem.pads_end
        if operands.transposed:
            ends, extra = problem.transposed_pads()
            limits = zip(extra, problem.strides, problem.dilations, strict=True)
            if any(more >= max(stride, dilation) for more, stride, dilation in limits):
                raise UnavailableError("output_padding too large")
        if problem.pads_begin != ends:
            raise UnavailableError("asymmetric pads")
        torch = _torch()
        torch.set_num_threads(threads)
        src, dst = (self._view(torch, operands, tensor) for tensor in (operands.src, operands.dst))
        self._inputs = (src, dst) if operands.transposed else (dst, src)
        shape = (problem.output_channels, problem.group_inputs, *problem.kernel)
        weight = torch.empty(shape, dtype=src.dtype)
        if operands.weights_format == "XIO" and problem.rank > 1:
            formats = {2: torch.channels_last, 3: torch.channels_last_3d}
            weight = weight.to(memory_format=formats[problem.rank])
        self._weight = weight
        self._tail = (
            None, list(problem.strides), list(problem.pads_begin), list(problem.dilations), operands.transposed,
            list(extra), problem.groups, [False, True, False],
        )  # fmt: skip
        self._backward = torch.ops.aten.convolution_backward
        self._result: Any = None
        self._call = self._run_directly
        self.remark = "aten.convolution_backward"
        if operands.dtype != "f32":
            self._choose(torch)

    @staticmethod
    def _view(torch: Any, operands: Operands, tensor: NDArray[Any]) -> Any:
        if operands.dtype == "bf16":
            made = torch.from_numpy(tensor.view(np.int16)).view(torch.bfloat16)
        else:
            made = torch.from_numpy(tensor)
        assert made.dtype == getattr(torch, TORCH_DTYPES[operands.dtype])
        return made if operands.data_format == "NCX" else made.movedim(-1, 1)

    def _choose(self, torch: Any) -> None:
        weight = self._weight.float()

        def run_by_casts() -> None:
            delta, source = (tensor.float() for tensor in self._inputs)
            self._result = self._backward(delta, source, weight, *self._tail)[1].to(self._weight.dtype)

        runs = {"its own path": self._run_directly, "by way of f32": run_by_casts}
        times = {}
        for name, run in runs.items():
            run()
            times[name] = min(time_in_python(run, 1).wall for _ in range(3))
        best = min(times, key=lambda name: times[name])
        self._call, self.remark = runs[best], best

    def _run_directly(self) -> None:
        delta, source = self._inputs
        self._result = self._backward(delta, source, self._weight, *self._tail)[1]

    def measure(self, repeats: int) -> Times:
        """Time calls from Python; `measure_call_cost` says how much of that is the call."""
        return time_in_python(self._call, repeats)

    def gradient(self) -> NDArray[np.float64]:
        """The last result."""
        return np.ascontiguousarray(self._result.double().numpy())


@functools.cache
def measure_call_cost(layout: str, rounds: int = 15, calls: int = 400) -> float:
    """Seconds of a call on a problem of one product: dispatch, memory for the result, and next to no work."""
    contender = TorchGradient(make_operands(smallest_problem(), "f32", layout, transposed=False), threads=1)
    contender.measure(calls)
    return statistics.median(contender.measure(calls).cpu for _ in range(rounds))
