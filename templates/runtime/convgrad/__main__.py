# SPDX-License-Identifier: Apache-2.0
"""Command line: `python -m convgrad`. Exit codes: 0 all is well, 1 a check failed, 2 wrong usage, 3 no C compiler."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from convgrad.compiler import find_compiler
from convgrad.errors import CompileError, SpecError

CHECK_FAILED, NO_COMPILER = 1, 3

app = typer.Typer(
    help="Gradients of convolutions with respect to their weights: compiled kernels, and a look at how they do.",
    epilog="Exit codes: 0 all is well, 1 a check failed, 2 wrong usage, 3 no C compiler.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON document.")]


# What a command needs is imported when it runs: --help and doctor need no pictures.


@app.command()
def build(
    *,
    jobs: Annotated[int | None, typer.Option(min=1, help="Compilers at a time. [default: as CPUs, at most 4]")] = None,
    as_json: AsJson = False,
) -> None:
    """Compile every kernel ahead, so that no call has to wait for the compiler."""
    from convgrad.commands.build import run_build

    _finish(run_build(jobs=jobs, as_json=as_json))


@app.command()
def doctor(*, as_json: AsJson = False) -> None:
    """Say what this machine offers, what is compiled, and why something is off."""
    from convgrad.commands.doctor import run_doctor

    _finish(run_doctor(as_json=as_json))


@app.command()
def demo(
    *,
    out: Annotated[Path, typer.Option(dir_okay=False, help="Where the picture goes.")] = Path("convgrad-demo.png"),
    picture: Annotated[bool, typer.Option("--picture/--no-picture", help="Whether to draw one.")] = True,
    steps: Annotated[int, typer.Option(min=1, help="Steps of each descent.")] = 60,
    size: Annotated[int, typer.Option(min=64, max=300, help="Height of the photograph in pixels.")] = 192,
    as_json: AsJson = False,
) -> None:
    """Recover the filter that turned one photograph into another; then check every operation against float64."""
    from convgrad.commands.demo import DemoError, run_demo

    if picture and not out.absolute().parent.is_dir():
        raise typer.BadParameter(f"there is no folder {out.absolute().parent}", param_hint="--out")
    try:
        _finish(run_demo(out if picture else None, steps=steps, size=size, as_json=as_json))
    except (DemoError, LookupError, SpecError) as error:
        # The last two: a package that was generated for some operations, types, ranks or layouts only.
        _fail(str(error), CHECK_FAILED)
    except OSError as error:
        _fail(f"{out} cannot be written: {error}", CHECK_FAILED)


def main() -> None:
    """Run the command line, and turn what stops it into one message and an exit code."""
    try:
        app()
    except CompileError as error:
        _fail(str(error), CHECK_FAILED if _has_compiler() else NO_COMPILER)


def _finish(succeeded: bool) -> None:
    raise typer.Exit(0 if succeeded else CHECK_FAILED)


def _fail(message: str, code: int) -> None:
    print(f"error: {message}", file=sys.stderr)
    raise SystemExit(code)


def _has_compiler() -> bool:
    try:
        find_compiler()
    except CompileError:
        return False
    return True


if __name__ == "__main__":
    main()
