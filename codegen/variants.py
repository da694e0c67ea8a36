# SPDX-License-Identifier: Apache-2.0
"""The specialisation space of the kernels: rank x data layout x element type x strategy."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from specs.vocabulary import DATA_LAYOUTS, ELEMENT_TYPES, SPATIAL_AXES


@dataclass(frozen=True, slots=True, order=True)
class KernelVariant:
    """What is known about a kernel when its C is written; everything else is known when a geometry is planned."""

    rank: int
    data_format: str
    dtype: str
    strategy: str


@dataclass(frozen=True, slots=True)
class Strategy:
    """A way to compute the sum: its template, and the element types that it serves."""

    name: str
    template: str
    dtypes: tuple[str, ...]
    sentence: str
    plain_tile: int = 0
    """Plain channels of a tile whose size the template fixes; 0 where the planner chooses it."""
    windowed_tile: int = 0
    """Windowed channels of such a tile."""


STRATEGIES = (
    Strategy(
        name="direct",
        template="c/direct.c.j2",
        dtypes=tuple(row.name for row in ELEMENT_TYPES),
        plain_tile=8,
        windowed_tile=4,
        sentence="Outer products of a few windowed and plain channels, position by position; for every geometry.",
    ),
    Strategy(
        name="lanes",
        template="c/lanes.c.j2",
        dtypes=("f32",),
        sentence="Vectors of channels of several groups, taps in registers: depthwise, and small groups.",
    ),
    Strategy(
        name="outer",
        template="c/outer.c.j2",
        dtypes=("f32",),
        sentence="Register tiles of channels by vectors of channels: dense, and large groups.",
    ),
)


def list_variants() -> Iterator[KernelVariant]:
    """Every kernel variant, in the order in which files and tables list them."""
    yield from sorted(
        KernelVariant(rank, data_format, row.name, strategy.name)
        for rank in SPATIAL_AXES
        for data_format in DATA_LAYOUTS
        for row in ELEMENT_TYPES
        for strategy in STRATEGIES
        if row.name in strategy.dtypes
    )
