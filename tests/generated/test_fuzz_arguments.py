# SPDX-License-Identifier: Apache-2.0
"""Random arguments, most of them nonsense: the library accepts exactly what is valid, and refuses the rest by name.

Each example takes a valid problem, spoils up to three of its arguments with values from a pool of hostile ones, and
calls. What is valid is decided here a second time, from design and documents, without the library's code. The
outcomes that are allowed:

- valid: a result (or a plan) of the shape that was asked for;
- not valid: a SpecError or a DTypeError that begins with the operation's name and is short, soon and without memory;
  Python's own TypeError for an unknown attribute; out and inputs as they were;
- at the edge of 64 bits or of the machine's memory: either.

The core suite runs 20,000 examples. For a longer run, 100,000 of them in less than a minute:

    CONVGRAD_FUZZ_EXAMPLES=100000 python -m pytest tests/generated/test_fuzz_arguments.py

Examples are numbered, the same on every machine. A failure prints the number: CONVGRAD_FUZZ_FIRST=<number> with
CONVGRAD_FUZZ_EXAMPLES=1 repeats that one.
"""

from __future__ import annotations

import decimal
import enum
import fractions
import itertools
import math
import os
import random
import time
import tracemalloc
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt
import pytest

import convgrad
from convgrad import DTypeError, SpecError
from reference.geometries import DTYPES, OPERATIONS, WORDS, SeededDraw, draw_cell, draw_problem

Array = npt.NDArray[Any]

EXAMPLES = int(os.environ.get("CONVGRAD_FUZZ_EXAMPLES", "20000"))
FIRST = int(os.environ.get("CONVGRAD_FUZZ_FIRST", "0"))
SPLIT = 8
LONGEST_MESSAGE = 1500
USUAL_SECONDS = 0.010
MOST_SECONDS = 1.0
MOST_BYTES = 2**20
MEASURED_EVERY = 10
INT64_MAX = 2**63 - 1
# Beyond these, the answer depends on the machine's memory or on how much room the library leaves below 64 bits.
EDGE = 2**58
EDGE_ELEMENTS = 2**26
# Valid, but larger than this is only planned, not computed.
COMPUTED_ELEMENTS = 10**5


class Named(enum.IntEnum):
    """Integers with names."""

    ZERO = 0
    TWO = 2


class Failing:
    """It fails at everything that is asked of it."""

    def __index__(self) -> int:
        raise OverflowError("no")

    def __repr__(self) -> str:
        raise KeyError("no")


class Oversized(int):
    """An integer that denies every comparison."""

    def __lt__(self, other: object) -> bool:
        return False

    __gt__ = __le__ = __ge__ = __lt__


