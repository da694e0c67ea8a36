# SPDX-License-Identifier: Apache-2.0
"""NaN, infinities, subnormals, overflow, ties, empty batches, the floating-point environment, and the same bits
however it is computed.
"""

from __future__ import annotations

import ctypes
import ctypes.util
import itertools
import math
import platform
from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

import convgrad
from reference.call_forms import FORMS, call
from reference.geometries import DATA_FORMATS, DTYPES, OPERATIONS, RANKS, WORDS, Problem, random_problems
from reference.naive_gradient import reference_gradient

Tensor = npt.NDArray[Any]

SMALLEST = {"f32": 2.0**-149, "bf16": 2.0**-133, "f16": 2.0**-24}


def _normal(problem: Problem, seed: int) -> tuple[Tensor, Tensor]:
    rng = np.random.default_rng(seed)
    dtype = DTYPES[problem.dtype]
    return rng.standard_normal(problem.source_shape).astype(dtype), rng.standard_normal(problem.delta_shape).astype(
        dtype
    )


def _gradient(problem: Problem, source: Tensor, delta: Tensor, form: str = "function") -> Tensor:
    return call(convgrad, problem, form, source, delta)


def _bits(tensor: Tensor) -> npt.NDArray[Any]:
    return tensor.view(np.uint32 if tensor.dtype.itemsize == 4 else np.uint16)


def _line(op: str, dtype: str, data_format: str, terms: int, kernel: int = 1) -> Problem:
    """One channel each, one axis, no padding: element k of the gradient sums ``terms`` products of plain[o] and
    windowed[o + k].
    """
    transposed = WORDS[op].transposed
    plain, windowed = (terms,), (terms + kernel - 1,)
    return Problem(
        op=op,
        dtype=dtype,
        data_format=data_format,
        weights_format=WORDS[op].formats[0],
        batch=1,
        input_channels=1,
        output_channels=1,
        groups=1,
        input_extents=plain if transposed else windowed,
        output_extents=windowed if transposed else plain,
        kernel=(kernel,),
        strides=(1,),
        dilations=(1,),
        auto_pad="none",
        pads_begin=(0,),
        pads_end=(0,),
    )


def _sum_of(op: str, dtype: str, data_format: str, xs: list[float], ys: list[float]) -> float:
    """The gradient's one element for the given factors, which must be values of the type."""
    problem = _line(op, dtype, data_format, len(xs))
    source = np.array(xs).astype(DTYPES[dtype]).reshape(problem.source_shape)
    delta = np.array(ys).astype(DTYPES[dtype]).reshape(problem.delta_shape)
    np.testing.assert_array_equal(source.astype(np.float64).ravel(), xs)
    np.testing.assert_array_equal(delta.astype(np.float64).ravel(), ys)
    return float(_gradient(problem, source, delta).astype(np.float64).item())


