# SPDX-License-Identifier: Apache-2.0
"""What all operations have in common: attributes checked once, plans made per geometry and kept."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any, ClassVar, TypeVar, cast

import numpy as np

from convgrad.attributes import check_attributes, check_shape_entries, check_tensor_shape
from convgrad.description import Description
from convgrad.errors import DTypeError, SpecError, quote_value
from convgrad.geometry import resolve_geometry
from convgrad.plan import Plan
from convgrad.tensors import AnyArray, dtype_name, read_dtype, view_array

T = TypeVar("T")

_KEPT_PLANS = 256


class WeightsGradient:
    """Base of the generated operation classes. Instances are immutable and safe to share between threads."""

    description: ClassVar[Description]
    __slots__ = ("_given", "_plans", "_settings")

    def __init__(self, given: Mapping[str, object]) -> None:
        self._settings = check_attributes(self.description, given)
        # The checked values: the caller may change the lists that were given.
        roles = {attribute.name: attribute.role for attribute in self.description.attributes}
        self._given = {name: getattr(self._settings, roles[name]) for name, value in given.items() if value is not None}
        self._plans: dict[object, Plan] = {}

    def __setattr__(self, name: str, value: object) -> None:
        if hasattr(self, "_plans"):  # the last that the constructor sets
            raise AttributeError(f"{name} cannot be set: {self.description.name} is immutable; make another one")
        object.__setattr__(self, name, value)

    def __reduce__(self) -> tuple[partial[WeightsGradient], tuple[()]]:
        # A copy, or the other side of a pickle, makes its own plans.
        return partial(type(self), **self._given), ()

    def __repr__(self) -> str:
        return f"{self.description.name}({', '.join(f'{name}={value!r}' for name, value in self._given.items())})"

    def _call(self, first: T, second: T, shape: object, out: T | None, accumulate: bool, num_threads: int | None) -> T:
        arrays = self._view(0, first), self._view(1, second)
        plan = self._find_plan(arrays, shape, out, accumulate)
        return plan.run(first, arrays, out, num_threads)

    def _view(self, place: int, value: object) -> AnyArray:
        if type(value) is np.ndarray:  # the common case, without the cost of the general one
            return value
        return view_array(self.description.name, self.description.inputs[place].name, value)

    def _find_plan(self, arrays: tuple[AnyArray, AnyArray], shape: object, out: object, accumulate: bool) -> Plan:
        out_type = None
        if out is not None:
            out_type = (out if type(out) is np.ndarray else view_array(self.description.name, "out", out)).dtype
        if accumulate is not False:
            accumulate = self._check_accumulate(accumulate)
            if accumulate and out is None:
                raise SpecError(
                    f"{self.description.name}: accumulate needs an out to add to; expected an f32 array in out"
                )
        entries = None if shape is None else check_shape_entries(self.description, shape, self._settings.rank)
        key = (arrays[0].shape, arrays[1].shape, arrays[0].dtype, arrays[1].dtype, out_type, entries, accumulate)
        plan = self._plans.get(key)
        if plan is None:
            types = self._dtype_name(0, arrays[0].dtype), self._dtype_name(1, arrays[1].dtype)
            out_dtype = None
            if out_type is not None:
                out_dtype = dtype_name(self.description.name, "out", out_type, _out_types(types[0]))
            plan = self._make_plan((arrays[0].shape, arrays[1].shape), types, entries, out_dtype, accumulate)
            if len(self._plans) >= _KEPT_PLANS:
                # list() takes its copy at once; an iterator would fail when another thread adds a plan.
                for oldest in list(self._plans)[:1]:
                    self._plans.pop(oldest, None)
            self._plans[key] = plan
        return plan

    def _prepare(
        self, first: object, second: object, shape: object, dtype: object, out_dtype: object, accumulate: bool
    ) -> Plan:
        description = self.description
        given = None if dtype is None else read_dtype(description.name, "dtype", dtype, description.dtypes)
        shapes, types = [], []
        for place, (data_input, value) in enumerate(zip(description.inputs, (first, second), strict=True)):
            if isinstance(value, (list, tuple)):
                if given is None:
                    raise DTypeError(
                        f"{description.name}: {data_input.name} is given as a shape, which has no element type; "
                        f"expected dtype= as well"
                    )
                shapes.append(check_tensor_shape(description, data_input.name, value))
                types.append(given)
                continue
            array = view_array(description.name, data_input.name, value, "a NumPy array, a torch tensor or a shape")
            shapes.append(array.shape)
            types.append(self._dtype_name(place, array.dtype))
            if given is not None and types[-1] != given:
                raise DTypeError(
                    f"{description.name}: {data_input.name} has dtype {types[-1]}, but dtype = {given}; expected the "
                    f"array's own type, or no dtype"
                )
        out_name = None
        if out_dtype is not None:
            out_name = read_dtype(description.name, "out_dtype", out_dtype, _out_types(types[0]))
        accumulate = self._check_accumulate(accumulate)
        entries = None if shape is None else check_shape_entries(description, shape, self._settings.rank)
        plan = self._make_plan((shapes[0], shapes[1]), (types[0], types[1]), entries, out_name, accumulate)
        plan.wait()
        return plan

    def _dtype_name(self, place: int, dtype: np.dtype[Any]) -> str:
        return dtype_name(self.description.name, self.description.inputs[place].name, dtype, self.description.dtypes)

    def _check_accumulate(self, accumulate: object) -> bool:
        if not isinstance(accumulate, (bool, np.bool_)):
            raise SpecError(
                f"{self.description.name}: accumulate = {quote_value(accumulate)}: expected True or False, "
                f"not {type(accumulate).__name__}"
            )
        return bool(accumulate)

    def _make_plan(
        self,
        shapes: tuple[tuple[int, ...], tuple[int, ...]],
        types: tuple[str, str],
        entries: tuple[int, ...] | None,
        out_type: str | None,
        accumulate: bool,
    ) -> Plan:
        description, settings = self.description, self._settings
        if types[0] != types[1]:
            first, second = description.inputs
            raise DTypeError(
                f"{description.name}: {first.name} is {types[0]} and {second.name} is {types[1]}; expected one type "
                f"for all tensors of a call: call {second.name}.astype({first.name}.dtype) or "
                f"{second.name}.to({first.name}.dtype)"
            )
        dtype = types[0]
        out_dtype = out_type or dtype
        if accumulate and out_dtype != "f32":
            raise DTypeError(f"{description.name}: accumulate adds to an out of type f32, not {out_dtype}")
        weights_shape = entries or settings.weights_shape
        if weights_shape is None:
            name = description.shape_name
            raise SpecError(
                f"{description.name}: {name} is missing: expected it as an attribute or as an input; the sizes of the "
                f"tensors alone do not determine the kernel"
            )
        geometry = resolve_geometry(description, settings, shapes[0], shapes[1], weights_shape)
        return Plan(description, geometry, shapes, dtype, out_dtype, accumulate)


def _out_types(dtype: str) -> tuple[str, ...]:
    """Element types that out may have: that of the inputs, or f32 (an extension of the documents)."""
    return (dtype,) if dtype == "f32" else (dtype, "f32")


def split_shape(shape: Any) -> tuple[tuple[int, ...] | None, object]:
    """A shape that is given once, as a list (then it is the attribute) or as an array (then it is the input)."""
    if shape is None or isinstance(shape, (list, tuple)):
        return cast("tuple[int, ...] | None", shape), None
    return None, shape