INTEGERS: tuple[Any, ...] = (
    *(0, 1, 2, 3, 5, 7, -1, -2, 64, 1000),
    *(
        2**31 - 1,
        2**31,
        2**32,
        2**53 + 1,
        2**62,
        INT64_MAX,
        2**63,
        2**64,
        -(2**31),
        -(2**63),
        10**30,
        10**5000,
        -(10**5000),
    ),
    *(np.int8(2), np.uint8(1), np.int64(-1), np.uint64(2**63), np.int16(0), np.array(2), np.array(1, np.uint8)),
    *(Named.ZERO, Named.TWO, Oversized(-3), Oversized(2)),
)
NO_INTEGERS: tuple[Any, ...] = (
    *(True, False, np.True_, 1.0, 2.5, -0.0, float("nan"), float("inf"), 1e300, np.float32(1), np.float64("nan"), 1j),
    *("", "1", "none", "NCX", "\0", "x" * 100_000, b"1", None, Ellipsis, NotImplemented, object(), Failing(), int, len),
    *((), [], [1], [[1, 1]], (1, (1, 1)), {}, {1: 1}, {1}, range(2), [None], ["1", "1"], [1.0, 1.0], [True, True]),
    *(
        np.array([1.0, 1.0]),
        np.array([[1, 1]]),
        np.array([True, True]),
        np.array(["1"]),
        np.array([None]),
        np.array(1.5),
    ),
    *(np.timedelta64(1, "s"), np.datetime64("2020-01-01"), decimal.Decimal(1), fractions.Fraction(1), np.void(b"1")),
    *([1] * 5000, np.ones(5000, np.int64), np.zeros(3, [("int", "<i4")]), memoryview(b"11"), slice(1), iter([1, 1])),
)
VECTORS: tuple[Any, ...] = (
    *((1,), [1, 1], (2, 1, 1), [1, 1, 1, 1], (1, 2, 3, 4, 5), [2] * 6, np.array([1, 2]), np.array([1], np.uint8)),
    *(np.array([1, 1, 1], ">i2"), np.ma.array([1, 1], mask=[False, True]), (Named.TWO, 1), [np.int32(1), np.array(1)]),
)
WORDS_POOL: tuple[Any, ...] = (
    *("none", "NONE", "same_upper", "SAME_LOWER", "Valid", "same", "NCX", "NXC", "ncx", "NCHW", "OIX", "XIO", "IOX"),
    *("XOI", "", " none", "none ", "n\u00f6ne", "\ud800"),
)
TYPES: tuple[Any, ...] = (
    *(np.float32, np.float16, ml_dtypes.bfloat16, np.float64, np.int32, np.uint16, bool, np.complex64, object, ">f4"),
    *("<U1", "m8[s]", [("x", "<f4")], ml_dtypes.float8_e5m2, np.longdouble),
)
TYPE_NAMES: tuple[Any, ...] = (
    *(
        "f32",
        "bf16",
        "f16",
        "float32",
        np.float16,
        "f64",
        "",
        "(",
        "f4,f4",
        3,
        b"f4",
        float,
        object(),
        Failing(),
        ("f4", 2),
    ),
    *({"a": 1}, ("f4", (2**62, 2**62)), [("a", "f4")], "x" * 100_000, np.dtype(">f4"), (), ..., "bfloat16"),
)
UNKNOWN = (
    "stride",
    "padding",
    "kernel_shape",
    "filter_format",
    "weights_format",
    "filter_shape",
    "weights_shape",
    "out_pad",
)


@dataclass
class Example:
    """One call. Tensors are arrays, or shapes for `prepare`."""

    op: str
    form: str
    attributes: dict[str, Any]
    shape: Any
    first: Any
    second: Any
    dtype: Any = None
    options: dict[str, Any] = field(default_factory=dict)

    def text(self) -> str:
        """For the report of a failure."""
        parts = {"form": self.form, **self.attributes, "shape": self.shape, "dtype": self.dtype, **self.options}
        tensors = [
            f"{value.dtype}{value.shape} strides {value.strides}" if isinstance(value, np.ndarray) else _show(value)
            for value in (self.first, self.second)
        ]
        return (
            f"{self.op}({', '.join(tensors)}, {', '.join(f'{name}={_show(value)}' for name, value in parts.items())})"
        )


def _show(value: object) -> str:
    try:
        return repr(value)[:120]
    except Exception:
        return f"<{type(value).__name__}>"


FORMS = ("call", "call with shape", "function", "prepare", "prepare shapes")


def make_example(number: int) -> Example:
    """The example with this number: a valid call, spoiled in none to three places."""
    draw = SeededDraw(f"arguments {number}")
    op = OPERATIONS[number % len(OPERATIONS)]
    problem = draw_problem(draw, draw_cell(draw, (op,)), tensor_budget=300)
    dice = random.Random(f"spoil {number}")
    shape_types: tuple[Any, ...] = (np.int32, np.int64, ">i4")
    form = dice.choice(FORMS)
    dtype = DTYPES[problem.dtype]
    example = Example(
        op,
        form,
        dict(problem.attributes),
        problem.weights_shape,
        np.ones(problem.source_shape, dtype),
        np.ones(problem.delta_shape, dtype),
    )
    if form in ("call", "prepare") or (form == "prepare shapes" and dice.random() < 0.5):
        example.attributes[problem.words.shape] = problem.weights_shape
        example.shape = None
    elif dice.random() < 0.5:
        example.shape = np.array(problem.weights_shape, dice.choice(shape_types))
    if form == "prepare shapes":
        example.first, example.second, example.dtype = problem.source_shape, problem.delta_shape, problem.dtype
    for _ in range(dice.choice([0, 1, 1, 1, 2, 2, 3])):
        _spoil(example, dice)
    return example


