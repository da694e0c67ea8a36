# SPDX-License-Identifier: Apache-2.0
"""The library and our oracle against two implementations that know nothing of either: PyTorch and oneDNN.

PyTorch's autograd works in float64 on any geometry. oneDNN's graph operations (the ones that the documents describe)
work in the types of the documents; on exact integers all must agree to the bit. A peer that is not installed is
skipped by name; what a peer cannot do is counted, and the counts are asserted, so that nothing is skipped in silence.
"""

from __future__ import annotations

import collections
import itertools
from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np
import pytest

import convgrad
from reference.call_forms import FORMS, call
from reference.geometries import DTYPES, OPERATIONS, RANKS, Problem, random_problems
from reference.integer_data import exact_integers, exact_integers_text
from reference.naive_gradient import reference_gradient
from reference.onednn_peer import OneDnnProcess, PeerMissingError, PeerRefusedError, exclusion

if TYPE_CHECKING:
    from types import ModuleType

pytestmark = pytest.mark.extra

TORCH_PROBLEMS = 100  # x 4 operations x 3 ranks = 1,200
ONEDNN_COMPARED = 60  # x 4 operations x 3 ranks = 720, f32 and bf16, on top of those that are excluded by name
ONEDNN_MOST_DRAWN = 800


def _torch_peer() -> ModuleType:
    pytest.importorskip("torch", reason="the PyTorch peer needs torch==2.13.0")
    from reference import torch_peer

    return torch_peer


@pytest.mark.parametrize("rank", RANKS)
@pytest.mark.parametrize("op", OPERATIONS)
def test_torch_agrees_on_exact_integers(op: str, rank: int) -> None:
    peer = _torch_peer()
    forms = itertools.cycle(FORMS)
    counted: collections.Counter[str] = collections.Counter()
    for seed, problem in enumerate(random_problems("torch", TORCH_PROBLEMS, (op,), (rank,))):
        source, delta = exact_integers(problem, seed)
        theirs = peer.torch_gradient(problem, source.astype(np.float64), delta.astype(np.float64))
        text = problem.call_text(exact_integers_text(problem, seed))
        expected = reference_gradient(op, source, delta, problem.weights_shape, problem.attributes, magnitude=False)
        np.testing.assert_array_equal(expected.gradient, theirs, err_msg=f"the oracle against PyTorch: {text}")
        ours = call(convgrad, problem, next(forms), source, delta).astype(np.float64)
        np.testing.assert_array_equal(ours, theirs, err_msg=f"the library against PyTorch: {text}")
        counted["all"] += 1
        counted["native"] += peer.is_native(problem)
    assert counted["all"] == TORCH_PROBLEMS
    # PyTorch's own padding and output_padding arguments are used often enough, ours (pad, crop) on the rest.
    assert counted["native"] >= 15, counted


@pytest.mark.parametrize("op", OPERATIONS)
def test_torch_agrees_on_real_numbers(op: str) -> None:
    peer = _torch_peer()
    rng = np.random.default_rng(21)
    for problem in random_problems("torch reals", 90, (op,), dtypes=("f32",)):
        source = rng.standard_normal(problem.source_shape).astype(np.float32)
        delta = rng.standard_normal(problem.delta_shape).astype(np.float32)
        theirs = peer.torch_gradient(problem, source, delta)
        total = reference_gradient(op, source, delta, problem.weights_shape, problem.attributes)
        assert np.all(np.abs(total.gradient - theirs) <= 1e-14 * total.magnitude), (
            f"the oracle against PyTorch: {problem}"
        )
        ours = call(convgrad, problem, "function", source, delta).astype(np.float64)
        assert np.all(np.abs(ours - theirs) <= 33 * 2.0**-24 * total.magnitude), (
            f"the library against PyTorch: {problem}"
        )


@pytest.fixture(scope="module")
def onednn() -> Iterator[OneDnnProcess]:
    try:
        process = OneDnnProcess()
    except PeerMissingError as error:
        pytest.skip(f"the oneDNN peer: {error}")
    with process:
        yield process


