# SPDX-License-Identifier: Apache-2.0
"""The oracle against itself and against numbers worked out by hand; the generators against what they promise."""

from __future__ import annotations

import collections
import math
from types import SimpleNamespace
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from reference import geometries, integer_data
from reference.geometries import AUTO_PADS, CHANNEL_KINDS, DTYPES, OPERATIONS, WORDS, Cell, Problem, SeededDraw
from reference.naive_gradient import FAMILIES, convolution_pads, reference_gradient, transposed_pads
from reference.rounding import correctly_rounded
from reference.specified_operation import family_of, specified_gradient
from specs import load_operations


def _terms(problem: Problem) -> int:
    return math.prod(problem.weights_shape) * problem.batch * math.prod(problem.plain_extents)


@pytest.mark.parametrize("op", OPERATIONS)
def test_both_writings_of_each_sum_agree(op: str) -> None:
    counted: collections.Counter[str] = collections.Counter()
    rng = np.random.default_rng(7)
    draw = SeededDraw(f"tiny {op}")
    for _ in range(4):
        for cell in geometries.all_cells((op,), dtypes=("f32",)):
            problem = geometries.draw_problem(draw, cell, tensor_budget=30)
            if _terms(problem) > 2500:
                continue
            x, y = rng.standard_normal(problem.source_shape), rng.standard_normal(problem.delta_shape)
            arguments = (op, x, y, problem.weights_shape, problem.attributes)
            literal, sliced = reference_gradient(*arguments, by_element=True), reference_gradient(*arguments)
            np.testing.assert_allclose(sliced.magnitude, literal.magnitude, rtol=1e-13, atol=0, err_msg=str(problem))
            assert np.all(np.abs(sliced.gradient - literal.gradient) <= 1e-13 * literal.magnitude), str(problem)
            counted[f"{cell.rank}"] += 1
            counted[f"{cell.channels}"] += 1
            counted["document layout"] += problem.document_layout
    assert all(counted[str(rank)] >= 20 for rank in geometries.RANKS), counted
    assert all(counted[kind] >= 10 for kind in CHANNEL_KINDS), counted
    assert counted["document layout"] >= 10 or op != "ConvTransposeBackwardWeights", counted


def test_a_convolution_by_hand() -> None:
    # I = 4, K = 2, s = 2, d = 2, pb = 1: o*2 + k*2 - 1 is (-1, 1) for k = 0 and (1, 3) for k = 1.
    x, y = [[[1.0, 2.0, 3.0, 5.0]]], [[[7.0, -11.0]]]
    attributes = {
        "strides": (2,),
        "pads_begin": (1,),
        "pads_end": (1,),
        "dilations": (2,),
        "data_format": "NCX",
        "weights_format": "OIX",
    }
    total = reference_gradient("ConvolutionBackwardWeights", x, y, (1, 1, 2), attributes)
    np.testing.assert_array_equal(total.gradient, [[[2 * -11, 2 * 7 + 5 * -11]]])
    np.testing.assert_array_equal(total.magnitude, [[[2 * 11, 2 * 7 + 5 * 11]]])


def test_a_transposed_convolution_by_hand() -> None:
    # I = 2, K = 3, s = 2, pb = 1, O = (2-1)*2 + 3 - 1 - 1 = 3: i*2 + k - 1 is (-1, 1), (0, 2), (1, 3).
    x, y = [[[3.0, 5.0]]], [[[7.0, 11.0, 13.0]]]
    attributes = {
        "strides": (2,),
        "pads_begin": (1,),
        "pads_end": (1,),
        "dilations": (1,),
        "data_format": "NCX",
        "weights_format": "IOX",
    }
    total = reference_gradient("ConvTransposeBackwardWeights", x, y, (1, 1, 3), attributes)
    np.testing.assert_array_equal(total.gradient, [[[5 * 11, 3 * 7 + 5 * 13, 3 * 11]]])


def test_grouped_transposed_weights_by_hand() -> None:
    # IC = 4, OC = 2, G = 2, every spatial extent 1: element = x[ic] * y[oc] for the pairs within one group.
    x, y = np.array([[[2.0], [3.0], [5.0], [7.0]]]), np.array([[[11.0], [13.0]]])
    attributes: dict[str, Any] = {
        "strides": (1,),
        "pads_begin": (0,),
        "pads_end": (0,),
        "dilations": (1,),
        "groups": 2,
        "data_format": "NCX",
    }
    current = "ConvTransposeBackwardWeights"
    library = reference_gradient(current, x, y, (4, 1, 1), attributes | {"weights_format": "IOX"}).gradient
    np.testing.assert_array_equal(library[:, :, 0], [[22], [33], [65], [91]])
    document = reference_gradient(current, x, y, (2, 2, 1), attributes | {"weights_format": "IOX"}).gradient
    np.testing.assert_array_equal(document[:, :, 0], [[22, 65], [33, 91]])
    former = reference_gradient(
        "ConvTransposeBackpropFilters", x, y, (1, 4, 1), attributes | {"filter_format": "OIX"}
    ).gradient
    np.testing.assert_array_equal(former[:, :, 0], [[22, 33, 65, 91]])