def _spoil(example: Example, dice: random.Random) -> None:
    kinds = [
        "attribute",
        "attribute",
        "entry",
        "entry",
        "entry",
        "length",
        "drop",
        "unknown",
        "shape",
        "shape",
        "tensor",
    ]
    kinds += ["tensor", "tensor", "options"]
    kind = dice.choice(kinds)
    names = list(example.attributes)
    name = dice.choice(names) if names else "strides"
    value = example.attributes.get(name)
    if kind == "attribute":
        pool = dice.choice([INTEGERS, NO_INTEGERS, VECTORS, WORDS_POOL])
        example.attributes[name] = dice.choice(pool)
    elif kind == "entry" and isinstance(value, tuple) and value:
        example.attributes[name] = _with_entry(value, dice)
    elif kind == "length" and isinstance(value, (tuple, list)):
        example.attributes[name] = dice.choice([value[:-1], (*value, 1), value[1:], (*value, *value)])
    elif kind == "drop":
        example.attributes.pop(name, None)
    elif kind == "unknown":
        example.attributes[dice.choice(UNKNOWN)] = dice.choice([(1,), "OIX", None, 1])
    elif kind == "shape":
        if isinstance(example.shape, tuple) and example.shape and dice.random() < 0.6:
            example.shape = _with_entry(example.shape, dice)
        else:
            example.shape = dice.choice(dice.choice([INTEGERS, NO_INTEGERS, VECTORS]))
    elif kind == "tensor":
        which = dice.choice(["first", "second"])
        setattr(example, which, _spoil_tensor(getattr(example, which), example.form == "prepare shapes", dice))
    elif kind == "options":
        _spoil_options(example, dice)


def _with_entry(value: tuple[Any, ...], dice: random.Random) -> Any:
    entries = list(value)
    place = dice.randrange(len(entries))
    entries[place] = dice.choice(INTEGERS if dice.random() < 0.7 else NO_INTEGERS)
    return dice.choice([list, tuple])(entries)


def _spoil_tensor(value: Any, is_shape: bool, dice: random.Random) -> Any:
    if is_shape or not isinstance(value, np.ndarray):
        if isinstance(value, tuple) and value and dice.random() < 0.8:
            return _with_entry(value, dice)
        return dice.choice(dice.choice([INTEGERS, NO_INTEGERS, VECTORS]))
    kind = dice.randrange(9) if value.ndim else 7
    shape = list(value.shape)
    if kind <= 2 and shape:
        place = dice.randrange(len(shape))
        shape[place] = max(0, shape[place] + dice.choice([-1, 1, 2, -shape[place]]))
        return np.ones(shape, value.dtype)
    if kind == 3:
        return value.reshape(dice.choice([(-1,), (1, *shape), tuple(shape[::-1])]))
    if kind == 4:
        return np.ones(shape, dice.choice(TYPES))
    if kind == 5:
        return dice.choice([value.T, value[..., ::-1], np.broadcast_to(value.dtype.type(1), value.shape)])
    if kind == 6:
        room = np.zeros(value.nbytes + 1, np.uint8)
        return room[1:].view(value.dtype).reshape(value.shape)
    if kind == 7:
        return dice.choice(dice.choice([INTEGERS, NO_INTEGERS]))
    return np.ma.masked_array(value)


def _spoil_options(example: Example, dice: random.Random) -> None:
    if example.form == "prepare shapes":
        example.dtype = dice.choice(TYPE_NAMES)
    elif example.form == "prepare":
        example.options["out_dtype"] = dice.choice(TYPE_NAMES)
    else:
        example.options["num_threads"] = dice.choice(INTEGERS + NO_INTEGERS)


# ------------------------------------------------------------------------------- what is valid, decided a second time


