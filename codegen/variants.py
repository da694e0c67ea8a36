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
    """A way to compute the sum: its template, and the tile of the gradient that one work item owns."""

    name: str
    template: str
    plain_tile: int
    """Plain channels of a tile: the innermost loop, along vector lanes."""
    windowed_tile: int
    """Windowed channels of a tile."""
    sentence: str


STRATEGIES = (
    Strategy(
        name="direct",
        template="c/direct.c.j2",
        plain_tile=8,
        windowed_tile=4,
        sentence="Outer products of a few windowed and plain channels, position by position; for every geometry.",
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
    )
