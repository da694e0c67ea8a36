# SPDX-License-Identifier: Apache-2.0
"""Command line: `python -m convgrad`. Exit codes: 0 all is well, 1 a check failed, 2 wrong usage, 3 no C compiler."""

from __future__ import annotations

import sys
from collections.abc import Iterable
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
DType = Annotated[str, typer.Option(help="f32, bf16 or f16.")]
Layout = Annotated[str, typer.Option(help="NXC, NCX, NXC+OIX or NCX+XIO: of the data, and of the weights.")]
Transposed = Annotated[bool, typer.Option("--transposed", help="The transposed operation, roles exchanged.")]
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


@app.command()
def bench(
    *,
    suite: Annotated[list[str] | None, typer.Option(help="Layers of a network; see --list. [default: table]")] = None,
    shape: Annotated[
        list[str] | None,
        typer.Option(help='A layer of your own, as for benchdnn: g1mb2ic3ih32oc16oh32kh3ph1n"name"'),
    ] = None,
    dtype: DType = "f32",
    layout: Layout = "NXC",
    batch: Annotated[int | None, typer.Option(min=1, help="Images, whatever the layers say.")] = None,
    threads: Annotated[int, typer.Option(min=1, max=1024, help="Of everybody.")] = 1,
    transposed: Transposed = False,
    any_size: Annotated[
        bool, typer.Option("--any-size", help="Measure the kernels for any size, not those with compile-time sizes.")
    ] = False,
    repeat: Annotated[int, typer.Option(min=6, help="Interleaved samples of each layer.")] = 25,
    seconds: Annotated[float, typer.Option(min=0.0, help="Time for a layer, once it has 6 samples.")] = 3.0,
    peer: Annotated[list[str] | None, typer.Option(help="torch or onednn. [default: both]")] = None,
    peers: Annotated[bool, typer.Option("--peers/--no-peers", help="Whether to compare at all.")] = True,
    json_path: Annotated[
        Path | None, typer.Option("--json", dir_okay=False, help="Write one JSON document there; - prints it.")
    ] = None,
    plot: Annotated[Path | None, typer.Option(dir_okay=False, help="Draw a picture (PNG) there.")] = None,
    show_list: Annotated[bool, typer.Option("--list", help="Say which suites there are.")] = False,
) -> None:
    """Measure kernels against torch, oneDNN, the roofs of this machine, and the gradient in float64."""
    from convgrad.bench.command import choose_layers, run_bench, show_suites
    from convgrad.bench.contender import PEERS
    from convgrad.bench.operands import LAYOUTS
    from convgrad.bench.problem import ProblemError
    from convgrad.bench.session import BenchError
    from convgrad.bench.suites import SUITES
    from convgrad.vocabulary import NUMPY_DTYPES

    if show_list:
        _finish(show_suites())
    _check_words("--suite", suite or [], SUITES)
    _check_words("--dtype", [dtype], NUMPY_DTYPES)
    _check_words("--layout", [layout], LAYOUTS)
    _check_words("--peer", peer or [], PEERS)
    for option, path in (("--json", json_path), ("--plot", plot)):
        if path is not None and not path.absolute().parent.is_dir():
            raise typer.BadParameter(f"there is no folder {path.absolute().parent}", param_hint=option)
    try:
        title, network, layers = choose_layers(suite or [], shape or [], batch=batch, transposed=transposed)
    except ProblemError as error:
        raise typer.BadParameter(str(error), param_hint="--shape") from None
    try:
        _finish(
            run_bench(
                title,
                layers,
                network=network,
                dtype=dtype,
                layout=layout,
                threads=threads,
                transposed=transposed,
                any_size=any_size,
                repeat=repeat,
                seconds=seconds,
                peers=(peer or PEERS) if peers else (),
                json_path=json_path,
                plot=plot,
            )
        )
    except (BenchError, OSError, SpecError) as error:
        _fail(str(error), CHECK_FAILED)


@app.command()
def explain(
    shape: Annotated[str, typer.Argument(help='A layer, as for benchdnn: g1mb2ic3ih32oc16oh32kh3ph1n"name"')],
    *,
    dtype: DType = "f32",
    layout: Layout = "NXC",
    threads: Annotated[
        int | None, typer.Option(min=1, max=1024, help="That work is split for. [default: what calls use]")
    ] = None,
    isa: Annotated[str | None, typer.Option(help="Instruction set. [default: what calls use]")] = None,
    transposed: Transposed = False,
    alternatives: Annotated[int, typer.Option(min=0, help="Rejected schedules to show, of each build.")] = 5,
    as_json: AsJson = False,
) -> None:
    """Say how a layer is computed: kernel, tile, order of the sum, work and memory; and what was rejected."""
    from convgrad.bench.operands import LAYOUTS
    from convgrad.bench.problem import ProblemError
    from convgrad.commands.explain import run_explain
    from convgrad.isa import ISAS
    from convgrad.vocabulary import NUMPY_DTYPES

    _check_words("--dtype", [dtype], NUMPY_DTYPES)
    _check_words("--layout", [layout], LAYOUTS)
    _check_words("--isa", [] if isa is None else [isa], ISAS)
    try:
        _finish(
            run_explain(
                shape,
                dtype=dtype,
                layout=layout,
                threads=threads,
                isa=isa,
                transposed=transposed,
                alternatives=alternatives,
                as_json=as_json,
            )
        )
    except ProblemError as error:
        raise typer.BadParameter(str(error), param_hint="SHAPE") from None
    except (LookupError, SpecError) as error:
        # A package that was generated for some operations, types, ranks or layouts only, or a wrong variable.
        _fail(str(error), CHECK_FAILED)


def main() -> None:
    """Run the command line, and turn what stops it into one message and an exit code."""
    try:
        app()
    except CompileError as error:
        _fail(str(error), CHECK_FAILED if _has_compiler() else NO_COMPILER)


def _finish(succeeded: bool) -> None:
    raise typer.Exit(0 if succeeded else CHECK_FAILED)


def _check_words(option: str, given: Iterable[str], known: Iterable[str]) -> None:
    for word in given:
        if word not in known:
            raise typer.BadParameter(f"{word!r}: expected one of {', '.join(known)}", param_hint=option)


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