def _integer(value: object, lowest: int) -> int | None:
    """A 64-bit integer from `lowest`; None for all else."""
    if isinstance(value, (bool, np.bool_, np.timedelta64)):
        return None
    if isinstance(value, np.ndarray):
        if value.ndim != 0 or value.dtype.kind not in "iu":
            return None
    elif not isinstance(value, (int, np.integer)):
        return None
    number = int(value)
    return number if int.__le__(lowest, number) and int.__le__(number, INT64_MAX) else None


def _vector(value: object, length: int, lowest: int) -> tuple[int, ...] | None:
    if isinstance(value, np.ma.MaskedArray) and value.ndim == 1:
        value = list(value)
    if isinstance(value, np.ndarray) and value.ndim == 1 and value.dtype.kind in "iu":
        value = value.tolist()
    if not isinstance(value, (list, tuple)) or len(value) != length:
        return None
    numbers = [_integer(entry, lowest) for entry in value]
    return None if None in numbers else tuple(number for number in numbers if number is not None)


class InvalidError(Exception):
    """The example is not valid."""


class EdgeError(Exception):
    """Valid or not depends on the machine or on the room left below 64 bits."""


def _need(condition: object) -> None:
    if not condition:
        raise InvalidError


def _got(value: tuple[int, ...] | None) -> tuple[int, ...]:
    _need(value is not None)
    assert value is not None
    return value


