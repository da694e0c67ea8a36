# SPDX-License-Identifier: Apache-2.0
"""Data whose gradients are exact in any order of summation, so that one differing bit is an error.

Tensors hold small integers times a power of two. The products summed into one element are bounded so that every
partial sum fits the significand of float32 and the total fits that of the result's type: 24 bits for f32, 11 for f16,
8 for bf16. While a reduction is short the integers are large and dense; when it is too long for dense ones, one of
the two tensors keeps only so many non-zero values per channel. A tap meets every position of a tensor at most once,
so the bound holds for any geometry, without trying.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from reference.geometries import DTYPES, Problem

Tensor = npt.NDArray[Any]

# Largest integer up to which every integer is a value of the type.
EXACT_LIMIT = {"f32": 1 << 24, "bf16": 1 << 8, "f16": 1 << 11}
# Largest magnitude drawn: fits the significand of each type.
_LARGEST = {"f32": 1 << 10, "bf16": 1 << 7, "f16": 1 << 10}


def exact_integers(problem: Problem, seed: int) -> tuple[Tensor, Tensor]:
    """(source, delta) in the problem's dtype and data_format, with sums of at most ``EXACT_LIMIT`` units."""
    rng = np.random.default_rng(seed)
    limit, largest = EXACT_LIMIT[problem.dtype], _LARGEST[problem.dtype]
    share = limit // problem.products
    if share >= 1:
        low = min(largest, math.isqrt(share))
        high = min(largest, share // low)
        kept = None
    else:
        low, high = 1, int(rng.integers(1, 3))
        kept = limit // (low * high)
    magnitudes = [low, high] if rng.random() < 0.5 else [high, low]
    thinned = int(rng.integers(2))
    tensors = []
    for index, (shape, largest_here) in enumerate(
        zip((problem.source_shape, problem.delta_shape), magnitudes, strict=True)
    ):
        # No zeros but for thinning; the signs are uneven so that sums rarely cancel to zero.
        values = rng.integers(1, largest_here + 1, shape).astype(np.float64)
        values[rng.random(shape) < 0.25] *= -1.0
        if kept is not None and index == thinned:
            values *= _mask(rng, problem, shape, kept)
        # A power of two changes every exponent and no significand. f16 bounds it: 2**11 units must stay below 2**16,
        # one above 2**-24.
        tensors.append(np.ldexp(values, int(rng.integers(-4, 3))).astype(DTYPES[problem.dtype]))
    return tensors[0], tensors[1]


def exact_integers_text(problem: Problem, seed: int) -> str:
    """The two tensors as arguments in Python, for ``Problem.call_text``: a failure then prints as one line that
    repeats it.
    """
    return f"*exact_integers({problem!r}, {seed})"


def _mask(rng: np.random.Generator, problem: Problem, shape: tuple[int, ...], kept: int) -> npt.NDArray[np.bool_]:
    """True at ``kept`` random positions of each channel (over the batch and all spatial axes)."""
    channel = 1 if problem.data_format == "NCX" else len(shape) - 1
    moved = (shape[channel], *(extent for axis, extent in enumerate(shape) if axis != channel))
    ranks = rng.random((moved[0], math.prod(moved[1:]))).argsort(axis=1).argsort(axis=1)
    return np.moveaxis((ranks < kept).reshape(moved), 0, channel)


def mostly_nonzero(gradient: Tensor) -> bool:
    """Whether a comparison on this gradient says anything: more than half of its elements differ from zero."""
    return bool(2 * np.count_nonzero(gradient) > gradient.size)
