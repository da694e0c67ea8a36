# SPDX-License-Identifier: Apache-2.0
"""Bad inputs give their typed error with its exact text, at once, without memory, and leave every tensor as it was.

The rows are in bad_inputs.py. Here, too: bad calls of a plan, bad thread counts, and inputs that crashed other
libraries but are valid.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import time
import tracemalloc
from collections import Counter
from collections.abc import Iterator
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt
import pytest
from generated.bad_inputs import (
    CONV,
    FUNCTIONS,
    ROWS,
    TRAN,
    BadInput,
    Call,
    IndexRaises,
    right_arrays,
    right_attributes,
)

import convgrad
from convgrad import DTypeError, SpecError

LEAST_ROWS = 200
MEDIAN_SECONDS = 0.010
MOST_SECONDS = 0.100
MOST_BYTES = 2**20

CHILD = """
from generated.bad_inputs import ROWS, Call

count = 0
for row in ROWS:
    try:
        Call(row).run()
    except (ValueError, TypeError):
        count += 1
print(count)
"""


def _ids(row: BadInput) -> str:
    return f"{row.item}-{row.id}"


def test_the_table_is_as_large_as_promised() -> None:
    assert len(ROWS) >= LEAST_ROWS
    assert len({row.id for row in ROWS}) == len(ROWS), "two rows have one name"
    assert set(Counter(row.item for row in ROWS)) == set(range(1, 16)), "a point of the list of validators has no row"
    per_operation, per_rank = Counter(row.op for row in ROWS), Counter(row.rank for row in ROWS)
    assert set(per_operation) == set(FUNCTIONS) and min(per_operation.values()) >= 40, per_operation
    assert set(per_rank) == {1, 2, 3} and min(per_rank.values()) >= 30, per_rank


@pytest.mark.parametrize("rank", [1, 2, 3])
@pytest.mark.parametrize("op", FUNCTIONS)
def test_the_calls_that_rows_change_are_right(op: str, rank: int) -> None:
    """Otherwise a row could fail for a reason that is not its own."""
    call = Call(BadInput("right", 0, op, rank, "", SpecError, {}))
    before = call.memory()
    assert call.run() is call.out
    assert call.memory()[0] != before[0], "the gradient was not written, so an untouched out would prove nothing"
    assert call.memory()[1:] == before[1:]


@pytest.mark.parametrize("row", ROWS, ids=_ids)
def test_bad_input(row: BadInput) -> None:
    call = Call(row)
    before = call.memory()
    with pytest.raises((ValueError, TypeError)) as caught:
        call.run()
    assert type(caught.value) is row.error
    assert str(caught.value) == row.text
    assert call.memory() == before, "out or an input was changed"

    tracemalloc.start()
    try:
        with pytest.raises(row.error):
            call.run()
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak <= MOST_BYTES, f"{peak} bytes were allocated for an error"


@pytest.mark.parametrize("row", [row for row in ROWS if "prepare" not in row.changes and row.item != 1], ids=_ids)
def test_functions_give_the_same_errors(row: BadInput) -> None:
    """But for how many entries a shape has: as a list it is the attribute, and there strides decide the number."""
    call = Call(row)
    before = call.memory()
    with pytest.raises((ValueError, TypeError)) as caught:
        call.run_function()
    assert type(caught.value) is (TypeError if row.error is TypeError else row.error)
    if row.error is TypeError:
        assert str(caught.value) == row.text.replace(f"{row.op}.__init__", FUNCTIONS[row.op])
    elif " entries; expected " in row.text:
        assert " entries; expected " in str(caught.value)
    else:
        assert str(caught.value) == row.text
    assert call.memory() == before, "out or an input was changed"


def test_errors_come_at_once() -> None:
    seconds: dict[str, float] = {}
    for row in ROWS:
        call = Call(row)
        for _ in range(3):  # the first one may compile a kernel; a busy machine may delay one
            start = time.perf_counter()
            with pytest.raises(row.error):
                call.run()
            elapsed = time.perf_counter() - start
            seconds[row.id] = min(elapsed, seconds.get(row.id, elapsed))
    assert statistics.median(seconds.values()) < MEDIAN_SECONDS
    slow = {name: elapsed for name, elapsed in seconds.items() if elapsed > MOST_SECONDS}
    assert not slow


def test_no_bad_input_ends_the_process() -> None:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    command = [sys.executable, "-X", "faulthandler", "-c", CHILD]
    child = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300, check=False)
    assert child.returncode == 0, f"ended by {child.returncode}:\n{child.stderr}"
    assert child.stdout.strip() == str(len(ROWS))


# ------------------------------------------------------------------------------------------------- a plan's own errors


def _plan(**options: Any) -> tuple[convgrad.Plan, npt.NDArray[Any], npt.NDArray[Any]]:
    src, diff_dst = right_arrays(CONV, 2)
    operation = convgrad.ConvolutionBackwardWeights(**right_attributes(CONV, 2))
    return operation.prepare(src, diff_dst, **options), src, diff_dst


def _misfits() -> Iterator[tuple[str, dict[str, Any], type[Exception], str]]:
    src, diff_dst = right_arrays(CONV, 2)
    f32, bf16 = np.dtype(np.float32), np.dtype(ml_dtypes.bfloat16)
    yield "src-shape", {"src": src[:1]}, SpecError, "src has shape (1, 4, 5, 6); this plan is for (2, 4, 5, 6)"
    yield (
        "diff-dst-shape",
        {"diff_dst": diff_dst[:, :3].copy()},
        SpecError,
        "diff_dst has shape (2, 3, 3, 5); this plan is for (2, 6, 3, 5)",
    )
    yield (
        "src-flat",
        {"src": src.reshape(-1)},
        SpecError,
        "src has shape (240,); this plan is for (2, 4, 5, 6)",
    )
    yield (
        "exchanged",
        {"src": diff_dst, "diff_dst": src},
        SpecError,
        ("src has shape (2, 6, 3, 5); this plan is for (2, 4, 5, 6)"),
    )
    yield "src-bf16", {"src": src.astype(bf16)}, DTypeError, f"src has dtype {bf16}; this plan is for {f32}"
    yield (
        "diff-dst-double",
        {"diff_dst": diff_dst.astype(np.float64)},
        DTypeError,
        "diff_dst has dtype float64; this plan is for float32",
    )
    yield "src-swapped", {"src": src.astype(">f4")}, DTypeError, "src has dtype >f4; this plan is for float32"
    yield "src-list", {"src": src.tolist()}, DTypeError, "src is a list; expected a NumPy array or a torch tensor"
    yield (
        "src-gaps",
        {"src": np.repeat(src, 2, axis=3)[..., ::2]},
        SpecError,
        "src is not contiguous (strides of (960, 240, 48, 8) bytes for shape (2, 4, 5, 6)): "
        "call numpy.ascontiguousarray(src) or src.contiguous()",
    )
    yield "out-shape", {"out": np.zeros((6, 4, 6), f32)}, SpecError, "out has shape (6, 4, 6); expected (6, 4, 3, 2)"
    yield (
        "out-double",
        {"out": np.zeros((6, 4, 3, 2))},
        DTypeError,
        "out has dtype float64; expected f32 (float32)",
    )
    yield "threads", {"num_threads": 0}, SpecError, "num_threads = 0: expected an integer from 1 to 1024"


@pytest.mark.parametrize(("changes", "error", "text"), [pytest.param(*row[1:], id=row[0]) for row in _misfits()])
def test_what_does_not_fit_a_plan(changes: dict[str, Any], error: type[Exception], text: str) -> None:
    plan, src, diff_dst = _plan()
    out = np.full((6, 4, 3, 2), -1.5, np.float32)
    arguments = {"src": src, "diff_dst": diff_dst, "out": out, **changes}
    with pytest.raises(error) as caught:
        plan(arguments.pop("src"), arguments.pop("diff_dst"), **arguments)
    assert type(caught.value) is error
    assert str(caught.value) == (text if text.startswith("num_threads") else f"{CONV}: {text}")
    assert (out == -1.5).all()


def test_a_plan_that_accumulates_needs_out() -> None:
    plan, src, diff_dst = _plan(accumulate=True)
    with pytest.raises(SpecError, match=r"^ConvolutionBackwardWeights: accumulate needs an out to add to; expected"):
        plan(src, diff_dst)


# --------------------------------------------------------------------------------------------------------- threads


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        pytest.param(0, "0", id="zero"),
        pytest.param(-1, "-1", id="negative"),
        pytest.param(1025, "1025", id="many"),
        pytest.param(2**31, str(2**31), id="2**31"),
        pytest.param(2**64, str(2**64), id="2**64"),
        pytest.param(10**5000, f"an integer of {(10**5000).bit_length()} bits", id="5000-digits"),
        pytest.param(True, "True", id="bool"),
        pytest.param(np.True_, "np.True_", id="numpy-bool"),
        pytest.param(1.0, "1.0", id="float"),
        pytest.param(float("nan"), "nan", id="nan"),
        pytest.param("2", "'2'", id="str"),
        pytest.param(None, "None", id="none"),
        pytest.param([2], "[2]", id="list"),
        pytest.param(np.array([1, 2]), "array([1, 2])", id="array"),
        pytest.param(IndexRaises(), "IndexRaises()", id="index-raises"),
        pytest.param(int, "<class 'int'>", id="type"),
    ],
)
def test_set_num_threads_refuses(value: Any, shown: str) -> None:
    before = convgrad.get_num_threads()
    with pytest.raises(SpecError) as caught:
        convgrad.set_num_threads(value)
    assert str(caught.value) == f"num_threads = {shown}: expected an integer from 1 to 1024"
    assert convgrad.get_num_threads() == before


# ------------------------------------------------------------------- what crashed others, and is valid all the same


def test_same_padding_under_a_huge_dilation() -> None:
    """pytorch#143480 (segmentation fault): only the middle tap meets the input."""
    rng = np.random.default_rng(1)
    src = rng.integers(-3, 4, (10, 10, 9)).astype(np.float32)
    diff_dst = rng.integers(-3, 4, (10, 2, 9)).astype(np.float32)
    gradient = convgrad.convolution_backward_weights(
        src, diff_dst, (2, 10, 9), strides=(1,), dilations=(2**31,), auto_pad="same_upper",
        data_format="NCX", weights_format="OIX",
    )  # fmt: skip
    expected = np.zeros((2, 10, 9))
    expected[:, :, 4] = np.einsum("nix,nox->oi", src, diff_dst, dtype=np.float64)
    np.testing.assert_array_equal(gradient, expected)


