# SPDX-License-Identifier: Apache-2.0
"""The interface that users see: names, signatures, the ways to call, what comes back, what is shared and kept."""

from __future__ import annotations

import copy
import enum
import importlib.resources
import inspect
import os
import pickle
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt
import pytest

import convgrad
import convgrad.operation
from convgrad import DTypeError, SpecError
from convgrad.operations import OPERATIONS
from reference.naive_gradient import reference_gradient

Array = npt.NDArray[Any]

CONV, TRAN = "ConvolutionBackwardWeights", "ConvTransposeBackwardWeights"
CONV0, TRAN0 = "ConvolutionBackpropFilters", "ConvTransposeBackpropFilters"
FUNCTIONS = {
    CONV: "convolution_backward_weights",
    TRAN: "conv_transpose_backward_weights",
    CONV0: "convolution_backprop_filters",
    TRAN0: "conv_transpose_backprop_filters",
}
INPUTS = {
    CONV: ("src", "diff_dst", "weights_shape"),
    TRAN: ("src", "diff_dst", "weights_shape"),
    CONV0: ("input_forward", "output_delta", "filter_shape"),
    TRAN0: ("input_forward", "output_delta", "filter_shape"),
}
_COMMON: dict[str, Any] = {"strides": None, "pads_begin": None, "pads_end": None, "dilations": None, "auto_pad": "none"}
ATTRIBUTES: dict[str, dict[str, Any]] = {
    CONV: _COMMON | {"groups": 1, "data_format": "NXC", "weights_format": "XIO", "weights_shape": None},
    TRAN: _COMMON
    | {"output_padding": None, "groups": 1, "data_format": "NXC", "weights_format": "XOI", "weights_shape": None},
    CONV0: _COMMON | {"groups": 1, "data_format": "NXC", "filter_format": "XIO", "filter_shape": None},
    TRAN0: _COMMON
    | {"output_padding": None, "groups": 1, "data_format": "NXC", "filter_format": "XIO", "filter_shape": None},
}
DTYPES = {"f32": np.dtype(np.float32), "bf16": np.dtype(ml_dtypes.bfloat16), "f16": np.dtype(np.float16)}
KEPT_PLANS = 256


class Case:
    """A small call of one operation, on integers, with its exact gradient in float64."""

    def __init__(self, op: str, dtype: str = "f32", batch: int = 2, width: int = 4, lowest: int = -2) -> None:
        self.op = op
        self.names = INPUTS[op]
        self.function: Callable[..., Array] = getattr(convgrad, FUNCTIONS[op])
        transposed = op in (TRAN, TRAN0)
        first, second = (batch, 2, 3, width), (batch, 3, 7, width + 2)
        if not transposed:
            first, second = (batch, 2, 7, width + 2), (batch, 3, 3, width)
        self.shape = (2, 3, 3, 3) if op == TRAN else (3, 2, 3, 3)
        self.attributes: dict[str, Any] = {
            "strides": (2, 1),
            "pads_begin": (0, 0),
            "pads_end": (0, 0),
            "dilations": (1, 1),
            "data_format": "NCX",
            "filter_format" if op in (CONV0, TRAN0) else "weights_format": "IOX" if op == TRAN else "OIX",
        }
        self.first, self.second = _integers(first, dtype, lowest), _integers(second, dtype, lowest)
        self.expected = reference_gradient(
            op, self.first, self.second, self.shape, self.attributes, magnitude=False
        ).gradient

    def operation(self, **changes: Any) -> Any:
        """The operation with the shape as its attribute."""
        return getattr(convgrad, self.op)(**{**self.attributes, self.names[2]: self.shape, **changes})

    def check(self, gradient: object, dtype: np.dtype[Any] | None = None) -> None:
        """It is the exact gradient (small integers are values of each type)."""
        assert type(gradient) is np.ndarray
        assert gradient.dtype == (self.first.dtype if dtype is None else dtype)
        assert gradient.flags.c_contiguous
        np.testing.assert_array_equal(gradient.astype(np.float64), self.expected)


