# SPDX-License-Identifier: Apache-2.0
"""Bad inputs, written by hand, each with the error that it must give.

A row changes one thing (or the few that belong together) of a call that is right, so that nothing else can be what
the error is about. `item` is the point of the list of validators that the row belongs to:

 1 unknown attribute, wrong kind             9 ranks of the two tensors
 2 missing attribute                        10 batch sizes
 3 length of a list, rank                   11 groups, channels, channel axes of the shape
 4 range                                    12 spatial sizes
 5 words                                    13 beyond 64 bits, beyond the machine's memory, absurdly long
 6 output_padding                           14 memory of inputs and of out
 7 shape of the weights                     15 threads, accumulate
 8 element types

The calls that are right, per spatial axis (depth, height, width):

              convolution   transposed
  I             4 5 6         2 3 4        N = 2, IC = 4, OC = 6
  O             4 3 5         2 5 5        NCX; weights OIX, of the current transposed operation IOX
  K             2 3 2         2 3 2
  strides       1 2 1         1 2 1
  dilations     1 1 2         1 1 2
  pads_begin    0 1 0         0 1 0
  pads_end      1 1 1         1 1 1
"""

from __future__ import annotations

import enum
import itertools
import os
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, NoReturn

import ml_dtypes
import numpy as np
import numpy.typing as npt

import convgrad
from convgrad import DTypeError, SpecError

Array = npt.NDArray[Any]

CONV: Final = "ConvolutionBackwardWeights"
TRAN: Final = "ConvTransposeBackwardWeights"
CONV0: Final = "ConvolutionBackpropFilters"
TRAN0: Final = "ConvTransposeBackpropFilters"
FUNCTIONS: Final = {
    CONV: "convolution_backward_weights",
    TRAN: "conv_transpose_backward_weights",
    CONV0: "convolution_backprop_filters",
    TRAN0: "conv_transpose_backprop_filters",
}


@dataclass(frozen=True, slots=True)
class BadInput:
    """One row. `changes` holds attributes, and what Call names."""

    id: str
    item: int
    op: str
    rank: int
    message: str
    error: type[Exception]
    changes: Mapping[str, Any]

    @property
    def text(self) -> str:
        """The full message. Python's own errors and those about threads do not begin with the operation."""
        of_operation = self.error is not TypeError and not self.message.startswith("num_threads")
        return f"{self.op}: {self.message}" if of_operation else self.message


class Raw:
    """Passed as it is where a row would otherwise make an array from a shape."""

    def __init__(self, value: object) -> None:
        self.value = value


class _Absent(enum.Enum):
    ABSENT = enum.auto()


ABSENT: Final = _Absent.ABSENT
"""An attribute that is left out."""


def right_attributes(op: str, rank: int) -> dict[str, Any]:
    """The attributes of the right call."""
    transposed, first_generation = op in (TRAN, TRAN0), op in (CONV0, TRAN0)
    noun = "filter" if first_generation else "weights"
    kernel = (2, 3, 2)[3 - rank :]
    return {
        "strides": (1, 2, 1)[3 - rank :],
        "pads_begin": (0, 1, 0)[3 - rank :],
        "pads_end": (1, 1, 1)[3 - rank :],
        "dilations": (1, 1, 2)[3 - rank :],
        "auto_pad": "none",
        "groups": 1,
        "data_format": "NCX",
        f"{noun}_format": "IOX" if op == TRAN else "OIX",
        f"{noun}_shape": (4, 6, *kernel) if transposed and not first_generation else (6, 4, *kernel),
    }


def right_arrays(op: str, rank: int) -> tuple[Array, Array]:
    """The two tensors of the right call."""
    inputs, outputs = ((2, 3, 4), (2, 5, 5)) if op in (TRAN, TRAN0) else ((4, 5, 6), (4, 3, 5))
    return _ramp((2, 4, *inputs[3 - rank :])), _ramp((2, 6, *outputs[3 - rank :]))


def _ramp(shape: tuple[int, ...]) -> Array:
    count = int(np.prod(shape))
    return (np.arange(count, dtype=np.float32) % 7 - 3).reshape(shape)


class Call:
    """A row made ready to run: everything that the caller would have at hand exists already."""

    def __init__(self, row: BadInput) -> None:
        self._row = row
        changes = dict(row.changes)
        first, second = right_arrays(row.op, row.rank)
        self._prepare: bool = changes.pop("prepare", False)
        self._first = self._tensor(changes.pop("first", first))
        self._second = self._tensor(changes.pop("second", second))
        self._shape = changes.pop("shape", None)
        self._options = {
            name: changes.pop(name) for name in ("accumulate", "num_threads", "dtype", "out_dtype") if name in changes
        }
        attributes = right_attributes(row.op, row.rank)
        shape = attributes["filter_shape" if row.op in (CONV0, TRAN0) else "weights_shape"]
        sentinel = np.full(shape, -1.5, np.float32)
        self.out: Any = changes.pop("out", None if self._prepare else sentinel)
        self._attributes = {k: v for k, v in {**attributes, **changes}.items() if v is not ABSENT}
        self._operation = getattr(convgrad, row.op)

    def _tensor(self, value: object) -> object:
        if isinstance(value, Raw):
            return value.value
        if isinstance(value, tuple) and not self._prepare:
            return np.ones(value, np.float32)
        return value

    def run(self) -> object:
        """Construct the operation and call it, or have it prepare."""
        operation = self._operation(**self._attributes)
        if self._prepare:
            return operation.prepare(self._first, self._second, self._shape, **self._options)
        return operation(self._first, self._second, self._shape, out=self.out, **self._options)

    def run_function(self) -> object:
        """The same in one go. The function takes the shape once: what a row gives as the input, else the attribute."""
        noun = "filter_shape" if "filter_shape" in right_attributes(self._row.op, self._row.rank) else "weights_shape"
        attributes = dict(self._attributes)
        attribute = attributes.pop(noun, None)
        function = getattr(convgrad, FUNCTIONS[self._row.op])
        shape = attribute if self._shape is None else self._shape
        return function(self._first, self._second, shape, out=self.out, **attributes, **self._options)

    def memory(self) -> list[bytes]:
        """The bytes of out and of both tensors."""
        return [_bytes(value) for value in (self.out, self._first, self._second)]


def _bytes(value: Any) -> bytes:
    if not issubclass(type(value), np.ndarray) or value.dtype.hasobject:
        return b""
    return np.ndarray.tobytes(value)


_ROWS: list[BadInput] = []


def _bad(
    id: str, item: int, op: str, rank: int, message: str, error: type[Exception] = SpecError, **changes: Any
) -> None:
    _ROWS.append(BadInput(id, item, op, rank, message, error, changes))


# ------------------------------------------------------------------------------------------------- hostile values


class IndexRaises:
    """Its __index__ fails with something of its own."""

    def __index__(self) -> int:
        raise ZeroDivisionError("division by zero")

    def __repr__(self) -> str:
        return "IndexRaises()"


class IndexLies:
    """Its __index__ gives no integer."""

    def __index__(self) -> int:
        return 1.5  # type: ignore[return-value]  # noqa: PLE0305

    def __repr__(self) -> str:
        return "IndexLies()"


class ReprRaises:
    """It cannot be printed."""

    def __repr__(self) -> str:
        raise RuntimeError("no")


class BoastfulInt(int):
    """An integer that calls itself greater than all others."""

    def __lt__(self, other: object) -> bool:
        return False

    def __gt__(self, other: object) -> bool:
        return False

    __le__, __ge__ = __lt__, __gt__


class AgreeableStr(str):
    """A string that equals every other one."""

    __slots__ = ()

    def __eq__(self, other: object) -> bool:
        return True

    def __ne__(self, other: object) -> bool:
        return False

    def __hash__(self) -> int:
        return hash("NCX")

    def lower(self) -> str:
        return self


class ShiftyList(list[int]):
    """An empty list that claims two entries and yields a million."""

    def __len__(self) -> int:
        return 2

    def __iter__(self) -> Iterator[int]:
        return itertools.repeat(1, 10**6)


class LyingArray(np.ndarray[Any, np.dtype[Any]]):
    """An array of one element that claims the shape, type and layout of the right src."""

    @property  # type: ignore[misc]
    def shape(self) -> tuple[int, ...]:
        return (2, 4, 5, 6)

    @property
    def ndim(self) -> int:
        return 4

    @property
    def nbytes(self) -> int:
        return 960


class FalseArray:
    """It says that its class is numpy.ndarray."""

    @property  # type: ignore[misc]
    def __class__(self) -> type[np.ndarray[Any, Any]]:  # type: ignore[override]
        return np.ndarray


class ArrayRaises:
    """It offers NumPy's protocol and then fails."""

    def __array__(self, *arguments: object, **options: object) -> NoReturn:
        raise RuntimeError("no")


class Level(enum.IntEnum):
    """Integers with names."""

    ZERO = 0


def _swapped(array: Array) -> Array:
    return array.astype(array.dtype.newbyteorder(">"))


def _misaligned(array: Array) -> Array:
    buffer = np.zeros(array.nbytes + 1, np.uint8)[1:]
    placed = buffer.view(array.dtype).reshape(array.shape)
    placed[...] = array
    return placed


def _read_only(array: Array) -> Array:
    array.flags.writeable = False
    return array


def _gap(array: Array) -> Array:
    wide = np.zeros((*array.shape[:-1], array.shape[-1] + 1), array.dtype)
    return wide[..., :-1]


def _shared(first: tuple[int, ...], out: tuple[int, ...], start: int) -> tuple[Array, Array]:
    """Two arrays in one buffer; the second begins at element `start`."""
    a, b = int(np.prod(first)), int(np.prod(out))
    buffer = np.ones(max(a, start + b), np.float32)
    return buffer[:a].reshape(first), buffer[start : start + b].reshape(out)


_CONV_2D, _DELTA_2D, _TRAN_2D, _TRAN_DELTA_2D = (2, 4, 5, 6), (2, 6, 3, 5), (2, 4, 3, 4), (2, 6, 5, 5)
_OIX_2D, _IOX_2D = (6, 4, 3, 2), (4, 6, 3, 2)
_HUGE = 10**5000
_MANY = [1] * 10**6
_TEXT = "x" * 10**6
_LONG_ARRAY = np.broadcast_to(np.int64(1), (10**7,))
_MAX = 2**63 - 1
_TYPES = "one of f32 (float32), bf16 (bfloat16), f16 (float16)"
_WORDS = "'none', 'same_upper', 'same_lower', 'valid'"


