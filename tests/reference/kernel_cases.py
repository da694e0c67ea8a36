# SPDX-License-Identifier: Apache-2.0
"""Small geometries of one kernel, and the numbers by which drivers in C are told of them."""

from __future__ import annotations

import random
from math import prod

from convgrad.geometry import Geometry
from convgrad.kernel import Kernel
from convgrad.planner import Schedule, list_schedules
from reference.kernel_runs import PLACES, SIZES, place_gradient

SCHEDULE_FIELDS = (
    *("block_rows", "block_columns", "group_rows", "group_columns"),
    *("patches", "exchanged", "span", "tiles", "strip", "turn_rows"),
    *("pack_vectors", "pack_rows", "slots", "slab_groups", "out_slab"),
)


def random_geometry(rng: random.Random, kernel: Kernel) -> Geometry:
    """A small geometry of the kernel's rank and layout; every kind of edge has its share."""

    def axis(innermost: bool) -> tuple[int, int, int, int, int, int]:
        while True:
            largest = rng.choice((9, 9, 9, 200)) if innermost and kernel.rank < 3 else 9
            I, K, s, d = rng.randint(1, largest), rng.randint(1, 4), rng.randint(1, 4), rng.randint(1, 3)
            pad, behind = rng.choice((0, 0, 1, 2, 5, 12)), rng.choice((0, 0, 1, 3, 11))
            O = (I + pad + behind - (K - 1) * d - 1) // s + 1
            if O >= 1 and I + pad + behind >= (K - 1) * d + 1:
                return O, I, K, s, d, pad

    axes = [(1, 1, 1, 1, 1, 0)] * (3 - kernel.rank) + [axis(i == kernel.rank - 1) for i in range(kernel.rank)]
    G = rng.choice((1, 1, 1, 2, 3, 5))
    P, W = rng.choice((1, 2, 7, 8, 9, 17, 33)), rng.choice((1, 2, 3, 4, 5, 9, 14))
    if kernel.strategy == "lanes":
        G, P, W = rng.choice((1, 3, 4, 9, 17, 40)), rng.choice((1, 1, 2, 3, 4)), rng.choice((1, 1, 2, 4))
    O, I, K, stride, dilation, pad = zip(*axes, strict=True)
    channels = (rng.choice((0, 1, 1, 2, 3)), G, P, W)
    return place_gradient(rng, kernel.rank, kernel.data_format, channels, (O, I, K), (stride, dilation, pad))


def lengthen(geometry: Geometry, rng: random.Random) -> Geometry:
    """The geometry with so large a batch that its sum has several groups: then it can be cut into slabs."""
    positions = prod(geometry.O)
    return geometry._replace(N=max(1, rng.randint(1300, 6000) // positions))


def draw_case(
    kernel: Kernel, isa: str, rng: random.Random, *, slabs: bool, threads: int = 8, specialised: bool = False
) -> tuple[Geometry, Schedule]:
    """A small geometry and any schedule of the kernel for it, with slabs or without."""
    while True:
        geometry = random_geometry(rng, kernel)
        if slabs:
            geometry = lengthen(geometry, rng)
        schedules = [
            schedule
            for schedule in list_schedules(
                geometry,
                kernel.dtype,
                isa,
                specialised=specialised,
                threads=threads if slabs else rng.choice((1, threads)),
                strategy=kernel.strategy,
            )
            if (schedule.slabs > 1) == slabs and schedule.kernel == kernel
        ]
        if schedules:
            return geometry, rng.choice(schedules)


def list_fields(schedule: Schedule, out_f32: int, accumulate: int) -> list[int]:
    """The fields of wgrad_geometry in their order."""
    numbers: list[int] = []
    for name in (*SIZES, *PLACES):
        value = getattr(schedule.geometry, name)
        numbers += value if isinstance(value, tuple) else [value]
    return [*numbers, out_f32, accumulate, *(schedule.fields[name] for name in SCHEDULE_FIELDS)]
