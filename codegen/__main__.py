# SPDX-License-Identifier: Apache-2.0
"""The generator's command line: generate, list, docs, schema.

Exit codes: 0 done, 1 drift, 2 wrong usage or wrong specifications.
"""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Mapping
from pathlib import Path, PurePosixPath
from typing import Annotated, NoReturn

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

from codegen.documentation.call import WrongExampleError
from codegen.outputs import Copy, Output
from codegen.plan import Selection, plan_outputs
from codegen.render import render_plan
from codegen.roles import UnsupportedSumError
from codegen.tree import Drift, check_tree, list_owned_files, write_tree
from specs.loader import OPERATIONS, SpecFileError, load_operations
from specs.model import Operation
from specs.vocabulary import DATA_LAYOUTS, ELEMENT_TYPES, SPATIAL_AXES

GENERATED = Path(__file__).resolve().parent.parent / "generated"

app = typer.Typer(
    help="Turn the specifications into C kernels, a Python package, documentation and JSON Schema.",
    no_args_is_help=True,
    add_completion=False,
)

SpecsOption = Annotated[Path, typer.Option("--specs", help="Folder of operation files.", show_default=False)]
CheckOption = Annotated[bool, typer.Option("--check", help="Write nothing; exit 1 and print a diff on any difference.")]
OutOption = Annotated[
    Path | None, typer.Option("--out", help="Write a complete package to this folder instead.", show_default=False)
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON.")]


@app.command()
def generate(
    check: CheckOption = False,
    out: OutOption = None,
    specs: SpecsOption = OPERATIONS,
    op: Annotated[list[str] | None, typer.Option(help="With --out: only this operation; may be repeated.")] = None,
    dtype: Annotated[list[str] | None, typer.Option(help="With --out: only kernels of this type.")] = None,
    rank: Annotated[list[int] | None, typer.Option(help="With --out: only kernels of this spatial rank.")] = None,
    data_format: Annotated[list[str] | None, typer.Option(help="With --out: only kernels of this layout.")] = None,
) -> None:
    """Write everything below generated/; what is right already is left alone, what does not belong is removed."""
    operations = _load(specs)
    selection = Selection(tuple(op or ()), tuple(dtype or ()), tuple(rank or ()), tuple(data_format or ()))
    _check_selection(operations, selection, out)
    _bring_up_to_date(out or GENERATED, _plan(operations, selection), check)


@app.command("list")
def list_outputs(specs: SpecsOption = OPERATIONS, as_json: JsonOption = False) -> None:
    """List operations, kernels and every file that the generator writes."""
    operations = _load(specs)
    outputs = _plan(operations, Selection())
    if as_json:
        rows = [{"path": str(row.path), "from": _origin(row)} for row in outputs]
        names = [operation.versioned_name for operation in operations]
        print(json.dumps({"operations": names, "kernels": _count_kernels(outputs), "files": rows}, indent=2))
        return
    print(f"{len(operations)} operations")
    for operation in operations:
        print(f"  {operation.versioned_name} ({operation.generation}): {operation.summary}")
    print(f"{_count_kernels(outputs)} kernels, {len(outputs)} files")
    for row in outputs:
        print(f"  {row.path}  <-  {_origin(row)}")


@app.command()
def docs(check: CheckOption = False, out: OutOption = None, specs: SpecsOption = OPERATIONS) -> None:
    """Export the documentation, a Markdown and an HTML page for each operation."""
    _export_folder("docs", check, out, specs)


@app.command()
def schema(check: CheckOption = False, out: OutOption = None, specs: SpecsOption = OPERATIONS) -> None:
    """Export JSON Schema: of the specification files, and of each operation's attributes."""
    _export_folder("schema", check, out, specs)


def _export_folder(name: str, check: bool, out: Path | None, specs: Path) -> None:
    outputs = [row for row in _plan(_load(specs), Selection()) if row.path.parts[0] == name]
    moved = [_below(row) for row in outputs]
    _bring_up_to_date(out or GENERATED / name, moved, check)


def _below(row: Output | Copy) -> Output | Copy:
    path = PurePosixPath(*row.path.parts[1:])
    return Copy(path, row.source) if isinstance(row, Copy) else Output(path, row.template, row.context)


def _load(specs: Path) -> tuple[Operation, ...]:
    try:
        return load_operations(specs)
    except SpecFileError as error:
        _fail("\n".join(error.problems))


def _plan(operations: tuple[Operation, ...], selection: Selection) -> list[Output | Copy]:
    try:
        return plan_outputs(operations, selection)
    except (UnsupportedSumError, WrongExampleError) as error:
        _fail(str(error))


def _check_selection(operations: tuple[Operation, ...], selection: Selection, out: Path | None) -> None:
    if selection != Selection() and out is None:
        _fail("--op, --dtype, --rank and --data-format select what goes into another folder: give --out as well")
    allowed: list[tuple[str, tuple[object, ...], list[object]]] = [
        ("--op", selection.operations, [operation.name for operation in operations]),
        ("--dtype", selection.dtypes, [row.name for row in ELEMENT_TYPES]),
        ("--rank", selection.ranks, list(SPATIAL_AXES)),
        ("--data-format", selection.data_formats, list(DATA_LAYOUTS)),
    ]
    for option, values, known in allowed:
        for value in values:
            if value not in known:
                _fail(f"{option} {value}: expected one of {', '.join(map(str, known))}")


def _bring_up_to_date(folder: Path, outputs: list[Output | Copy], check: bool) -> None:
    rendered = _render(outputs)
    if check:
        drift = check_tree(folder, rendered)
        if drift:
            _report_drift(folder, drift)
            raise typer.Exit(1)
        print(f"{len(rendered)} files are up to date in {folder}")
        return
    _refuse_foreign(folder, rendered)
    try:
        drift = write_tree(folder, rendered)
    except OSError as error:
        _fail(f"{folder} cannot be written: {error}")
    for path in drift.orphans:
        print(f"removed {path}: nothing generates it any more")
    written = len(drift.missing) + len(drift.changed)
    print(f"{len(rendered)} files in {folder}: {written} written, {len(drift.orphans)} removed")


def _refuse_foreign(folder: Path, rendered: Mapping[PurePosixPath, bytes]) -> None:
    """All below the folder is about to become the generator's: never take over a folder that holds other work."""
    if folder.is_relative_to(GENERATED) or not folder.exists():
        return
    if not folder.is_dir():
        _fail(f"{folder} is not a folder")
    present = list_owned_files(folder)
    if present and not set(present) & set(rendered):
        _fail(f"{folder} holds files that are not the generator's ({present[0]}, ...): choose an empty or new folder")


def _render(outputs: list[Output | Copy]) -> dict[PurePosixPath, bytes]:
    console = Console(stderr=True)
    columns = (TextColumn("rendering"), BarColumn(), MofNCompleteColumn(), TextColumn("{task.description}"))
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        task = progress.add_task("", total=len(outputs))
        return render_plan(outputs, lambda path: progress.update(task, advance=1, description=path.name))


def _report_drift(folder: Path, drift: Drift) -> None:
    for path in drift.missing:
        print(f"missing: {path}")
    for path in drift.orphans:
        print(f"orphan: {path}")
    for path in drift.changed:
        print(f"changed: {path}")
        print(drift.diffs[path], end="")
    mend = shlex.join(["python", "-m", "codegen", *(word for word in sys.argv[1:] if word != "--check")])
    print(f"{folder} differs from what the specifications and templates give; `{mend}` mends it")


def _count_kernels(outputs: list[Output | Copy]) -> int:
    return sum(row.template.startswith("c/") for row in outputs if isinstance(row, Output))


def _origin(row: Output | Copy) -> str:
    return f"templates/{row.template}" if isinstance(row, Output) else "copied as it is"


def _fail(message: str) -> NoReturn:
    print(f"error: {message}", file=sys.stderr)
    raise typer.Exit(2)


if __name__ == "__main__":
    app(prog_name="python -m codegen")
