# SPDX-License-Identifier: Apache-2.0
"""The strategy `outer`: register tiles of a few broadcast channels by a few vectors of channels (kernels/outer.h)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
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

LARGEST_SPAN = 4096
LADDER_BYTES = 4 << 20
"""What the ladders of one work item may take."""
ACCUMULATOR_ROWS = {32: {1: 24, 2: 14, 3: 9, 4: 6}, 16: {1: 12, 2: 6, 3: 4}}
"""By registers, by vectors: rows whose accumulators, with the vectors and a broadcast, fit in the registers."""
PAIR_ROWS = 14
"""Rows of (tap, channel) pairs: each needs a pointer as well."""
VECTOR_READS = {32: {256: 39, 1024: 17}, 16: {256: 39, 512: 10, 1024: 5}}
"""By registers, by bytes from one position to the next: reads of a packed vector that are worth the copy."""
ROW_READS = {1024: 36, 2048: 4}
"""The same of a packed row, by bytes. It is one cache line of a position where vectors are several."""
ROW_READS_NCX = 4
"""Of a packed row whose channels have one place in the cache."""
SMALL_TILE = {32: 4, 16: 2}
"""By registers: rows of the second tile of kernels for any size, as in kernels/outer.h; the third has one."""
FEW_ROWS = 16
"""With no more rows than this, vectors come from memory at the pace of the products."""


class Tile(NamedTuple):
    """A register tile, and how the gradient is cut into it.

    exchanged  vectors hold windowed channels, and rows are plain ones
    across     channels that are lanes
    along      channels that are rows
    span       rows (tap, channel) that one run of tiles goes along; more than `along` merges taps
    rows       of the largest tile
    vectors    of a tile
    """

    exchanged: bool
    across: int
    along: int
    span: int
    rows: int
    vectors: int

    @property
    def merged(self) -> bool:
        """Whether rows are (tap, channel) pairs."""
        return self.span != self.along

    @property
    def in_span(self) -> int:
        """Tiles that one span is cut into."""
        return ceil_divide(self.span, self.rows)

    @property
    def large(self) -> int:
        """Of these, how many have all rows when the others have one less."""
        return self.span - (self.rows - 1) * self.in_span


class Packed(NamedTuple):
    """Whether vectors, and rows, that could be read in place are packed."""

    vectors: bool
    rows: bool


def _draft_all(problem: Problem) -> Iterator[Draft]:
    for tile in _list_tiles(problem):
        yield _draft(problem, tile)


def _list_tiles(problem: Problem) -> Iterator[Tile]:
    geometry, isa = problem.geometry, problem.isa
    for exchanged in (False, True):
        across, along = (geometry.W, geometry.P) if exchanged else (geometry.P, geometry.W)
        adjacent = _adjacent_pairs(problem)
        merged = () if exchanged else (geometry.K[2] * along, prod(geometry.K) * along)
        for span in dict.fromkeys((along, *(span for span in merged if span <= LARGEST_SPAN))):
            if not problem.specialised:
                most = 12 if isa.registers == 32 else 4 if isa.lanes == 8 else 6  # ROWS of kernels/outer.h
                yield Tile(exchanged, across, along, span, most, 2)
                continue
            for vectors, limit in ACCUMULATOR_ROWS[isa.registers].items():
                most = min(limit, PAIR_ROWS) if span not in (along, adjacent) else limit
                rows = ceil_divide(span, ceil_divide(span, min(span, most)))  # tiles of equal size, or nearly
                yield Tile(exchanged, across, along, span, rows, vectors)


def _adjacent_pairs(problem: Problem) -> int:
    """(tap, channel) pairs of a row of taps, if they are next to each other in memory; else 0. See kernels/outer.h."""
    geometry = problem.geometry
    adjacent = problem.specialised and problem.channels_last and geometry.G == 1 and geometry.dilation[2] == 1
    return geometry.K[2] * geometry.W if adjacent else 0


def _is_window(problem: Problem, tile: Tile) -> bool:
    """Whether a tile's rows are pairs that follow each other in memory: sum_window of kernels/outer.h."""
    return tile.merged and tile.span == _adjacent_pairs(problem)