def judge(example: Example) -> tuple[int, ...]:
    """The shape of the result. Raises InvalidError, or EdgeError."""
    words, given = WORDS[example.op], dict(example.attributes)
    known = {"strides", "pads_begin", "pads_end", "dilations", "auto_pad", "groups", "data_format", words.format}
    known |= {"output_padding"} if words.transposed else set()
    known |= {words.shape}
    _need(set(given) <= known)
    strides_value = given.get("strides")
    _need(
        isinstance(strides_value, (list, tuple)) or (isinstance(strides_value, np.ndarray) and strides_value.ndim == 1)
    )
    rank = len(strides_value)  # type: ignore[arg-type]
    _need(1 <= rank <= 3)
    strides, dilations = _got(_vector(strides_value, rank, 1)), _got(_vector(given.get("dilations"), rank, 1))
    auto_pad = given.get("auto_pad", "none")
    _need(isinstance(auto_pad, str) and auto_pad.lower() in ("none", "same_upper", "same_lower", "valid"))
    auto_pad = str(auto_pad).lower()
    pads: dict[str, tuple[int, ...]] = {}
    for name in ("pads_begin", "pads_end"):
        value = given.get(name)
        if value is None:
            _need(auto_pad != "none")
        else:
            pads[name] = _got(_vector(value, rank, 0))
    extra = given.get("output_padding")
    output_padding = (0,) * rank if extra is None else _got(_vector(extra, rank, 0))
    groups = _integer(given.get("groups", 1), 1)
    _need(groups is not None)
    data_format, weights_format = given.get("data_format", "NXC"), given.get(words.format, words.formats[0])
    _need(isinstance(data_format, str) and data_format in ("NCX", "NXC"))
    _need(isinstance(weights_format, str) and weights_format in words.formats)
    attribute, shape = given.get(words.shape), None
    if attribute is not None:
        shape = _vector(attribute, rank + 2, 1)
        # The function hands on an array as the input, so only as an attribute need a wrong one be refused.
        _need(shape is not None)
    if example.shape is not None:
        shape = _vector(example.shape, rank + 2, 1)
    weights = _got(shape)
    _judge_options(example)
    first, second = _judge_tensors(example, rank)
    _need(first[0] == second[0])
    channels_in, channels_out = (first[1], second[1]) if data_format == "NCX" else (first[-1], second[-1])
    inputs, outputs = (first[2:], second[2:]) if data_format == "NCX" else (first[1:-1], second[1:-1])
    assert groups is not None
    _need(channels_in % groups == 0 and channels_out % groups == 0)
    place = weights_format.index("X")
    kernel = weights[place : place + rank]
    rest = weights[:place] + weights[place + rank :]
    letters = weights_format.replace("X", "")
    have = {letter: rest[index] for index, letter in enumerate(letters)}
    document = have == {"I": channels_in // groups, "O": channels_out}
    library = have == {"I": channels_in, "O": channels_out // groups}
    _need(
        {"ConvTransposeBackwardWeights": document or library, "ConvTransposeBackpropFilters": library}.get(
            example.op, document
        )
    )
    largest = [4 * math.prod(max(1, extent) for extent in tensor) for tensor in (first, second)]
    for axis in range(rank):
        i, o, k, s, d = inputs[axis], outputs[axis], kernel[axis], strides[axis], dilations[axis]
        effective = (k - 1) * d + 1
        begin = end = 0
        if auto_pad == "none":
            begin, end = pads["pads_begin"][axis], pads["pads_end"][axis]
        elif auto_pad != "valid":
            total = max(0, effective - s) if words.transposed else max(0, (-(-i // s) - 1) * s + effective - i)
            begin = end = -(-total // 2)
            if auto_pad == "same_upper":
                begin = total // 2
            else:
                end = total // 2
        if words.transposed:
            _need(o == (i - 1) * s + effective - begin - end + output_padding[axis])
        else:
            _need(i + begin + end >= effective)
            _need(o == (i + begin + end - effective) // s + 1)
        largest.append((max(i, o) + 1) * s + k * d + begin + end)
    if max(largest) > EDGE or math.prod(weights) > EDGE_ELEMENTS:
        raise EdgeError
    return weights


def _judge_options(example: Example) -> None:
    for name, value in example.options.items():
        if name == "num_threads":
            threads = None if value is None else _integer(value, 1)
            _need(value is None or (threads is not None and threads <= 1024))


def _judge_tensors(example: Example, rank: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
    shapes, types = [], []
    for value in (example.first, example.second):
        if example.form.startswith("prepare") and isinstance(value, (list, tuple)):
            _need(example.dtype is not None)
            types.append(_type(example.dtype))
            shapes.append(_got(_vector(value, rank + 2, 0)))
        else:
            _need(isinstance(value, np.ndarray) and not isinstance(value, np.ma.MaskedArray))
            types.append(_type(value.dtype))
            _need(example.dtype is None or _type(example.dtype) == types[-1])
            # A plan is for arrays like these; how they lie in memory counts when it is called.
            _need(example.form.startswith("prepare") or (value.flags.c_contiguous and value.flags.aligned))
            shapes.append(value.shape)
        _need(len(shapes[-1]) == rank + 2 and all(extent >= 1 for extent in shapes[-1][1:]))
    _need(types[0] == types[1])
    if example.options.get("out_dtype") is not None:
        _need(_type(example.options["out_dtype"]) in (types[0], "f32"))
    return shapes[0], shapes[1]


def _type(value: object) -> str:
    if isinstance(value, str) and value in DTYPES:
        return value
    _need(value is not None and not (isinstance(value, str) and len(value) > 100))
    try:
        dtype = np.dtype(value)  # type: ignore[call-overload]
    except Exception as error:
        raise InvalidError from error
    names = [name for name, known in DTYPES.items() if dtype == known]
    _need(names)
    return names[0]


# ------------------------------------------------------------------------------------------------------------ the run


def _run(example: Example, out: Array | None, planned_only: bool) -> object:
    words = WORDS[example.op]
    attributes = dict(example.attributes)
    if example.form == "function" and not planned_only:
        function = getattr(convgrad, words.function)
        attribute = attributes.pop(words.shape, None)
        shape = example.shape if example.shape is not None else attribute
        return function(example.first, example.second, shape, out=out, **attributes, **example.options)
    operation = getattr(convgrad, example.op)(**attributes)
    if example.form.startswith("prepare"):
        return operation.prepare(example.first, example.second, example.shape, dtype=example.dtype, **example.options)
    if planned_only:
        return operation.prepare(example.first, example.second, example.shape)
    return operation(example.first, example.second, example.shape, out=out, **example.options)


def _bytes(value: Any) -> bytes:
    return b"" if not isinstance(value, np.ndarray) or value.dtype.hasobject else value.tobytes()


def _check(number: int, slow: list[str]) -> str:
    """Run one example. Returns what came of it."""
    example = make_example(number)
    label = f"example {number}: {example.text()}"
    expected: tuple[int, ...] | None = None
    try:
        expected = judge(example)
        verdict = "valid"
    except InvalidError:
        verdict = "not valid"
    except EdgeError:
        verdict = "edge"
    prepared = example.form.startswith("prepare")
    planned_only = verdict == "edge" or (expected is not None and math.prod(expected) > COMPUTED_ELEMENTS)
    dtype = example.first.dtype if isinstance(example.first, np.ndarray) else np.dtype(np.float32)
    out = None
    if not prepared and expected is not None and not planned_only:
        out = np.full(expected, np.nan, dtype)
    elif not prepared and verdict == "not valid":
        out = np.full((3, 2, 3), 7, np.float32)
    before = [_bytes(value) for value in (example.first, example.second, out)]
    measured = number % MEASURED_EVERY == 0
    if measured:
        tracemalloc.start()
    begin, start = time.perf_counter(), time.thread_time()
    outcome: object
    try:
        outcome = _run(example, out, planned_only)
    except Exception as error:
        outcome = error
    # A hang is told by the clock on the wall; of the usual, what else runs on the machine does not count.
    waited, seconds = time.perf_counter() - begin, time.thread_time() - start
    peak = 0
    if measured:
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()

    if isinstance(outcome, Exception):
        assert verdict != "valid", f"{label}\nis valid, but was refused: {outcome!r}"
        text = str(outcome)
        if type(outcome) is TypeError:
            assert "got an unexpected keyword argument" in text or "multiple values for" in text, (
                f"{label}\n{outcome!r}"
            )
        else:
            assert type(outcome) in (SpecError, DTypeError), f"{label}\n{outcome!r}"
            assert text.startswith((f"{example.op}: ", "num_threads =")), f"{label}\n{outcome!r}"
            assert len(text) <= LONGEST_MESSAGE, f"{label}\n{len(text)} characters"
        after = [_bytes(value) for value in (example.first, example.second, out)]
        assert after == before, f"{label}\nan error, but a tensor was changed: {outcome!r}"
        assert waited < MOST_SECONDS, f"{label}\ntook {waited} s"
        assert peak <= MOST_BYTES, f"{label}\nallocated {peak} bytes"
        if seconds > USUAL_SECONDS:
            slow.append(label)
        return "refused"
    assert verdict != "not valid", f"{label}\nis not valid, but was accepted: {outcome!r}"
    if isinstance(outcome, convgrad.Plan):
        assert prepared or planned_only, label
        assert expected is None or outcome.geometry.weights_shape == expected, label
        return "planned"
    assert outcome is out and out is not None, label
    assert not np.isnan(out.astype(np.float32)).any(), f"{label}\nleft elements of out unwritten"
    return "computed"


@pytest.fixture(scope="module", autouse=True)
def _kernels() -> None:
    """Load every kernel: compiling one takes time and memory, which are not the errors'."""
    for rank, data_format, dtype in itertools.product((1, 2, 3), ("NCX", "NXC"), DTYPES):
        ones = (1,) * (rank + 2)
        operation = convgrad.ConvolutionBackwardWeights(
            strides=ones[2:], dilations=ones[2:], auto_pad="valid", data_format=data_format
        )
        operation.prepare(ones, ones, ones, dtype=dtype)


@pytest.mark.parametrize("part", range(SPLIT))
def test_arguments(part: int) -> None:
    outcomes: Counter[str] = Counter()
    slow: list[str] = []
    numbers = range(FIRST + part, FIRST + EXAMPLES, SPLIT)
    for number in numbers:
        outcomes[_check(number, slow)] += 1
    assert outcomes.total() == len(numbers)
    assert len(slow) <= max(3, len(numbers) // 100), f"{len(slow)} errors took over {USUAL_SECONDS} s, as {slow[:3]}"
    if len(numbers) >= 400:
        # A fuzzer that only ever sees one kind of outcome tests little.
        assert outcomes["refused"] >= len(numbers) // 2, outcomes
        assert outcomes["computed"] >= len(numbers) // 20, outcomes
        assert outcomes["planned"] >= len(numbers) // 40, outcomes