# --------------------------------------------------------------------------------------------------- NaN and infinity


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("op", OPERATIONS)
def test_nan_and_infinity_reach_exactly_the_elements_they_touch(op: str, dtype: str) -> None:
    counted = touched_some = 0
    specials = itertools.cycle([np.nan, np.inf, -np.inf])
    rng = np.random.default_rng(1)
    for seed, problem in enumerate(random_problems("special", 120, (op,), dtypes=(dtype,))):
        source, delta = _normal(problem, seed)
        clean = _gradient(problem, source, delta)
        tensor = (source, delta)[seed % 2]
        for _ in range(1 + seed % 3):
            tensor.reshape(-1)[rng.integers(tensor.size)] = next(specials)
        arguments = (problem.op, source, delta, problem.weights_shape, problem.attributes)
        with np.errstate(invalid="ignore"):
            expected = reference_gradient(*arguments, magnitude=False).gradient
        found = _gradient(problem, source, delta, FORMS[seed % len(FORMS)])
        finite = np.isfinite(expected)
        np.testing.assert_array_equal(np.isnan(found.astype(np.float64)), np.isnan(expected), err_msg=str(problem))
        np.testing.assert_array_equal(
            found.astype(np.float64)[np.isinf(expected)], expected[np.isinf(expected)], err_msg=str(problem)
        )
        # What no special value touches keeps its very bits.
        np.testing.assert_array_equal(_bits(found)[finite], _bits(clean)[finite], err_msg=str(problem))
        counted += 1
        touched_some += bool((~finite).any() and finite.any())
    assert counted == 120
    assert touched_some >= 40, f"only {touched_some} problems had touched and untouched elements"


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("op", OPERATIONS)
def test_values_that_meet_only_padding_or_nothing_have_no_effect(op: str, dtype: str) -> None:
    """Positions of either tensor that no term reads are found with the oracle, filled with NaN and infinity, and
    must not matter.
    """
    counted = 0
    for seed, problem in enumerate(random_problems("unread", 250, (op,), dtypes=(dtype,))):
        source, delta = _normal(problem, seed)
        # d(sum of the gradient) / d(x): zero exactly where no term reads x. With ones, magnitudes cannot cancel.
        unread_source, unread_delta = _unread(problem)
        if not (unread_source.any() or unread_delta.any()):
            continue
        clean = _gradient(problem, source, delta)
        source[unread_source] = np.nan
        delta[unread_delta] = np.inf
        found = _gradient(problem, source, delta)
        np.testing.assert_array_equal(_bits(found), _bits(clean), err_msg=str(problem))
        counted += 1
    assert counted >= 60, f"only {counted} problems had values that nothing reads"


def _unread(problem: Problem) -> tuple[npt.NDArray[np.bool_], npt.NDArray[np.bool_]]:
    """Which elements of (source, delta) take part in no product, by walking taps over plain Python indices, axis by
    axis.
    """
    read_plain, read_windowed = [], []
    for axis in range(problem.rank):
        plain, windowed = problem.plain_extents[axis], problem.windowed_extents[axis]
        pad = problem.resolved_pads[axis][0]
        stride, dilation = problem.strides[axis], problem.dilations[axis]
        pairs = [
            (o, o * stride + k * dilation - pad)
            for o in range(plain)
            for k in range(problem.kernel[axis])
            if 0 <= o * stride + k * dilation - pad < windowed
        ]
        read_plain.append([any(o == p for o, _ in pairs) for p in range(plain)])
        read_windowed.append([any(i == p for _, i in pairs) for p in range(windowed)])
    masks = []
    for shape, flags in ((problem.source_shape, read_windowed), (problem.delta_shape, read_plain)):
        along = (read_plain if flags is read_windowed else read_windowed) if problem.words.transposed else flags
        read = np.ones(shape, bool)
        for axis, flag in enumerate(along):
            position = axis + (2 if problem.data_format == "NCX" else 1)
            read &= np.array(flag).reshape([-1 if index == position else 1 for index in range(len(shape))])
        masks.append(~read)
    return masks[0], masks[1]


@pytest.mark.parametrize("data_format", DATA_FORMATS)
@pytest.mark.parametrize("op", OPERATIONS)
@pytest.mark.parametrize("pattern", [0x7FFF, 0xFFFF, 0x7F81, 0xFFC1])
def test_any_bf16_nan_stays_a_nan(pattern: int, op: str, data_format: str) -> None:
    """Adding a rounding increment to the bits of a NaN can carry into the sign or leave infinity."""
    problem = _line(op, "bf16", data_format, 5)
    source, delta = np.ones(problem.source_shape, DTYPES["bf16"]), np.ones(problem.delta_shape, DTYPES["bf16"])
    _bits(source).reshape(-1)[2] = pattern
    assert np.isnan(_gradient(problem, source, delta).astype(np.float64)).all()