def _cast(name: str) -> str:
    return f"call {name}.astype('float32') or {name}.float()"


# A table: two lines a row, not ten.
# fmt: off

# ------------------------------------------------------------- 1: unknown attributes, wrong kinds


def _unknown(op: str, name: str, guess: str | None = None) -> str:
    """Python's own text. `guess` is the name that Python 3.13 and later take to have been meant, if any."""
    text = f"{op}.__init__() got an unexpected keyword argument '{name}'"
    return f"{text}. Did you mean '{guess}'?" if guess and sys.version_info >= (3, 13) else text


_bad("unknown-typo", 1, CONV, 2, _unknown(CONV, "stride", "strides"), TypeError, stride=(1, 1))
_bad("unknown-other-generation", 1, CONV, 2, _unknown(CONV, "filter_shape"), TypeError, filter_shape=_OIX_2D)
_bad("unknown-format-of-other-generation", 1, TRAN, 1, _unknown(TRAN, "filter_format"), TypeError, filter_format="OIX")
_bad("unknown-newer-name", 1, CONV0, 3, _unknown(CONV0, "weights_shape"), TypeError, weights_shape=(6, 4, 2, 3, 2))
_bad("unknown-newer-format", 1, TRAN0, 2, _unknown(TRAN0, "weights_format"), TypeError, weights_format="OIX")
_bad("unknown-group", 1, TRAN, 2, _unknown(TRAN, "group", "groups"), TypeError, group=2)
_bad("strides-int", 1, CONV, 2, "strides = 2: expected a list of integers, not int", strides=2)
_bad("strides-float", 1, TRAN, 1, "strides = 1.0: expected a list of integers, not float", strides=1.0)
_bad("strides-str", 1, CONV0, 2, "strides = '11': expected a list of integers, not str", strides="11")
_bad("strides-bytes", 1, TRAN0, 2, r"strides = b'\x01\x01': expected a list of integers, not bytes", strides=b"\1\1")
_bad("strides-bool", 1, CONV, 1, "strides = True: expected a list of integers, not bool", strides=True)
_bad("strides-dict", 1, CONV, 3, "strides = {0: 1}: expected a list of integers, not dict", strides={0: 1})
_bad("strides-set", 1, TRAN, 2, "strides = {1}: expected a list of integers, not set", strides={1})
_bad("strides-range", 1, CONV, 2, "strides = range(1, 3): expected a list of integers, not range", strides=range(1, 3))
_bad("strides-two-axes", 1, CONV0, 2, "strides = array([[1, 2]]): expected a list of integers, not ndarray",
     strides=np.array([[1, 2]]))
_bad("strides-scalar-array", 1, CONV, 2, "strides = array(2): expected a list of integers, not ndarray",
     strides=np.array(2))
_bad("strides-entry-float", 1, CONV, 2, "strides[1] = 1.0: expected a positive integer, not float", strides=(2, 1.0))
_bad("strides-entry-nan", 1, TRAN, 2, "strides[0] = nan: expected a positive integer, not float",
     strides=(float("nan"), 1))
_bad("strides-entry-inf", 1, TRAN0, 1, "strides[0] = inf: expected a positive integer, not float",
     strides=[float("inf")])
_bad("strides-entry-str", 1, CONV0, 3, "strides[2] = '1': expected a positive integer, not str", strides=(1, 2, "1"))
_bad("strides-entry-none", 1, CONV, 2, "strides[0] = None: expected a positive integer, not NoneType",
     strides=(None, 1))
_bad("strides-entry-bool", 1, CONV, 2, "strides[1] = True: expected a positive integer, not bool", strides=(2, True))
_bad("strides-entry-numpy-bool", 1, TRAN, 2, "strides[1] = np.True_: expected a positive integer, not bool",
     strides=(2, np.True_))
_bad("strides-entry-list", 1, CONV, 2, "strides[0] = [2]: expected a positive integer, not list", strides=[[2], 1])
_bad("strides-entry-complex", 1, CONV, 1, "strides[0] = 1j: expected a positive integer, not complex", strides=[1j])
_bad("strides-entry-type", 1, CONV, 1, "strides[0] = <class 'int'>: expected a positive integer, not type",
     strides=[int])
_bad("strides-entry-numpy-float", 1, CONV0, 2,
     "strides[0] = np.float64(2.0): expected a positive integer, not float64", strides=np.array([2.0, 1.0]))
_bad("strides-entry-float-array", 1, TRAN0, 2, "strides[0] = array(2.): expected a positive integer, not ndarray",
     strides=(np.array(2.0), 1))
_bad("strides-entry-one-element-array", 1, CONV, 2,
     "strides[0] = array([2]): expected a positive integer, not ndarray", strides=(np.array([2]), 1))
_bad("strides-entry-timedelta", 1, CONV, 2,
     "strides[0] = np.timedelta64(2,'s'): expected a positive integer, not timedelta64",
     strides=(np.timedelta64(2, "s"), 1))
_bad("strides-entry-index-raises", 1, CONV, 2,
     "strides[0] = IndexRaises(): expected a positive integer, not IndexRaises", strides=(IndexRaises(), 1))
_bad("strides-entry-index-lies", 1, TRAN, 3, "strides[2] = IndexLies(): expected a positive integer, not IndexLies",
     strides=(1, 2, IndexLies()))
_bad("dilations-str", 1, TRAN, 3, "dilations = 'abc': expected a list of integers, not str", dilations="abc")
_bad("dilations-entry-float", 1, CONV0, 1, "dilations[0] = 2.5: expected a positive integer, not float",
     dilations=[2.5])
_bad("pads-begin-int", 1, CONV, 3, "pads_begin = 1: expected a list of integers, not int", pads_begin=1)
_bad("pads-end-entry-float", 1, TRAN0, 2, "pads_end[1] = 0.5: expected a non-negative integer, not float",
     pads_end=(1, 0.5))
_bad("pads-ignored-yet-wrong", 1, CONV, 2, "pads_begin = 'nothing': expected a list of integers, not str",
     auto_pad="valid", pads_begin="nothing")
_bad("pads-ignored-yet-entry-wrong", 1, TRAN0, 2, "pads_end[0] = 1.0: expected a non-negative integer, not float",
     auto_pad="same_upper", pads_end=(1.0, 1))
_bad("groups-float", 1, CONV, 2, "groups = 1.0: expected a positive integer, not float", groups=1.0)
_bad("groups-str", 1, TRAN, 2, "groups = '2': expected a positive integer, not str", groups="2")
_bad("groups-none", 1, CONV0, 1, "groups = None: expected a positive integer, not NoneType", groups=None)
_bad("groups-bool", 1, TRAN0, 3, "groups = True: expected a positive integer, not bool", groups=True)
_bad("groups-list", 1, CONV, 3, "groups = [1]: expected a positive integer, not list", groups=[1])
_bad("auto-pad-none", 1, CONV, 2, f"auto_pad = None: expected a string, one of {_WORDS}", auto_pad=None)
_bad("auto-pad-int", 1, TRAN, 1, f"auto_pad = 0: expected a string, one of {_WORDS}", auto_pad=0)
_bad("auto-pad-bytes", 1, CONV0, 2, f"auto_pad = b'none': expected a string, one of {_WORDS}", auto_pad=b"none")
_bad("auto-pad-list", 1, CONV0, 2, f"auto_pad = ['valid']: expected a string, one of {_WORDS}", auto_pad=["valid"])
_bad("data-format-int", 1, TRAN0, 1, "data_format = 1: expected a string, one of 'NCX', 'NXC'", data_format=1)
_bad("weights-format-tuple", 1, CONV, 2, "weights_format = ('OIX',): expected a string, one of 'OIX', 'XIO'",
     weights_format=("OIX",))
_bad("shape-attribute-int", 1, CONV, 1, "weights_shape = 48: expected a list of integers, not int", weights_shape=48)
_bad("shape-attribute-entry", 1, TRAN0, 2, "filter_shape[3] = 2.0: expected a positive integer, not float",
     filter_shape=(6, 4, 3, 2.0))
_bad("output-padding-int", 1, TRAN, 2, "output_padding = 1: expected a list of integers, not int", output_padding=1)
_bad("output-padding-entry", 1, TRAN0, 2, "output_padding[0] = False: expected a non-negative integer, not bool",
     output_padding=(False, 0))
_bad("no-repr", 1, CONV, 2, "strides = <ReprRaises>: expected a list of integers, not ReprRaises", strides=ReprRaises())
_bad("no-repr-entry", 1, TRAN, 2, "dilations[0] = <ReprRaises>: expected a positive integer, not ReprRaises",
     dilations=(ReprRaises(), 1))

# ------------------------------------------------------------- 2: missing attributes

_POSITIVE_LIST = "expected a list of positive integers, one for each spatial axis"
_PADS_LIST = "is required while auto_pad is 'none': expected a list of non-negative integers, one for each spatial axis"
_bad("strides-missing", 2, CONV, 2, f"strides is required: {_POSITIVE_LIST}", strides=ABSENT)
_bad("strides-missing-transposed", 2, TRAN, 1, f"strides is required: {_POSITIVE_LIST}", strides=ABSENT)
_bad("strides-is-none", 2, TRAN0, 3, f"strides is required: {_POSITIVE_LIST}", strides=None)
_bad("dilations-missing", 2, CONV0, 3, f"dilations is required: {_POSITIVE_LIST}", dilations=ABSENT)
_bad("dilations-missing-transposed", 2, TRAN0, 2, f"dilations is required: {_POSITIVE_LIST}", dilations=ABSENT)
_bad("pads-begin-missing", 2, CONV, 2, f"pads_begin {_PADS_LIST}", pads_begin=ABSENT)
_bad("pads-end-missing", 2, TRAN, 2, f"pads_end {_PADS_LIST}", pads_end=ABSENT)
_bad("pads-missing-first-generation", 2, CONV0, 1, f"pads_begin {_PADS_LIST}", pads_begin=ABSENT, pads_end=ABSENT)
_bad("pads-missing-upper-case-none", 2, TRAN0, 2, f"pads_end {_PADS_LIST}", pads_end=ABSENT, auto_pad="NONE")
_bad("strides-missing-under-auto-pad", 2, CONV, 1, f"strides is required: {_POSITIVE_LIST}", strides=ABSENT,
     auto_pad="valid")

# ------------------------------------------------------------- 3: lengths and ranks

