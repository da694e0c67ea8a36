# SPDX-License-Identifier: Apache-2.0
"""Patches: kernels that step by their own width, whose taps of a row the planner takes for channels."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator

import numpy as np

import convgrad
from convgrad.geometry import Geometry
from convgrad.isa import list_isas
from convgrad.planner import list_schedules, plan_schedule
from convgrad.summation import merge_axes
from reference.kernel_runs import compute, draw_tensors, place_gradient, reference
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


def list_patches() -> Iterator[Geometry]:
    """Problems in NCX whose kernels step by their own width, of one and two axes."""
    rng = random.Random("patches")
    for number in range(80):
        rank = 1 + number % 2
        K, W = (rng.randint(1, 3), rng.randint(2, 9)), rng.randint(1, 4)
        width = K[1] * rng.randint(1, 9)
        height, taps, step, pad = rng.randint(K[0], 9), K[0], rng.randint(1, K[0]), rng.randint(0, K[0] - 1)
        if rank == 1:
            height, taps, step, pad = 1, 1, 1, 0
        extents = ((1, (height + 2 * pad - taps) // step + 1, width // K[1]), (1, height, width), (1, taps, K[1]))
        windows = ((1, step, K[1]), (1, 1, 1), (0, pad, 0))
        yield place_gradient(rng, rank, "NCX", (rng.choice((0, 1, 2, 40)), 1, rng.randint(1, 40), W), extents, windows)


def test_same_bits_with_taps_as_channels() -> None:
    patches = 0
    for seed, geometry in enumerate(list_patches()):
        plain, windowed = draw_tensors(geometry, seed)
        expected = compute(plan_schedule(geometry, "f32", "base", strategy="direct"), plain, windowed)
        assert geometry.N == 0 or np.count_nonzero(expected) == expected.size
        bits = {}
        for isa in list_isas()[1:]:
            for specialised in (False, seed % 8 == 0):
                schedules = list_schedules(geometry, "f32", isa, specialised=specialised, strategy="outer")
                alone = [one for one in schedules if one.slabs == 1]
                taken = [one for one in alone if one.geometry.patches]
                assert taken
                for schedule in (*taken[:2], alone[0]) if specialised else alone:
                    bits[compute(schedule, plain, windowed).tobytes()] = schedule
                    patches += schedule.geometry.patches
        scale = np.abs(reference(geometry, np.abs(plain), np.abs(windowed)))
        for found, schedule in bits.items():
            error = np.abs(np.frombuffer(found, np.float32) - reference(geometry, plain, windowed))
            assert np.all(error <= 32 * 2.0**-24 * scale), schedule
        assert len(bits) == 1, "with FMA, one order of the sum"
    assert patches >= 500
