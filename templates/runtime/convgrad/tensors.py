# SPDX-License-Identifier: Apache-2.0
"""What callers hand in: NumPy arrays as they are, torch tensors through a zero-copy view, everything else an error."""

from __future__ import annotations

import contextlib
import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any, TypeAlias, cast

import numpy as np

from convgrad.errors import DTypeError, SpecError, quote_value
from convgrad.vocabulary import NUMPY_DTYPES, TORCH_DTYPES

if TYPE_CHECKING:
    from numpy.typing import NDArray

AnyArray: TypeAlias = "NDArray[Any]"

_LONGEST_DTYPE = 32
"""Characters of a name of an element type; numpy.dtype would take a longer text apart first."""
_DTYPE_NAMES = {dtype: name for name, dtype in NUMPY_DTYPES.items()}


def loaded_torch() -> ModuleType | None:
    """The torch module when the caller has imported it; a caller with torch tensors has."""
    return sys.modules.get("torch")


def is_torch_tensor(value: object) -> bool:
    """Whether the value is a torch.Tensor, without importing torch."""
    torch = loaded_torch()
    return torch is not None and issubclass(type(value), torch.Tensor)


def view_array(operation: str, name: str, value: object, expected: str = "a NumPy array or a torch tensor") -> AnyArray:
    """The value as a NumPy array over the same memory.

    Raises:
        DTypeError: it is neither an array nor a tensor, or its type has no NumPy counterpart here.
        SpecError: a torch tensor that is not in this process' memory as a dense array.
    """
    if issubclass(type(value), np.ndarray):
        if type(value) is not np.ndarray and isinstance(value, np.ma.MaskedArray):  # np.ma takes 20 ms to import
            raise DTypeError(
                f"{operation}: {name} is a masked array, and its mask would be ignored; pass {name}.filled(0)"
            )
        # A subclass may override shape, dtype or flags: what is checked must be what the kernel gets.
        return np.ndarray.view(cast(AnyArray, value), np.ndarray)
    if is_torch_tensor(value):
        return _view_torch(operation, name, value)
    raise DTypeError(f"{operation}: {name} is a {type(value).__name__}; expected {expected}")


def _view_torch(operation: str, name: str, value: Any) -> AnyArray:
    torch = loaded_torch()
    assert torch is not None
    if value.device.type != "cpu":
        raise SpecError(f"{operation}: {name} is on device {value.device}; expected the CPU: call {name}.cpu()")
    if value.layout != torch.strided:
        raise SpecError(f"{operation}: {name} has layout {value.layout}; expected a dense one: call {name}.to_dense()")
    if value.is_conj() or value.is_neg():
        raise SpecError(f"{operation}: {name} is a lazy view: call {name}.resolve_conj().resolve_neg()")
    try:
        detached = value.detach()
        if value.dtype == torch.bfloat16:
            # NumPy has no bfloat16 of its own: the same bits pass as 16-bit integers.
            array: AnyArray = detached.view(torch.int16).numpy().view(NUMPY_DTYPES["bf16"])
            return array
        result: AnyArray = detached.numpy()
    except TypeError as error:  # float8, quantized, complex32: no NumPy type holds them
        expected = _expected_types(tuple(TORCH_DTYPES))
        raise DTypeError(f"{operation}: {name} has dtype {value.dtype}; expected {expected}") from error
    except RuntimeError as error:  # fake tensors, tensors inside torch.func transforms
        raise SpecError(f"{operation}: {name} is a {type(value).__name__} without memory to read: {error}") from error
    return result


def make_torch_tensor(dtype: str, shape: tuple[int, ...]) -> Any:
    """An uninitialised torch tensor on the CPU."""
    torch = loaded_torch()
    assert torch is not None
    return torch.empty(shape, dtype=getattr(torch, TORCH_DTYPES[dtype]))