@pytest.mark.parametrize("data_format", DATA_FORMATS)
@pytest.mark.parametrize("op", OPERATIONS)
@pytest.mark.parametrize("dtype", DTYPES)
def test_infinity_times_zero_is_nan_and_opposite_infinities_too(dtype: str, op: str, data_format: str) -> None:
    assert math.isnan(_sum_of(op, dtype, data_format, [math.inf, 1.0], [0.0, 1.0]))
    assert math.isnan(_sum_of(op, dtype, data_format, [math.inf, math.inf, 1.0], [1.0, -1.0, 1.0]))
    assert _sum_of(op, dtype, data_format, [math.inf, -5.0], [2.0, 3.0]) == math.inf
    assert _sum_of(op, dtype, data_format, [math.inf, -5.0], [-2.0, 3.0]) == -math.inf


# ---------------------------------------------------------------------------------------------- small, large, halfway


@pytest.mark.parametrize("data_format", DATA_FORMATS)
@pytest.mark.parametrize("op", OPERATIONS)
@pytest.mark.parametrize("dtype", DTYPES)
def test_subnormals_are_kept(dtype: str, op: str, data_format: str) -> None:
    tiny = SMALLEST[dtype]
    for terms in (1, 3, 8, 17, 40):
        ones = [1.0] * terms
        # subnormal inputs of either tensor, subnormal results
        assert _sum_of(op, dtype, data_format, [tiny] * terms, ones) == terms * tiny
        assert _sum_of(op, dtype, data_format, ones, [-tiny] * terms) == -terms * tiny
        # subnormal inputs, normal results: flushed inputs would give 0
        assert _sum_of(op, dtype, data_format, [3 * tiny] * terms, [2.0**14] * terms) == 3 * terms * tiny * 2.0**14
    # subnormal products and results of normal inputs
    half = int(math.log2(tiny)) // 2
    assert _sum_of(op, dtype, data_format, [2.0**half] * 3, [2.0 ** (int(math.log2(tiny)) - half)] * 3) == 3 * tiny


@pytest.mark.parametrize("data_format", DATA_FORMATS)
@pytest.mark.parametrize("op", OPERATIONS)
def test_half_a_smallest_subnormal_rounds_to_even(op: str, data_format: str) -> None:
    # f16: 2**-25 is halfway to the smallest subnormal, 3 * 2**-25 halfway between the first and the second.
    assert _sum_of(op, "f16", data_format, [2.0**-12], [2.0**-13]) == 0.0
    assert _sum_of(op, "f16", data_format, [2.0**-12] * 3, [2.0**-13] * 3) == 2.0**-23
    assert _sum_of(op, "f16", data_format, [2.0**-12, 2.0**-24], [2.0**-13, 2.0**-10]) == 2.0**-24
    # bf16: likewise around 2**-133, below float32's normal numbers.
    assert _sum_of(op, "bf16", data_format, [2.0**-70], [2.0**-64]) == 0.0
    assert _sum_of(op, "bf16", data_format, [2.0**-70] * 3, [2.0**-64] * 3) == 2.0**-132
    assert _sum_of(op, "bf16", data_format, [2.0**-70, 2.0**-70], [2.0**-64, 2.0**-78]) == 2.0**-133


@pytest.mark.parametrize("data_format", DATA_FORMATS)
@pytest.mark.parametrize("op", OPERATIONS)
def test_ties_round_to_even(op: str, data_format: str) -> None:
    for dtype, digits in (("bf16", 8), ("f16", 11)):
        unit = 2.0 ** (1 - digits)  # of the result at one
        for sign in (1.0, -1.0):
            assert _sum_of(op, dtype, data_format, [sign, sign * unit], [1.0, 0.5]) == sign
            assert _sum_of(op, dtype, data_format, [sign, sign * 3 * unit], [1.0, 0.5]) == sign * (1 + 2 * unit)
            above = _sum_of(op, dtype, data_format, [sign, sign * unit, sign * unit], [1.0, 0.5, 2.0**-9])
            assert above == sign * (1 + unit)


