# SPDX-License-Identifier: Apache-2.0
"""The sum as the specification writes it, interpreted letter by letter, against the reference and the kernels."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

import convgrad
from convgrad.description import Formula
from specs.expressions import evaluate_formula
from specs.index_notation import interpret_sum
from specs.loader import load_operations
from specs.model import Operation, Reading

READINGS = [(operation, reading) for operation in load_operations() for reading in operation.readings]


def small_problem(operation: Operation, reading: Reading, layout: str, rank: int) -> dict[str, Any]:
    """Sizes that differ on every axis, two groups, and padding on one side only."""
    groups, IC, OC = 2, 4, 6
    K, s, d, pb, pe = ((2, 3, 2)[:rank], (2, 1, 3)[:rank], (1, 2, 1)[:rank], (1, 0, 2)[:rank], (0, 2, 1)[:rank])
    eff = [(k - 1) * step + 1 for k, step in zip(K, d, strict=True)]
    if operation.attribute("output_padding") is None:
        I = (5, 6, 4)[:rank]
        O = tuple((i + b + e - f) // step + 1 for i, b, e, f, step in zip(I, pb, pe, eff, s, strict=True))
    else:
        I = (3, 4, 2)[:rank]
        O = tuple((i - 1) * step + f - b - e for i, b, e, f, step in zip(I, pb, pe, eff, s, strict=True))
    sizes = {"IC": IC, "OC": OC}
    shape: list[int] = []
    for axis in reading.layouts[layout]:
        symbol, _, divided = axis.partition("/")
        shape += list(K) if axis == "X" else [sizes[symbol] // groups if divided else sizes[symbol]]
    axes = {"I": I, "O": O, "K": K, "s": s, "d": d, "pb": pb, "pe": pe}
    return {"groups": groups, "IC": IC, "OC": OC, "shape": shape, **axes}


def interpreted(operation: Operation, reading: Reading, layout: str, problem: dict[str, Any], tensors: Any) -> Any:
    """The gradient by the specification's own sum; tensors are NCX."""
    total = reading.sum
    call_values = {name: problem[name] for name in ("IC", "OC", "groups")}
    for definition in operation.definitions:
        if not definition.per_axis:
            call_values[definition.symbol] = evaluate_formula(definition.formula, call_values)
    rank = len(problem["K"])
    axis_values = [{name: problem[name][axis] for name in ("s", "d", "pb")} for axis in range(rank)]

    def element(name: str, n: int, channel: int, position: tuple[int, ...]) -> float:
        array = tensors[name]
        inside = all(0 <= place < extent for place, extent in zip(position, array.shape[2:], strict=True))
        return float(array[(n, channel, *position)]) if inside else 0.0

    (batch, spatial) = total.over
    extents = problem[total.over[spatial]]
    (tap,) = (index for index, axis in total.gradient.items() if axis == "X")
    gradient = np.zeros(problem["shape"])
    channels = {axis: index for index, axis in total.gradient.items() if axis != "X"}
    for place in itertools.product(*(range(extent) for extent in problem["shape"])):
        rest, indices, taps = list(place), {}, ()
        for axis in reading.layouts[layout]:
            if axis == "X":
                taps, rest = tuple(rest[:rank]), rest[rank:]
            else:
                indices[channels[axis]] = rest.pop(0)
        gradient[place] = interpret_sum(
            total.term,
            total.where,
            indices,
            (batch, 2),
            (spatial, extents),
            (tap, taps),
            call_values,
            axis_values,
            element,
        )
    return gradient


@pytest.mark.parametrize("rank", [1, 2])
@pytest.mark.parametrize(
    ("operation", "reading"), READINGS, ids=[f"{operation.name}-{reading.id}" for operation, reading in READINGS]
)
def test_kernels_compute_the_specified_sum(operation: Operation, reading: Reading, rank: int) -> None:
    rng = np.random.default_rng(rank)
    for layout in reading.layouts:
        problem = small_problem(operation, reading, layout, rank)
        first, second = operation.data_inputs
        tensors = {
            row.name: rng.integers(-3, 4, (2, problem[row.channels], *problem[row.spatial])).astype(np.float32)
            for row in (first, second)
        }
        expected = interpreted(operation, reading, layout, problem, tensors)
        assert np.count_nonzero(expected) > expected.size // 2
        weights_format, shape = operation.attribute("weights_format"), operation.attribute("weights_shape")
        assert weights_format is not None and shape is not None
        attributes = {
            "strides": problem["s"],
            "pads_begin": problem["pb"],
            "pads_end": problem["pe"],
            "dilations": problem["d"],
            "groups": problem["groups"],
            "data_format": "NCX",
            weights_format.name: layout,
            shape.name: tuple(problem["shape"]),
        }
        made = getattr(convgrad, operation.name)(**attributes)(tensors[first.name], tensors[second.name])
        np.testing.assert_array_equal(made, expected)


def test_generated_formulas_are_those_of_the_specification() -> None:
    checked = 0
    for operation in load_operations():
        description = getattr(convgrad, operation.name).description
        formulas: list[Formula] = [description.same_total]
        formulas += [definition.formula for definition in description.definitions]
        formulas += [side for rule in description.rules for side in (rule.left, rule.right)]
        for formula, numbers in itertools.product(formulas, itertools.product((1, 2, 5), repeat=3)):
            values = dict(zip(formula.names, itertools.cycle(numbers), strict=False))
            assert formula.evaluate(values) == evaluate_formula(formula.text, values)
            checked += 1
    assert checked >= 800