_RANKS = "expected 1, 2 or 3, one for each spatial axis"
_bad("strides-empty", 3, CONV, 2, f"strides has 0 entries; {_RANKS}", strides=())
_bad("strides-four", 3, TRAN, 3, f"strides has 4 entries; {_RANKS}", strides=(1, 1, 2, 1))
_bad("strides-empty-array", 3, CONV0, 2, f"strides has 0 entries; {_RANKS}", strides=np.array([], np.int64))
_bad("dilations-short", 3, CONV, 2, "dilations has 1 entries; expected 2, like strides", dilations=(1,))
_bad("dilations-empty", 3, TRAN0, 1, "dilations has 0 entries; expected 1, like strides", dilations=[])
_bad("dilations-long", 3, TRAN, 1, "dilations has 2 entries; expected 1, like strides", dilations=(1, 2))
_bad("pads-begin-long", 3, CONV0, 2, "pads_begin has 4 entries; expected 2, like strides", pads_begin=(1, 1, 0, 1))
_bad("pads-end-short", 3, CONV, 3, "pads_end has 2 entries; expected 3, like strides", pads_end=(1, 1))
_bad("pads-ignored-yet-long", 3, TRAN, 2, "pads_end has 3 entries; expected 2, like strides", pads_end=(0, 0, 0),
     auto_pad="VALID")
_bad("output-padding-short", 3, TRAN0, 3, "output_padding has 1 entries; expected 3, like strides", output_padding=(0,))
_bad("strides-short-for-the-rest", 3, CONV, 2, "pads_begin has 2 entries; expected 1, like strides", strides=(2,))
_SHAPE_LENGTH = "two channel axes and the spatial axes of strides"
_bad("shape-attribute-short", 3, CONV, 2, f"weights_shape has 3 entries; expected 4, {_SHAPE_LENGTH}",
     weights_shape=(6, 4, 3))
_bad("shape-attribute-long", 3, TRAN0, 1, f"filter_shape has 4 entries; expected 3, {_SHAPE_LENGTH}",
     filter_shape=_OIX_2D)
_bad("shape-attribute-empty", 3, CONV0, 2, f"filter_shape has 0 entries; expected 4, {_SHAPE_LENGTH}", filter_shape=[])


def _axes(name: str, have: int, shape: str, rank: int) -> str:
    return (
        f"{name} has {have} axes (shape {shape}); expected {rank + 2}, batch, channels and {rank} spatial, "
        f"because strides has {rank} entries"
    )


_bad("src-no-axes", 3, CONV, 2, _axes("src", 0, "()", 2), first=Raw(np.array(1, np.float32)))
_bad("src-vector", 3, TRAN, 1, _axes("src", 1, "(24,)", 1), first=(24,))
_bad("src-two-axes", 3, CONV, 1, _axes("src", 2, "(4, 6)", 1), first=(4, 6))
_bad("src-six-axes", 3, CONV0, 3, _axes("input_forward", 6, "(1, 2, 4, 4, 5, 6)", 3), first=(1, 2, 4, 4, 5, 6))
_bad("both-other-rank", 3, TRAN0, 2, _axes("input_forward", 3, "(2, 4, 4)", 2), first=(2, 4, 4), second=(2, 6, 5))
_bad("both-3d-for-2d", 3, CONV, 2, _axes("src", 5, "(2, 4, 4, 5, 6)", 2), first=(2, 4, 4, 5, 6), second=(2, 6, 4, 3, 5))

# ------------------------------------------------------------- 4: ranges

_bad("strides-zero", 4, CONV, 2, "strides[0] = 0: expected a positive integer", strides=(0, 1))
_bad("strides-all-zero", 4, CONV0, 1, "strides[0] = 0: expected a positive integer", strides=[0])
_bad("strides-negative", 4, TRAN, 2, "strides[1] = -1: expected a positive integer", strides=(2, -1))
_bad("strides-zero-transposed", 4, TRAN0, 3, "strides[2] = 0: expected a positive integer", strides=(1, 2, 0))
_bad("strides-zero-by-name", 4, CONV, 2, "strides[0] = 0: expected a positive integer", strides=(Level.ZERO, 1))
_bad("strides-zero-array", 4, CONV, 2, "strides[0] = 0: expected a positive integer", strides=np.zeros(2, np.int8))
_bad("strides-boastful", 4, CONV, 2, "strides[0] = -5: expected a positive integer", strides=(BoastfulInt(-5), 1))
_bad("dilations-zero", 4, CONV, 2, "dilations[1] = 0: expected a positive integer", dilations=(1, 0))
_bad("dilations-negative", 4, TRAN, 1, "dilations[0] = -2: expected a positive integer", dilations=[-2])
_bad("dilations-lowest", 4, CONV0, 2, f"dilations[0] = {-(2**63)}: expected a positive integer",
     dilations=(-(2**63), 1))
_bad("dilations-zero-3d", 4, TRAN0, 3, "dilations[0] = 0: expected a positive integer", dilations=(0, 1, 2))
_bad("pads-begin-negative", 4, CONV, 2, "pads_begin[0] = -1: expected a non-negative integer", pads_begin=(-1, 0))
_bad("pads-end-negative", 4, TRAN, 3, "pads_end[2] = -3: expected a non-negative integer", pads_end=(1, 1, -3))
_bad("pads-ignored-yet-negative", 4, CONV0, 2, "pads_begin[1] = -1: expected a non-negative integer",
     pads_begin=(0, -1), auto_pad="same_lower")
_bad("groups-zero", 4, CONV, 1, "groups = 0: expected a positive integer", groups=0)
_bad("groups-zero-2d", 4, TRAN, 2, "groups = 0: expected a positive integer", groups=0)
_bad("groups-zero-3d", 4, TRAN0, 3, "groups = 0: expected a positive integer", groups=0)
_bad("groups-negative", 4, CONV0, 2, "groups = -1: expected a positive integer", groups=-1)
_bad("groups-lowest", 4, CONV0, 1, f"groups = {-(2**63)}: expected a positive integer", groups=-(2**63))
_bad("groups-boastful", 4, CONV, 2, "groups = -2: expected a positive integer", groups=BoastfulInt(-2))
_bad("all-zero-as-reported", 4, CONV, 2, "groups = 0: expected a positive integer", strides=[0, 0], dilations=[0, 0],
     groups=0)
_bad("output-padding-negative", 4, TRAN, 2, "output_padding[1] = -1: expected a non-negative integer",
     output_padding=(0, -1))
_bad("output-padding-negative-3d", 4, TRAN0, 3, "output_padding[0] = -1: expected a non-negative integer",
     output_padding=(-1, -1, -1))
_bad("shape-attribute-zero", 4, CONV, 2, "weights_shape[2] = 0: expected a positive integer",
     weights_shape=(6, 4, 0, 2))
_bad("shape-attribute-negative", 4, CONV0, 3, "filter_shape[1] = -4: expected a positive integer",
     filter_shape=(6, -4, 2, 3, 2))
_bad("shape-input-zero", 4, CONV, 2, "weights_shape[3] = 0: expected a positive integer",
     shape=np.array([6, 4, 3, 0], np.int32))
_bad("shape-input-all-zero", 4, TRAN0, 2, "filter_shape[0] = 0: expected a positive integer",
     shape=np.zeros(4, np.int32))
_bad("shape-input-negative", 4, TRAN, 1, "weights_shape[2] = -2: expected a positive integer",
     shape=np.array([4, 6, -2]))
_bad("shape-input-uncast-negative", 4, CONV0, 1, "filter_shape[0] = -1: expected a positive integer", shape=[-1, 4, 2])

# ------------------------------------------------------------- 5: words

_bad("auto-pad-unknown", 5, CONV, 2, f"auto_pad = 'same': expected one of {_WORDS}", auto_pad="same")
_bad("auto-pad-empty", 5, TRAN, 2, f"auto_pad = '': expected one of {_WORDS}", auto_pad="")
_bad("auto-pad-space", 5, CONV0, 1, f"auto_pad = 'valid ': expected one of {_WORDS}", auto_pad="valid ")
_bad("auto-pad-other-letter", 5, TRAN0, 3, f"auto_pad = '\u017fame_upper': expected one of {_WORDS}",
     auto_pad="\u017fame_upper")
_bad("auto-pad-nul", 5, TRAN0, 1, rf"auto_pad = 'none\x00': expected one of {_WORDS}", auto_pad="none\0")
_bad("auto-pad-agreeable", 5, CONV, 2, f"auto_pad = 'zzz': expected one of {_WORDS}", auto_pad=AgreeableStr("zzz"))
_bad("data-format-nchw", 5, CONV, 2, "data_format = 'NCHW': expected one of 'NCX', 'NXC'", data_format="NCHW")
_bad("data-format-lower-case", 5, TRAN0, 2, "data_format = 'ncx': expected one of 'NCX', 'NXC'", data_format="ncx")
_bad("data-format-weights", 5, CONV0, 2, "data_format = 'OIX': expected one of 'NCX', 'NXC'", data_format="OIX")
_bad("data-format-agreeable", 5, TRAN, 2, "data_format = 'zzz': expected one of 'NCX', 'NXC'",
     data_format=AgreeableStr("zzz"))
_bad("weights-format-of-transposed", 5, CONV, 2, "weights_format = 'IOX': expected one of 'OIX', 'XIO'",
     weights_format="IOX")
_bad("weights-format-xoi-of-transposed", 5, CONV, 1, "weights_format = 'XOI': expected one of 'OIX', 'XIO'",
     weights_format="XOI")
_bad("weights-format-of-convolution", 5, TRAN, 2, "weights_format = 'OIX': expected one of 'IOX', 'XOI'",
     weights_format="OIX")
_bad("weights-format-xio-of-convolution", 5, TRAN, 3, "weights_format = 'XIO': expected one of 'IOX', 'XOI'",
     weights_format="XIO")
_bad("filter-format-current", 5, TRAN0, 2, "filter_format = 'IOX': expected one of 'OIX', 'XIO'", filter_format="IOX")
_bad("filter-format-lower-case", 5, CONV0, 2, "filter_format = 'oix': expected one of 'OIX', 'XIO'",
     filter_format="oix")
_bad("filter-format-agreeable", 5, TRAN0, 1, "filter_format = 'zzz': expected one of 'OIX', 'XIO'",
     filter_format=AgreeableStr("zzz"))

# ------------------------------------------------------------- 6: output_padding

_bad("output-padding-on-convolution", 6, CONV, 2, _unknown(CONV, "output_padding"), TypeError, output_padding=(0, 0))
_bad("output-padding-on-old-convolution", 6, CONV0, 1, _unknown(CONV0, "output_padding"), TypeError, output_padding=[0])


