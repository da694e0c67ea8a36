# SPDX-License-Identifier: Apache-2.0
"""What every strategy is asked, what it answers, and the parts of the answer that all of them work out alike."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from math import prod
from typing import NamedTuple

from convgrad.geometry import Geometry
from convgrad.isa import Isa
from convgrad.summation import FAN_OUT, SummationOrder, ceil_divide, round_up

LINE_WORDS = 16
"""Tables in the scratch begin at multiples of so many words (two cache lines)."""


class Problem(NamedTuple):
    """One sum on one instruction set.

    geometry     its axes merged
    isa          row of the table of instruction sets
    order        of the sum
    specialised  sizes are compile-time constants, so that the tile is free; else the C has a few tiles for any size
    threads      that the work items should suffice for
    """

    geometry: Geometry
    isa: Isa
    order: SummationOrder
    specialised: bool
    threads: int

    @property
    def positions(self) -> int:
        """Positions of the plain tensor: addends of each gradient element."""
        return self.geometry.N * prod(self.geometry.O)

    @property
    def channels_last(self) -> bool:
        """Whether channels are next to each other."""
        return self.geometry.data_format == "NXC"

    @property
    def elements(self) -> int:
        """Elements of the gradient."""
        return self.geometry.G * self.geometry.P * self.geometry.W * prod(self.geometry.K)


class Draft(NamedTuple):
    """One way to run one strategy.

    cost           cycles on one core, as far as they differ between drafts
    tile           the register tile, for people
    items          work items
    scratch_bytes  of each running thread
    slabs          parts that the sum is cut into, each with items of its own
    fields         of wgrad_geometry that the strategy has a use for, beside its sizes
    sizes          compile-time constants of a specialised build beside the sizes, by their names in C
    """

    cost: float
    tile: str
    items: int
    scratch_bytes: int
    slabs: int
    fields: dict[str, int]
    sizes: dict[str, int]


class Strategy(NamedTuple):
    """A row of the table of strategies."""

    name: str
    applies: Callable[[Problem], bool]
    drafts: Callable[[Problem], Iterator[Draft]]


def plan_slabs(problem: Problem, items: int) -> tuple[int, int]:
    """Groups in one slab, and the number of slabs: more than one when there are too few items for the threads.

    A slab is a whole node of the ladder, so that its sum is one that the undivided ladder would add as well. All slabs
    together take no more memory than the inputs do (or 4 MiB).
    """
    groups, geometry = problem.order.groups, problem.geometry
    size = FAN_OUT ** max(1, problem.order.levels)
    if problem.threads > 1 and items < 2 * problem.threads:
        inputs = geometry.N * geometry.G * (geometry.P * prod(geometry.O) + geometry.W * prod(geometry.I))
        while size > 1 and items * ceil_divide(groups, size) < 4 * problem.threads:
            if ceil_divide(groups, size // FAN_OUT) * problem.elements > max(inputs, 1 << 20):
                break
            size //= FAN_OUT
    return size, ceil_divide(groups, size)


def spread_tiles(problem: Problem, tiles: int, most: int, items: int = 4) -> int:
    """Tiles of one work item: at most `most` of them, of equal number, and few enough for each thread to have `items`
    items: several, so that none waits long for another, or one, if what is packed for an item serves all its tiles."""
    if problem.threads > 1:
        most = min(most, tiles // (items * problem.threads))
    most = max(1, min(most, tiles))
    return ceil_divide(tiles, ceil_divide(tiles, most))


def plan_tables(problem: Problem, slots: int) -> int:
    """Words of the tables of rows: of both tensors, of both after packing, and of the cache of packed rows."""
    rows = problem.order.group_rows
    table = round_up(rows * problem.geometry.K[0] * problem.geometry.K[1], LINE_WORDS)
    return 2 * round_up(rows, LINE_WORDS) + 3 * table + round_up(slots, LINE_WORDS)


def plan_panels(problem: Problem, width: int, slots: int, slot_width: int) -> int:
    """Floats of what is packed: of a group of the plain tensor `width` lanes, of `slots` windowed rows `slot_width`."""
    geometry, order, lanes = problem.geometry, problem.order, problem.isa.lanes
    reach = (order.group_columns - 1) * geometry.stride[2] + (geometry.K[2] - 1) * geometry.dilation[2] + 1
    plain = round_up(order.group_rows * order.group_columns, lanes)
    return plain * width + slots * round_up(min(geometry.I[2], reach), lanes) * slot_width


def count_live_rows(problem: Problem) -> int:
    """Rows of the windowed tensor from the first to the last one that a group may need: slots of packed rows."""
    geometry, rows = problem.geometry, problem.order.group_rows
    (OD, OH, _), (ID, IH, _) = geometry.O, geometry.I
    everything = geometry.N * ID * IH
    if OD == ID == geometry.K[0] == 1:
        step, pad, reach = geometry.stride[1], geometry.pad[1], (geometry.K[1] - 1) * geometry.dilation[1]
        # Rows of the padding stand at an edge of their image, so between images the distance may be longer.
        edges = max(0, (OH - 1) * step - pad - IH) + max(0, pad - reach)
        most = 1
        for later in range((rows - 1) // OH, (rows - 2) // OH + 2):  # images between the first row and the last
            distance = (rows - 1) * step + reach + 1 + later * (IH - OH * step) + min(1, later) * edges
            if later:  # an earlier image is met as a whole, even if the last one has only its first rows in the group
                start = max(0, later * OH - rows + 1)
                distance = max(distance, later * IH - max(0, start * step - pad))
            most = max(most, min(distance, (1 + later) * IH))
        return min(everything, most)
    images = (rows - 2) // (OD * OH) + 2 if rows > 1 and (OD * OH) % rows else ceil_divide(rows, OD * OH)
    if images > 1:
        return min(everything, images * ID * IH)
    planes = 1 if rows == 1 or OH % rows == 0 else (rows - 2) // OH + 2
    depth = (planes - 1) * geometry.stride[0] + (geometry.K[0] - 1) * geometry.dilation[0] + 1
    return min(everything, depth * IH)
