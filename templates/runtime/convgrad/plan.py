# SPDX-License-Identifier: Apache-2.0
"""A prepared call: everything that shapes and types decide is done, and only pointers are missing."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn, TypeVar, cast

import numpy as np

from convgrad.description import Description
from convgrad.errors import DTypeError, SpecError
from convgrad.geometry import Geometry
from convgrad.isa import detect_isa
from convgrad.tensors import AnyArray, check_memory, check_out, is_torch_tensor, make_torch_tensor, view_array
from convgrad.threads import check_num_threads, get_num_threads
from convgrad.vocabulary import NUMPY_DTYPES

if TYPE_CHECKING:
    from convgrad.planner import Schedule
    from convgrad.shared_object import SharedObject
    from convgrad.specialise import Follower

# Planner, loader, cache and compiler are imported where the first plan needs them: they take longer to import than all
# the rest of the package, and who imports convgrad need not make a plan.

T = TypeVar("T")


class KernelCall(NamedTuple):
    """What a call hands to wgrad_run beside pointers and threads.

    address        of the kernel's function
    geometry       C struct of sizes, order of the sum and schedule
    schedule       the same for people, with work items and scratch
    shared_object  a specialised kernel, open for as long as this is held; None: the kernel for any size
    """

    address: int
    geometry: Any
    schedule: Schedule
    shared_object: SharedObject | None


class Execution:
    """How a plan runs on one number of threads.

    Attributes:
        any_size: address of the kernel for any size; C struct of sizes, order of the sum and schedule; the schedule.
        follower: knows when there is a specialised kernel.
        specialised: struct and schedule for that one, once it was called.
    """

    __slots__ = ("any_size", "follower", "specialised")

    def __init__(self, any_size: tuple[int, Any, Schedule], follower: Follower) -> None:
        self.any_size = any_size
        self.follower = follower
        self.specialised: tuple[Any, Schedule] | None = None


class Plan:
    """One geometry, ready to run; made by an operation's `prepare`. Immutable, and safe to share between threads.

    Attributes:
        geometry: the problem in resolved numbers.
        dtype: element type of the inputs.
        out_dtype: element type of the gradient.
        accumulate: whether the gradient is added to what out (f32) holds.
        isa: instruction set that its kernel is compiled for.
        schedule: kernel, register tile, work items and scratch, for the number of threads when the plan was made.
    """

    __slots__ = (
        "_bytes",
        "_executions",
        "_from_buffer",
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
        "isa",
        "out_dtype",
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
        from convgrad.loader import load_runtime

        self.geometry = geometry
        self.dtype = dtype
        self.out_dtype = out_dtype
        self.accumulate = accumulate
        self.isa = detect_isa()
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
        self._bytes = ffi.typeof("char[]")
        self._executions: dict[int, Execution] = {}

    @property
    def schedule(self) -> Schedule:
        """How the next call computes the sum, on the number of threads that is set now."""
        execution = self._find_execution(get_num_threads())
        return execution.follower.schedule if execution.follower.ready else execution.any_size[2]

    def wait(self) -> bool:
        """Wait for the specialised kernel, for the number of threads that is set now. Return whether there is one."""
        return self._find_execution(get_num_threads()).follower.wait()

    def kernel_call(self, num_threads: int | None = None) -> KernelCall:
        """What the next call would run, in order to measure a kernel without Python around it. It counts as no call.

        Args:
            num_threads: threads of that call; `get_num_threads()` when not given.

        Raises:
            SpecError: num_threads is no number of threads.
        """
        threads = get_num_threads() if num_threads is None else check_num_threads(num_threads)
        execution = self._find_execution(threads)
        shared_object = execution.follower.shared_object
        if shared_object is None:
            return KernelCall(*execution.any_size, None)
        geometry, schedule = execution.specialised or self._specialise(execution)
        return KernelCall(shared_object.address, geometry, schedule, shared_object)

    def _find_execution(self, threads: int) -> Execution:
        """Plan for a number of threads, which the work has to be split for. Tiles are the same for all of them."""
        execution = self._executions.get(threads)
        if execution is None:
            from convgrad.loader import load_kernel
            from convgrad.planner import plan_schedule
            from convgrad.specialise import Follower

            schedule = plan_schedule(self.geometry, self.dtype, self.isa, threads=threads)
            any_size = load_kernel(schedule.kernel, schedule.isa), self._make_cdata(schedule), schedule
            execution = Execution(any_size, Follower(self.geometry, self.dtype, self.isa, threads))
            self._executions[threads] = execution
        return execution

    def _specialise(self, execution: Execution) -> tuple[Any, Schedule]:
        schedule = execution.follower.schedule
        execution.specialised = self._make_cdata(schedule), schedule
        return execution.specialised

    def _make_cdata(self, schedule: Schedule) -> Any:
        return _make_cdata(schedule, self.out_dtype, self.accumulate)

    def __setattr__(self, name: str, value: object) -> None:
        if hasattr(self, "_executions"):  # the last that the constructor sets
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
        arrays = one, other = self._view(0, first), self._view(1, second)
        dtype = self._numpy_dtype
        if (one.shape, other.shape) != self._shapes or one.dtype != dtype or other.dtype != dtype:
            self._refuse(arrays)
        return self.run(first, arrays, out, num_threads)

    def run(self, first: T, arrays: tuple[AnyArray, AnyArray], out: T | None, num_threads: int | None) -> T:
        """What a call does once the inputs are known to have the plan's shapes and element types.

        Args:
            first: the operation's first input as it was given; a result that is made here is made alike.
            arrays: both inputs, as arrays over their memory.
            out: as for a call.
            num_threads: as for a call.

        Raises:
            SpecError, DTypeError: as a call does.
        """
        check_memory(self._operation, self._names[0], arrays[0])
        check_memory(self._operation, self._names[1], arrays[1])
        threads = get_num_threads() if num_threads is None else check_num_threads(num_threads)
        result, target = self._target(first, out, arrays)
        self._execute(arrays, target, threads)
        return result

    def _view(self, place: int, value: object) -> AnyArray:
        if type(value) is np.ndarray:  # the common case, without the cost of the general one
            return value
        return view_array(self._operation, self._names[place], value)

    def _view_out(self, out: object) -> AnyArray:
        if type(out) is np.ndarray:
            return out
        if is_torch_tensor(out) and cast(Any, out).requires_grad:  # torch's own out= arguments refuse it too
            raise SpecError(
                f"{self._operation}: out requires a gradient, and autograd would not see that it was written; "
                f"pass out.detach()"
            )
        return view_array(self._operation, "out", out)

    def _target(self, first: T, out: T | None, arrays: tuple[AnyArray, AnyArray]) -> tuple[T, AnyArray]:
        """What the caller gets, and the same memory as an array."""
        if out is not None:
            array = self._view_out(out)
            inputs = ((self._names[0], arrays[0]), (self._names[1], arrays[1]))
            check_out(self._operation, array, self._weights_shape, self.out_dtype, inputs)
            return out, array
        if self.accumulate:
            raise SpecError(f"{self._operation}: accumulate needs an out to add to; expected an f32 array in out")
        if type(first) is not np.ndarray and is_torch_tensor(first):
            tensor = make_torch_tensor(self.out_dtype, self._weights_shape)
            return tensor, view_array(self._operation, "out", tensor)
        made = np.empty(self._weights_shape, self._numpy_out_dtype)
        return cast(T, made), made

    def _execute(self, arrays: tuple[AnyArray, AnyArray], target: AnyArray, threads: int) -> None:
        if self.accumulate and self.geometry.N == 0:
            return
        plain, windowed = arrays if self._plain_first else (arrays[1], arrays[0])
        if self.dtype == "bf16":
            plain, windowed = plain.view(np.uint16), windowed.view(np.uint16)
        out = target.view(np.uint16) if self.out_dtype == "bf16" else target
        bytes_of, array_type = self._from_buffer, self._bytes
        execution = self._executions.get(threads) or self._find_execution(threads)
        # Held here until the kernel has returned: meanwhile it may be evicted, and closes with the last reference.
        specialised = execution.follower.note_call()
        if specialised is None:
            address, geometry, schedule = execution.any_size
        else:
            address = specialised.address
            geometry, schedule = execution.specialised or self._specialise(execution)
        status = self._run(
            address,
            geometry,
            bytes_of(array_type, plain),
            bytes_of(array_type, windowed),
            bytes_of(array_type, out, True),
            schedule.items,
            schedule.scratch_bytes,
            threads,
        )
        if status != 0:
            raise MemoryError(f"{self._operation}: no memory for {schedule.scratch_bytes} bytes of scratch a thread")

    def _refuse(self, arrays: tuple[AnyArray, AnyArray]) -> NoReturn:
        for array, name, shape in zip(arrays, self._names, self._shapes, strict=True):
            if array.dtype != self._numpy_dtype:
                raise DTypeError(
                    f"{self._operation}: {name} has dtype {array.dtype}; this plan is for {self._numpy_dtype}"
                )
            if array.shape != shape:
                raise SpecError(f"{self._operation}: {name} has shape {array.shape}; this plan is for {shape}")
        raise AssertionError

    def __repr__(self) -> str:
        geometry, schedule = self.geometry, self.schedule
        inputs = ", ".join(f"{name} {shape}" for name, shape in zip(self._names, self._shapes, strict=True))
        return (
            f"<Plan {self._operation}: {inputs} {self.dtype} {geometry.data_format} -> {self._weights_shape} "
            f"{self.out_dtype}; weights as the {geometry.reading} lays them out; {schedule}>"
        )


def _make_cdata(schedule: Schedule, out_dtype: str, accumulate: bool) -> Any:
    from convgrad.loader import load_runtime

    ffi, _ = load_runtime()
    geometry, cdata = schedule.geometry, ffi.new("wgrad_geometry *")
    for field in ("N", "G", "P", "W", "O", "I", "K", "stride", "dilation", "pad"):
        setattr(cdata, field, getattr(geometry, field))
    for field in ("out_group", "out_plain", "out_windowed", "out_tap"):
        setattr(cdata, field, getattr(geometry, field))
    cdata.out_f32 = int(out_dtype == "f32")
    cdata.accumulate = int(accumulate)
    for field, value in schedule.fields.items():
        setattr(cdata, field, value)
    return cdata
