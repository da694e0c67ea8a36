# SPDX-License-Identifier: Apache-2.0
"""What all operations have in common: attributes checked once, plans made per geometry and kept."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, TypeVar, cast

import numpy as np

from convgrad.attributes import check_attributes, check_shape_entries
from convgrad.description import Description
from convgrad.errors import DTypeError, SpecError
from convgrad.geometry import resolve_geometry
from convgrad.plan import Plan
from convgrad.tensors import dtype_name, is_torch_tensor, view_array

T = TypeVar("T")

_KEPT_PLANS = 256


class WeightsGradient:
    """Base of the generated operation classes. Instances are immutable and safe to share between threads."""

    description: ClassVar[Description]
    __slots__ = ("_given", "_plans", "_settings")

    def __init__(self, given: Mapping[str, object]) -> None:
        self._settings = check_attributes(self.description, given)
        self._given = {name: value for name, value in given.items() if value is not None}
        self._plans: dict[object, Plan] = {}

    def __repr__(self) -> str:
        return f"{self.description.name}({', '.join(f'{name}={value!r}' for name, value in self._given.items())})"

    def _call(self, first: T, second: T, shape: object, out: T | None, accumulate: bool, num_threads: int | None) -> T:
        plan = self._find_plan(first, second, shape, out, accumulate)
        return plan(first, second, out=out, num_threads=num_threads)

    def _find_plan(self, first: object, second: object, shape: object, out: object, accumulate: bool) -> Plan:
        names = self.description.inputs
        arrays = (
            view_array(self.description.name, names[0].name, first),
            view_array(self.description.name, names[1].name, second),
        )
        out_type = None if out is None else view_array(self.description.name, "out", out).dtype
        entries = None if shape is None else check_shape_entries(self.description, shape, self._settings.rank)
        key = (arrays[0].shape, arrays[1].shape, arrays[0].dtype, arrays[1].dtype, out_type, entries, accumulate)
        plan = self._plans.get(key)
        if plan is None:
            types = (arrays[0].dtype, arrays[1].dtype)
            plan = self._make_plan((arrays[0].shape, arrays[1].shape), types, entries, out_type, accumulate)
            if len(self._plans) >= _KEPT_PLANS:
                self._plans.pop(next(iter(self._plans)), None)
            self._plans[key] = plan
        return plan

    def _prepare(
        self, first: object, second: object, shape: object, dtype: object, out_dtype: object, accumulate: bool
    ) -> Plan:
        shapes, types = [], []
        for data_input, value in zip(self.description.inputs, (first, second), strict=True):
            if isinstance(value, np.ndarray) or is_torch_tensor(value):
                array = view_array(self.description.name, data_input.name, value)
                shapes.append(array.shape)
                types.append(array.dtype if dtype is None else dtype)
            elif isinstance(value, (list, tuple)) and all(type(extent) is int for extent in value):
                if dtype is None:
                    raise DTypeError(
                        f"{self.description.name}: {data_input.name} is given as a shape, which has no element type; "
                        f"expected dtype= as well"
                    )
                shapes.append(tuple(value))
                types.append(dtype)
            else:
                raise DTypeError(
                    f"{self.description.name}: {data_input.name} is a {type(value).__name__}; "
                    f"expected a NumPy array, a torch tensor, or a shape"
                )
        entries = None if shape is None else check_shape_entries(self.description, shape, self._settings.rank)
        return self._make_plan((shapes[0], shapes[1]), (types[0], types[1]), entries, out_dtype, accumulate)

    def _make_plan(
        self,
        shapes: tuple[tuple[int, ...], tuple[int, ...]],
        types: tuple[object, object],
        entries: tuple[int, ...] | None,
        out_type: object,
        accumulate: bool,
    ) -> Plan:
        description, settings = self.description, self._settings
        names = [
            dtype_name(description.name, data_input.name, dtype, description.dtypes)
            for data_input, dtype in zip(description.inputs, types, strict=True)
        ]
        if names[0] != names[1]:
            raise DTypeError(
                f"{description.name}: {description.inputs[0].name} is {names[0]} and {description.inputs[1].name} is "
                f"{names[1]}; expected one type for all tensors of a call"
            )
        dtype = names[0]
        out_dtype = dtype if out_type is None else dtype_name(description.name, "out", out_type, _out_types(dtype))
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
