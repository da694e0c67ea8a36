# SPDX-License-Identifier: Apache-2.0
"""`python -m convgrad explain`: how a problem would be computed, and what else was considered. Nothing is computed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from convgrad.bench.operation import find_operation, resolve_problem
from convgrad.bench.problem import parse_problem
from convgrad.commands.console import make_console, print_json
from convgrad.geometry import Geometry
from convgrad.isa import detect_isa
from convgrad.planner import Schedule, limit_scratch, list_schedules, plan_schedule
from convgrad.threads import get_num_threads

_BUILDS = {"specialised": "compile-time sizes", "any_size": "any size"}


@dataclass(frozen=True, slots=True)
class Choice:
    """What the planner chose for one build, and the schedules that it did not, the cheapest first."""

    chosen: Schedule
    rejected: tuple[Schedule, ...]


def run_explain(
    shape: str,
    *,
    dtype: str,
    layout: str,
    threads: int | None,
    isa: str | None,
    transposed: bool,
    alternatives: int,
    as_json: bool,
) -> bool:
    """Print how a problem is computed. Returns True.

    Args:
        shape: problem string, as in convgrad.bench.problem.
        dtype: element type of the inputs.
        layout: key of convgrad.bench.operands.LAYOUTS.
        threads: that the work is split for; None: what calls use.
        isa: row of convgrad.isa.ISAS; None: what calls use.
        transposed: for the transposed operation, roles exchanged.
        alternatives: rejected schedules to print, of each build.
        as_json: print one JSON document.

    Raises:
        ProblemError: the problem string cannot be read.
        SpecError: this package was generated without kernels for it, it is too large, or a variable is wrong.
        LookupError: this package was generated without the operation.
        CompileError: the processor has to be asked for its instruction set, and that cannot be compiled.
    """
    problem, name = parse_problem(shape)
    geometry = resolve_problem(problem, layout, transposed=transposed)
    threads = get_num_threads() if threads is None else threads
    isa = detect_isa() if isa is None else isa
    choices = {build: _choose(geometry, dtype, isa, threads, specialised=build == "specialised") for build in _BUILDS}
    operation = find_operation(transposed=transposed).description.name
    limit = limit_scratch(geometry, dtype)
    if as_json:
        print_json(
            {
                "problem": str(problem),
                "name": name,
                "operation": operation,
                "dtype": dtype,
                "layout": layout,
                "threads": threads,
                "isa": isa,
                "flops": problem.flops,
                "scratch_limit": limit,
                **{build: _choice_document(choice, alternatives) for build, choice in choices.items()},
            }
        )
        return True
    console = make_console()
    console.print(Text(name or str(problem), "bold"))
    told = f"{operation}, {dtype}, {layout}, {isa}, {threads} thread{'s' if threads > 1 else ''}"
    console.print(Text(f"{told}; {problem.products} multiply-adds, padding left out", "dim"))
    if not choices["specialised"].chosen.specialised:
        del choices["specialised"]  # the same once more
    console.print(_make_table(choices))
    _print_constants(console, next(iter(choices.values())).chosen)
    for build, choice in choices.items():
        _print_rejected(console, f"Rejected, {_BUILDS[build]}", choice, alternatives, limit)
    return True


def _choose(geometry: Geometry, dtype: str, isa: str, threads: int, *, specialised: bool) -> Choice:
    chosen = plan_schedule(geometry, dtype, isa, specialised=specialised, threads=threads)
    every = sorted(
        list_schedules(geometry, dtype, isa, specialised=specialised, threads=threads),
        key=lambda schedule: schedule.cost,
    )
    return Choice(chosen, tuple(schedule for schedule in every if schedule != chosen))


def _make_table(choices: dict[str, Choice]) -> Table:
    """A row for each property, a column for each build."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, header_style="bold")
    table.add_column("")
    for build in choices:
        table.add_column(_BUILDS[build], overflow="fold")
    columns = [_describe(choice.chosen) for choice in choices.values()]
    for label in columns[0]:
        table.add_row(Text(label, "bold"), *(column[label] for column in columns))
    return table


def _describe(schedule: Schedule) -> dict[str, str]:
    """What there is to say of a schedule, by what the table calls it."""
    return {
        "strategy": schedule.kernel.strategy,
        "kernel": schedule.kernel.symbol,
        "instruction set": schedule.isa,
        "register tile": schedule.tile,
        "blocks of the sum": "{block_rows} rows x {block_columns} columns".format(**schedule.fields),
        "groups of blocks": "{group_rows} rows x {group_columns} columns".format(**schedule.fields),
        "work items": str(schedule.items),
        "slabs": str(schedule.slabs),
        "scratch a thread": f"{schedule.scratch_bytes} bytes",
        "expected cycles": f"{schedule.cost:.3g}",
    }


def _print_constants(console: Console, schedule: Schedule) -> None:
    if schedule.sizes is None:
        console.print(Text(f"no compile-time constants: strategy {schedule.kernel.strategy} serves any size as it is"))
        return
    sizes = ", ".join(f"{name.removeprefix('WGRAD_')} {size}" for name, size in schedule.sizes.items())
    console.print(Text.assemble(("compile-time constants (WGRAD_...): ", "bold"), sizes))


def _print_rejected(console: Console, title: str, choice: Choice, alternatives: int, limit: int) -> None:
    if not alternatives:
        return
    console.print()
    if not choice.rejected:
        console.print(Text(f"{title}: there was no other schedule"))
        return
    shown = choice.rejected[:alternatives]
    console.print(Text(f"{title}: the cheapest {len(shown)} of {len(choice.rejected)}", "bold"))
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, header_style="bold")
    table.add_column("strategy")
    table.add_column("register tile", overflow="fold")
    for heading in ("work items", "slabs", "scratch, bytes", "expected cycles", "to the chosen"):
        table.add_column(heading, justify="right")
    for schedule in shown:
        excess = " too much" if schedule.scratch_bytes > limit else ""
        table.add_row(
            schedule.kernel.strategy,
            schedule.tile,
            str(schedule.items),
            str(schedule.slabs),
            f"{schedule.scratch_bytes}{excess}",
            f"{schedule.cost:.3g}",
            f"{schedule.cost / choice.chosen.cost:.3f}" if choice.chosen.cost else "-",
        )
    console.print(table)


def _choice_document(choice: Choice, alternatives: int) -> dict[str, Any]:
    return {
        "chosen": _schedule_document(choice.chosen),
        "rejected_count": len(choice.rejected),
        "rejected": [_schedule_document(schedule) for schedule in choice.rejected[:alternatives]],
    }


def _schedule_document(schedule: Schedule) -> dict[str, Any]:
    return {
        "schedule": str(schedule),
        "strategy": schedule.kernel.strategy,
        "kernel": schedule.kernel.symbol,
        "isa": schedule.isa,
        "specialised": schedule.specialised,
        "tile": schedule.tile,
        "items": schedule.items,
        "slabs": schedule.slabs,
        "scratch_bytes": schedule.scratch_bytes,
        "fields": dict(schedule.fields),
        "sizes": None if schedule.sizes is None else dict(schedule.sizes),
        "cycles": schedule.cost,
    }
