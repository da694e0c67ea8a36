# SPDX-License-Identifier: Apache-2.0
"""The order of every sum: fixed by the batch and the extents of the plain tensor, and by nothing that may be tuned.

kernels/summation.h says what blocks, groups and the ladder are. Longer blocks would take less time and be less
accurate: with these no chain of additions is longer than 80 + 16 + 16 + ..., which keeps f32 within 32 units of
roundoff for data of one sign.
"""

from __future__ import annotations

from typing import NamedTuple

from convgrad.geometry import Geometry

BLOCK = 80
"""Positions of a block, at most."""
FAN_OUT = 16
"""Blocks of a group, at most, and addends of each step of the ladder: WGRAD_FAN_OUT of summation.h."""


def ceil_divide(a: int, b: int) -> int:
    """a / b, rounded up."""
    return -(-a // b)


def round_up(a: int, b: int) -> int:
    """The least multiple of b that is not below a."""
    return ceil_divide(a, b) * b


class SummationOrder(NamedTuple):
    """Extents of blocks and groups, as in wgrad_geometry, and what follows from them."""

    block_rows: int
    block_columns: int
    group_rows: int
    group_columns: int
    groups: int
    """Groups of all positions; one when the batch is empty."""

    @property
    def fields(self) -> dict[str, int]:
        """The extents by their names in wgrad_geometry."""
        names = ("block_rows", "block_columns", "group_rows", "group_columns")
        return {name: getattr(self, name) for name in names}

    @property
    def levels(self) -> int:
        """Levels of the ladder over all groups."""
        return ladder_levels(self.groups)


def ladder_levels(groups: int) -> int:
    """Levels of the ladder over so many groups, as in summation.h."""
    levels, left = 0, groups - 1
    while left > 0:
        levels, left = levels + 1, left // FAN_OUT
    return levels


def plan_summation(geometry: Geometry) -> SummationOrder:
    """The order for a geometry whose axes are merged."""
    rows, width = geometry.N * geometry.O[0] * geometry.O[1], geometry.O[2]
    if width <= BLOCK:
        block_rows, block_columns, group_columns = BLOCK // width, width, width
        group_rows = max(1, min(FAN_OUT * block_rows, rows))
    else:
        block_rows, block_columns = 1, ceil_divide(width, ceil_divide(width, BLOCK))
        in_row = ceil_divide(width, block_columns)
        group_rows = max(1, min(FAN_OUT // in_row, rows))
        group_columns = width if in_row <= FAN_OUT else FAN_OUT * block_columns
    groups = max(1, ceil_divide(rows, group_rows) * ceil_divide(width, group_columns))
    return SummationOrder(block_rows, block_columns, group_rows, group_columns, groups)


def merge_axes(geometry: Geometry) -> Geometry:
    """The same sum with as few and as long rows as can be: a 1 x 1 kernel walks one long row.

    An axis on which the kernel only walks (one tap, stride 1, no padding, O = I) joins its inner neighbour when that
    only walks too. A trailing axis of extent 1 is dropped. Taps of patches, side by side in memory, become channels.
    """

    def walks(axis: int) -> bool:
        taps, step, pad = geometry.K[axis], geometry.stride[axis], geometry.pad[axis]
        return taps == 1 and step == 1 and pad == 0 and geometry.O[axis] == geometry.I[axis]

    while not geometry.patches:  # whose sum has the order of the geometry that they were taken from
        (D, H, X), (ID, IH, IX) = geometry.O, geometry.I
        if _has_patches(geometry):
            taps = geometry.K[2]
            geometry = geometry._replace(
                W=taps * geometry.W,
                I=(ID, IH, IX // taps),
                K=(*geometry.K[:2], 1),
                stride=(*geometry.stride[:2], 1),
                out_tap=(*geometry.out_tap[:2], 0),
            )
        elif walks(2) and walks(1) and H > 1:
            geometry = _drop(geometry, 1, (1, D, H * X), (1, ID, IH * IX))
        elif walks(1) and walks(0) and D > 1:
            geometry = _drop(geometry, 0, (1, D * H, X), (1, ID * IH, IX))
        elif walks(2) and X == 1 and H > 1:
            geometry = _drop(geometry, 2, (1, D, H), (1, ID, IH))
        else:
            break
    return geometry


def _has_patches(geometry: Geometry) -> bool:
    """Whether the taps of a row and their channels are one run of memory, in the windowed tensor and in the gradient,
    that the next position follows."""
    taps = geometry.K[2]
    return (
        geometry.data_format == "NXC"
        and geometry.G == 1
        and taps > 1
        and geometry.stride[2] == taps
        and geometry.dilation[2] == 1
        and geometry.pad[2] == 0
        and geometry.I[2] % taps == 0
        and geometry.out_tap[2] == geometry.W * geometry.out_windowed
    )


def take_patches(geometry: Geometry) -> tuple[Geometry, ...]:
    """The same sum with the taps of a row as channels and the channels as taps of a leading axis, if that can be: NCX,
    and a kernel that steps by its own width. The windowed tensor [W][I / K][K] has its new channels next to each other.
    """
    taps, leading = geometry.K[2], 2 - geometry.rank
    if (
        geometry.data_format != "NCX"
        or geometry.rank == 3
        or geometry.G > 1
        or taps == 1
        or (geometry.stride[2], geometry.dilation[2], geometry.pad[2]) != (taps, 1, 0)
        or geometry.I[2] % taps != 0
    ):
        return ()

    def change(values: tuple[int, ...], first: int, last: int) -> tuple[int, ...]:
        return (*values[:leading], first, *values[leading + 1 : 2], last)

    taken = geometry._replace(
        rank=geometry.rank + 1,
        W=taps,
        I=change(geometry.I, geometry.W, geometry.I[2] // taps),
        K=change(geometry.K, geometry.W, 1),
        stride=change(geometry.stride, 1, 1),
        out_windowed=geometry.out_tap[2],
        out_tap=change(geometry.out_tap, geometry.out_windowed, 0),
        patches=True,
    )
    return (taken,)


def _drop(geometry: Geometry, axis: int, O: tuple[int, ...], I: tuple[int, ...]) -> Geometry:
    """The geometry without an axis that has one tap, its extents replaced."""

    def without(values: tuple[int, ...], unused: int) -> tuple[int, ...]:
        return (unused, *values[:axis], *values[axis + 1 :])

    return geometry._replace(
        O=O,
        I=I,
        K=without(geometry.K, 1),
        stride=without(geometry.stride, 1),
        dilation=without(geometry.dilation, 1),
        pad=without(geometry.pad, 0),
        out_tap=without(geometry.out_tap, 0),
    )
