# SPDX-License-Identifier: Apache-2.0
"""What callers hand in: NumPy arrays as they are, torch tensors through a zero-copy view, everything else an error."""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from convgrad.errors import DTypeError, SpecError
from convgrad.vocabulary import NUMPY_DTYPES, TORCH_DTYPES

AnyArray: TypeAlias = NDArray[Any]

_DTYPE_NAMES = {dtype: name for name, dtype in NUMPY_DTYPES.items()}


def loaded_torch() -> ModuleType | None:
    """The torch module when the caller has imported it; a caller with torch tensors has."""
    return sys.modules.get("torch")


def is_torch_tensor(value: object) -> bool:
    """Whether the value is a torch.Tensor, without importing torch."""
    torch = loaded_torch()
    return torch is not None and isinstance(value, torch.Tensor)


def view_array(operation: str, name: str, value: object) -> AnyArray:
    """The value as a NumPy array over the same memory.

    Raises:
        DTypeError: it is neither an array nor a tensor, or its type has no NumPy counterpart here.
        SpecError: a torch tensor that is not in this process' memory as a dense array.
    """
    if isinstance(value, np.ndarray):
        if isinstance(value, np.ma.MaskedArray):
            raise DTypeError(
                f"{operation}: {name} is a masked array, and its mask would be ignored; pass {name}.filled(0)"
            )
        return value
    if is_torch_tensor(value):
        return _view_torch(operation, name, value)
    raise DTypeError(f"{operation}: {name} is a {type(value).__name__}; expected a NumPy array or a torch tensor")


def _view_torch(operation: str, name: str, value: Any) -> AnyArray:
    torch = loaded_torch()
    assert torch is not None
    if value.device.type != "cpu":
        raise SpecError(f"{operation}: {name} is on device {value.device}; expected the CPU: call {name}.cpu()")
    if value.layout != torch.strided:
        raise SpecError(f"{operation}: {name} has layout {value.layout}; expected a dense one: call {name}.to_dense()")
    if value.is_conj() or value.is_neg():
        raise SpecError(f"{operation}: {name} is a lazy view: call {name}.resolve_conj().resolve_neg()")
    detached = value.detach()
    if value.dtype == torch.bfloat16:
        # NumPy has no bfloat16 of its own: the same bits pass as 16-bit integers.
        array: AnyArray = detached.view(torch.int16).numpy().view(NUMPY_DTYPES["bf16"])
        return array
    result: AnyArray = detached.numpy()
    return result


def make_torch_tensor(dtype: str, shape: tuple[int, ...]) -> Any:
    """An uninitialised torch tensor on the CPU."""
    torch = loaded_torch()
    assert torch is not None
    return torch.empty(shape, dtype=getattr(torch, TORCH_DTYPES[dtype]))


def dtype_name(operation: str, name: str, dtype: object, allowed: tuple[str, ...]) -> str:
    """The spec's name of an element type.

    Args:
        dtype: a NumPy dtype or what makes one, a torch dtype, or the spec's own name.

    Raises:
        DTypeError: the type is not one of those allowed, or its bytes are swapped.
    """
    if isinstance(dtype, str) and dtype in allowed:
        return dtype
    text = str(dtype)
    for spec_name, torch_name in TORCH_DTYPES.items():
        if text == f"torch.{torch_name}" and spec_name in allowed:
            return spec_name
    try:
        numpy_dtype: np.dtype[Any] | None = np.dtype(dtype)  # type: ignore[call-overload]
    except TypeError:
        numpy_dtype = None
    found = None if numpy_dtype is None else _DTYPE_NAMES.get(numpy_dtype)
    if found is not None and found in allowed:
        return found
    expected = ", ".join(f"{row} ({NUMPY_DTYPES[row].name})" for row in allowed)
    if (
        numpy_dtype is not None
        and not numpy_dtype.isnative
        and _DTYPE_NAMES.get(numpy_dtype.newbyteorder("=")) in allowed
    ):
        mend = f"call {name}.astype({name}.dtype.newbyteorder('='))"
        raise DTypeError(
            f"{operation}: {name} has byte-swapped dtype {numpy_dtype}; expected native byte order: {mend}"
        )
    raise DTypeError(f"{operation}: {name} has dtype {text}; expected one of {expected}")


def check_memory(operation: str, name: str, array: AnyArray) -> None:
    """The array can be read in place: C-contiguous and aligned.

    Raises:
        SpecError: says which call mends it.
    """
    flags = array.flags
    if not flags.c_contiguous:
        mend = f"call numpy.ascontiguousarray({name}) or {name}.contiguous()"
        strides = tuple(array.strides)
        raise SpecError(
            f"{operation}: {name} is not contiguous (strides of {strides} bytes for shape {array.shape}): {mend}"
        )
    if not flags.aligned:
        raise SpecError(f"{operation}: {name} is not aligned to its {array.itemsize}-byte elements: call {name}.copy()")


def check_out(
    operation: str, array: AnyArray, shape: tuple[int, ...], dtype: str, inputs: tuple[tuple[str, AnyArray], ...]
) -> None:
    """The caller's out can take the gradient.

    Raises:
        SpecError: wrong shape, read-only, not contiguous, misaligned, or overlapping an input.
        DTypeError: wrong element type.
    """
    if array.shape != shape:
        raise SpecError(f"{operation}: out has shape {array.shape}; expected {shape}")
    if array.dtype != NUMPY_DTYPES[dtype]:
        raise DTypeError(f"{operation}: out has dtype {array.dtype}; expected {dtype} ({NUMPY_DTYPES[dtype].name})")
    if not array.flags.writeable:
        raise SpecError(f"{operation}: out is read-only; expected an array that can be written")
    check_memory(operation, "out", array)
    for name, data in inputs:
        if np.may_share_memory(array, data):
            raise SpecError(f"{operation}: out overlaps {name} in memory; expected memory of its own")