def _grown(name: str, shape: str, axis: str, o: str, numbers: str, gives: str, eff: str, remedy: str) -> str:
    """A transposed output of another size; `remedy` begins with a semicolon or is empty."""
    return (
        f"{name} has shape {shape}: expected O == (I - 1) * s + eff - pb - pe + op on spatial axis {axis}, "
        f"but O = {o}, and {numbers} = {gives}, where eff = (K - 1) * d + 1 = {eff}{remedy}. "
        f"The spatial size of {name} is what the forward transposed convolution gives, output_padding included."
    )


_bad("output-padding-not-in-delta", 6, TRAN, 2,
     _grown("diff_dst", "(2, 6, 5, 5)", "0 (h)", "5", "(3 - 1) * 2 + 3 - 1 - 1 + 1", "6", "(3 - 1) * 1 + 1",
         "; output_padding = 0 would fit"),
     output_padding=(1, 0))
_bad("output-padding-needed", 6, TRAN0, 2,
     _grown("output_delta", "(2, 6, 6, 5)", "0 (h)", "6", "(3 - 1) * 2 + 3 - 1 - 1 + 0", "5", "(3 - 1) * 1 + 1",
         "; output_padding = 1 would fit"),
     second=(2, 6, 6, 5))
_bad("output-padding-on-the-wrong-axis", 6, TRAN, 2,
     _grown("diff_dst", "(2, 6, 6, 5)", "0 (h)", "6", "(3 - 1) * 2 + 3 - 1 - 1 + 0", "5", "(3 - 1) * 1 + 1",
         "; output_padding = 1 would fit"),
     second=(2, 6, 6, 5), output_padding=(0, 1))
_bad("output-padding-cannot-shrink", 6, TRAN, 1,
     _grown("diff_dst", "(2, 6, 4)", "0 (w)", "4", "(4 - 1) * 1 + 3 - 0 - 1 + 0", "5", "(2 - 1) * 2 + 1", ""),
     second=(2, 6, 4))
_bad("output-padding-third-axis", 6, TRAN0, 3,
     _grown("output_delta", "(2, 6, 2, 5, 5)", "2 (w)", "5", "(4 - 1) * 1 + 3 - 0 - 1 + 2", "7", "(2 - 1) * 2 + 1",
         "; output_padding = 0 would fit"),
     output_padding=(0, 0, 2))
_bad("output-padding-under-same", 6, TRAN, 2,
     _grown("diff_dst", "(2, 6, 5, 5)", "0 (h)", "5", "(3 - 1) * 2 + 3 - 0 - 1 + 0", "6", "(3 - 1) * 1 + 1", ""),
     auto_pad="SAME_UPPER")
_bad("output-padding-huge", 6, TRAN, 1,
     _grown("diff_dst", "(2, 6, 5)", "0 (w)", "5", f"(4 - 1) * 1 + 3 - 0 - 1 + {2**62}", str(2**62 + 5),
         "(2 - 1) * 2 + 1", "; output_padding = 0 would fit"),
     output_padding=[2**62])

# ------------------------------------------------------------- 7: the shape of the weights

_NO_SHAPE = (
    "is missing: expected it as an attribute or as an input; the sizes of the tensors alone do not determine the kernel"
)
_ONE_AXIS = "expected a 1-D tensor of 4 integers"
_INTEGERS = "expected integers (the specified type is s32)"
_bad("shape-missing", 7, CONV, 2, f"weights_shape {_NO_SHAPE}", weights_shape=ABSENT)
_bad("shape-missing-old", 7, TRAN0, 1, f"filter_shape {_NO_SHAPE}", filter_shape=ABSENT)
_bad("shape-is-none", 7, TRAN, 3, f"weights_shape {_NO_SHAPE}", weights_shape=None)
_bad("shape-missing-prepare", 7, CONV0, 2, f"filter_shape {_NO_SHAPE}", filter_shape=ABSENT, prepare=True)
_bad("shape-input-scalar", 7, CONV, 2, f"weights_shape has 0 axes; {_ONE_AXIS}", shape=np.array(48))
_bad("shape-input-numpy-scalar", 7, TRAN, 2, f"weights_shape has 0 axes; {_ONE_AXIS}", shape=np.int32(48))
_bad("shape-input-two-axes", 7, CONV0, 2, f"filter_shape has 2 axes; {_ONE_AXIS}", shape=np.array([_OIX_2D]))
_bad("shape-input-five-axes", 7, CONV, 3, "weights_shape has 5 axes; expected a 1-D tensor of 5 integers",
     shape=np.ones((6, 4, 2, 3, 2), np.int32))
_bad("shape-input-float", 7, CONV, 2, f"weights_shape has dtype float32; {_INTEGERS}",
     shape=np.array(_OIX_2D, np.float32))
_bad("shape-input-double", 7, TRAN0, 2, f"filter_shape has dtype float64; {_INTEGERS}",
     shape=np.array(_OIX_2D, np.float64))
_bad("shape-input-bool", 7, TRAN, 2, f"weights_shape has dtype bool; {_INTEGERS}", shape=np.ones(4, bool))
_bad("shape-input-object", 7, CONV, 2, f"weights_shape has dtype object; {_INTEGERS}", shape=np.array(_OIX_2D, object))
_bad("shape-input-text", 7, CONV, 2, f"weights_shape has dtype <U1; {_INTEGERS}", shape=np.array(["6", "4", "3", "2"]))
_bad("shape-input-complex", 7, CONV0, 2, f"filter_shape has dtype complex128; {_INTEGERS}",
     shape=np.array(_OIX_2D, complex))
_bad("shape-input-timedelta", 7, CONV, 2, f"weights_shape has dtype timedelta64[s]; {_INTEGERS}",
     shape=np.array(_OIX_2D, "m8[s]"))
_bad("shape-input-structured", 7, TRAN, 2, f"weights_shape has dtype [('int', '<f4')]; {_INTEGERS}",
     shape=np.zeros(4, [("int", "<f4")]))
_bad("shape-input-bfloat16", 7, TRAN, 2, f"weights_shape has dtype bfloat16; {_INTEGERS}",
     shape=np.array(_IOX_2D, ml_dtypes.bfloat16))
_bad("shape-input-short", 7, CONV, 2,
     "weights_shape = array([6, 4, 3], dtype=int32) has 3 entries; expected 4, two channel axes and 2 spatial",
     shape=np.array([6, 4, 3], np.int32))
_bad("shape-input-empty", 7, CONV0, 3,
     "filter_shape = array([], dtype=int32) has 0 entries; expected 5, two channel axes and 3 spatial",
     shape=np.array([], np.int32))
_bad("shape-input-list-long", 7, TRAN, 1,
     "weights_shape = [4, 6, 3, 2] has 4 entries; expected 3, two channel axes and 1 spatial", shape=[4, 6, 3, 2])
_bad("shape-input-empty-list", 7, TRAN0, 2,
     "filter_shape = [] has 0 entries; expected 4, two channel axes and 2 spatial", shape=[])
_bad("shape-input-str", 7, CONV, 2, "weights_shape = '6432': expected a list of integers, not str", shape="6432")
_bad("shape-input-int", 7, TRAN, 2, "weights_shape = 48: expected a list of integers, not int", shape=48)
_bad("shape-input-dict", 7, CONV0, 2, "filter_shape = {}: expected a list of integers, not dict", shape={})
_bad("shape-input-class", 7, CONV, 2, "weights_shape = <class 'numpy.ndarray'>: expected a list of integers, not type",
     shape=np.ndarray)
_bad("shape-input-list-float", 7, TRAN0, 2, "filter_shape[2] = 3.0: expected a positive integer, not float",
     shape=[6, 4, 3.0, 2])
_bad("shape-input-masked", 7, CONV, 2, "weights_shape[1] = None: expected a positive integer, not NoneType",
     shape=np.ma.array(list(_OIX_2D), mask=[False, True, False, False]))

# ------------------------------------------------------------- 8: element types

_bad("src-double", 8, CONV, 2, f"src has dtype float64; expected {_TYPES}: {_cast('src')}", DTypeError,
     first=np.ones(_CONV_2D))
_bad("delta-double", 8, TRAN0, 2, f"output_delta has dtype float64; expected {_TYPES}: {_cast('output_delta')}",
     DTypeError, second=np.ones(_TRAN_DELTA_2D))
_bad("both-double", 8, CONV0, 1, f"input_forward has dtype float64; expected {_TYPES}: {_cast('input_forward')}",
     DTypeError, first=np.ones((2, 4, 6)), second=np.ones((2, 6, 5)))
_bad("src-int", 8, CONV, 2, f"src has dtype int32; expected {_TYPES}: {_cast('src')}", DTypeError,
     first=np.ones(_CONV_2D, np.int32))
_bad("src-bool", 8, TRAN, 2, f"src has dtype bool; expected {_TYPES}: {_cast('src')}", DTypeError,
     first=np.ones(_TRAN_2D, bool))
_bad("src-bits-of-bf16", 8, CONV, 2, f"src has dtype uint16; expected {_TYPES}: {_cast('src')}", DTypeError,
     first=np.ones(_CONV_2D, np.uint16))
_bad("src-complex", 8, CONV, 2, f"src has dtype complex64; expected {_TYPES}", DTypeError,
     first=np.ones(_CONV_2D, np.complex64))
_bad("src-object", 8, CONV0, 2, f"input_forward has dtype object; expected {_TYPES}", DTypeError,
     first=np.ones(_CONV_2D, object))
_bad("src-structured", 8, CONV, 2, f"src has dtype [('x', '<f4')]; expected {_TYPES}", DTypeError,
     first=np.zeros(_CONV_2D, [("x", "<f4")]))
_bad("src-text", 8, TRAN0, 3, f"input_forward has dtype <U1; expected {_TYPES}", DTypeError,
     first=np.full((2, 4, 2, 3, 4), "1"))
_bad("src-float8", 8, TRAN, 2, f"src has dtype float8_e4m3fn; expected {_TYPES}", DTypeError,
     first=np.ones(_TRAN_2D, ml_dtypes.float8_e4m3fn))
_MIXED = "expected one type for all tensors of a call"
_bad("mixed-f32-bf16", 8, CONV, 2,
     f"src is f32 and diff_dst is bf16; {_MIXED}: call diff_dst.astype(src.dtype) or diff_dst.to(src.dtype)",
     DTypeError, second=np.ones(_DELTA_2D, ml_dtypes.bfloat16))
_bad("mixed-f16-f32", 8, TRAN0, 2,
     f"input_forward is f16 and output_delta is f32; {_MIXED}: call output_delta.astype(input_forward.dtype) or "
     "output_delta.to(input_forward.dtype)",
     DTypeError, first=np.ones(_TRAN_2D, np.float16))