def test_output_padding_beyond_the_stride() -> None:
    """pytorch#5112 (segmentation fault): output_padding 1 with stride 1 and dilation 2."""
    src, diff_dst = np.ones((1, 4, 1, 1), np.float32), np.arange(36, dtype=np.float32).reshape(1, 1, 6, 6)
    gradient = convgrad.conv_transpose_backward_weights(
        src, diff_dst, (4, 1, 3, 3), strides=(1, 1), pads_begin=(0, 0), pads_end=(0, 0), dilations=(2, 2),
        output_padding=(1, 1), data_format="NCX", weights_format="IOX",
    )  # fmt: skip
    expected = np.broadcast_to(diff_dst[0, 0, 0:5:2, 0:5:2], (4, 1, 3, 3))
    np.testing.assert_array_equal(gradient, expected)


def test_strides_of_any_size_over_one_position() -> None:
    """A single output position: the stride multiplies nothing, however large."""
    src, diff_dst = np.arange(6, dtype=np.float32).reshape(1, 1, 6), np.full((1, 1, 1), 2, np.float32)
    gradient = convgrad.convolution_backward_weights(
        src, diff_dst, (1, 1, 3), strides=(2**40,), pads_begin=(0,), pads_end=(0,), dilations=(1,),
        data_format="NCX", weights_format="OIX",
    )  # fmt: skip
    np.testing.assert_array_equal(gradient, [[[0, 2, 4]]])