def _rows_displace(problem: Problem, tile: Tile) -> bool:
    """Whether the channels of a tile's rows are so far apart in memory that they have one place in the cache, which is
    too few for them."""
    geometry = problem.geometry
    apart = 4 * prod(geometry.O if tile.exchanged else geometry.I)
    many = min(tile.rows, tile.along) > MACHINE.l1_ways
    return many and not problem.channels_last and not geometry.patches and apart % MACHINE.way_bytes == 0


def _delay(problem: Problem, tile: Tile, rows: int, vectors: int, packed: Packed) -> float:
    """How many times as long as its instructions a register tile takes, as measured."""
    geometry = problem.geometry
    if vectors == 1:  # each product waits for a scalar of its own
        return 1.05 if problem.isa.lanes < 16 else 1.23 if problem.channels_last else 1.12
    if _is_window(problem, tile):
        return 1.15 if problem.isa.lanes < 16 else 1.08 if vectors < 4 else 1.0
    if tile.merged:
        return 1.15 if vectors == 2 else 1.0
    factor = 1.0
    if _rows_displace(problem, tile):
        factor = 1.07 if packed.rows else 1.45
    streams = tile.exchanged and not problem.channels_last and prod(geometry.K) == 1  # wide tiles read rows less often
    in_place = not (problem.channels_last and packed.vectors)
    if vectors > 2 and in_place and not streams:
        factor *= 1.06
    elif vectors > 2 and not packed.rows and prod(geometry.K) > 1:
        factor *= 1.03  # taps share rows in the first-level cache
    return factor * (1.04 if vectors == 3 else 1.0)


def _cost_of_block(problem: Problem, tile: Tile, rows: int, vectors: int, packed: Packed) -> float:
    """Cycles of one position for one register tile: its multiply-adds or loads, starts of rows, and its flush."""
    geometry, order, lanes = problem.geometry, problem.order, problem.isa.lanes
    far = not packed.vectors and _pitch(problem, tile.across) >= MACHINE.far_bytes  # vectors displace each other
    unaligned = 1.5 if lanes == 16 else 1.0  # a vector of a whole cache line mostly lies in two
    apart = tile.merged and not _is_window(problem, tile)  # each pair has a pointer of its own
    loads = rows + vectors * unaligned + (0.6 * rows if apart else 0)
    # Multiply-adds, broadcasts, loads and prefetches of vectors; the loop, and prefetches of what is broadcast.
    broadcasts = 0 if vectors == 1 and lanes == 16 else rows  # a scalar may be an operand
    instructions = rows * vectors + broadcasts + 2 * vectors + 5
    cycles = max(
        rows * vectors / MACHINE.fma_ports,
        instructions / MACHINE.front_end,
        MACHINE.least_cycles,
        loads / MACHINE.load_ports,
        MACHINE.far_cycles * vectors if far else 0.0,
    )
    cycles *= _delay(problem, tile, rows, vectors, packed)
    row_start = (10 + (5.0 * rows if apart else 0)) / min(order.block_columns, geometry.O[2])
    flush = (rows * vectors + 10) / (order.block_rows * order.block_columns)
    return cycles + row_start + flush


