# SPDX-License-Identifier: Apache-2.0
"""Random real data against the float64 oracle.

f32: every element within 32 * u * S, u = 2**-24, S = sum of |x * y| over the element's own terms, however long the
sum and whatever the data; constant and all-positive data are where long chains of float32 additions drift. bf16, f16:
sums in float32 and one rounding give the correctly rounded float64 result but for a few elements near a tie.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import convgrad
from reference.call_forms import FORMS, call, check_form
from reference.geometries import (
    DTYPES,
    OPERATIONS,
    RANKS,
    Problem,
    SeededDraw,
    draw_cell,
    draw_problem,
    random_problems,
)
from reference.naive_gradient import Sum, reference_gradient
from reference.rounding import correctly_rounded

Tensor = npt.NDArray[Any]

UNIT_ROUNDOFF = 2.0**-24
F32_BOUND = 32 * UNIT_ROUNDOFF
# CONVGRAD_TEST_SCALE=25 makes this the long run of 51,000 random problems.
SCALE = int(os.environ.get("CONVGRAD_TEST_SCALE", "1"))
PROBLEMS_PER_TEST = 170 * SCALE  # x 4 operations x 3 ranks = 2,040
DATA_KINDS = ("normal", "positive", "constant")

# Share of elements that may miss the correctly rounded result.
ROUNDING_MISSES = {"bf16": 0.0005, "f16": 0.005}
LOW_PRECISION_PROBLEMS = 60
LEAST_ELEMENTS = 30_000

HYPOTHESIS_EXAMPLES = 150 * SCALE


def random_tensors(problem: Problem, kind: str, seed: int) -> tuple[Tensor, Tensor]:
    """(source, delta): N(0, 1), uniform in (0, 1], or one constant each."""
    rng = np.random.default_rng(seed)
    tensors = []
    for shape in (problem.source_shape, problem.delta_shape):
        if kind == "normal":
            values = rng.standard_normal(shape)
        elif kind == "positive":
            values = 1.0 - rng.random(shape)
        elif kind == "constant":
            values = np.full(shape, rng.uniform(0.05, 1.0))
        else:
            raise ValueError(f"kind: {kind!r} is none of {', '.join(DATA_KINDS)}")
        tensors.append(values.astype(DTYPES[problem.dtype]))
    return tensors[0], tensors[1]


def _describe(problem: Problem, kind: str, seed: int, form: str) -> str:
    return f"random_tensors({problem!r}, {kind!r}, {seed}), form {form!r}: {problem}"


def _expected(problem: Problem, source: Tensor, delta: Tensor) -> Sum:
    return reference_gradient(problem.op, source, delta, problem.weights_shape, problem.attributes)


def _beyond_bound(problem: Problem, gradient: Tensor, expected: Sum) -> str | None:
    """A report if an f32 gradient leaves its bound, NaN included."""
    error = np.abs(gradient.astype(np.float64) - expected.gradient)
    inside = error <= F32_BOUND * expected.magnitude
    if inside.all():
        return None
    worst = tuple(int(i) for i in np.argwhere(~inside)[0])
    units = error[worst] / (UNIT_ROUNDOFF * expected.magnitude[worst]) if expected.magnitude[worst] else np.inf
    where = f"{int((~inside).sum())} of {inside.size} elements, first at {worst}"
    return f"{where}: {units:.1f} u*S off, in at most {problem.products} products"


def test_the_campaign_is_as_large_as_promised() -> None:
    assert PROBLEMS_PER_TEST * len(OPERATIONS) * len(RANKS) >= 2000


@pytest.mark.parametrize("rank", RANKS)
@pytest.mark.parametrize("op", OPERATIONS)
def test_f32_stays_within_its_bound(op: str, rank: int) -> None:
    kinds, forms = itertools.cycle(DATA_KINDS), itertools.cycle(FORMS)
    counted, elements = 0, 0
    for seed, problem in enumerate(random_problems("reals", PROBLEMS_PER_TEST, (op,), (rank,), ("f32",))):
        kind, form = next(kinds), next(forms)
        source, delta = random_tensors(problem, kind, seed)
        expected = _expected(problem, source, delta)
        gradient = call(convgrad, problem, form, source, delta)
        check_form(problem, gradient, source)
        report = _beyond_bound(problem, gradient, expected)
        assert report is None, f"{report}\n    {_describe(problem, kind, seed, form)}"
        counted += 1
        elements += int(np.count_nonzero(expected.magnitude))
    assert counted == PROBLEMS_PER_TEST
    assert elements >= 10 * counted, "hardly any element had a term"


def _larger_problems(op: str, dtype: str) -> Iterator[Problem]:
    """Problems with some hundred elements and more each, so that a share of them means something."""
    draw = SeededDraw(f"larger {op} {dtype}")
    found = 0
    while found < LOW_PRECISION_PROBLEMS:
        problem = draw_problem(draw, draw_cell(draw, (op,), dtypes=(dtype,)), tensor_budget=20_000)
        if np.prod(problem.weights_shape) >= 300:
            found += 1
            yield problem


@pytest.mark.parametrize("kind", ["normal", "positive"])
@pytest.mark.parametrize("op", OPERATIONS)
@pytest.mark.parametrize("dtype", ["bf16", "f16"])
def test_low_precision_is_correctly_rounded(dtype: str, op: str, kind: str) -> None:
    forms = itertools.cycle(FORMS)
    elements = misses = 0
    example = "none"
    for seed, problem in enumerate(_larger_problems(op, dtype)):
        form = next(forms)
        source, delta = random_tensors(problem, kind, seed)
        expected = _expected(problem, source, delta)
        gradient = call(convgrad, problem, form, source, delta)
        check_form(problem, gradient, source)
        # What float32 sums within their bound cannot explain is an error, not a rounding near a tie.
        rounded = correctly_rounded(expected.gradient, dtype).astype(np.float64)
        slack = F32_BOUND * expected.magnitude
        low = correctly_rounded(expected.gradient - slack, dtype).astype(np.float64)
        high = correctly_rounded(expected.gradient + slack, dtype).astype(np.float64)
        found = gradient.astype(np.float64)
        assert np.all((low <= found) & (found <= high)), _describe(problem, kind, seed, form)
        touched = expected.magnitude > 0  # an element without a term is 0 and trivially right
        missed = int(np.count_nonzero((found != rounded) & touched))
        if missed:
            example = _describe(problem, kind, seed, form)
        elements += int(np.count_nonzero(touched))
        misses += missed
    assert elements >= LEAST_ELEMENTS, f"{elements} elements say too little"
    assert misses <= ROUNDING_MISSES[dtype] * elements, f"{misses} of {elements} not correctly rounded, e.g. {example}"


def _long_problem(op: str, dtype: str, data_format: str, rank: int) -> Problem:
    """About 130,000 products per element, along one axis (rank 1) or spread over two."""
    transposed = op.startswith("ConvTranspose")
    plain = (66_000,) if rank == 1 else (257, 256)
    windowed = (66_002,) if rank == 1 else (259, 258)
    return Problem(
        op=op,
        dtype=dtype,
        data_format=data_format,
        weights_format="XOI" if op == "ConvTransposeBackwardWeights" else "XIO",
        batch=2,
        input_channels=3,
        output_channels=3,
        groups=1 if rank == 1 else 3,
        input_extents=plain if transposed else windowed,
        output_extents=windowed if transposed else plain,
        kernel=(3,) * rank,
        strides=(1,) * rank,
        dilations=(1,) * rank,
        auto_pad="none",
        pads_begin=(0,) * rank,
        pads_end=(0,) * rank,
    )


@pytest.mark.parametrize("rank", [1, 2])
@pytest.mark.parametrize("data_format", ["NCX", "NXC"])
@pytest.mark.parametrize("op", ["ConvolutionBackwardWeights", "ConvTransposeBackpropFilters"])
@pytest.mark.parametrize("kind", DATA_KINDS)
def test_long_f32_reductions_stay_within_the_bound(kind: str, op: str, data_format: str, rank: int) -> None:
    problem = _long_problem(op, "f32", data_format, rank)
    assert problem.products > 100_000
    source, delta = random_tensors(problem, kind, 11)
    report = _beyond_bound(
        problem, call(convgrad, problem, "function", source, delta), _expected(problem, source, delta)
    )
    assert report is None, f"{report}\n    {_describe(problem, kind, 11, 'function')}"


@pytest.mark.parametrize("rank", [1, 2])
@pytest.mark.parametrize("data_format", ["NCX", "NXC"])
@pytest.mark.parametrize("dtype", ["bf16", "f16"])
def test_long_low_precision_reductions_are_off_by_a_rounding_at_most(dtype: str, data_format: str, rank: int) -> None:
    for kind, seed in itertools.product(("positive", "constant"), (1, 2)):
        problem = _long_problem("ConvolutionBackwardWeights", dtype, data_format, rank)
        source, delta = random_tensors(problem, kind, seed)
        expected = _expected(problem, source, delta)
        found = call(convgrad, problem, "function", source, delta).astype(np.float64)
        slack = F32_BOUND * expected.magnitude
        low = correctly_rounded(expected.gradient - slack, dtype).astype(np.float64)
        high = correctly_rounded(expected.gradient + slack, dtype).astype(np.float64)
        assert np.all((low <= found) & (found <= high)), _describe(problem, kind, seed, "function")


class HypothesisDraw:
    """The generator's numbers from hypothesis, which then shrinks a failure to small extents."""

    def __init__(self, data: st.DataObject) -> None:
        self._data = data

    def integer(self, low: int, high: int) -> int:
        return self._data.draw(st.integers(low, high))


@settings(
    max_examples=HYPOTHESIS_EXAMPLES,
    deadline=None,
    derandomize=bool(os.environ.get("CI")),
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
@given(data=st.data())
def test_any_geometry_any_type(data: st.DataObject) -> None:
    draw = HypothesisDraw(data)
    problem = draw_problem(draw, draw_cell(draw), tensor_budget=1500)
    kind = DATA_KINDS[draw.integer(0, len(DATA_KINDS) - 1)]
    form = FORMS[draw.integer(0, len(FORMS) - 1)]
    seed = draw.integer(0, 1000)
    source, delta = random_tensors(problem, kind, seed)
    expected = _expected(problem, source, delta)
    gradient = call(convgrad, problem, form, source, delta)
    check_form(problem, gradient, source)
    slack = F32_BOUND * expected.magnitude
    found = gradient.astype(np.float64)
    if problem.dtype == "f32":
        inside = np.abs(found - expected.gradient) <= slack
    else:
        low = correctly_rounded(expected.gradient - slack, problem.dtype).astype(np.float64)
        high = correctly_rounded(expected.gradient + slack, problem.dtype).astype(np.float64)
        inside = (low <= found) & (found <= high)
    assert inside.all(), _describe(problem, kind, seed, form)