def _integers(shape: tuple[int, ...], dtype: str, lowest: int) -> Array:
    return np.random.default_rng(shape).integers(lowest, lowest + 5, shape).astype(DTYPES[dtype])


operations = pytest.mark.parametrize("op", FUNCTIONS)
dtypes = pytest.mark.parametrize("dtype", DTYPES)


# ---------------------------------------------------------------------------------------------- names and signatures


def test_the_package_exports_these_names_and_no_others() -> None:
    assert sorted(convgrad.__all__) == sorted(
        {row.__name__ for row in OPERATIONS}
        | {row.__module__.rpartition(".")[2] for row in OPERATIONS}
        | {"Plan", "get_num_threads", "set_num_threads", "get_specialize", "set_specialize"}
        | {"SpecError", "DTypeError", "CompileError", "CacheSecurityError"}
    )
    assert {*FUNCTIONS, *FUNCTIONS.values()} <= set(convgrad.__all__)
    assert len(set(convgrad.__all__)) == len(convgrad.__all__)
    for name in convgrad.__all__:
        assert inspect.getdoc(getattr(convgrad, name)), f"{name} has no documentation"
    assert inspect.getdoc(convgrad)


def test_errors_are_what_callers_of_python_expect() -> None:
    assert issubclass(convgrad.SpecError, ValueError)
    assert issubclass(convgrad.DTypeError, TypeError)
    assert issubclass(convgrad.CompileError, RuntimeError)
    assert issubclass(convgrad.CacheSecurityError, convgrad.CompileError)
    assert not issubclass(convgrad.SpecError, TypeError)
    assert not issubclass(convgrad.DTypeError, ValueError)


def test_the_package_is_typed() -> None:
    assert importlib.resources.files("convgrad").joinpath("py.typed").is_file()


def _defaults(function: Callable[..., object], kind: Any) -> dict[str, Any]:
    parameters = inspect.signature(function).parameters.values()
    return {p.name: p.default for p in parameters if p.kind is kind and p.name != "self"}


@operations
def test_the_constructor_takes_exactly_its_generation_s_attributes(op: str) -> None:
    constructor = getattr(convgrad, op).__init__
    keywords = _defaults(constructor, inspect.Parameter.KEYWORD_ONLY)
    assert keywords == ATTRIBUTES[op]
    assert list(keywords) == list(ATTRIBUTES[op])
    assert len(inspect.signature(constructor).parameters) == len(keywords) + 1, "attributes are keyword-only"


@operations
def test_call_and_prepare_take_exactly_its_generation_s_inputs(op: str) -> None:
    first, second, shape = INPUTS[op]
    empty = inspect.Parameter.empty
    positional, keyword = inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY
    operation = getattr(convgrad, op)
    for method in (operation.__call__, operation.prepare):
        assert _defaults(method, positional) == {first: empty, second: empty, shape: None}
        assert list(_defaults(method, positional)) == [first, second, shape]
    assert _defaults(operation.__call__, keyword) == {"out": None, "accumulate": False, "num_threads": None}
    assert _defaults(operation.prepare, keyword) == {"dtype": None, "out_dtype": None, "accumulate": False}


@operations
def test_the_function_takes_inputs_and_attributes(op: str) -> None:
    function = getattr(convgrad, FUNCTIONS[op])
    first, second, shape = INPUTS[op]
    empty = inspect.Parameter.empty
    assert _defaults(function, inspect.Parameter.POSITIONAL_OR_KEYWORD) == {first: empty, second: empty, shape: empty}
    attributes = {name: default for name, default in ATTRIBUTES[op].items() if name != shape}
    options = {"out": None, "accumulate": False, "num_threads": None}
    assert _defaults(function, inspect.Parameter.KEYWORD_ONLY) == {**attributes, **options}