def _cost(problem: Problem, tile: Tile, packed: Packed) -> float:
    """Cycles of the whole sum. The factors without a derivation are measured."""
    geometry, lanes, positions = problem.geometry, problem.isa.lanes, problem.positions
    taps, (_, pad_h, pad_w) = prod(geometry.K), geometry.pad
    width = tile.vectors * lanes
    tiles = ceil_divide(tile.across, width)
    last = tile.across - (tiles - 1) * width
    if problem.specialised:
        row_tiles = {tile.rows: tile.large, tile.rows - 1: tile.in_span - tile.large}
    else:
        left, small = tile.span % tile.rows, SMALL_TILE[problem.isa.registers]
        row_tiles = {tile.rows: tile.span // tile.rows, small: left // small, 1: left % small}
    per_position = sum(
        count * number * _cost_of_block(problem, tile, rows, vectors, packed)
        for rows, count in row_tiles.items()
        if rows and count
        for vectors, number in ((tile.vectors, tiles - 1), (tile.vectors if last > lanes else 1, 1))
    )
    spans = tile.along * taps // tile.span
    cycles = positions * per_position * spans
    if tile.merged:  # columns and rows near the edge, where each pair is tested
        if tile.span > geometry.K[2] * geometry.W and pad_h:
            cycles *= 1 + 2.0 * (geometry.K[1] - 1) / geometry.O[1]
        if pad_w:
            tested = 1.0 if _is_window(problem, tile) else 2.0
            cycles *= 1 + tested * (geometry.K[2] - 1) / geometry.O[2]
    transposed = tiles if not problem.channels_last else 1 if last % width else 0
    steps = prod(geometry.stride) if tile.exchanged else 1
    if packed.rows and not problem.channels_last:
        cycles += tile.along * geometry.N * prod(geometry.I) * MACHINE.transpose_cycles
    cycles += transposed * tile.vectors * lanes * positions * MACHINE.transpose_cycles * steps
    if tile.along * taps <= FEW_ROWS and tile.in_span * spans > 1:
        cycles *= 1.4  # vectors are read from memory more than once for few products
    if tile.exchanged and problem.channels_last:
        cycles *= 1.09  # a tie goes to vectors of plain channels
    return (cycles + _cost_of_stores(problem, tile)) * geometry.G


def _cost_of_stores(problem: Problem, tile: Tile) -> float:
    """Cycles in which the gradient of a group is stored: by vectors, so after a transpose, or float by float."""
    geometry, taps = problem.geometry, prod(problem.geometry.K)
    elements = geometry.P * geometry.W * taps
    far = 4 * elements * geometry.G > MACHINE.l2_bytes  # then the longer the runs, the better
    if (geometry.out_windowed if tile.exchanged else geometry.out_plain) == 1:
        return (0.1 + (6.0 / (tile.vectors * problem.isa.lanes) if far else 0.0)) * elements
    row_step = geometry.out_plain if tile.exchanged else geometry.out_windowed
    if not tile.merged and (row_step == 1 or (row_step == taps and not tile.exchanged)):
        run = tile.rows * row_step  # floats that follow each other for each lane
        return (0.8 if far else 0.5) * elements * round_up(run, problem.isa.lanes) / run
    return 1.5 * elements


def _plan_strip(problem: Problem, tile: Tile, tiles: int, pack_rows: bool) -> int:
    """Rows whose scalars of one group stay in the second-level cache while all vector tiles go over them."""
    geometry, order = problem.geometry, problem.order
    if tiles == 1 or tile.merged:
        return tile.span
    steps = 1 if tile.exchanged else prod(geometry.stride)
    positions = max(1, min(problem.positions, order.group_rows * order.group_columns)) * steps
    share = 8 if pack_rows else 2  # packed rows are quick to be had again from the next cache
    most = MACHINE.l2_bytes // share // (4 * positions)
    return tile.span if most >= tile.span else max(tile.rows, most)


def _packs(problem: Problem, tile: Tile) -> Packed:
    """What is packed: what is so far apart that it displaces itself in the cache, where each copy is read often."""
    geometry, taps = problem.geometry, prod(problem.geometry.K)
    if tile.exchanged or tile.merged:
        return Packed(False, False)
    tiles = ceil_divide(tile.across, tile.vectors * problem.isa.lanes)
    row_reads = tiles * taps if prod(geometry.stride) <= taps else 0  # else most positions are not read at all
    if not problem.channels_last:
        return Packed(False, _rows_displace(problem, tile) and row_reads >= ROW_READS_NCX)
    return Packed(
        _is_worth(tile.in_span * taps, _pitch(problem, tile.across), VECTOR_READS[problem.isa.registers]),
        _is_worth(row_reads, _pitch(problem, tile.along), ROW_READS),
    )


def _is_worth(reads: int, pitch: int, needed: Mapping[int, int]) -> bool:
    """Whether a copy is read often enough for positions so far apart."""
    return any(pitch >= apart and reads >= least for apart, least in needed.items())


def _prefetch(problem: Problem, tile: Tile, packed: Packed) -> tuple[int, int]:
    """Positions ahead that are asked for, of the vectors and of the scalars: 0 where they follow each other in memory,
    and where a prefetch costs more than it saves."""
    taps = prod(problem.geometry.K)
    if tile.along * taps <= FEW_ROWS:
        vectors = 96  # they come from memory at the pace of the products
    elif not problem.channels_last or packed.vectors:
        vectors = 0
    elif problem.isa.registers == 16 and _pitch(problem, tile.across) < MACHINE.far_bytes:
        return 0, 0  # few products for each instruction that is not one
    else:
        vectors = 8
    return vectors, 16 if problem.channels_last and not packed.rows else 0


def _pitch(problem: Problem, channels: int) -> int:
    """Bytes from one position to the next, of a tensor with so many channels in a group."""
    return 4 * problem.geometry.G * channels if problem.channels_last else 4


def _draft(problem: Problem, tile: Tile) -> Draft:
    geometry, order, lanes = problem.geometry, problem.order, problem.isa.lanes
    width = tile.vectors * lanes
    tiles = ceil_divide(tile.across, width)
    sums = tile.along * prod(geometry.K) * width
    packs = tile.exchanged and (not problem.channels_last or tile.across % width != 0)
    packed = _packs(problem, tile)
    if packs and not problem.channels_last:
        per_item = 1  # packed rows are kept from group to group: those of one tile only
    else:
        ladder = 4 * sums * order.levels
        most = LADDER_BYTES // ladder if ladder else tiles
        per_item = spread_tiles(problem, tiles, most, items=1 if packed.rows else 4)
    items = geometry.G * ceil_divide(tiles, per_item)
    slab_groups, slabs = plan_slabs(problem, items)
    slots = count_live_rows(problem) if packs or packed.rows else 0
    strip = tile.span if packs else _plan_strip(problem, tile, per_item, packed.rows)
    panels = per_item if strip < tile.span else 1
    slot_width = round_up(min(tile.span, strip + tile.rows), lanes) if packed.rows else width
    words = round_up(4 * prod(geometry.K), LINE_WORDS) + plan_tables(problem, slots)
    levels = ladder_levels(min(slab_groups, order.groups))
    floats = plan_panels(problem, panels * width, slots, slot_width) + sums * (1 + per_item * levels)
    prefetch, scalar_prefetch = _prefetch(problem, tile, packed)
    side = "windowed" if tile.exchanged else "plain"
    rows = "(tap, channel) pairs" if tile.merged else "rows"
    return Draft(
        cost=_cost(problem, tile, packed),
        tile=f"{tile.rows} {rows} x {tile.vectors} vectors of {side} channels, tiles an item: {per_item}",
        items=items * slabs,
        scratch_bytes=8 * words + 4 * floats,
        slabs=slabs,
        fields={
            "exchanged": int(tile.exchanged),
            "span": tile.span,
            "tiles": per_item,
            "strip": strip,
            "pack_vectors": int(packed.vectors),
            "pack_rows": int(packed.rows),
            "slots": slots,
            "slab_groups": slab_groups,
        },
        sizes={
            "WGRAD_EXCHANGED": int(tile.exchanged),
            "WGRAD_SPAN": tile.span,
            "WGRAD_ROWS": tile.rows,
            "WGRAD_LARGE_TILES": tile.large,
            "WGRAD_VECTORS": tile.vectors,
            "WGRAD_PACK_VECTORS": int(packed.vectors),
            "WGRAD_PACK_ROWS": int(packed.rows),
            "WGRAD_PREFETCH": prefetch,
            "WGRAD_SCALAR_PREFETCH": scalar_prefetch,
            "WGRAD_POSITIONS": 1 if problem.isa.registers == 32 else 2,
        },
    )


OUTER = Strategy(name="outer", applies=lambda problem: True, drafts=_draft_all)