@pytest.mark.parametrize("data_format", DATA_FORMATS)
@pytest.mark.parametrize("op", OPERATIONS)
def test_overflow_only_at_the_last_rounding(op: str, data_format: str) -> None:
    large = 60_000.0  # f16; the largest finite value is 65504, halfway to the next is 65520
    assert _sum_of(op, "f16", data_format, [large, large, -large], [1.0, 1.0, 1.0]) == large
    assert _sum_of(op, "f16", data_format, [large, -large, 1.0], [large, large, 2.0]) == 2.0
    assert _sum_of(op, "f16", data_format, [65504.0, 15.0], [1.0, 1.0]) == 65504.0
    assert _sum_of(op, "f16", data_format, [65504.0, 15.9921875], [1.0, 1.0]) == 65504.0
    assert _sum_of(op, "f16", data_format, [65504.0, 16.0], [1.0, 1.0]) == math.inf
    assert _sum_of(op, "f16", data_format, [-65504.0, 16.0], [1.0, -1.0]) == -math.inf
    assert _sum_of(op, "f16", data_format, [large], [large]) == math.inf
    top = (2.0 - 2.0**-7) * 2.0**127  # bf16
    assert _sum_of(op, "bf16", data_format, [top, 2.0**118], [1.0, 1.0]) == top
    assert _sum_of(op, "bf16", data_format, [top, 2.0**119], [1.0, 1.0]) == math.inf
    assert _sum_of(op, "bf16", data_format, [-top, -(2.0**119)], [1.0, 1.0]) == -math.inf
    assert _sum_of(op, "f32", data_format, [(2.0 - 2.0**-23) * 2.0**127], [1.0]) == (2.0 - 2.0**-23) * 2.0**127
    assert _sum_of(op, "f32", data_format, [2.0**127], [2.0]) == math.inf


@pytest.mark.parametrize("dtype", DTYPES)
def test_the_sign_of_a_zero_changes_no_other_value(dtype: str) -> None:
    rng = np.random.default_rng(9)
    for seed, problem in enumerate(random_problems("zeros", 60, dtypes=(dtype,))):
        source, delta = _normal(problem, seed)
        for tensor in (source, delta):
            tensor[rng.random(tensor.shape) < 0.4] = 0.0
        first = _gradient(problem, source, delta)
        for tensor in (source, delta):
            tensor[(tensor == 0) & (rng.random(tensor.shape) < 0.5)] = -0.0
        second = _gradient(problem, source, delta)
        np.testing.assert_array_equal(second.astype(np.float64), first.astype(np.float64), err_msg=str(problem))


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("op", OPERATIONS)
def test_an_empty_batch_gives_zeros(op: str, dtype: str, form: str) -> None:
    for problem in random_problems("empty", 9, (op,), dtypes=(dtype,)):
        empty = Problem(**{**vars(problem), "batch": 0})
        source, delta = (np.empty(shape, DTYPES[dtype]) for shape in (empty.source_shape, empty.delta_shape))
        gradient = _gradient(empty, source, delta, form)
        assert gradient.shape == empty.weights_shape
        assert not _bits(gradient).any(), str(empty)


# ------------------------------------------------------------------------------------ the same bits, the same machine


class _FloatEnvironment:
    """The control part of the floating-point environment: rounding mode, flush-to-zero, denormals-are-zero, trap
    masks.
    """

    def __init__(self) -> None:
        self._libm = ctypes.CDLL(ctypes.util.find_library("m"))

    def control_word(self) -> int:
        state = (ctypes.c_uint32 * 64)()
        assert self._libm.fegetenv(ctypes.byref(state)) == 0
        if platform.machine() in ("x86_64", "AMD64"):
            return (
                int(state[7]) & ~0x3F
            )  # MXCSR follows the 28 bytes of the x87 state; its low six bits are sticky flags
        if platform.machine() == "aarch64":
            return int(state[0])  # FPCR
        return int(self._libm.fegetround())

    def set_rounding(self, mode: int) -> None:
        assert self._libm.fesetround(mode) == 0


def _one_of_each_kernel() -> Iterator[Problem]:
    for op, rank, dtype in itertools.product(("ConvolutionBackwardWeights",), RANKS, DTYPES):
        yield from random_problems("environment", 8, (op,), (rank,), (dtype,))