@operations
def test_every_parameter_is_annotated_and_documented(op: str) -> None:
    operation, function = getattr(convgrad, op), getattr(convgrad, FUNCTIONS[op])
    documented = [
        (operation.__init__, inspect.getdoc(operation)),
        (operation.__call__, inspect.getdoc(operation.__call__)),
        (operation.prepare, inspect.getdoc(operation.prepare)),
        (function, inspect.getdoc(function)),
    ]
    for target, text in documented:
        assert text is not None
        signature = inspect.signature(target)
        assert signature.return_annotation is not inspect.Signature.empty
        for name, parameter in signature.parameters.items():
            if name == "self":
                continue
            assert parameter.annotation is not inspect.Parameter.empty, f"{op}: {target}: {name}"
            assert f"\n    {name}: " in text, f"{op}: {target.__name__} does not document {name}"
    assert "Raises:" in (inspect.getdoc(operation.__call__) or "")


@operations
def test_an_unknown_attribute_is_python_s_type_error(op: str) -> None:
    case = Case(op)
    guess = r"(\. Did you mean '\w+'\?)?"  # Python 3.13 and later
    with pytest.raises(TypeError, match=rf"^{op}\.__init__\(\) got an unexpected keyword argument 'padding'{guess}$"):
        case.operation(padding=(1, 1))
    message = rf"^{FUNCTIONS[op]}\(\) got an unexpected keyword argument 'padding'{guess}$"
    with pytest.raises(TypeError, match=message):
        case.function(case.first, case.second, case.shape, **case.attributes, padding=(1, 1))


@operations
def test_attributes_are_not_positional(op: str) -> None:
    with pytest.raises(TypeError, match="takes 1 positional argument but 2 were given"):
        getattr(convgrad, op)((1, 1))
    case = Case(op)
    with pytest.raises(TypeError, match="takes 3 positional arguments but 4 were given"):
        case.function(case.first, case.second, case.shape, (1, 1))


@operations
def test_the_other_generation_s_names_are_unknown(op: str) -> None:
    case = Case(op)
    other = INPUTS[CONV0 if op in (CONV, TRAN) else CONV]
    for arguments in ({other[0]: case.first, case.names[1]: case.second}, {case.names[0]: case.first, other[1]: 1}):
        with pytest.raises(TypeError, match="unexpected keyword argument"):
            case.operation()(**arguments)


# ------------------------------------------------------------------------------------------------------ ways to call


@dtypes
@operations
def test_every_form_gives_the_gradient(op: str, dtype: str) -> None:
    case = Case(op, dtype)
    first, second, shape, attributes = case.first, case.second, case.shape, case.attributes
    kept = first.copy(), second.copy()
    operation = case.operation()
    other_shape = {case.names[2]: tuple(extent + 1 for extent in shape)}
    no_shape = {case.names[2]: None}

    case.check(operation(first, second))
    case.check(operation(**{case.names[0]: first, case.names[1]: second}))
    for tensor in (np.array(shape, np.int32), np.array(shape, np.int64), list(shape), shape):
        case.check(operation(first, second, tensor))
        case.check(case.operation(**other_shape)(first, second, tensor))  # the input wins over the attribute
        case.check(case.operation(**no_shape)(first, second, tensor))
        case.check(case.operation(**no_shape)(first, second, **{case.names[2]: tensor}))
        case.check(case.function(first, second, tensor, **attributes))
        case.check(case.operation(**other_shape).prepare(first, second, tensor)(first, second))
    case.check(operation.prepare(first, second)(first, second))
    case.check(operation.prepare(first.shape, second.shape, dtype=dtype)(first, second))
    case.check(operation.prepare(first, second.shape, dtype=dtype)(first, second))
    case.check(case.function(first, second, shape, **attributes, num_threads=2))
    np.testing.assert_array_equal(first, kept[0])
    np.testing.assert_array_equal(second, kept[1])


@dtypes
@operations
def test_out_is_filled_and_returned(op: str, dtype: str) -> None:
    case = Case(op, dtype)
    plan = case.operation().prepare(case.first, case.second)
    calls: list[Callable[[Array], object]] = [
        lambda out: case.operation()(case.first, case.second, out=out),
        lambda out: case.operation()(case.first, case.second, np.array(case.shape), out=out),
        lambda out: case.function(case.first, case.second, case.shape, **case.attributes, out=out),
        lambda out: plan(case.first, case.second, out=out),
    ]
    for call in calls:
        out = np.full(case.shape, np.nan, DTYPES[dtype])
        assert call(out) is out
        case.check(out)


