# SPDX-License-Identifier: Apache-2.0
"""A prepared call: everything that shapes and types decide is done, and only pointers are missing."""

from __future__ import annotations

from typing import Any, TypeVar, cast

import numpy as np

from convgrad.description import Description
from convgrad.errors import DTypeError, SpecError
from convgrad.geometry import Geometry
from convgrad.loader import load_kernel, load_runtime
from convgrad.planner import plan_schedule
from convgrad.tensors import AnyArray, check_memory, check_out, is_torch_tensor, make_torch_tensor, view_array
from convgrad.threads import check_num_threads, get_num_threads
from convgrad.vocabulary import NUMPY_DTYPES

T = TypeVar("T")


class Plan:
    """One geometry, ready to run; made by an operation's `prepare`. Immutable, and safe to share between threads.

    Attributes:
        geometry: the problem in resolved numbers.
        dtype: element type of the inputs.
        out_dtype: element type of the gradient.
        accumulate: whether the gradient is added to what out (f32) holds.
        schedule: kernel, work items and scratch.
    """

    __slots__ = (
        "_cdata",
        "_from_buffer",
        "_kernel_address",
        "_names",
        "_numpy_dtype",
        "_numpy_out_dtype",
        "_operation",
        "_plain_first",
        "_run",
        "_shapes",
        "_weights_shape",
        "accumulate",
        "dtype",
        "geometry",
        "out_dtype",
        "schedule",
    )

    def __init__(
        self,
        description: Description,
        geometry: Geometry,
        shapes: tuple[tuple[int, ...], tuple[int, ...]],
        dtype: str,
        out_dtype: str,
        accumulate: bool,
    ) -> None:
        self.geometry = geometry
        self.dtype = dtype
        self.out_dtype = out_dtype
        self.accumulate = accumulate
        self.schedule = plan_schedule(geometry, dtype)
        self._operation = description.name
        self._names = (description.inputs[0].name, description.inputs[1].name)
        self._plain_first = geometry.plain == self._names[0]
        self._shapes = shapes
        self._weights_shape = geometry.weights_shape
        self._numpy_dtype = NUMPY_DTYPES[dtype]
        self._numpy_out_dtype = NUMPY_DTYPES[out_dtype]
        ffi, lib = load_runtime()
        self._run = lib.wgrad_run
        self._from_buffer = ffi.from_buffer
        self._kernel_address = load_kernel(self.schedule.kernel)
        self._cdata = _make_cdata(ffi, geometry, out_dtype, accumulate)

    def __setattr__(self, name: str, value: object) -> None:
        if hasattr(self, "_cdata"):  # the last that the constructor sets
            raise AttributeError(f"{name} cannot be set: a plan is immutable; prepare another one")
        object.__setattr__(self, name, value)

    def __call__(self, first: T, second: T, *, out: T | None = None, num_threads: int | None = None) -> T:
        """The gradient, in the layout and shape that the operation's weights attributes name.

        Args:
            first: the operation's first input, of the shape and type that the plan was made for.
            second: its second input, likewise.
            out: takes the gradient; made when not given. Required when the plan accumulates.
            num_threads: threads for this call; `get_num_threads()` when not given. Results do not depend on it.

        Returns:
            `out`, or a new array (a torch tensor for torch inputs).

        Raises:
            SpecError: shape, memory or out does not fit the plan; out is untouched.
            DTypeError: an element type does not fit the plan.
        """
        arrays = (self._view(0, first), self._view(1, second))
        for array, name, shape in zip(arrays, self._names, self._shapes, strict=True):
            if array.dtype != self._numpy_dtype or array.shape != shape:
                self._refuse(name, array, shape)
            check_memory(self._operation, name, array)
        threads = get_num_threads() if num_threads is None else check_num_threads(num_threads)
        result, target = self._target(first, out, arrays)
        self._execute(arrays, target, threads)
        return result

    def _view(self, place: int, value: object) -> AnyArray:
        if type(value) is np.ndarray:  # the common case, without the cost of the general one
            return value
        return view_array(self._operation, self._names[place], value)

    def _target(self, first: T, out: T | None, arrays: tuple[AnyArray, AnyArray]) -> tuple[T, AnyArray]:
        """What the caller gets, and the same memory as an array."""
        if out is not None:
            if is_torch_tensor(out) and cast(Any, out).requires_grad:  # torch's own out= arguments refuse it too
                raise SpecError(
                    f"{self._operation}: out requires a gradient, and autograd would not see that it was written; "
                    f"pass out.detach()"
                )
            array = view_array(self._operation, "out", out)
            inputs = ((self._names[0], arrays[0]), (self._names[1], arrays[1]))
            check_out(self._operation, array, self._weights_shape, self.out_dtype, inputs)
            return out, array
        if self.accumulate:
            raise SpecError(f"{self._operation}: accumulate needs an out to add to; expected an f32 array in out")
        if is_torch_tensor(first):
            tensor = make_torch_tensor(self.out_dtype, self._weights_shape)
            return tensor, view_array(self._operation, "out", tensor)
        made = np.empty(self._weights_shape, self._numpy_out_dtype)
        return cast(T, made), made

    def _execute(self, arrays: tuple[AnyArray, AnyArray], target: AnyArray, threads: int) -> None:
        if self.geometry.N == 0 and self.accumulate:
            return
        plain, windowed = arrays if self._plain_first else (arrays[1], arrays[0])
        if self.dtype == "bf16":
            plain, windowed = plain.view(np.uint16), windowed.view(np.uint16)
        out = target.view(np.uint16) if self.out_dtype == "bf16" else target
        from_buffer = self._from_buffer
        status = self._run(
            self._kernel_address,
            self._cdata,
            from_buffer(plain),
            from_buffer(windowed),
            from_buffer("char[]", out, require_writable=True),
            self.schedule.items,
            self.schedule.scratch_bytes,
            threads,
        )
        if status != 0:
            raise MemoryError(
                f"{self._operation}: no memory for {self.schedule.scratch_bytes} bytes of scratch a thread"
            )

    def _refuse(self, name: str, array: AnyArray, shape: tuple[int, ...]) -> None:
        if array.dtype != self._numpy_dtype:
            raise DTypeError(f"{self._operation}: {name} has dtype {array.dtype}; this plan is for {self._numpy_dtype}")
        raise SpecError(f"{self._operation}: {name} has shape {array.shape}; this plan is for {shape}")

    def __repr__(self) -> str:
        geometry, schedule = self.geometry, self.schedule
        inputs = ", ".join(f"{name} {shape}" for name, shape in zip(self._names, self._shapes, strict=True))
        return (
            f"<Plan {self._operation}: {inputs} {self.dtype} {geometry.data_format} -> {self._weights_shape} "
            f"{self.out_dtype}; weights as the {geometry.reading} lays them out; {schedule.kernel.symbol}, "
            f"{schedule.items} work items, {schedule.scratch_bytes} bytes of scratch a thread>"
        )


def _make_cdata(ffi: Any, geometry: Geometry, out_dtype: str, accumulate: bool) -> Any:
    cdata = ffi.new("wgrad_geometry *")
    for field in ("N", "G", "P", "W", "O", "I", "K", "stride", "dilation", "pad"):
        setattr(cdata, field, getattr(geometry, field))
    for field in ("out_group", "out_plain", "out_windowed", "out_tap"):
        setattr(cdata, field, getattr(geometry, field))
    cdata.out_f32 = int(out_dtype == "f32")
    cdata.accumulate = int(accumulate)
    return cdata