def test_the_floating_point_environment_is_left_alone() -> None:
    environment = _FloatEnvironment()
    before = environment.control_word()
    for seed, problem in enumerate(_one_of_each_kernel()):
        source, delta = _normal(problem, seed)
        _gradient(problem, source, delta)
        assert environment.control_word() == before, str(problem)
    # The machine itself still keeps subnormals in this thread.
    assert float(np.float32(2.0**-149) * np.float32(1.0)) == 2.0**-149


@pytest.mark.skipif(
    platform.machine() not in ("x86_64", "AMD64"), reason="the modes' numbers below are those of x86-64"
)
def test_a_callers_own_rounding_mode_survives_a_call() -> None:
    environment = _FloatEnvironment()
    upward = 0x800
    problem = _line("ConvolutionBackwardWeights", "f32", "NCX", 40)
    source, delta = _normal(problem, 0)
    _gradient(problem, source, delta)
    environment.set_rounding(upward)
    try:
        before = environment.control_word()
        _gradient(problem, source, delta)
        after = environment.control_word()
    finally:
        environment.set_rounding(0)
    assert after == before


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    ("plain_op", "transposed_op"),
    [
        ("ConvolutionBackwardWeights", "ConvTransposeBackwardWeights"),
        ("ConvolutionBackpropFilters", "ConvTransposeBackpropFilters"),
        ("ConvolutionBackwardWeights", "ConvTransposeBackpropFilters"),
    ],
)
def test_the_transposed_form_of_a_sum_has_the_same_bits(plain_op: str, transposed_op: str, dtype: str) -> None:
    """A convolution's gradient is the transposed operation's with the tensors exchanged: dW(oc, j, k) is its dW(ic =
    oc, m = j, k).
    """
    for seed, problem in enumerate(random_problems("two forms", 150, (plain_op,), dtypes=(dtype,))):
        source, delta = _normal(problem, seed)
        pads = problem.resolved_pads
        unreached = tuple(
            n + b + e - ((o - 1) * s + (k - 1) * d + 1)
            for n, o, (b, e), s, k, d in zip(
                problem.input_extents,
                problem.output_extents,
                pads,
                problem.strides,
                problem.kernel,
                problem.dilations,
                strict=True,
            )
        )
        spatial_first = problem.weights_format.startswith("X")
        current = transposed_op == "ConvTransposeBackwardWeights"
        other = Problem(
            op=transposed_op,
            dtype=dtype,
            data_format=problem.data_format,
            weights_format=("XOI" if spatial_first else "IOX") if current else ("XIO" if spatial_first else "OIX"),
            batch=problem.batch,
            input_channels=problem.output_channels,
            output_channels=problem.input_channels,
            groups=problem.groups,
            input_extents=problem.output_extents,
            output_extents=problem.input_extents,
            kernel=problem.kernel,
            strides=problem.strides,
            dilations=problem.dilations,
            auto_pad="none",
            pads_begin=tuple(b for b, _ in pads),
            pads_end=tuple(e for _, e in pads),
            output_padding=unreached,
        )
        first, second = _gradient(problem, source, delta), _gradient(other, delta, source)
        # to [plain channel][windowed channel in the group][K...]
        first = np.moveaxis(first, (-1, -2), (0, 1)) if spatial_first else first
        if current:
            second = np.moveaxis(second, (-1, -2), (0, 1)) if spatial_first else second
        else:
            second = np.moveaxis(second, -2, 0) if spatial_first else second
            second = np.moveaxis(second, -1, 1) if spatial_first else np.moveaxis(second, 1, 0)
        np.testing.assert_array_equal(
            _bits(np.ascontiguousarray(second)), _bits(np.ascontiguousarray(first)), err_msg=f"{problem}\n{other}"
        )