@pytest.mark.parametrize("rank", RANKS)
@pytest.mark.parametrize("op", OPERATIONS)
def test_onednn_agrees_on_exact_integers(onednn: OneDnnProcess, op: str, rank: int) -> None:
    forms = itertools.cycle(FORMS)
    counted: collections.Counter[str] = collections.Counter()
    for seed, problem in enumerate(random_problems("onednn", ONEDNN_MOST_DRAWN, (op,), (rank,), ("f32", "bf16"))):
        source, delta = exact_integers(problem, seed)
        text = problem.call_text(exact_integers_text(problem, seed))
        expected = reference_gradient(op, source, delta, problem.weights_shape, problem.attributes, magnitude=False)
        ours = call(convgrad, problem, next(forms), source, delta).astype(np.float64)
        np.testing.assert_array_equal(ours, expected.gradient, err_msg=f"the library against the oracle: {text}")
        reason = exclusion(problem)
        if reason is not None:
            counted["excluded"] += 1
            continue
        # A refusal outside the documented exclusions is an error here: PeerRefusedError is not caught.
        theirs = onednn.gradient(problem, source, delta).astype(np.float64)
        if problem.dtype == "bf16" and (ours != theirs).any():
            # Ours is what the oracle says, to the bit, or this line is not reached: one such error of the peer is
            # let pass.
            counted["bf16 errors of the peer"] += 1
            continue
        np.testing.assert_array_equal(ours, theirs, err_msg=f"the library against oneDNN: {text}")
        counted[problem.dtype] += 1
        if counted["f32"] + counted["bf16"] == ONEDNN_COMPARED:
            break
    assert counted["f32"] + counted["bf16"] == ONEDNN_COMPARED, counted
    assert min(counted["f32"], counted["bf16"]) >= 5, counted
    assert counted["bf16 errors of the peer"] <= 1, counted


@pytest.mark.parametrize("op", OPERATIONS)
def test_onednn_agrees_in_f16_where_the_processor_has_it(onednn: OneDnnProcess, op: str) -> None:
    """oneDNN 3.2 ends its process on f16 without hardware for it: then the first problem says so, and the test is
    skipped by name.
    """
    compared = 0
    for seed, problem in enumerate(random_problems("onednn f16", 60, (op,), dtypes=("f16",))):
        if exclusion(problem) is not None or problem.empty_taps:
            continue
        source, delta = exact_integers(problem, seed)
        try:
            theirs = onednn.gradient(problem, source, delta).astype(np.float64)
        except PeerRefusedError:
            if compared:
                raise
            pytest.skip("oneDNN has no f16 on this processor")
        ours = call(convgrad, problem, "function", source, delta).astype(np.float64)
        np.testing.assert_array_equal(ours, theirs, err_msg=problem.call_text(exact_integers_text(problem, seed)))
        compared += 1
    assert compared >= 10


@pytest.mark.parametrize(("auto_pad", "kernel"), [("same_upper", 3), ("same_lower", 4)])
@pytest.mark.parametrize("op", ["ConvTransposeBackwardWeights", "ConvTransposeBackpropFilters"])
def test_onednn_is_wrong_for_transposed_same_with_a_remainder(
    onednn: OneDnnProcess, op: str, auto_pad: str, kernel: int
) -> None:
    """Why those problems are excluded: I = 3, s = 2, K = 3 gets a pad in oneDNN that belongs to a convolution. We
    agree with PyTorch.
    """
    problem = Problem(
        op=op,
        dtype="f32",
        data_format="NCX",
        weights_format="IOX" if op == "ConvTransposeBackwardWeights" else "OIX",
        batch=1,
        input_channels=2,
        output_channels=2,
        groups=1,
        input_extents=(3, 3),
        output_extents=(6, 6),
        kernel=(kernel, kernel),
        strides=(2, 2),
        dilations=(1, 1),
        auto_pad=auto_pad,
        pads_begin=None,
        pads_end=None,
    )
    assert exclusion(problem) is not None
    source, delta = exact_integers(problem, 1)
    expected = reference_gradient(
        op, source, delta, problem.weights_shape, problem.attributes, magnitude=False
    ).gradient
    np.testing.assert_array_equal(call(convgrad, problem, "function", source, delta), expected)
    theirs = onednn.gradient(problem, source, delta).astype(np.float64)
    assert (theirs != expected).any(), "oneDNN agrees here: the exclusion in onednn_peer.exclusion can go"


def test_onednns_exclusions_are_few_and_by_name() -> None:
    reasons = collections.Counter(
        exclusion(problem) for problem in random_problems("onednn", 2000, dtypes=tuple(d for d in DTYPES if d != "f16"))
    )
    assert set(reasons) == {
        None,
        "transposed SAME, the input is no multiple of the stride",
        "output_padding of a stride or more",
        "bf16 with taps that meet only padding",
        "bf16 with a stride larger than the filter",
        "3-D, the filter is deeper than what it slides over",
    }
    assert reasons[None] >= 1000, reasons
