# SPDX-License-Identifier: Apache-2.0
"""The strategy `lanes`: channels of several groups in one vector, taps in registers (kernels/lanes.h)."""

from __future__ import annotations

from collections.abc import Iterator
from math import prod
from typing import NamedTuple

from convgrad.machine import MACHINE
from convgrad.strategies.draft import (
    LINE_WORDS,
    Draft,
    Problem,
    Strategy,
    count_live_rows,
    plan_panels,
    plan_slabs,
    plan_tables,
    spread_tiles,
)
from convgrad.summation import ceil_divide, ladder_levels, round_up

MEMORY_BYTES = 16 << 20
"""Inputs of this size come from memory, whatever the caches."""
TURN_BYTES = 16 << 10
"""Sums of tiles that take turns stay in the first-level cache."""
COLUMN_REACH = 24
"""Windowed columns that one straight-line run of output columns may meet: the code grows with them."""


class Tile(NamedTuple):
    """A register tile: tap rows by taps of a row by windowed channels by vectors, and output columns at a time."""

    rows: int
    taps: int
    channels: int
    vectors: int
    columns: int

    @property
    def accumulators(self) -> int:
        """Registers of sums."""
        return self.rows * self.taps * self.channels * self.vectors


def _applies(problem: Problem) -> bool:
    return max(problem.geometry.P, problem.geometry.W) <= problem.isa.lanes and not problem.geometry.patches


def _vector_groups(problem: Problem) -> int:
    return problem.isa.lanes // max(problem.geometry.P, problem.geometry.W)


def _permuted(problem: Problem) -> bool:
    return problem.geometry.P > 1 or problem.geometry.W > 1


def _broadcast(problem: Problem) -> bool:
    """Whether all lanes of a vector meet the same windowed channel, which comes from memory."""
    return problem.specialised and _permuted(problem) and _vector_groups(problem) == 1


def _draft_all(problem: Problem) -> Iterator[Draft]:
    for tile in _list_tiles(problem):
        yield _draft(problem, tile)


def _even(total: int, most: int) -> int:
    """The larger of two sizes that differ by one and cut `total` into as few parts as sizes up to `most` do."""
    return ceil_divide(total, ceil_divide(total, min(total, most)))


def _list_tiles(problem: Problem) -> Iterator[Tile]:
    if not problem.specialised:
        yield Tile(rows=1, taps=3, channels=1, vectors=2, columns=1)  # as in kernels/lanes.h
        return
    geometry = problem.geometry
    vectors_in_all = ceil_divide(geometry.G, _vector_groups(problem))
    step, dilation = geometry.stride[2], geometry.dilation[2]
    seen: set[Tile] = set()
    for rows in range(1, 1 + min(4, geometry.K[0] * geometry.K[1])):
        for taps in (1, 2, 3, 4, 5, 6, 7, 8, 11):
            for channels in range(1, 1 + min(4, geometry.W)):
                for vectors in range(1, 1 + min(4, vectors_in_all)):
                    for columns in (1, 4):
                        tile = Tile(
                            _even(geometry.K[0] * geometry.K[1], rows),
                            _even(geometry.K[2], taps),
                            _even(geometry.W, channels),
                            vectors,
                            columns,
                        )
                        reach = (columns - 1) * step + (tile.taps - 1) * dilation
                        operands = (columns + 1) * vectors + (tile.channels if _permuted(problem) else 0)
                        fits = tile.accumulators + operands <= problem.isa.registers
                        if tile not in seen and fits and (columns == 1 or reach < COLUMN_REACH):
                            seen.add(tile)
                            yield tile


def _in_place(problem: Problem, tile: Tile) -> bool:
    """Whether no vector reaches behind a tensor, so that nothing is packed."""
    geometry, in_vector = problem.geometry, _vector_groups(problem)
    return (
        problem.channels_last
        and geometry.G % (tile.vectors * in_vector) == 0
        and in_vector * geometry.P == problem.isa.lanes
        and (_broadcast(problem) or geometry.W == geometry.P)
    )


def _takes_turns(problem: Problem, in_place: bool, sums: int) -> bool:
    """Whether all tiles go over a block before the next block: what comes from memory is then read in its order."""
    geometry = problem.geometry
    inputs = 4 * geometry.N * geometry.G * (geometry.P * prod(geometry.O) + geometry.W * prod(geometry.I))
    return in_place and inputs >= MEMORY_BYTES and 4 * sums <= TURN_BYTES