def test_both_readings_of_grouped_transposed_weights_have_the_same_bits() -> None:
    counted = 0
    for seed, problem in enumerate(random_problems("readings", 200, ("ConvTransposeBackwardWeights",))):
        if problem.groups == 1:
            continue
        source, delta = _normal(problem, seed)
        library = _gradient(
            Problem(**{**vars(problem), "document_layout": False, "weights_format": "IOX"}), source, delta
        )
        document = _gradient(
            Problem(**{**vars(problem), "document_layout": True, "weights_format": "IOX"}), source, delta
        )
        g, channels_in, channels_out = (
            problem.groups,
            problem.input_channels // problem.groups,
            problem.output_channels // problem.groups,
        )
        for group in range(g):
            rows = slice(group * channels_in, (group + 1) * channels_in)
            columns = slice(group * channels_out, (group + 1) * channels_out)
            np.testing.assert_array_equal(
                _bits(np.ascontiguousarray(document[:, columns])),
                _bits(np.ascontiguousarray(library[rows])),
                err_msg=str(problem),
            )
        counted += 1
    assert counted >= 100


def _shifted(tensor: Tensor, elements: int) -> Tensor:
    """A copy that starts ``elements`` elements after a 64-byte boundary."""
    size = tensor.dtype.itemsize
    room = np.empty(tensor.nbytes + 128 + elements * size, np.uint8)
    start = -room.ctypes.data % 64 + elements * size
    placed = room[start : start + tensor.nbytes].view(tensor.dtype).reshape(tensor.shape)
    placed[...] = tensor
    assert placed.ctypes.data % 64 == elements * size % 64
    return placed


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("op", OPERATIONS)
def test_alignment_changes_no_bit(op: str, dtype: str) -> None:
    for seed, problem in enumerate(random_problems("alignment", 40, (op,), dtypes=(dtype,))):
        source, delta = _normal(problem, seed)
        operation = getattr(convgrad, op)(**problem.attributes, **{problem.words.shape: problem.weights_shape})
        expected = _bits(operation(_shifted(source, 0), _shifted(delta, 0)))
        for first, second, third in ((1, 0, 0), (0, 1, 0), (0, 0, 1), (3, 5, 7), (15, 9, 11)):
            out = _shifted(np.full(problem.weights_shape, np.nan, source.dtype), third)
            found = operation(_shifted(source, first), _shifted(delta, second), out=out)
            np.testing.assert_array_equal(_bits(found), expected, err_msg=str(problem))


@pytest.fixture
def _threads() -> Iterator[None]:
    before = convgrad.get_num_threads()
    yield
    convgrad.set_num_threads(before)


@pytest.mark.usefixtures("_threads")
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("op", OPERATIONS)
def test_the_number_of_threads_changes_no_bit(op: str, dtype: str) -> None:
    larger = Problem(
        op=op,
        dtype=dtype,
        data_format="NXC" if dtype == "bf16" else "NCX",
        weights_format=WORDS[op].formats[0],
        batch=2,
        input_channels=48,
        output_channels=40,
        groups=1,
        input_extents=(30, 31),
        output_extents=(30, 31),
        kernel=(3, 3),
        strides=(1, 1),
        dilations=(1, 1),
        auto_pad="same_upper",
        pads_begin=None,
        pads_end=None,
    )
    for seed, problem in enumerate([larger, *random_problems("threads", 40, (op,), dtypes=(dtype,))]):
        source, delta = _normal(problem, seed)
        results = []
        for threads in (1, 2, 3, 4):
            convgrad.set_num_threads(threads)
            assert convgrad.get_num_threads() == threads
            results.append(_bits(_gradient(problem, source, delta)))
        for result in results[1:]:
            np.testing.assert_array_equal(result, results[0], err_msg=str(problem))


def test_forms_and_repetitions_give_the_same_bits() -> None:
    for seed, problem in enumerate(random_problems("forms", 150)):
        source, delta = _normal(problem, seed)
        expected = _bits(_gradient(problem, source, delta))
        for form in (*FORMS, "function"):
            np.testing.assert_array_equal(
                _bits(_gradient(problem, source, delta, form)), expected, err_msg=f"{form}: {problem}"
            )