@operations
def test_the_shape_may_be_any_integer_vector(op: str) -> None:
    case = Case(op)
    vectors: list[Any] = [np.array(case.shape, dtype) for dtype in "bBhHiIlLqQ"]
    vectors += [np.array(case.shape, ">i4"), np.array(case.shape, ml_dtypes.int4)]
    vectors += [np.repeat(np.array(case.shape, np.int32), 2)[::2], [np.int16(extent) for extent in case.shape]]
    for vector in vectors:
        case.check(case.operation(**{case.names[2]: None})(case.first, case.second, vector))
        case.check(case.function(case.first, case.second, vector, **case.attributes))


class Step(enum.IntEnum):
    """Integers with names."""

    ONE = 1
    TWO = 2


@operations
def test_attribute_lists_may_be_lists_tuples_or_arrays_of_integers(op: str) -> None:
    case = Case(op)
    for strides in (
        [2, 1],
        (2, 1),
        np.array([2, 1]),
        np.array([2, 1], np.uint8),
        (np.int8(2), np.array(1)),
        [*Step][::-1],
    ):
        case.check(case.operation(strides=strides)(case.first, case.second))
    case.check(case.operation(groups=np.int64(1), auto_pad="None")(case.first, case.second))
    case.check(case.operation(groups=Step.ONE, auto_pad="NONE")(case.first, case.second))


@pytest.mark.parametrize("word", ["valid", "VALID", "Valid", "vAlId"])
def test_auto_pad_in_any_case(word: str) -> None:
    case = Case(CONV)
    case.check(case.operation(auto_pad=word, pads_begin=None, pads_end=None)(case.first, case.second))
    case.check(case.operation(auto_pad=word, pads_begin=(9, 9), pads_end=(9, 9))(case.first, case.second))


def test_defaults_are_the_documents() -> None:
    """Channels last, weights XIO (XOI), one group, no output_padding."""
    for op in FUNCTIONS:
        case = Case(op)
        attributes = {name: case.attributes[name] for name in ("strides", "pads_begin", "pads_end", "dilations")}
        first, second = (np.ascontiguousarray(np.moveaxis(array, 1, -1)) for array in (case.first, case.second))
        shape = (3, 3, case.shape[1], case.shape[0])
        gradient = case.function(first, second, shape, **attributes)
        np.testing.assert_array_equal(gradient, case.expected.transpose(2, 3, 1, 0))


@pytest.mark.parametrize(
    ("dtype", "spellings"),
    [
        ("f32", ["f32", "float32", "f4", np.float32, np.dtype("f4"), np.ones(1, np.float32).dtype]),
        ("bf16", ["bf16", "bfloat16", ml_dtypes.bfloat16, np.dtype(ml_dtypes.bfloat16)]),
        ("f16", ["f16", "float16", "f2", "half", np.float16, np.half, np.dtype("e")]),
    ],
)
def test_prepare_takes_any_name_of_a_type(dtype: str, spellings: list[object]) -> None:
    case = Case(CONV, dtype)
    for spelling in spellings:
        plan = case.operation().prepare(case.first.shape, list(case.second.shape), dtype=spelling)
        assert (plan.dtype, plan.out_dtype) == (dtype, dtype)
        case.check(plan(case.first, case.second))


def test_prepare_takes_shapes_of_any_integers() -> None:
    case = Case(CONV)
    shape = tuple(np.int64(extent) for extent in case.first.shape)
    case.check(case.operation().prepare(shape, case.second.shape, dtype="f32")(case.first, case.second))


def test_read_only_and_mapped_memory(tmp_path: Path) -> None:
    case = Case(TRAN)
    np.save(tmp_path / "first.npy", case.first)
    np.save(tmp_path / "second.npy", case.second)
    first, second = (np.load(tmp_path / f"{name}.npy", mmap_mode="r") for name in ("first", "second"))
    case.check(case.operation()(first, second))
    out = np.lib.format.open_memmap(tmp_path / "out.npy", "w+", np.float32, case.shape)
    assert case.operation()(first, second, out=out) is out
    out.flush()
    case.check(np.load(tmp_path / "out.npy"))