_bad("mixed-bf16-f16", 8, CONV0, 1,
     f"input_forward is bf16 and output_delta is f16; {_MIXED}: call output_delta.astype(input_forward.dtype) or "
     "output_delta.to(input_forward.dtype)",
     DTypeError, first=np.ones((2, 4, 6), ml_dtypes.bfloat16), second=np.ones((2, 6, 5), np.float16))
_NO_ARRAY = "expected a NumPy array or a torch tensor"
_bad("src-list", 8, CONV, 2, f"src is a list; {_NO_ARRAY}", DTypeError, first=Raw([[[[1.0]]]]))
_bad("src-none", 8, TRAN, 1, f"src is a NoneType; {_NO_ARRAY}", DTypeError, first=Raw(None))
_bad("src-scalar", 8, CONV, 2, f"src is a float32; {_NO_ARRAY}", DTypeError, first=Raw(np.float32(1)))
_bad("delta-buffer", 8, TRAN0, 1, f"output_delta is a memoryview; {_NO_ARRAY}", DTypeError,
     second=memoryview(bytearray(240)))
_bad("delta-class", 8, CONV0, 2, f"output_delta is a type; {_NO_ARRAY}", DTypeError, second=np.ndarray)
_bad("src-false-array", 8, CONV, 2, f"src is a FalseArray; {_NO_ARRAY}", DTypeError, first=FalseArray())
_bad("src-array-protocol", 8, CONV, 2, f"src is a ArrayRaises; {_NO_ARRAY}", DTypeError, first=ArrayRaises())
_bad("out-double", 8, CONV, 2, "out has dtype float64; expected f32 (float32)", DTypeError, out=np.full(_OIX_2D, -1.5))
_bad("out-half", 8, TRAN, 2, "out has dtype float16; expected f32 (float32)", DTypeError,
     out=np.full(_IOX_2D, -1.5, np.float16))
_bad("out-half-for-bf16", 8, CONV0, 1, "out has dtype float16; expected one of bf16 (bfloat16), f32 (float32)",
     DTypeError, first=np.ones((2, 4, 6), ml_dtypes.bfloat16), second=np.ones((2, 6, 5), ml_dtypes.bfloat16),
     out=np.zeros((6, 4, 2), np.float16))
_bad("out-list", 8, CONV, 2, f"out is a list; {_NO_ARRAY}", DTypeError, out=[0.0] * 144)
_bad("dtype-unknown", 8, CONV, 2, f"dtype = 'f64': expected {_TYPES}", DTypeError, prepare=True, first=_CONV_2D,
     second=_DELTA_2D, dtype="f64")
_bad("dtype-class", 8, TRAN, 2, f"dtype = <class 'float'>: expected {_TYPES}", DTypeError, prepare=True,
     first=_TRAN_2D, second=_TRAN_DELTA_2D, dtype=float)
_bad("dtype-number", 8, CONV0, 2, f"dtype = 32: expected {_TYPES}", DTypeError, prepare=True, first=_CONV_2D,
     second=_DELTA_2D, dtype=32)
_bad("dtype-unbalanced", 8, CONV, 2, f"dtype = '(2,f4': expected {_TYPES}", DTypeError, prepare=True, first=_CONV_2D,
     second=_DELTA_2D, dtype="(2,f4")
_bad("dtype-overflow", 8, TRAN0, 2, f"dtype = ('f4', ({2**62},)): expected {_TYPES}", DTypeError, prepare=True,
     first=_TRAN_2D, second=_TRAN_DELTA_2D, dtype=("f4", (2**62,)))
_bad("dtype-swapped", 8, CONV, 2, f"dtype = '>f4': expected {_TYPES}", DTypeError, prepare=True, first=_CONV_2D,
     second=_DELTA_2D, dtype=">f4")
_bad("dtype-missing", 8, CONV, 2, "src is given as a shape, which has no element type; expected dtype= as well",
     DTypeError, prepare=True, first=_CONV_2D, second=_DELTA_2D)
_bad("dtype-contradicts-array", 8, CONV0, 2,
     "input_forward has dtype f32, but dtype = bf16; expected the array's own type, or no dtype", DTypeError,
     prepare=True, dtype="bf16")
_bad("out-dtype-half-for-f32", 8, CONV, 2, "out_dtype = 'f16': expected f32 (float32)", DTypeError, prepare=True,
     out_dtype="f16")
_bad("out-dtype-unknown", 8, TRAN0, 2, "out_dtype = 'double': expected f32 (float32)", DTypeError, prepare=True,
     out_dtype="double")
_bad("prepare-neither", 8, CONV, 2, "src is a str; expected a NumPy array, a torch tensor or a shape", DTypeError,
     prepare=True, first="2456", dtype="f32")

# ------------------------------------------------------------- 9, 10: ranks and batch sizes of the two tensors

_bad("delta-fewer-axes", 9, CONV, 2, _axes("diff_dst", 3, "(2, 6, 15)", 2), second=(2, 6, 15))
_bad("delta-more-axes", 9, TRAN, 2, _axes("diff_dst", 5, "(2, 6, 5, 5, 1)", 2), second=(2, 6, 5, 5, 1))
_bad("delta-no-batch", 9, CONV0, 3, _axes("output_delta", 4, "(6, 4, 3, 5)", 3), second=(6, 4, 3, 5))
_bad("delta-of-another-rank", 9, TRAN0, 1, _axes("output_delta", 4, "(2, 6, 5, 5)", 1), second=(2, 6, 5, 5))
_bad("delta-scalar", 9, CONV, 1, _axes("diff_dst", 0, "()", 1), second=Raw(np.array(1, np.float32)))


def _batch(second: str, n2: int, shape2: str, first: str, n1: int, shape1: str) -> str:
    return (
        f"{second} has N = {n2} (axis 0 of {shape2}), but {first} has N = {n1} (axis 0 of {shape1}); "
        f"expected the same batch size"
    )


_bad("batch-more", 10, CONV, 2, _batch("diff_dst", 3, "(3, 6, 3, 5)", "src", 2, "(2, 4, 5, 6)"), second=(3, 6, 3, 5))
_bad("batch-less", 10, TRAN, 1, _batch("diff_dst", 1, "(1, 6, 5)", "src", 2, "(2, 4, 4)"), second=(1, 6, 5))
_bad("batch-empty", 10, CONV0, 3, _batch("output_delta", 0, "(0, 6, 4, 3, 5)", "input_forward", 2, "(2, 4, 4, 5, 6)"),
     second=(0, 6, 4, 3, 5))
_bad("batch-empty-src", 10, TRAN0, 2, _batch("output_delta", 2, "(2, 6, 5, 5)", "input_forward", 0, "(0, 4, 3, 4)"),
     first=(0, 4, 3, 4))
_bad("batch-prepare", 10, CONV, 2, _batch("diff_dst", 2, "(2, 6, 3, 5)", "src", _MAX, f"({_MAX}, 4, 5, 6)"),
     prepare=True, first=(_MAX, 4, 5, 6), second=_DELTA_2D, dtype="f32")

# ------------------------------------------------------------- 11: groups and channels


def _divide(groups: int, channels: str, count: int, noun: str) -> str:
    return (
        f"groups = {groups}: expected {channels} % groups == 0, but {count} % {groups} = {count % groups}. "
        f"{noun} channels are a multiple of groups."
    )


_bad("groups-not-of-inputs", 11, CONV, 2, _divide(3, "IC", 4, "Input"), groups=3)
_bad("groups-not-of-outputs", 11, TRAN, 2, _divide(4, "OC", 6, "Output"), groups=4)
_bad("groups-more-than-channels", 11, CONV0, 1, _divide(8, "IC", 4, "Input"), groups=8)
_bad("groups-largest", 11, TRAN0, 3, _divide(_MAX, "IC", 4, "Input"), groups=_MAX)


def _fit(name: str, shape: str, layout: str, groups: int, expected: str, channels: str = "IC = 4, OC = 6") -> str:
    return f"{name} = {shape} does not fit {layout} with {channels}, groups = {groups}; expected {expected}"


_bad("shape-other-outputs", 11, CONV, 2,
     _fit("weights_shape", "(5, 4, 3, 2)", "OIX", 1, "(OC, IC/groups, X) = (6, 4, any, any)"),
     weights_shape=(5, 4, 3, 2))
_bad("shape-other-inputs", 11, CONV, 1,
     _fit("weights_shape", "(6, 3, 2)", "OIX", 1, "(OC, IC/groups, X) = (6, 4, any)"), weights_shape=(6, 3, 2))
_bad("shape-more-outputs-as-reported", 11, CONV0, 2,
     _fit("filter_shape", "(16, 4, 3, 2)", "OIX", 1, "(OC, IC/groups, X) = (6, 4, any, any)"),
     shape=np.array([16, 4, 3, 2], np.int32))
_bad("shape-of-3d-as-reported", 11, CONV0, 3,
     _fit("filter_shape", "(6, 8, 2, 3, 2)", "OIX", 1, "(OC, IC/groups, X) = (6, 4, any, any, any)"),
     filter_shape=(6, 8, 2, 3, 2))
_bad("shape-undivided", 11, CONV, 2,
     _fit("weights_shape", "(6, 4, 3, 2)", "OIX", 2, "(OC, IC/groups, X) = (6, 2, any, any)"), groups=2)
_bad("shape-outputs-divided", 11, CONV0, 2,
     _fit("filter_shape", "(3, 4, 3, 2)", "OIX", 2, "(OC, IC/groups, X) = (6, 2, any, any)"), groups=2,
     filter_shape=(3, 4, 3, 2))
_bad("shape-exchanged", 11, CONV, 2,
     _fit("weights_shape", "(4, 6, 3, 2)", "OIX", 1, "(OC, IC/groups, X) = (6, 4, any, any)"),
     weights_shape=(4, 6, 3, 2))
_bad("shape-of-other-layout", 11, CONV, 2,
     _fit("weights_shape", "(3, 2, 4, 6)", "OIX", 1, "(OC, IC/groups, X) = (6, 4, any, any)"),
     weights_shape=(3, 2, 4, 6))
_bad("shape-default-layout", 11, CONV0, 2,
     _fit("filter_shape", "(6, 4, 3, 2)", "XIO", 1, "(X, IC/groups, OC) = (any, any, 4, 6)"), filter_format=ABSENT)
_bad("shape-xoi", 11, TRAN, 1,
     _fit("weights_shape", "(2, 4, 6)", "XOI", 1,
         "(X, OC, IC/groups) = (any, 6, 4) or (X, OC/groups, IC) = (any, 6, 4)"),
     weights_format="XOI", weights_shape=(2, 4, 6))