def dtype_name(operation: str, name: str, dtype: np.dtype[Any], allowed: tuple[str, ...]) -> str:
    """The spec's name of an array's element type.

    Args:
        name: the array, for messages.
        allowed: the spec's names of the types that it may have.

    Raises:
        DTypeError: the type is not one of those allowed, or its bytes are swapped.
    """
    found = _DTYPE_NAMES.get(dtype)
    if found is not None and found in allowed:
        return found
    # An array that is to be written cannot be replaced by a converted copy.
    is_out = name == "out"
    if not dtype.isnative and _DTYPE_NAMES.get(dtype.newbyteorder("=")) in allowed:
        mend = "" if is_out else f": call {name}.astype({name}.dtype.newbyteorder('='))"
        raise DTypeError(f"{operation}: {name} has byte-swapped dtype {dtype}; expected native byte order{mend}")
    mend = f": call {name}.astype('float32') or {name}.float()" if dtype.kind in "biuf" and not is_out else ""
    raise DTypeError(f"{operation}: {name} has dtype {dtype}; expected {_expected_types(allowed)}{mend}")


def read_dtype(operation: str, argument: str, value: object, allowed: tuple[str, ...]) -> str:
    """The spec's name of an element type that is given as an argument.

    Args:
        argument: the argument, for messages.
        value: the spec's own name, a NumPy dtype or what makes one, or a torch dtype.

    Raises:
        DTypeError: the value is none of those allowed.
    """
    if isinstance(value, str) and str.__str__(value) in allowed:
        return str.__str__(value)
    torch = loaded_torch()
    found: str | None = None
    if torch is not None and isinstance(value, torch.dtype):
        found = {f"torch.{theirs}": ours for ours, theirs in TORCH_DTYPES.items()}.get(str(value))
    elif not (isinstance(value, (str, bytes)) and len(value) > _LONGEST_DTYPE):
        # numpy.dtype evaluates strings and attributes of its argument, so it can raise anything.
        with contextlib.suppress(Exception):
            found = _DTYPE_NAMES.get(np.dtype(value))  # type: ignore[call-overload]
    if found is None or found not in allowed:
        raise DTypeError(f"{operation}: {argument} = {quote_value(value)}: expected {_expected_types(allowed)}")
    return found


def _expected_types(allowed: tuple[str, ...]) -> str:
    names = ", ".join(f"{row} ({NUMPY_DTYPES[row].name})" for row in allowed)
    return names if len(allowed) == 1 else f"one of {names}"


def check_memory(operation: str, name: str, array: AnyArray) -> None:
    """The array can be read in place: C-contiguous and aligned.

    Raises:
        SpecError: says which call mends it.
    """
    flags = array.flags
    if flags.c_contiguous and flags.aligned:
        return
    if not flags.c_contiguous:
        mend = f"call numpy.ascontiguousarray({name}) or {name}.contiguous()"
        if name == "out":  # a copy would take the gradient in its stead
            mend = "expected an array in C order without gaps"
        strides = tuple(array.strides)
        raise SpecError(
            f"{operation}: {name} is not contiguous (strides of {strides} bytes for shape {array.shape}): {mend}"
        )
    mend = "expected an aligned array" if name == "out" else f"call {name}.copy()"
    raise SpecError(f"{operation}: {name} is not aligned to its {array.itemsize}-byte elements: {mend}")


def check_out(
    operation: str, array: AnyArray, shape: tuple[int, ...], dtype: str, inputs: tuple[tuple[str, AnyArray], ...]
) -> None:
    """The caller's out can take the gradient.

    Raises:
        SpecError: wrong shape, read-only, not contiguous, misaligned, or overlapping an input.
        DTypeError: wrong element type.
    """
    expected = NUMPY_DTYPES[dtype]
    if array.shape != shape:
        raise SpecError(f"{operation}: out has shape {array.shape}; expected {shape}")
    if array.dtype != expected:
        raise DTypeError(f"{operation}: out has dtype {array.dtype}; expected {dtype} ({expected.name})")
    if not array.flags.carray:  # contiguous, aligned and writeable
        if not array.flags.writeable:
            raise SpecError(f"{operation}: out is read-only; expected an array that can be written")
        check_memory(operation, "out", array)
    for name, data in inputs:
        if np.may_share_memory(array, data):
            raise SpecError(f"{operation}: out overlaps {name} in memory; expected memory of its own")