# -------------------------------------------------------------------------------------------- out in f32, accumulate


@pytest.mark.parametrize("dtype", ["bf16", "f16"])
@operations
def test_an_f32_out_takes_the_sums_before_they_are_rounded(op: str, dtype: str) -> None:
    case = Case(op, dtype, batch=200, lowest=0)
    assert case.expected.max() > 2**11, "the sums have to need more digits than bf16 and f16 have"
    out = np.full(case.shape, np.nan, np.float32)
    assert case.operation()(case.first, case.second, out=out) is out
    case.check(out, np.dtype(np.float32))
    plan = case.operation().prepare(case.first, case.second, out_dtype="f32")
    assert (plan.dtype, plan.out_dtype) == (dtype, "f32")
    case.check(plan(case.first, case.second), np.dtype(np.float32))
    rounded = case.operation()(case.first, case.second)
    np.testing.assert_array_equal(rounded, case.expected.astype(DTYPES[dtype]))


@dtypes
@operations
def test_accumulate_adds_to_an_f32_out(op: str, dtype: str) -> None:
    case = Case(op, dtype)
    plan = case.operation().prepare(case.first, case.second, out_dtype="f32", accumulate=True)
    assert plan.accumulate is True
    calls: list[Callable[[Array], object]] = [
        lambda out: case.operation()(case.first, case.second, out=out, accumulate=True),
        lambda out: case.function(case.first, case.second, case.shape, **case.attributes, out=out, accumulate=True),
        lambda out: plan(case.first, case.second, out=out),
    ]
    for call in calls:
        out = np.arange(np.prod(case.shape), dtype=np.float32).reshape(case.shape)
        before = out.astype(np.float64)
        for times in (1, 2):
            assert call(out) is out
            np.testing.assert_array_equal(out, before + times * case.expected)


@dtypes
@operations
def test_an_empty_batch(op: str, dtype: str) -> None:
    case = Case(op, dtype)
    first, second = case.first[:0], case.second[:0]
    gradient = case.operation()(first, second)
    assert gradient.shape == case.shape and gradient.dtype == DTYPES[dtype]
    assert not gradient.astype(np.float32).any()
    out = np.full(case.shape, np.nan, np.float32)
    assert not case.operation()(first, second, out=out).any()
    out = np.full(case.shape, 1.5, np.float32)
    case.operation()(first, second, out=out, accumulate=True)
    assert (out == 1.5).all(), "there is nothing to add"


# ------------------------------------------------------------------------------------- what prints, what never changes


@operations
def test_an_operation_prints_as_the_call_that_makes_it(op: str) -> None:
    case = Case(op)
    for operation in (
        case.operation(),
        case.operation(**{case.names[2]: None}),
        case.operation(strides=np.array([2, 1])),
    ):
        text = repr(operation)
        again = eval(text, vars(convgrad).copy())
        assert type(again) is type(operation)
        assert repr(again) == text
    assert f"{case.names[2]}={case.shape!r}" in repr(case.operation())
    assert "strides=(2, 1)" in repr(case.operation(strides=np.array([2, 1])))


def test_later_changes_of_what_was_given_do_not_matter() -> None:
    case = Case(CONV)
    strides, shape = [2, 1], np.array(case.shape)
    operation = case.operation(strides=strides, weights_shape=shape)
    text = repr(operation)
    strides[0] = 1
    shape[:] = 0
    assert repr(operation) == text
    case.check(operation(case.first, case.second))


def test_operations_and_plans_cannot_be_changed() -> None:
    case = Case(CONV)
    operation = case.operation()
    plan = operation.prepare(case.first, case.second)
    for target, names in (
        (operation, ("strides", "description", "anything", "_settings", "_plans")),
        (plan, ("geometry", "dtype", "out_dtype", "accumulate", "schedule", "anything", "_shapes")),
        (plan.geometry, ("N", "weights_shape")),
    ):
        for name in names:
            with pytest.raises((AttributeError, TypeError)):
                setattr(target, name, None)
        assert not hasattr(target, "__dict__")
    case.check(operation(case.first, case.second))
    case.check(plan(case.first, case.second))