_bad("shape-neither-reading", 11, TRAN, 2,
     _fit("weights_shape", "(4, 6, 3, 2)", "IOX", 2,
         "(IC/groups, OC, X) = (2, 6, any, any) or (IC, OC/groups, X) = (4, 3, any, any)"),
     groups=2)
_bad("shape-mixed-readings", 11, TRAN, 2,
     _fit("weights_shape", "(2, 3, 3, 2)", "IOX", 2,
         "(IC/groups, OC, X) = (2, 6, any, any) or (IC, OC/groups, X) = (4, 3, any, any)"),
     groups=2, weights_shape=(2, 3, 3, 2))
_bad("shape-groups-on-inputs", 11, TRAN0, 2,
     _fit("filter_shape", "(6, 2, 3, 2)", "OIX", 2, "(OC/groups, IC, X) = (3, 4, any, any)"), groups=2,
     filter_shape=(6, 2, 3, 2))
_bad("shape-input-wins", 11, TRAN0, 2,
     _fit("filter_shape", "(6, 5, 3, 2)", "OIX", 1, "(OC/groups, IC, X) = (6, 4, any, any)"),
     shape=np.array([6, 5, 3, 2]))
_bad("channels-of-the-other-format", 11, CONV, 2,
     _fit("weights_shape", "(6, 4, 3, 2)", "OIX", 1, "(OC, IC/groups, X) = (5, 6, any, any)", "IC = 6, OC = 5"),
     data_format="NXC")
_bad("channels-default-format", 11, TRAN0, 2,
     _fit("filter_shape", "(6, 4, 3, 2)", "OIX", 1, "(OC/groups, IC, X) = (5, 4, any, any)", "IC = 4, OC = 5"),
     data_format=ABSENT)
_bad("shape-library-of-depthwise", 11, TRAN, 1,
     _fit("weights_shape", "(2, 2, 2)", "IOX", 2,
         "(IC/groups, OC, X) = (2, 6, any) or (IC, OC/groups, X) = (4, 3, any)"),
     groups=2, weights_shape=(2, 2, 2))

# ------------------------------------------------------------- 12: spatial sizes


def _size(name: str, shape: str, axis: str, o: str, numbers: str, gives: str, eff: str) -> str:
    return (
        f"{name} has shape {shape}: expected O == (I + pb + pe - eff) // s + 1 on spatial axis {axis}, "
        f"but O = {o}, and {numbers} = {gives}, where eff = (K - 1) * d + 1 = {eff}. "
        f"The spatial size of {name} is what the forward convolution gives; trailing input that no window reaches is "
        f"normal."
    )


def _beyond(name: str, shape: str, axis: str, numbers: str, have: str, need: str, eff: str) -> str:
    return (
        f"{name} has shape {shape}: expected I + pb + pe >= eff on spatial axis {axis}, but {numbers} = {have}, and "
        f"eff = {need}, where eff = (K - 1) * d + 1 = {eff}. The dilated kernel fits into the padded input."
    )


_H, _W = "(3 - 1) * 1 + 1", "(2 - 1) * 2 + 1"
_bad("size-more", 12, CONV, 2, _size("diff_dst", "(2, 6, 4, 5)", "0 (h)", "4", "(5 + 1 + 1 - 3) // 2 + 1", "3", _H),
     second=(2, 6, 4, 5))
_bad("size-less", 12, CONV0, 2,
     _size("output_delta", "(2, 6, 3, 4)", "1 (w)", "4", "(6 + 0 + 1 - 3) // 1 + 1", "5", _W), second=(2, 6, 3, 4))
_bad("size-exchanged", 12, CONV, 2,
     _size("diff_dst", "(2, 6, 5, 3)", "0 (h)", "5", "(5 + 1 + 1 - 3) // 2 + 1", "3", _H), second=(2, 6, 5, 3))
_bad("size-1d", 12, CONV, 1, _size("diff_dst", "(2, 6, 6)", "0 (w)", "6", "(6 + 0 + 1 - 3) // 1 + 1", "5", _W),
     second=(2, 6, 6))
_bad("size-depth", 12, CONV0, 3,
     _size("output_delta", "(2, 6, 3, 3, 5)", "0 (d)", "3", "(4 + 0 + 1 - 2) // 1 + 1", "4", "(2 - 1) * 1 + 1"),
     second=(2, 6, 3, 3, 5))
_bad("size-other-stride", 12, CONV, 2,
     _size("diff_dst", "(2, 6, 3, 5)", "1 (w)", "5", "(6 + 0 + 1 - 3) // 3 + 1", "2", _W), strides=(2, 3))
_bad("size-other-dilation", 12, CONV0, 1,
     _size("output_delta", "(2, 6, 5)", "0 (w)", "5", "(6 + 0 + 1 - 4) // 1 + 1", "4", "(2 - 1) * 3 + 1"),
     dilations=[3])
_bad("size-other-pads", 12, CONV, 2,
     _size("diff_dst", "(2, 6, 3, 5)", "0 (h)", "3", "(5 + 3 + 1 - 3) // 2 + 1", "4", _H), pads_begin=(3, 0))
_bad("size-valid", 12, CONV0, 2,
     _size("output_delta", "(2, 6, 3, 5)", "0 (h)", "3", "(5 + 0 + 0 - 3) // 2 + 1", "2", _H), auto_pad="valid")
_bad("size-same", 12, CONV, 2, _size("diff_dst", "(2, 6, 3, 5)", "1 (w)", "5", "(6 + 1 + 1 - 3) // 1 + 1", "6", _W),
     auto_pad="same_upper")
_bad("size-other-kernel", 12, CONV, 2,
     _size("diff_dst", "(2, 6, 3, 5)", "0 (h)", "3", "(5 + 1 + 1 - 5) // 2 + 1", "2", "(5 - 1) * 1 + 1"),
     shape=[6, 4, 5, 2])
_bad("kernel-beyond-input", 12, CONV, 2,
     _beyond("src", "(2, 4, 5, 6)", "0 (h)", "5 + 1 + 1", "7", "8", "(8 - 1) * 1 + 1"), weights_shape=(6, 4, 8, 2))
_bad("kernel-dilated-beyond-input", 12, CONV0, 1,
     _beyond("input_forward", "(2, 4, 6)", "0 (w)", "6 + 0 + 1", "7", "8", "(2 - 1) * 7 + 1"), dilations=[7])
_bad("kernel-beyond-hidden-by-division", 12, CONV, 1, _beyond("src", "(2, 4, 2)", "0 (w)", "2 + 0 + 0", "2", "3", _W),
     first=(2, 4, 2), second=(2, 6, 1), strides=[2], pads_end=[0])
_bad("kernel-beyond-under-valid", 12, CONV0, 3,
     _beyond("input_forward", "(2, 4, 4, 5, 6)", "1 (h)", "5 + 0 + 0", "5", "6", "(6 - 1) * 1 + 1"),
     second=(2, 6, 3, 3, 5), auto_pad="VALID", filter_shape=(6, 4, 2, 6, 2))
_bad("transposed-nothing-left", 12, TRAN, 1,
     _grown("diff_dst", "(2, 6, 5)", "0 (w)", "5", "(4 - 1) * 1 + 3 - 3 - 3 + 0", "0", "(2 - 1) * 2 + 1",
         "; output_padding = 5 would fit"),
     pads_begin=[3], pads_end=[3])
_bad("transposed-other-stride", 12, TRAN0, 2,
     _grown("output_delta", "(2, 6, 5, 5)", "0 (h)", "5", "(3 - 1) * 3 + 3 - 1 - 1 + 0", "7", _H, ""), strides=(3, 1))
_bad("transposed-other-kernel-as-reported", 12, TRAN, 3,
     _grown("diff_dst", "(2, 6, 2, 5, 5)", "1 (h)", "5", "(3 - 1) * 2 + 2 - 1 - 1 + 0", "4", "(2 - 1) * 1 + 1",
         "; output_padding = 1 would fit"),
     weights_shape=(4, 6, 2, 2, 2))


def _empty(name: str, axis: int, shape: str) -> str:
    return f"{name} has extent 0 on axis {axis} (shape {shape}); expected at least 1; only the batch may be empty"


_bad("no-channels", 12, CONV, 2, _empty("src", 1, "(2, 0, 5, 6)"), first=(2, 0, 5, 6))
_bad("no-rows", 12, TRAN, 2, _empty("src", 2, "(2, 4, 0, 4)"), first=(2, 4, 0, 4))
_bad("no-output-channels", 12, CONV0, 1, _empty("output_delta", 1, "(2, 0, 5)"), second=(2, 0, 5))
_bad("no-output-columns", 12, TRAN0, 3, _empty("output_delta", 4, "(2, 6, 2, 5, 0)"), second=(2, 6, 2, 5, 0))
_bad("all-empty-as-reported", 12, CONV0, 2, _empty("input_forward", 1, "(0, 0, 0, 0)"), first=(0, 0, 0, 0),
     second=(0, 0, 0, 0))
_bad("prepare-negative", 12, CONV, 2, "src[2] = -5: expected a non-negative integer", prepare=True,
     first=(2, 4, -5, 6), second=_DELTA_2D, dtype="f32")
_bad("prepare-bool", 12, TRAN, 1, "src[0] = True: expected a non-negative integer, not bool", prepare=True,
     first=(True, 4, 4), second=(1, 6, 5), dtype="f32")
_bad("prepare-float", 12, CONV0, 1, "output_delta[2] = 5.0: expected a non-negative integer, not float", prepare=True,
     first=(2, 4, 6), second=(2, 6, 5.0), dtype="f32")
_bad("prepare-short", 12, TRAN0, 2, _axes("input_forward", 3, "(2, 4, 3)", 2), prepare=True, first=(2, 4, 3),
     second=_TRAN_DELTA_2D, dtype="f16")
_bad("prepare-empty", 12, CONV, 2, _axes("src", 0, "()", 2), prepare=True, first=(), second=(), dtype="f32")

# ------------------------------------------------------------- 13: beyond 64 bits, beyond memory, absurdly long

_AT_MOST = f"expected a 64-bit integer, at most {_MAX}"
_bad("strides-2**63", 13, CONV, 2, f"strides[0] = {2**63}: {_AT_MOST}", strides=(2**63, 1))
_bad("strides-5000-digits", 13, TRAN, 2, f"strides[1] = an integer of {_HUGE.bit_length()} bits: {_AT_MOST}",
     strides=(2, _HUGE))
