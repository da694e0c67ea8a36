# SPDX-License-Identifier: Apache-2.0
"""The choice of a kernel, its register tile and its split into work: the cheapest draft of all strategies that apply.

Nothing that is chosen here changes a bit of the result: the order of the sums comes from summation.py alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import prod
from typing import NamedTuple

from convgrad.errors import SpecError
from convgrad.geometry import Geometry
from convgrad.isa import ISAS
from convgrad.kernel import Kernel
from convgrad.kernel_table import KERNELS
from convgrad.strategies.direct import DIRECT
from convgrad.strategies.draft import Draft, Problem, Strategy
from convgrad.strategies.lanes import LANES
from convgrad.strategies.outer import OUTER
from convgrad.summation import merge_axes, plan_summation, take_patches

STRATEGIES: tuple[Strategy, ...] = (OUTER, LANES, DIRECT)

SCRATCH_LEAST = 16 << 20
SCRATCH_FACTOR = 4
"""Drafts whose scratch is above both SCRATCH_LEAST and SCRATCH_FACTOR times inputs and output are left out."""

_KERNELS: dict[tuple[int, str, str, str], Kernel] = {
    (row.rank, row.data_format, row.dtype, row.strategy): row for row in KERNELS
}
_AXES = "DHW"
_UNUSED_FIELDS = dict.fromkeys(("exchanged", "span", "strip", "turn_rows", "pack_vectors", "pack_rows", "slots"), 0)
"""Fields of the schedule that not every strategy has a use for."""


class Schedule(NamedTuple):
    """How a geometry is computed.

    kernel         the C function
    isa            instruction set that it is compiled for: a row of convgrad.isa.ISAS
    geometry       the same sum, its axes merged: what the kernel is given
    tile           the register tile, for people
    items          work items
    slabs          parts that the sum is cut into; more than one go through a workspace and are added at the end
    scratch_bytes  of each running thread
    fields         of wgrad_geometry beside its sizes: the order of the sum, and the schedule
    sizes          compile-time constants (-D) of a specialised build; None for the build for any size
    cost           cycles on one core that the model expects, in order to compare schedules
    """

    kernel: Kernel
    isa: str
    geometry: Geometry
    tile: str
    items: int
    slabs: int
    scratch_bytes: int
    fields: Mapping[str, int]
    sizes: Mapping[str, int] | None
    cost: float

    @property
    def specialised(self) -> bool:
        """Whether sizes are compile-time constants."""
        return self.sizes is not None

    def __str__(self) -> str:
        blocks = "{block_rows} x {block_columns}, groups {group_rows} x {group_columns}".format(**self.fields)
        build = "specialised" if self.specialised else "any size"
        name = f"strategy {self.kernel.strategy} ({self.kernel.symbol}, {self.isa}, {build})"
        return (
            f"{name}: {self.tile}; blocks {blocks}; work items {self.items}, slabs {self.slabs}; "
            f"{self.scratch_bytes} bytes of scratch a thread"
        )


def plan_schedule(
    geometry: Geometry,
    dtype: str,
    isa: str,
    *,
    specialised: bool = False,
    threads: int = 1,
    strategy: str | None = None,
) -> Schedule:
    """The schedule that computes this geometry soonest.

    Args:
        geometry: the problem in resolved numbers.
        dtype: element type of the inputs.
        isa: row of convgrad.isa.ISAS, the best that the processor has.
        specialised: for a build with sizes as compile-time constants.
        threads: that the work should suffice for; results do not depend on it.
        strategy: only this one, which has to apply.

    Raises:
        SpecError: this package was generated without kernels of the type, rank or layout.
        ValueError: the strategy that was asked for does not serve the type and geometry.
    """
    schedules = list(
        list_schedules(geometry, dtype, isa, specialised=specialised, threads=threads, strategy=strategy)
    )
    if not schedules:
        raise _nothing_to_run(geometry, dtype, isa, strategy)
    limit = limit_scratch(geometry, dtype)
    within = [schedule for schedule in schedules if schedule.scratch_bytes <= limit]
    if not within:
        return min(schedules, key=lambda schedule: schedule.scratch_bytes)
    return min(within, key=lambda schedule: schedule.cost)


def limit_scratch(geometry: Geometry, dtype: str) -> int:
    """Bytes of scratch, of each thread, that a schedule may take while another one takes less."""
    element = 4 if dtype == "f32" else 2
    inputs = geometry.N * geometry.G * (geometry.P * prod(geometry.O) + geometry.W * prod(geometry.I))
    return max(SCRATCH_LEAST, SCRATCH_FACTOR * (element * inputs + 4 * prod(geometry.weights_shape)))


def _nothing_to_run(geometry: Geometry, dtype: str, isa: str, strategy: str | None) -> ValueError:
    if strategy is not None:
        return ValueError(f"no schedule of strategy {strategy!r} for {dtype} on {isa!r} and {geometry}")
    made = ", ".join(dict.fromkeys(f"{row.rank}d {row.data_format} {row.dtype}" for row in KERNELS))
    return SpecError(
        f"no kernel for {geometry.rank}d {geometry.data_format} {dtype} is in this package, which was generated "
        f"with {made} alone; generate it again with that rank, layout and type"
    )


def list_schedules(
    geometry: Geometry,
    dtype: str,
    isa: str,
    *,
    specialised: bool = False,
    threads: int = 1,
    strategy: str | None = None,
) -> Iterator[Schedule]:
    """Every schedule there is for a geometry, of all strategies that apply or of one: arguments as of plan_schedule."""
    row, merged = ISAS[kernel_isa(dtype, isa)], merge_axes(geometry)
    for one in (merged, *take_patches(merged)):
        problem = Problem(one, row, plan_summation(one), specialised and dtype == "f32", threads)
        for candidate in STRATEGIES:
            kernel = _KERNELS.get((one.rank, one.data_format, dtype, candidate.name))
            if kernel is None or strategy not in (None, candidate.name) or not candidate.applies(problem):
                continue
            for draft in candidate.drafts(problem):
                yield _make_schedule(problem, kernel, draft)


def kernel_isa(dtype: str, isa: str) -> str:
    """The row that kernels of a type are compiled for: the scalar ones of 16-bit types gain nothing from a better."""
    return isa if dtype == "f32" else "base"


def _make_schedule(problem: Problem, kernel: Kernel, draft: Draft) -> Schedule:
    specialised = problem.specialised and kernel.strategy != "direct"
    slab = problem.elements if draft.slabs > 1 else 0
    return Schedule(
        kernel=kernel,
        isa=problem.isa.name,
        geometry=problem.geometry,
        tile=draft.tile,
        items=draft.items,
        slabs=draft.slabs,
        scratch_bytes=draft.scratch_bytes,
        fields={
            **problem.order.fields,
            **_UNUSED_FIELDS,
            **draft.fields,
            "patches": int(problem.geometry.patches),
            "out_slab": slab,
        },
        sizes={**_list_sizes(problem.geometry), **draft.sizes} if specialised else None,
        cost=draft.cost,
    )


def _list_sizes(geometry: Geometry) -> dict[str, int]:
    """The definitions that kernels/sizes.h asks for, and the one that says they are there."""
    sizes = {"WGRAD_SIZES": 1, "WGRAD_GROUPS": geometry.G, "WGRAD_PLAIN": geometry.P, "WGRAD_WINDOWED": geometry.W}
    sizes["WGRAD_PATCHES"] = int(geometry.patches)
    for field in ("O", "I", "K"):
        sizes |= {f"WGRAD_{field}{axis}": n for axis, n in zip(_AXES, getattr(geometry, field), strict=True)}
    for field in ("stride", "dilation", "pad"):
        sizes |= {f"WGRAD_{field.upper()}_{axis}": n for axis, n in zip(_AXES, getattr(geometry, field), strict=True)}
    return sizes
