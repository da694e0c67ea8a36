# SPDX-License-Identifier: Apache-2.0
"""The strategy `direct`: scalar C that is easy to read, for every type and geometry, and the measure of the others."""

from __future__ import annotations

from collections.abc import Iterator

from convgrad.kernel_table import TILES
from convgrad.strategies.draft import Draft, Problem, Strategy
from convgrad.summation import FAN_OUT, ceil_divide

CYCLES = 8.0
"""Of one multiply-add, roughly; more than any other strategy takes."""


def _draft_all(problem: Problem) -> Iterator[Draft]:
    geometry, tile = problem.geometry, TILES["direct"]
    yield Draft(
        cost=CYCLES * problem.positions * problem.elements,
        tile=f"{tile.plain} x {tile.windowed} channels",
        items=geometry.G * ceil_divide(geometry.P, tile.plain) * ceil_divide(geometry.W, tile.windowed),
        scratch_bytes=4 * tile.plain * tile.windowed * problem.order.levels,
        slabs=1,
        fields={
            "tiles": 1,
            "slab_groups": FAN_OUT ** max(1, problem.order.levels),
        },
        sizes={},
    )


DIRECT = Strategy(name="direct", applies=lambda problem: not problem.geometry.patches, drafts=_draft_all)