@operations
def test_operations_can_be_copied_and_pickled(op: str) -> None:
    """As workers of other processes need; plans are made again there."""
    case = Case(op)
    operation = case.operation()
    case.check(operation(case.first, case.second))
    for again in (copy.copy(operation), copy.deepcopy(operation), pickle.loads(pickle.dumps(operation))):
        assert repr(again) == repr(operation)
        case.check(again(case.first, case.second))


def test_a_plan_tells_what_it_is_for() -> None:
    case = Case(CONV, "bf16")
    plan = case.operation().prepare(case.first, case.second, out_dtype="f32")
    assert isinstance(plan, convgrad.Plan)
    for part in (CONV, "src (2, 2, 7, 6)", "diff_dst (2, 3, 3, 4)", "bf16 NCX", "(3, 2, 3, 3) f32", "work items"):
        assert part in repr(plan)


def test_a_plan_tells_what_the_next_call_hands_to_the_runtime() -> None:
    case = Case(CONV, "f32")
    plan = case.operation().prepare(case.first, case.second)
    call = plan.kernel_call()
    assert call.schedule == plan.schedule
    assert call.address != 0 and (call.shared_object is not None) == call.schedule.specialised
    assert plan.kernel_call(3).schedule.fields.keys() == call.schedule.fields.keys()
    with pytest.raises(convgrad.SpecError, match="num_threads"):
        plan.kernel_call(0)


def test_a_plan_tells_which_grouped_layout_it_understood() -> None:
    operation = convgrad.ConvTransposeBackwardWeights(
        strides=(1,), pads_begin=(0,), pads_end=(0,), dilations=(1,), groups=2, data_format="NCX", weights_format="IOX"
    )
    for shape, reading in (((2, 6, 3), "document"), ((4, 3, 3), "library")):
        plan = operation.prepare((1, 4, 5), (1, 6, 7), shape, dtype="f32")
        assert plan.geometry.reading == reading
        assert f"weights as the {reading} lays them out" in repr(plan)
        assert plan(np.ones((1, 4, 5), np.float32), np.ones((1, 6, 7), np.float32)).shape == shape


# ----------------------------------------------------------------------------------- plans are kept, threads share them