def _cost(problem: Problem, tile: Tile, in_place: bool) -> float:
    """Cycles of the whole sum. The factors without a derivation are measured."""
    geometry, order, lanes = problem.geometry, problem.order, problem.isa.lanes
    tap_rows, step, dilation = geometry.K[0] * geometry.K[1], geometry.stride[2], geometry.dilation[2]
    vectors_in_all = ceil_divide(geometry.G, _vector_groups(problem))
    tiles = ceil_divide(vectors_in_all, tile.vectors)
    passes = ceil_divide(tap_rows, tile.rows) * ceil_divide(geometry.K[2], tile.taps)
    passes *= ceil_divide(geometry.W, tile.channels)
    met = len({t * step + k * dilation for t in range(tile.columns) for k in range(tile.taps)})
    loads = tile.vectors * (tile.columns + tile.rows * met) / tile.columns
    permutes = tile.vectors * tile.rows * met * tile.channels / tile.columns if _permuted(problem) else 0
    if _broadcast(problem):
        loads, permutes = tile.vectors + permutes, 0
    column = max(
        tile.accumulators / MACHINE.fma_ports,
        MACHINE.least_cycles,
        loads / MACHINE.load_ports,
        (tile.accumulators + permutes) / (MACHINE.wide_issue if lanes == 16 else MACHINE.issue),
    )
    if _broadcast(problem):  # measured: each product waits for a scalar of its own; several rows of them are scattered
        column *= 1.5 if tile.columns == 1 else 1.05 if tile.rows > 1 else 1.0
    cycles = problem.positions * passes * tiles * (column + 0.4)
    edges = 0.5 * (geometry.K[1] - 1) / geometry.O[1] if tap_rows > 1 and geometry.pad[1] else 0.0
    row_start = (3.0 + 0.25 * tile.columns) / min(order.block_columns, geometry.O[2])
    cycles *= 1 + 6.0 / (order.block_rows * order.block_columns) + row_start + 0.04 * (tile.vectors == 1) + edges
    read = min(order.block_columns, geometry.O[2]) + tile.rows * min(order.block_columns * step, geometry.I[2])
    # Positions that are far apart share few sets of the cache, and displace each other.
    mostly = problem.channels_last and (in_place or tiles > 1)  # in place: all tiles, or all but the last
    pitch = max(tile.vectors * lanes, geometry.G * geometry.P if mostly else 0)
    if passes > 1 and 4 * order.block_rows * read * pitch > MACHINE.l1_bytes:
        lines = tile.vectors * lanes / 16 + 0.75 * mostly  # which a vector in place mostly has two of
        cycles += problem.positions * passes * tiles * lines * (1 + tile.rows * step) * MACHINE.line_cycles
    packed = tiles if not problem.channels_last else 0 if in_place else 1
    elements = packed * tile.vectors * lanes * (problem.positions + geometry.N * prod(geometry.I))
    pages = not problem.channels_last and 4 * prod(geometry.I) >= MACHINE.way_bytes  # the processor follows few of them
    return cycles + elements * MACHINE.transpose_cycles * (1 + 0.25 * (tile.vectors - 1) * pages)


def _draft(problem: Problem, tile: Tile) -> Draft:
    geometry, order, lanes = problem.geometry, problem.order, problem.isa.lanes
    in_vector, width = _vector_groups(problem), tile.vectors * lanes
    tiles = ceil_divide(ceil_divide(geometry.G, in_vector), tile.vectors)
    # In NCX packed rows are kept from group to group: those of one tile only.
    per_item = spread_tiles(problem, tiles, tiles) if problem.channels_last else 1
    items = ceil_divide(tiles, per_item)
    slab_groups, slabs = plan_slabs(problem, items)
    in_place = _in_place(problem, tile)
    slots = 0 if in_place else count_live_rows(problem)
    words = lanes * lanes // 2 + 2 * round_up(geometry.K[2], LINE_WORDS) + plan_tables(problem, slots)
    sums = prod(geometry.K) * geometry.W * width
    levels = ladder_levels(min(slab_groups, order.groups))
    floats = plan_panels(problem, width, slots, width) + sums * per_item * (1 + levels)
    tap_rows = geometry.K[0] * geometry.K[1]
    return Draft(
        cost=_cost(problem, tile, in_place),
        tile=(
            f"{tile.rows} x {tile.taps} taps x {tile.channels} channels x {tile.vectors} vectors, "
            f"{tile.columns} columns at a time, tiles an item: {per_item}"
        ),
        items=items * slabs,
        scratch_bytes=8 * words + 4 * floats,
        slabs=slabs,
        fields={
            "tiles": per_item,
            "turn_rows": order.block_rows if _takes_turns(problem, in_place, sums * per_item) else order.group_rows,
            "slots": slots,
            "slab_groups": slab_groups,
        },
        sizes={
            "WGRAD_TAP_H": tile.rows,
            "WGRAD_TAP_W": tile.taps,
            "WGRAD_CHANNELS": tile.channels,
            "WGRAD_VECTORS": tile.vectors,
            "WGRAD_COLUMNS": tile.columns,
            "WGRAD_WHOLE_ROWS": int(order.block_columns == geometry.O[2]),
            "WGRAD_LARGE_H": _large(tap_rows, tile.rows),
            "WGRAD_LARGE_W": _large(geometry.K[2], tile.taps),
            "WGRAD_LARGE_CHANNELS": _large(geometry.W, tile.channels),
            "WGRAD_PREFETCH": _prefetch(problem),
            "WGRAD_PACKED": int(not in_place),
        },
    )


def _prefetch(problem: Problem) -> int:
    """Columns ahead that are asked for: none where they follow each other in memory and are read a scalar at a time."""
    foreseen = not problem.channels_last or (problem.geometry.G == 1 and _broadcast(problem))
    return 0 if foreseen else 16


def _large(total: int, size: int) -> int:
    """Parts of the larger size, the others having one less."""
    return total - (size - 1) * ceil_divide(total, size)


LANES = Strategy(name="lanes", applies=_applies, drafts=_draft_all)