_bad("strides-minus-5000-digits", 13, CONV, 1,
     f"strides[0] = an integer of {_HUGE.bit_length()} bits: expected a positive integer", strides=(-_HUGE,))
_bad("dilations-unsigned", 13, TRAN0, 1, f"dilations[0] = {2**64 - 1}: {_AT_MOST}",
     dilations=np.array([2**64 - 1], np.uint64))
_bad("pads-2**64", 13, CONV0, 2, f"pads_end[0] = {2**64}: {_AT_MOST}", pads_end=(2**64, 0))
_bad("groups-2**63", 13, TRAN0, 2, f"groups = {2**63}: {_AT_MOST}", groups=2**63)
_bad("groups-5000-digits", 13, CONV, 3, f"groups = an integer of {_HUGE.bit_length()} bits: {_AT_MOST}", groups=_HUGE)
_bad("output-padding-2**63", 13, TRAN, 2, f"output_padding[0] = {2**63}: {_AT_MOST}", output_padding=(2**63, 0))
_bad("shape-attribute-2**63", 13, CONV, 2, f"weights_shape[0] = {2**63}: {_AT_MOST}", weights_shape=(2**63, 4, 3, 2))
_bad("shape-input-unsigned", 13, TRAN, 2, f"weights_shape[3] = {2**64 - 1}: {_AT_MOST}",
     shape=np.array([4, 6, 3, 2**64 - 1], np.uint64))
_bad("shape-input-5000-digits", 13, CONV0, 1, f"filter_shape[2] = an integer of {_HUGE.bit_length()} bits: {_AT_MOST}",
     shape=[6, 4, _HUGE])
_bad("strides-million", 13, CONV, 2, f"strides has 1000000 entries; {_RANKS}", strides=_MANY)
_bad("strides-ten-million-array", 13, CONV0, 2, f"strides has 10000000 entries; {_RANKS}", strides=_LONG_ARRAY)
_bad("pads-million", 13, TRAN, 2, "pads_begin has 1000000 entries; expected 2, like strides", pads_begin=_MANY)
_bad("shape-attribute-million", 13, TRAN0, 2, f"filter_shape has 1000000 entries; expected 4, {_SHAPE_LENGTH}",
     filter_shape=_MANY)
_bad("strides-shifty", 13, CONV, 2, f"strides has 0 entries; {_RANKS}", strides=ShiftyList())
_bad("shape-input-million", 13, CONV, 2,
     "weights_shape = [1, 1, 1, 1, 1, 1, 1, 1, ...] has 1000000 entries; expected 4, two channel axes and 2 spatial",
     shape=_MANY)
_bad("shape-input-ten-million-array", 13, TRAN0, 2,
     "filter_shape = an array of shape (10000000,) has 10000000 entries; expected 4, two channel axes and 2 spatial",
     shape=_LONG_ARRAY)
_LONG_TEXT = "'" + "x" * 47 + "..." + "x" * 48 + "'"
_bad("strides-long-text", 13, CONV, 2, f"strides = {_LONG_TEXT}: expected a list of integers, not str", strides=_TEXT)
_bad("auto-pad-long-text", 13, TRAN, 2, f"auto_pad = {_LONG_TEXT}: expected one of {_WORDS}", auto_pad=_TEXT)
_bad("groups-long-text", 13, CONV0, 2, f"groups = {_LONG_TEXT}: expected a positive integer, not str", groups=_TEXT)
_bad("groups-long-list", 13, CONV, 2, "groups = [1, 1, 1, 1, 1, 1, 1, 1, ...]: expected a positive integer, not list",
     groups=_MANY)
_bad("groups-long-array", 13, CONV, 2,
     "groups = an array of shape (10000000,): expected a positive integer, not ndarray", groups=_LONG_ARRAY)
_bad("prepare-million-axes", 13, CONV, 2, "src has 1000000 axes; expected at most 5, batch, channels and 3 spatial",
     prepare=True, first=_MANY, second=_DELTA_2D, dtype="f32")
_bad("prepare-2**63", 13, TRAN, 2, f"src[0] = {2**63}: {_AT_MOST}", prepare=True, first=(2**63, 4, 3, 4),
     second=(2**63, 6, 5, 5), dtype="f32")
_bad("prepare-5000-digits", 13, CONV0, 1, f"input_forward[1] = an integer of {_HUGE.bit_length()} bits: {_AT_MOST}",
     prepare=True, first=(2, _HUGE, 6), second=(2, 6, 5), dtype="f32")
_bad("dtype-long-text", 13, CONV, 2, f"dtype = {_LONG_TEXT}: expected {_TYPES}", DTypeError, prepare=True,
     first=_CONV_2D, second=_DELTA_2D, dtype=_TEXT)
_bad("strides-largest", 13, CONV, 2,
     _size("diff_dst", "(2, 6, 3, 5)", "0 (h)", "3", f"(5 + 1 + 1 - 3) // {_MAX} + 1", "1", _H), strides=(_MAX, 1))
_bad("pads-2**62", 13, CONV, 2,
     _size("diff_dst", "(2, 6, 3, 5)", "0 (h)", "3", f"(5 + {2**62} + 1 - 3) // 2 + 1", str(2**61 + 2), _H),
     pads_begin=(2**62, 0))
_bad("dilations-2**62", 13, CONV0, 1,
     _beyond("input_forward", "(2, 4, 6)", "0 (w)", "6 + 0 + 1", "7", str(2**62 + 1), f"(2 - 1) * {2**62} + 1"),
     dilations=[2**62])
_bad("kernel-times-dilation", 13, CONV, 1,
     _beyond("src", "(2, 4, 6)", "0 (w)", "6 + 0 + 1", "7", str((2**40 - 1) * 2**40 + 1),
         f"({2**40} - 1) * {2**40} + 1"),
     dilations=[2**40], weights_shape=(6, 4, 2**40))
_bad("transposed-stride-2**62", 13, TRAN0, 2,
     _grown("output_delta", "(2, 6, 5, 5)", "0 (h)", "5", f"(3 - 1) * {2**62} + 3 - 1 - 1 + 0", str(2**63 + 1), _H, ""),
     strides=(2**62, 1))


def _reach(value: int) -> str:
    return f"positions O * s + K * d + pb + pe go up to {value}, beyond 64-bit integers"


_bad("reach-stride", 13, CONV, 1, _reach(7 * 2**62 + 5), strides=[2**62], second=(2, 6, 1))
_bad("reach-pads", 13, CONV0, 1, _reach(7 * 2**61 + 4 + 2**62), strides=[2**61], pads_begin=[2**61 - 4],
     pads_end=[2**61 + 4], second=(2, 6, 3))
_bad("reach-dilation-under-same", 13, CONV, 1, _reach(7 + 2 * 2**61 + 2**61), dilations=[2**61], auto_pad="same_upper",
     second=(2, 6, 6))
_bad("reach-pads-of-transposed", 13, TRAN, 1, _reach(6 + 4 + 2**62), pads_begin=[2**61], pads_end=[2**61],
     output_padding=[2**62 - 1])


def _too_many(name: str, shape: str, elements: int) -> str:
    return f"{name} has shape {shape}, {elements} elements of up to 4 bytes, beyond 64-bit sizes"


_bad("elements-batch", 13, CONV, 2, _too_many("src", f"({2**61}, 4, 5, 6)", 120 * 2**61), prepare=True,
     first=(2**61, 4, 5, 6), second=(2**61, 6, 3, 5), dtype="bf16")
_bad("elements-empty-batch", 13, TRAN0, 2, _too_many("input_forward", f"(0, 4, {2**31}, {2**31})", 2**64),
     prepare=True, first=(0, 4, 2**31, 2**31), second=(0, 6, 2**32 - 1, 2**31 + 1), dtype="f32")
_bad("elements-one-more", 13, CONV0, 1, _too_many("output_delta", f"({2**58}, 8, 1)", 2**61), prepare=True,
     first=(2**58, 1, 1), second=(2**58, 8, 1), dtype="f16", pads_end=[0], filter_shape=(8, 1, 1))

_MEMORY = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def _needs(name: str, shape: tuple[int, ...], elements: int) -> str:
    return (
        f"{name} = {shape} needs {4 * elements} bytes (4 bytes for each of {elements} elements); "
        f"this machine has {_MEMORY}"
    )


_bad("memory-kernel", 13, CONV, 1, _needs("weights_shape", (6, 4, 2**40), 24 * 2**40), second=(2, 6, 7), dilations=[1],
     pads_begin=[2**40], pads_end=[0], weights_shape=(6, 4, 2**40))
_bad("memory-kernel-of-transposed", 13, TRAN, 1, _needs("weights_shape", (4, 6, 2**40), 24 * 2**40), second=(2, 6, 3),
     dilations=[1], pads_begin=[2**40], pads_end=[0], shape=np.array([4, 6, 2**40]))
_bad("memory-product-beyond-64-bits", 13, CONV0, 3, _needs("filter_shape", (6, 4, 2**20, 2**20, 2**20), 24 * 2**60),
     second=(2, 6, 5, 6, 7), strides=(1, 1, 1), dilations=(1, 1, 1), pads_begin=(2**20, 2**20, 2**20),
     pads_end=(0, 0, 0), filter_shape=(6, 4, 2**20, 2**20, 2**20))
_bad("memory-channels-as-reported", 13, CONV, 2, _needs("weights_shape", (2**28, 2**30, 4, 4), 2**62), prepare=True,
     first=(1, 2**30, 4, 4), second=(1, 2**28, 1, 1), dtype="f32", strides=(1, 1), dilations=(1, 1), auto_pad="valid",
     weights_shape=(2**28, 2**30, 4, 4))

# ------------------------------------------------------------- 14: memory of inputs and of out


def _gaps(name: str, strides: str, shape: str) -> str:
    return (
        f"{name} is not contiguous (strides of {strides} bytes for shape {shape}): "
        f"call numpy.ascontiguousarray({name}) or {name}.contiguous()"
    )


def _gaps_out(strides: str, shape: str) -> str:
    return (
        f"out is not contiguous (strides of {strides} bytes for shape {shape}): "
        f"expected an array in C order without gaps"
    )


_bad("src-reversed", 14, CONV, 2, _gaps("src", "(480, 120, 24, -4)", "(2, 4, 5, 6)"), first=_ramp(_CONV_2D)[..., ::-1])
_bad("src-channels-last", 14, TRAN, 2, _gaps("src", "(192, 4, 64, 16)", "(2, 4, 3, 4)"),
     first=_ramp((2, 3, 4, 4)).transpose(0, 3, 1, 2))