@pytest.mark.parametrize(
    ("auto_pad", "extent", "effective", "stride", "expected"),
    [
        ("same_upper", 5, 3, 1, (1, 1)),
        ("same_upper", 4, 3, 2, (0, 1)),
        ("SAME_LOWER", 4, 3, 2, (1, 0)),
        ("same_upper", 5, 3, 2, (1, 1)),
        ("same_lower", 3, 4, 1, (2, 1)),
        ("same_upper", 3, 2, 5, (0, 0)),
        ("Valid", 9, 3, 2, (0, 0)),
        ("none", 9, 3, 2, (4, 6)),
    ],
)
def test_convolution_auto_pad_by_hand(
    auto_pad: str, extent: int, effective: int, stride: int, expected: tuple[int, int]
) -> None:
    assert convolution_pads(auto_pad, extent, effective, stride, (4, 6)) == expected


@pytest.mark.parametrize(
    ("auto_pad", "effective", "stride", "expected"),
    [
        ("same_upper", 3, 2, (0, 1)),
        ("same_lower", 3, 2, (1, 0)),
        ("same_upper", 5, 1, (2, 2)),
        ("same_upper", 2, 3, (0, 0)),
        ("None", 3, 2, (4, 6)),
    ],
)
def test_transposed_auto_pad_by_hand(auto_pad: str, effective: int, stride: int, expected: tuple[int, int]) -> None:
    assert transposed_pads(auto_pad, effective, stride, (4, 6)) == expected


def test_the_specifications_mean_the_sums_written_by_hand() -> None:
    specified = {operation.name: operation for operation in load_operations()}
    for name, family in FAMILIES.items():
        derived = family_of(specified[name])
        assert derived._replace(format_name=family.format_name) == family


@pytest.mark.parametrize("op", OPERATIONS)
def test_the_oracle_is_the_same_by_name_and_by_specification(op: str) -> None:
    operation = next(row for row in load_operations() if row.name == op)
    rng = np.random.default_rng(3)
    draw = SeededDraw(f"specified {op}")
    compared = 0
    for cell in geometries.all_cells((op,), dtypes=("f32",)):
        problem = geometries.draw_problem(draw, cell, tensor_budget=30)
        x, y = rng.standard_normal(problem.source_shape), rng.standard_normal(problem.delta_shape)
        by_name = reference_gradient(op, x, y, problem.weights_shape, problem.attributes)
        specified = specified_gradient(operation, (x, y), problem.weights_shape, problem.attributes)
        np.testing.assert_array_equal(specified.gradient, by_name.gradient, err_msg=str(problem))
        compared += 1
    assert compared >= 100


def test_the_oracle_refuses_shapes_that_do_not_fit() -> None:
    attributes = {
        "strides": (1,),
        "pads_begin": (0,),
        "pads_end": (0,),
        "dilations": (1,),
        "data_format": "NCX",
        "weights_format": "OIX",
    }
    x, y, same = np.ones((1, 1, 5)), np.ones((1, 1, 4)), np.ones((1, 1, 5))
    with pytest.raises(ValueError, match="'Convolution' is none of ConvolutionBackwardWeights, "):
        reference_gradient("Convolution", x, y, (1, 1, 3), attributes)
    with pytest.raises(ValueError, match="would be 3, the delta has 4"):
        reference_gradient("ConvolutionBackwardWeights", x, y, (1, 1, 3), attributes)
    with pytest.raises(ValueError, match="has no attribute filter_format"):
        reference_gradient("ConvolutionBackwardWeights", x, y, (1, 1, 2), attributes | {"filter_format": "OIX"})
    with pytest.raises(ValueError, match="fit neither reading"):
        reference_gradient("ConvTransposeBackwardWeights", x, same, (3, 1, 1), attributes | {"weights_format": "IOX"})


def _sample() -> list[Problem]:
    return list(geometries.random_problems("sample", 3000))


def test_the_generator_repeats_itself_and_varies() -> None:
    first, second = _sample(), _sample()
    assert first == second
    assert len({str(problem) for problem in first}) >= 2950
    assert first != list(geometries.random_problems("another seed", 3000))