@pytest.mark.parametrize(
    ("src", "diff_dst", "shape", "data_format"),
    [
        pytest.param((2**28, 3, 56, 56), (2**28, 64, 56, 56), (64, 3, 1, 1), "NCX", id="oneDNN#1106"),
        pytest.param((1, 32, 134217732), (1, 1, 134217730), (1, 32, 3), "NCX", id="oneDNN#2628"),
        pytest.param((1, 134217732, 32), (1, 134217730, 1), (1, 32, 3), "NXC", id="oneDNN#2628-channels-last"),
        pytest.param((0, 2**20, 2**20, 2), (0, 1, 2**20, 2), (1, 2**20, 1, 1), "NCX", id="empty-batch"),
    ],
)
def test_sizes_beyond_32_bits_are_planned(
    src: tuple[int, ...], diff_dst: tuple[int, ...], shape: tuple[int, ...], data_format: str
) -> None:
    rank = len(shape) - 2
    operation = convgrad.ConvolutionBackwardWeights(
        strides=(1,) * rank, dilations=(1,) * rank, auto_pad="valid", data_format=data_format, weights_format="OIX"
    )
    operation.prepare((1,) * len(src), (1,) * len(src), (1,) * len(src), dtype="bf16")  # loads the kernel
    tracemalloc.start()
    try:
        plan = operation.prepare(src, diff_dst, shape, dtype="bf16")
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert (plan.geometry.N, plan.geometry.weights_shape) == (src[0], shape)
    assert peak < MOST_BYTES


def test_a_subclass_gets_the_memory_that_it_has() -> None:
    """What an array is, not what it says of itself, decides; the caller's own object comes back."""
    src, diff_dst = right_arrays(TRAN, 2)
    operation = convgrad.ConvTransposeBackwardWeights(**right_attributes(TRAN, 2))
    expected = operation(src, diff_dst)
    out = np.zeros((4, 6, 3, 2), np.float32).view(np.recarray)
    assert operation(src.view(np.recarray), diff_dst, out=out) is out
    np.testing.assert_array_equal(np.asarray(out), expected)