_bad("src-fortran", 14, CONV0, 1, _gaps("input_forward", "(4, 8, 32)", "(2, 4, 6)"),
     first=np.asfortranarray(_ramp((2, 4, 6))))
_bad("src-every-second", 14, CONV, 1, _gaps("src", "(192, 48, 8)", "(2, 4, 6)"), first=_ramp((2, 4, 12))[..., ::2])
_bad("src-broadcast", 14, CONV, 2, _gaps("src", "(0, 0, 0, 0)", "(2, 4, 5, 6)"),
     first=np.broadcast_to(np.float32(1), _CONV_2D))
_bad("delta-slice", 14, TRAN0, 2, _gaps("output_delta", "(720, 120, 24, 4)", "(2, 6, 5, 5)"),
     second=_ramp((2, 6, 5, 6))[..., :5])
_bad("delta-repeated-batch", 14, CONV, 3, _gaps("diff_dst", "(0, 240, 60, 20, 4)", "(2, 6, 4, 3, 5)"),
     second=np.broadcast_to(_ramp((1, 6, 4, 3, 5)), (2, 6, 4, 3, 5)))
_bad("src-misaligned", 14, CONV, 2, "src is not aligned to its 4-byte elements: call src.copy()",
     first=_misaligned(_ramp(_CONV_2D)))
_bad("delta-misaligned", 14, TRAN, 1, "diff_dst is not aligned to its 4-byte elements: call diff_dst.copy()",
     second=_misaligned(_ramp((2, 6, 5))))
_bad("half-misaligned", 14, CONV0, 1, "input_forward is not aligned to its 2-byte elements: call input_forward.copy()",
     first=_misaligned(np.ones((2, 4, 6), np.float16)), second=np.ones((2, 6, 5), np.float16))
_SWAPPED = "has byte-swapped dtype >f4; expected native byte order"
_bad("src-swapped", 14, CONV, 2, f"src {_SWAPPED}: call src.astype(src.dtype.newbyteorder('='))", DTypeError,
     first=_swapped(_ramp(_CONV_2D)))
_bad("delta-swapped", 14, TRAN0, 1,
     f"output_delta {_SWAPPED}: call output_delta.astype(output_delta.dtype.newbyteorder('='))", DTypeError,
     second=_swapped(_ramp((2, 6, 5))))
_bad("out-swapped", 14, CONV, 2, f"out {_SWAPPED}", DTypeError, out=_swapped(np.full(_OIX_2D, -1.5, np.float32)))
_bad("src-masked", 14, CONV, 2, "src is a masked array, and its mask would be ignored; pass src.filled(0)", DTypeError,
     first=np.ma.masked_equal(_ramp(_CONV_2D), 0))
_bad("src-lies", 14, CONV, 2, _axes("src", 1, "(1,)", 2), first=np.ones(1, np.float32).view(LyingArray))
_bad("out-lies", 14, CONV, 2, "out has shape (1,); expected (6, 4, 3, 2)", out=np.ones(1, np.float32).view(LyingArray))
_bad("out-shape", 14, CONV, 2, "out has shape (6, 4, 2, 3); expected (6, 4, 3, 2)",
     out=np.zeros((6, 4, 2, 3), np.float32))
_bad("out-flat", 14, TRAN, 2, "out has shape (144,); expected (4, 6, 3, 2)", out=np.zeros(144, np.float32))
_bad("out-larger", 14, CONV0, 1, "out has shape (7, 4, 2); expected (6, 4, 2)", out=np.zeros((7, 4, 2), np.float32))
_bad("out-scalar", 14, TRAN0, 3, "out has shape (); expected (6, 4, 2, 3, 2)", out=np.zeros((), np.float32))
_bad("out-of-the-attribute-shape", 14, CONV, 2, "out has shape (6, 4, 3, 2); expected (6, 4, 4, 2)",
     first=(2, 4, 6, 6), shape=[6, 4, 4, 2], out=np.zeros(_OIX_2D, np.float32))
_bad("out-read-only", 14, CONV, 2, "out is read-only; expected an array that can be written",
     out=_read_only(np.full(_OIX_2D, -1.5, np.float32)))
_bad("out-broadcast", 14, TRAN, 2, "out is read-only; expected an array that can be written",
     out=np.broadcast_to(np.float32(-1.5), _IOX_2D))
_bad("out-of-bytes", 14, CONV, 1, "out is read-only; expected an array that can be written",
     out=np.frombuffer(bytes(192), np.float32).reshape(6, 4, 2))
_bad("out-gap", 14, CONV0, 2, _gaps_out("(144, 36, 12, 4)", "(6, 4, 3, 2)"), out=_gap(np.zeros(_OIX_2D, np.float32)))
_bad("out-transposed", 14, TRAN0, 2, _gaps_out("(4, 24, 96, 288)", "(6, 4, 3, 2)"),
     out=np.zeros((2, 3, 4, 6), np.float32).T)
_bad("out-zero-stride", 14, CONV, 2, _gaps_out("(0, 0, 0, 0)", "(6, 4, 3, 2)"),
     out=np.lib.stride_tricks.as_strided(np.zeros(1, np.float32), _OIX_2D, (0, 0, 0, 0)))
_bad("out-reversed", 14, TRAN, 1, _gaps_out("(48, 8, -4)", "(4, 6, 2)"), out=np.zeros((4, 6, 2), np.float32)[..., ::-1])
_bad("out-misaligned", 14, CONV, 2, "out is not aligned to its 4-byte elements: expected an aligned array",
     out=_misaligned(np.zeros(_OIX_2D, np.float32)))
_OWN = "in memory; expected memory of its own"
_OVERLAPPING = _shared(_CONV_2D, _OIX_2D, 100)
_bad("out-overlaps-src", 14, CONV, 2, f"out overlaps src {_OWN}", first=_OVERLAPPING[0], out=_OVERLAPPING[1])
_LAST = _shared(_CONV_2D, _OIX_2D, 239)
_bad("out-overlaps-last-element", 14, CONV, 2, f"out overlaps src {_OWN}", first=_LAST[0], out=_LAST[1])
_DELTA_OVERLAP = _shared((2, 6, 5), (4, 6, 2), 0)
_bad("out-overlaps-delta", 14, TRAN, 1, f"out overlaps diff_dst {_OWN}", second=_DELTA_OVERLAP[0],
     out=_DELTA_OVERLAP[1])
_SAME = _ramp((6, 4, 2))
_bad("out-is-src", 14, CONV, 1, f"out overlaps src {_OWN}", first=_SAME, second=(6, 6, 1), dilations=[1], pads_end=[0],
     out=_SAME)
_bad("out-is-the-other-read-backwards", 14, TRAN0, 1, f"out overlaps input_forward {_OWN}",
     first=_SAME.reshape(6, 2, 4), second=(6, 6, 5), filter_shape=(6, 2, 2),
     out=_SAME.reshape(-1)[24:].reshape(6, 2, 2))

# ------------------------------------------------------------- 15: threads and accumulate

_COUNT = "expected an integer from 1 to 1024"
_bad("threads-zero", 15, CONV, 2, f"num_threads = 0: {_COUNT}", num_threads=0)
_bad("threads-negative", 15, TRAN, 1, f"num_threads = -1: {_COUNT}", num_threads=-1)
_bad("threads-many", 15, CONV, 3, f"num_threads = 1025: {_COUNT}", num_threads=1025)
_bad("threads-2**31", 15, TRAN0, 1, f"num_threads = {2**31}: {_COUNT}", num_threads=2**31)
_bad("threads-5000-digits", 15, CONV0, 2, f"num_threads = an integer of {_HUGE.bit_length()} bits: {_COUNT}",
     num_threads=_HUGE)
_bad("threads-bool", 15, CONV0, 3, f"num_threads = True: {_COUNT}", num_threads=True)
_bad("threads-float", 15, TRAN0, 2, f"num_threads = 2.0: {_COUNT}", num_threads=2.0)
_bad("threads-str", 15, CONV, 1, f"num_threads = '2': {_COUNT}", num_threads="2")
_bad("threads-list", 15, TRAN, 2, f"num_threads = [2]: {_COUNT}", num_threads=[2])
_bad("threads-array", 15, TRAN, 2, f"num_threads = array([2, 2]): {_COUNT}", num_threads=np.array([2, 2]))
_bad("threads-index-raises", 15, CONV, 2, f"num_threads = IndexRaises(): {_COUNT}", num_threads=IndexRaises())
_bad("threads-no-repr", 15, TRAN0, 2, f"num_threads = <ReprRaises>: {_COUNT}", num_threads=ReprRaises())
_NO_OUT = "accumulate needs an out to add to; expected an f32 array in out"
_bad("accumulate-without-out", 15, CONV, 2, _NO_OUT, accumulate=True, out=None)
_bad("accumulate-without-out-bf16", 15, TRAN, 2, _NO_OUT, first=np.ones(_TRAN_2D, ml_dtypes.bfloat16),
     second=np.ones(_TRAN_DELTA_2D, ml_dtypes.bfloat16), accumulate=True, out=None)
_bad("accumulate-into-bf16", 15, CONV0, 2, "accumulate adds to an out of type f32, not bf16", DTypeError,
     first=np.ones(_CONV_2D, ml_dtypes.bfloat16), second=np.ones(_DELTA_2D, ml_dtypes.bfloat16), accumulate=True,
     out=np.ones(_OIX_2D, ml_dtypes.bfloat16))
_bad("accumulate-into-f16-prepared", 15, TRAN0, 3, "accumulate adds to an out of type f32, not f16", DTypeError,
     prepare=True, first=(2, 4, 2, 3, 4), second=(2, 6, 2, 5, 5), dtype="f16", accumulate=True)
_bad("accumulate-str", 15, CONV, 2, "accumulate = 'no': expected True or False, not str", accumulate="no")
_bad("accumulate-int", 15, TRAN, 1, "accumulate = 1: expected True or False, not int", accumulate=1)
_bad("accumulate-none", 15, CONV0, 2, "accumulate = None: expected True or False, not NoneType", accumulate=None)
_bad("accumulate-array", 15, TRAN0, 2, "accumulate = array([ True, False]): expected True or False, not ndarray",
     accumulate=np.array([True, False]))
_bad("accumulate-out", 15, CONV, 2, "accumulate = an array of shape (6, 4, 3, 2): expected True or False, not ndarray",
     accumulate=np.zeros(_OIX_2D, np.float32))

# fmt: on

ROWS: tuple[BadInput, ...] = tuple(_ROWS)