def test_every_drawn_problem_is_valid_and_small() -> None:
    for problem in _sample():
        zeros = np.zeros(problem.source_shape), np.zeros(problem.delta_shape)
        total = reference_gradient(problem.op, *zeros, problem.weights_shape, problem.attributes, magnitude=False)
        assert total.gradient.shape == problem.weights_shape
        assert max(math.prod(problem.source_shape), math.prod(problem.delta_shape)) <= 64 * 3 * 1500, str(problem)
    sizes = sorted(max(math.prod(p.source_shape), math.prod(p.delta_shape)) for p in _sample())
    assert sizes[len(sizes) // 2] <= 6000


def test_the_generator_draws_every_kind_of_trouble() -> None:
    seen: collections.Counter[str] = collections.Counter()
    for p in _sample():
        pads = p.resolved_pads
        effective = [(k - 1) * d + 1 for k, d in zip(p.kernel, p.dilations, strict=True)]
        seen[p.op] += 1
        seen[f"rank {p.rank}"] += 1
        seen[p.dtype] += 1
        seen[p.data_format] += 1
        seen[f"{p.op} {p.weights_format}"] += 1
        seen[p.auto_pad.lower()] += 1
        seen["auto_pad not in lower case"] += p.auto_pad != p.auto_pad.lower()
        seen["asymmetric pads"] += any(begin != end for begin, end in pads)
        seen["pads larger than the windowed tensor"] += any(
            b > n for (b, _), n in zip(pads, p.windowed_extents, strict=True)
        )
        seen["filter larger than the windowed tensor"] += any(
            e > n for e, n in zip(effective, p.windowed_extents, strict=True)
        )
        seen["stride larger than the filter"] += any(s > e for s, e in zip(p.strides, effective, strict=True))
        seen["taps that meet only padding"] += p.empty_taps > 0
        seen["dilated"] += any(d > 1 for d in p.dilations)
        seen["dilation 3"] += 3 in p.dilations
        seen["dilations that differ"] += len(set(p.dilations)) > 1
        seen["groups 3"] += p.groups == 3
        seen["groups 64"] += p.groups == 64
        seen["depthwise with a multiplier"] += p.groups > 1 and p.groups == p.input_channels < p.output_channels
        seen["odd channels"] += p.input_channels % 2 == 1 and p.output_channels % 2 == 1
        seen["output_padding"] += any(p.output_padding or ())
        seen["output_padding of a stride or more"] += any(
            o >= s for o, s in zip(p.output_padding or (), p.strides, strict=False)
        )
        seen["document layout"] += p.document_layout
        seen["library layout of the current transposed op"] += (
            p.op == "ConvTransposeBackwardWeights" and p.groups > 1 and not p.document_layout
        )
        seen["pads left out"] += p.pads_begin is None
        seen["pads that must be ignored"] += p.auto_pad.lower() != "none" and p.pads_begin is not None
        seen["defaults left out"] += p.defaults_left_out
        seen["a filter extent of 7"] += 7 in p.kernel
        seen["a filter of one element"] += math.prod(p.kernel) == 1
        seen["N 1"] += p.batch == 1
        seen["N 4"] += p.batch == 4
        for extent in p.plain_extents:
            seen[f"extent {extent}"] += 1
        if not p.words.transposed:
            reached = [(o - 1) * s + e for o, s, e in zip(p.output_extents, p.strides, effective, strict=True)]
            padded = [n + b + e for n, (b, e) in zip(p.input_extents, pads, strict=True)]
            seen["rows that no window reaches"] += any(r < n for r, n in zip(reached, padded, strict=True))
    expected = [*OPERATIONS, "rank 1", "rank 2", "rank 3", *DTYPES, "NCX", "NXC", *AUTO_PADS]
    expected += [f"{op} {weights_format}" for op in OPERATIONS for weights_format in WORDS[op].formats]
    rare = {f"extent {extent}": seen[f"extent {extent}"] for extent in range(1, 34)}
    assert min(rare.values()) >= 3, rare
    assert all(seen[name] >= 200 for name in expected), {name: seen[name] for name in expected}
    other = {name: count for name, count in seen.items() if name not in expected and not name.startswith("extent ")}
    assert len(other) == 25, sorted(other)
    assert min(other.values()) >= 15, other


def test_a_problem_prints_as_a_call_that_runs() -> None:
    calls: list[tuple[str, tuple[int, ...], tuple[int, ...], tuple[int, ...], dict[str, Any]]] = []

    def recorder(name: str) -> Any:
        def record(x: Any, y: Any, shape: tuple[int, ...], **attributes: Any) -> None:
            calls.append((name, x.shape, y.shape, shape, attributes))

        return record

    names: dict[str, Any] = {
        "np": np,
        "ml_dtypes": ml_dtypes,
        "Problem": Problem,
        "exact_integers": integer_data.exact_integers,
    }
    names["convgrad"] = SimpleNamespace(**{words.function: recorder(words.function) for words in WORDS.values()})
    for seed, p in enumerate(geometries.random_problems("printed", 100)):
        for text in (str(p), p.call_text(integer_data.exact_integers_text(p, seed))):
            assert "\n" not in text
            eval(text, names)
            assert calls.pop() == (p.words.function, p.source_shape, p.delta_shape, p.weights_shape, p.attributes)


@pytest.mark.parametrize("dtype", DTYPES)
def test_integer_data_is_exact_in_any_order(dtype: str) -> None:
    rng = np.random.default_rng(3)
    long = Problem(
        "ConvolutionBackwardWeights",
        dtype,
        "NXC",
        "OIX",
        3,
        2,
        2,
        1,
        (40_001,),
        (40_000,),
        (2,),
        (1,),
        (1,),
        "none",
        (0,),
        (0,),
    )
    nonzero = 0
    problems = [*geometries.random_problems("exact", 300, dtypes=(dtype,)), long]
    for seed, problem in enumerate(problems):
        x, y = integer_data.exact_integers(problem, seed)
        assert x.dtype == y.dtype == DTYPES[dtype]
        assert np.all(np.isfinite(x.astype(np.float64))), "a value overflowed its type"
        total = reference_gradient(problem.op, x, y, problem.weights_shape, problem.attributes)
        unit = _unit(x) * _unit(y)
        # In units every term is an integer, and the sum of magnitudes bounds each partial sum.
        assert total.magnitude.max() <= integer_data.EXACT_LIMIT[dtype] * unit, str(problem)
        np.testing.assert_array_equal(total.gradient.astype(DTYPES[dtype]).astype(np.float64), total.gradient)
        nonzero += integer_data.mostly_nonzero(total.gradient)
    assert nonzero >= 0.6 * len(problems), f"only {nonzero} of {len(problems)} say anything"
    x, y = integer_data.exact_integers(long, 1)
    terms = (x[:, :40_000, :1] * y[:, :, :1]).astype(np.float32).ravel()
    sums = {float(np.cumsum(rng.permutation(terms), dtype=np.float32)[-1]) for _ in range(20)}
    assert len(sums) == 1, sums


def _unit(tensor: Any) -> float:
    """The largest power of two that divides every value, but at least the smallest magnitude's own."""
    values = np.abs(tensor.astype(np.float64))
    values = values[values > 0]
    mantissa, exponent = np.frexp(values)
    trailing = [int(m * 2**24) & -int(m * 2**24) for m in mantissa]
    return float(min(np.ldexp(low / 2**24, int(e)) for low, e in zip(trailing, exponent, strict=True)))


def test_cells_are_the_whole_cross_product() -> None:
    cells = list(geometries.all_cells())
    assert len(cells) == len(set(cells)) == 4 * 3 * 3 * 2 * 2 * 3 * 2 * 4
    assert cells[0] == Cell("ConvolutionBackwardWeights", 1, "f32", "NCX", "XIO", "dense", False, "none")
    dilated = geometries.draw_problem(
        SeededDraw(1), Cell("ConvolutionBackwardWeights", 3, "f32", "NCX", "XIO", "depthwise", True, "valid")
    )
    assert max(dilated.dilations) > 1
    assert dilated.groups == dilated.input_channels


def test_rounding_agrees_with_the_machine_where_it_rounds_once() -> None:
    rng = np.random.default_rng(5)
    values = rng.standard_normal(100_000) * np.exp2(rng.uniform(-160, 140, 100_000))
    with np.errstate(over="ignore"):
        np.testing.assert_array_equal(correctly_rounded(values, "f32"), values.astype(np.float32))
        np.testing.assert_array_equal(correctly_rounded(values, "f16"), values.astype(np.float16))
    exact = rng.standard_normal(100_000).astype(np.float32)  # one step from here, so the library's cast rounds once too
    np.testing.assert_array_equal(correctly_rounded(exact.astype(np.float64), "bf16"), exact.astype(ml_dtypes.bfloat16))


def test_rounding_by_hand() -> None:
    half = 2.0**-8  # half a unit of bf16 at one
    values = np.array(
        [
            1 + half,
            1 + 3 * half,
            1 + half + 2.0**-40,
            -(1 + half - 2.0**-40),
            2.0**-134,
            2.0**-133,
            np.inf,
            np.nan,
            3.4e38,
        ]
    )
    expected = np.array([1.0, 1 + 4 * half, 1 + 2 * half, -1.0, 0.0, 2.0**-133, np.inf, np.nan, np.inf])
    np.testing.assert_array_equal(correctly_rounded(values, "bf16").astype(np.float64), expected)
    overflow = np.array([65519.999, 65520.0, -65520.0])
    np.testing.assert_array_equal(correctly_rounded(overflow, "f16").astype(np.float64), [65504.0, np.inf, -np.inf])
