# SPDX-License-Identifier: Apache-2.0
"""Strategies as a table, and the choice among them: what a geometry needs before any kernel can run."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from convgrad.errors import SpecError
from convgrad.geometry import Geometry
from convgrad.kernel import Kernel
from convgrad.kernel_table import KERNELS, TILES

SUMMATION_RUNGS = 10
"""Rungs of the ladder of partial sums; WGRAD_RUNGS in summation.h, and a test holds the two equal."""


@dataclass(frozen=True, slots=True)
class Schedule:
    """How a kernel is run: its work items, and the scratch that each running thread needs."""

    kernel: Kernel
    items: int
    scratch_bytes: int


@dataclass(frozen=True, slots=True)
class Strategy:
    """One way to compute the sum. The cheapest that applies is taken."""

    name: str
    applies: Callable[[Geometry], bool]
    cost: Callable[[Geometry], float]
    """Relative time for one multiply-add, smaller is better."""
    items: Callable[[Geometry], int]
    scratch_bytes: Callable[[Geometry], int]


def _direct_items(geometry: Geometry) -> int:
    tile = TILES["direct"]
    return geometry.G * -(-geometry.P // tile.plain) * -(-geometry.W // tile.windowed)


def _direct_scratch_bytes(geometry: Geometry) -> int:
    tile = TILES["direct"]
    return 4 * SUMMATION_RUNGS * tile.plain * tile.windowed


STRATEGIES: tuple[Strategy, ...] = (
    Strategy(
        name="direct",
        applies=lambda geometry: True,
        cost=lambda geometry: 1.0,
        items=_direct_items,
        scratch_bytes=_direct_scratch_bytes,
    ),
)


def plan_schedule(geometry: Geometry, dtype: str) -> Schedule:
    """The kernel that computes this geometry soonest, with its work items and scratch.

    Raises:
        SpecError: this package was generated without kernels of the type, rank or layout.
    """
    wanted = (geometry.rank, geometry.data_format, dtype)
    kernels = {row.strategy: row for row in KERNELS if (row.rank, row.data_format, row.dtype) == wanted}
    strategies = [row for row in STRATEGIES if row.name in kernels and row.applies(geometry)]
    if not strategies:
        made = ", ".join(dict.fromkeys(f"{row.rank}d {row.data_format} {row.dtype}" for row in KERNELS))
        raise SpecError(
            f"no kernel for {geometry.rank}d {geometry.data_format} {dtype} is in this package, which was generated "
            f"with {made} alone; generate it again with that rank, layout and type"
        )
    strategy = min(strategies, key=lambda row: row.cost(geometry))
    return Schedule(kernels[strategy.name], strategy.items(geometry), strategy.scratch_bytes(geometry))