@pytest.fixture
def plans_made(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Every plan that operations make during the test."""
    made: list[Any] = []

    class Counted(convgrad.Plan):
        __slots__ = ()

        def __init__(self, *arguments: Any) -> None:
            super().__init__(*arguments)
            made.append(self)

    monkeypatch.setattr(convgrad.operation, "Plan", Counted)
    return made


def test_plans_are_kept(plans_made: list[Any]) -> None:
    case = Case(CONV)
    operation = case.operation()
    for _ in range(3):
        case.check(operation(case.first, case.second))
        case.check(operation(case.first.copy(), case.second.copy()))
        operation(case.first, case.second, out=np.empty(case.shape, np.float32))
    assert len(plans_made) <= 2, "the same geometry was planned again"
    made = len(plans_made)
    case.check(operation(case.first, case.second, np.array(case.shape)))
    operation(case.first, case.second, out=np.zeros(case.shape, np.float32), accumulate=True)
    operation(case.first[:1], case.second[:1])
    assert len(plans_made) == made + 3


def test_only_so_many_plans_are_kept(plans_made: list[Any]) -> None:
    operation = Case(CONV).operation()

    def run(batch: int) -> None:
        operation(np.zeros((batch, 2, 7, 6), np.float32), np.zeros((batch, 3, 3, 4), np.float32))

    for batch in range(KEPT_PLANS + 10):
        run(batch)
    assert len(plans_made) == KEPT_PLANS + 10
    run(KEPT_PLANS + 9)
    assert len(plans_made) == KEPT_PLANS + 10, "the newest plan was not kept"
    run(0)
    assert len(plans_made) == KEPT_PLANS + 11, "the oldest plan is kept for ever"


def test_threads_share_an_operation_and_a_plan() -> None:
    cases = [Case(TRAN, batch=batch, width=width) for batch in (1, 2) for width in (1, 4, 9)]
    operation = cases[0].operation()
    plans = [operation.prepare(case.first, case.second) for case in cases]
    barrier = threading.Barrier(8)

    def work(worker: int) -> int:
        barrier.wait()
        for turn in range(100):
            place = (worker + turn) % len(cases)
            case = cases[place]
            case.check(operation(case.first, case.second))
            case.check(plans[place](case.first, case.second))
        return worker

    with ThreadPoolExecutor(8) as executor:
        assert sorted(executor.map(work, range(8))) == list(range(8))


def test_threads_may_crowd_out_each_other_s_plans(monkeypatch: pytest.MonkeyPatch) -> None:
    """More geometries than are kept, from many threads at once."""
    monkeypatch.setattr(convgrad.operation, "_KEPT_PLANS", 3)
    operation = Case(CONV).operation()
    arrays = [(np.ones((n, 2, 7, 6), np.float32), np.ones((n, 3, 3, 4), np.float32)) for n in range(1, 13)]
    barrier = threading.Barrier(8)

    def work(worker: int) -> int:
        barrier.wait()
        for turn in range(500):
            n = (worker * 5 + turn) % len(arrays)
            assert operation(*arrays[n])[0, 0, 0, 0] == 12 * (n + 1)
        return worker

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        with ThreadPoolExecutor(8) as executor:
            assert sorted(executor.map(work, range(8))) == list(range(8))
    finally:
        sys.setswitchinterval(interval)


# ------------------------------------------------------------------------------------------------ number of threads


@pytest.fixture
def _threads() -> Iterator[None]:
    before = convgrad.get_num_threads()
    yield
    convgrad.set_num_threads(before)


@pytest.mark.usefixtures("_threads")
def test_the_number_of_threads_can_be_set_and_read() -> None:
    numbers: tuple[Any, ...] = (1, 2, 7, np.int64(3), Step.TWO)
    for number in numbers:
        convgrad.set_num_threads(number)
        assert convgrad.get_num_threads() == number
        assert isinstance(convgrad.get_num_threads(), int)
    convgrad.set_num_threads(2)
    case = Case(CONV0)
    numbers = (1, 3, np.int32(2), 1024)
    for number in numbers:
        case.check(case.operation()(case.first, case.second, num_threads=number))
        assert convgrad.get_num_threads() == 2, "the number of one call has stayed"


# ------------------------------------------------------------------------------------------------- a fresh process


def _python(code: str) -> str:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    command = [sys.executable, "-W", "error", "-c", code]
    child = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120, check=False)
    assert child.returncode == 0, child.stderr
    return child.stdout


def test_an_import_loads_no_torch_and_compiles_nothing() -> None:
    code = """
import sys
import convgrad
operation = convgrad.ConvolutionBackwardWeights(strides=(1,), pads_begin=(0,), pads_end=(0,), dilations=(1,))
others = ("torch", "jinja2", "pydantic", "specs", "codegen", "setuptools", "threadpoolctl")
print([name for name in others if name in sys.modules])
"""
    assert _python(code).strip() == "[]"


def test_a_first_call_from_a_warm_cache_takes_little_memory() -> None:
    case = Case(CONV)
    case.check(case.operation()(case.first, case.second))
    code = f"""
import tracemalloc
import numpy as np
import convgrad
operation = {case.operation()!r}
src, diff_dst = np.ones({case.first.shape}, np.float32), np.ones({case.second.shape}, np.float32)
tracemalloc.start()
operation(src, diff_dst)
print(tracemalloc.get_traced_memory()[1])
"""
    code = code.replace(f"operation = {CONV}", f"operation = convgrad.{CONV}")
    assert int(_python(code)) < 16 * 2**20


def test_types_that_are_not_taken_keep_their_names_in_the_errors() -> None:
    case = Case(CONV)
    with pytest.raises(DTypeError, match=r"src has dtype float64; expected one of f32 \(float32\), bf16"):
        case.operation()(case.first.astype(np.float64), case.second)
    with pytest.raises(SpecError, match=r"^ConvolutionBackwardWeights: strides is required: "):
        convgrad.ConvolutionBackwardWeights()
