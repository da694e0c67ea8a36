# SPDX-License-Identifier: Apache-2.0
"""Exact integers over the whole cross product: not one bit may differ.

The cross product is 4 ops x 3 ranks x 3 types x 2 data layouts x 2 weights layouts x {dense, grouped, depthwise} x
{dense, dilated} x 4 auto_pad = 3,456 cells. Each cell takes problems until ``SHAPES_PER_CELL`` of them *count*: a
case whose gradient is mostly zeros is compared but says little, so it is replaced by another. That makes 36 tests
(op, rank, type) of 96 cells x 3 = 288 counted cases each, 10,368 in all. Each test asserts its own share, so that the
total holds however the tests are spread over processes.
"""

from __future__ import annotations

import itertools
import os

import numpy as np
import pytest

import convgrad
from reference.call_forms import FORMS, call, check_form
from reference.geometries import (
    DTYPES,
    OPERATIONS,
    RANKS,
    Problem,
    SeededDraw,
    all_cells,
    draw_problem,
    random_problems,
)
from reference.integer_data import exact_integers, exact_integers_text, mostly_nonzero
from reference.naive_gradient import reference_gradient

SHAPES_PER_CELL = 3
CELLS_PER_TEST = 2 * 2 * 3 * 2 * 4
COUNTED_PER_TEST = SHAPES_PER_CELL * CELLS_PER_TEST
COUNTED_IN_ALL = len(OPERATIONS) * len(RANKS) * len(DTYPES) * COUNTED_PER_TEST
# Draws of one cell before its generator is called broken.
MOST_DRAWS = 40
# Uncounted problems of any kind (see geometries.draw_cell) that follow the cells of each test.
# CONVGRAD_TEST_SCALE multiplies them for a long run.
FURTHER_PER_TEST = 60 * int(os.environ.get("CONVGRAD_TEST_SCALE", "1"))
REPORTED = 5


def test_the_campaign_is_as_large_as_promised() -> None:
    assert COUNTED_IN_ALL == 10_368
    assert COUNTED_IN_ALL >= 10_000


def _differs(problem: Problem, seed: int, form: str) -> tuple[str | None, bool]:
    """(a report if any element differs from the exact gradient, whether the case counts)."""
    source, delta = exact_integers(problem, seed)
    expected = reference_gradient(
        problem.op, source, delta, problem.weights_shape, problem.attributes, magnitude=False
    ).gradient
    gradient = call(convgrad, problem, form, source, delta)
    check_form(problem, gradient, source)
    # The expected values are values of the type, so the comparison in float64 is one of bits (but for the sign of
    # zero).
    wrong = gradient.astype(np.float64) != expected
    if not wrong.any():
        return None, mostly_nonzero(expected)
    first = tuple(int(i) for i in np.argwhere(wrong)[0])
    text = problem.call_text(exact_integers_text(problem, seed))
    where = f"{int(wrong.sum())} of {wrong.size} elements differ, first at {first}"
    return f"{where}: {gradient[first]}, not {expected[first]} (form {form!r})\n    {text}", False


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("rank", RANKS)
@pytest.mark.parametrize("op", OPERATIONS)
def test_cross_product_is_exact(op: str, rank: int, dtype: str) -> None:
    forms = itertools.cycle(FORMS)
    seeds = itertools.count()
    counted, reports = 0, []
    cells = list(all_cells((op,), (rank,), (dtype,)))
    for cell in cells:
        draw = SeededDraw(f"exact {cell}")
        counted_here = 0
        for _ in range(MOST_DRAWS):
            report, counts = _differs(draw_problem(draw, cell), next(seeds), next(forms))
            if report is not None:
                reports.append(report)
                break
            counted_here += counts
            if counted_here == SHAPES_PER_CELL:
                break
        counted += counted_here
    for problem in random_problems("further exact", FURTHER_PER_TEST, (op,), (rank,), (dtype,)):
        report, _ = _differs(problem, next(seeds), next(forms))
        if report is not None:
            reports.append(report)
    assert not reports, f"{len(reports)} problems are not exact; the first:\n" + "\n".join(reports[:REPORTED])
    assert len(cells) == CELLS_PER_TEST
    assert counted == COUNTED_PER_TEST, f"{counted} cases counted, {COUNTED_PER_TEST} promised"


def _long(op: str, dtype: str, data_format: str) -> Problem:
    """120,000 products per element; a chain that drops, repeats or rounds a single one is seen."""
    transposed = op.startswith("ConvTranspose")
    long, padded = (60_000,), (120_001,)
    return Problem(
        op=op,
        dtype=dtype,
        data_format=data_format,
        weights_format="XOI" if op == "ConvTransposeBackwardWeights" else "XIO",
        batch=2,
        input_channels=3,
        output_channels=2,
        groups=1,
        input_extents=long if transposed else padded,
        output_extents=padded if transposed else long,
        kernel=(3,),
        strides=(2,),
        dilations=(1,),
        auto_pad="none",
        pads_begin=(0,),
        pads_end=(0,),
    )


@pytest.mark.parametrize("data_format", ["NCX", "NXC"])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("op", OPERATIONS)
def test_long_reductions_are_exact(op: str, dtype: str, data_format: str) -> None:
    problem = _long(op, dtype, data_format)
    assert problem.products == 120_000
    report, counts = _differs(problem, 1, "function")
    assert report is None, report
    assert counts
