# SPDX-License-Identifier: Apache-2.0
"""Patches: kernels that step by their own width, whose taps of a row the planner takes for channels."""

from __future__ import annotations

import itertools

import numpy as np

import convgrad
from convgrad.summation import merge_axes
from reference.naive_gradient import reference_gradient

CHANNELS = (1, 3, 16)
OUTPUTS = (5, 32, 70)
EXTENTS = ((16, 16), (12, 20), (9, 7))
KERNELS = ((4, 4), (2, 4), (4, 2))
STEPS = ((4, 4), (2, 2), (2, 4))


def test_exact_integers() -> None:
    compared = patches = 0
    rng = np.random.default_rng(0)
    for IC, OC, I, K, step in itertools.product(CHANNELS, OUTPUTS, EXTENTS, KERNELS, STEPS):
        O = tuple((i - k) // s + 1 for i, k, s in zip(I, K, step, strict=True))
        for data_format, weights_format in itertools.product(("NXC", "NCX"), ("XIO", "OIX")):
            src_shape = (2, *I, IC) if data_format == "NXC" else (2, IC, *I)
            dst_shape = (2, *O, OC) if data_format == "NXC" else (2, OC, *O)
            shape = (*K, IC, OC) if weights_format == "XIO" else (OC, IC, *K)
            src, delta = (rng.integers(-3, 4, size).astype(np.float32) for size in (src_shape, dst_shape))
            attributes = {
                "strides": step,
                "pads_begin": (0, 0),
                "pads_end": (0, 0),
                "dilations": (1, 1),
                "groups": 1,
                "data_format": data_format,
                "weights_format": weights_format,
            }
            op = convgrad.ConvolutionBackwardWeights(weights_shape=shape, **attributes)  # type: ignore[arg-type]
            plan = op.prepare(src, delta)
            expected = reference_gradient("ConvolutionBackwardWeights", src, delta, shape, attributes).gradient
            assert np.array_equal(plan(src, delta), expected), plan
            assert 2 * np.count_nonzero(expected) >= expected.size
            compared += 1
            patches += merge_axes(plan.geometry).W > plan.geometry.W
    assert compared == 972
    assert patches >= 60
