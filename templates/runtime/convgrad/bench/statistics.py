# SPDX-License-Identifier: Apache-2.0
"""Medians of paired measurements, and how sure they are."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass

import numpy as np

CONFIDENCE = 0.95
_RESAMPLES = 1000


@dataclass(frozen=True, slots=True)
class Estimate:
    """A value between two bounds, which hold it with a probability of CONFIDENCE."""

    value: float
    low: float
    high: float

    def as_dict(self) -> dict[str, float]:
        """For JSON."""
        return asdict(self)


def estimate_median(values: Sequence[float]) -> Estimate:
    """The median, with an interval made of order statistics, which assume nothing about how the values are spread.

    The interval from the k-th smallest to the k-th largest of n misses the true median with the probability that at
    most k - 1 of n coins show heads, twice. Below six values even the extremes do not reach 95 %: then it is those.
    """
    ordered = sorted(values)
    n = len(ordered)
    tail, rank = 0.0, 1
    for k in range(1, n // 2 + 1):
        tail += math.comb(n, k - 1) / 2.0**n
        if 2 * tail > 1 - CONFIDENCE:
            break
        rank = k
    middle = (ordered[(n - 1) // 2] + ordered[n // 2]) / 2
    return Estimate(middle, ordered[rank - 1], ordered[n - rank])


def estimate_geometric_mean(layers: Sequence[Sequence[float]], seed: int = 0) -> Estimate:
    """The geometric mean over layers of each one's median, with a bootstrap interval.

    The pairs of every layer are drawn again, with replacement. The layers are what was asked about: they are not drawn.
    """
    random = np.random.default_rng(seed)
    logs = np.zeros(_RESAMPLES)
    value = 0.0
    for pairs in layers:
        array = np.asarray(pairs)
        drawn = array[random.integers(0, len(array), (_RESAMPLES, len(array)))]
        logs += np.log(np.median(drawn, axis=1))
        value += math.log(float(np.median(array)))
    low, high = np.quantile(logs / len(layers), ((1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2))
    return Estimate(math.exp(value / len(layers)), math.exp(low), math.exp(high))
