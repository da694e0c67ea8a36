# SPDX-License-Identifier: Apache-2.0
"""`python -m convgrad demo`: two filters recovered from a photograph, then every operation against float64."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from importlib import import_module
from importlib.resources import files
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from rich import box
from rich.console import Console
from rich.progress import TextColumn
from rich.table import Table
from rich.text import Text

from convgrad.commands.check import PROBLEM, Check, check_operation
from convgrad.commands.console import make_console, make_progress, print_json
from convgrad.commands.deconvolution import Experiment, Picture, Weights, descend, make_filtering, make_upsampling
from convgrad.operations import OPERATIONS

if TYPE_CHECKING:
    from convgrad.commands.figure import Descent

PHOTOGRAPH = "chelsea.png"
"""Chelsea the cat, 300 x 451 pixels, CC0: among the photographs inside scikit-image's wheel."""
EXTRA = "'pip install matplotlib scikit-image'"


class DemoError(RuntimeError):
    """The demo cannot start: something that it needs is not installed."""


@dataclass(frozen=True, slots=True)
class Result:
    """How an experiment went.

    found             the filter at the end
    losses            before the first step, and after each
    seconds           for all steps
    gradient_seconds  of these, for the median gradient
    """

    experiment: Experiment
    found: Weights
    losses: tuple[float, ...]
    seconds: float
    gradient_seconds: float

    @property
    def summary(self) -> dict[str, Any]:
        """The numbers, for --json."""
        return {
            "operation": self.experiment.operation,
            "title": self.experiment.title,
            "weights": int(self.found.size),
            "steps": len(self.losses) - 1,
            "first_loss": self.losses[0],
            "last_loss": self.losses[-1],
            "noise_floor": self.experiment.noise_floor,
            "relative_error": self.experiment.relative_error(self.found),
            "seconds": self.seconds,
            "gradient_milliseconds": 1e3 * self.gradient_seconds,
        }


def run_demo(out: Path | None, *, steps: int, size: int, as_json: bool) -> bool:
    """Run the demo, print how it went, and write its picture to `out` (None: no picture).

    Args:
        steps: of each descent.
        size: height of the photograph in pixels.
        as_json: print one JSON document instead of tables and filters.

    Returns:
        Whether each loss fell and each operation is inside its error bound.

    Raises:
        DemoError: an optional package is missing; says how to install it.
        CompileError: a kernel could not be compiled.
        OSError: the picture could not be written.
    """
    _require_packages(picture=out is not None)
    console, progress_console = make_console(), make_console(stderr=True)
    photograph = load_photograph(size)
    if not as_json:
        shape = f"{photograph.shape[1]} x {photograph.shape[2]} pixels, 3 colours"
        console.print(f"Chelsea the cat, {shape} ({PHOTOGRAPH} from scikit-image, CC0)\n")
    results = []
    for number, make in enumerate((make_filtering, make_upsampling), start=1):
        experiment = make(photograph)
        if not as_json:
            _print_heading(console, number, experiment)
        result = _run_experiment(progress_console, None if as_json else console, experiment, steps)
        results.append(result)
        if not as_json:
            _print_result(console, result)
    checks = [check_operation(operation) for operation in OPERATIONS]
    if not as_json:
        _print_checks(console, checks)
    if out is not None:
        _write_picture(results, out)
    descended = all(result.losses[-1] < result.losses[0] for result in results)
    succeeded = descended and all(check.passed for check in checks)
    if as_json:
        print_json(
            {
                "ok": succeeded,
                "photograph": {"file": PHOTOGRAPH, "height": photograph.shape[1], "width": photograph.shape[2]},
                "experiments": [result.summary for result in results],
                "operations": [{**asdict(check), "passed": check.passed} for check in checks],
                "picture": None if out is None else str(out),
            }
        )
    elif out is not None:
        console.print(f"\npicture: {out}", soft_wrap=True)
    return succeeded


def load_photograph(height: int) -> Picture:
    """Return scikit-image's cat, (3, height, 1.5 * height) in 0..1, from the file in its wheel.

    Not through `skimage.data`, which would look for some of its pictures on the network.
    """
    io: Any = import_module("skimage.io")
    transform: Any = import_module("skimage.transform")
    file = files("skimage").joinpath("data", PHOTOGRAPH)
    if not file.is_file():
        raise DemoError(f"the photograph is missing: this scikit-image has no {file}; {EXTRA} installs one that has")
    pixels = io.imread(str(file))[..., :3] / 255.0
    scaled = transform.resize(pixels, (height, 3 * height // 2), anti_aliasing=True)
    return np.ascontiguousarray(scaled.transpose(2, 0, 1), dtype=np.float32)


def _require_packages(*, picture: bool) -> None:
    wanted = {"skimage": "scikit-image (the photograph)"}
    if picture:
        wanted["matplotlib"] = "matplotlib (the picture)"
    missing = [name for module, name in wanted.items() if find_spec(module) is None]
    if missing:
        raise DemoError(f"the demo needs {' and '.join(missing)}, which is not installed: {EXTRA}")


def _run_experiment(bar: Console, lines: Console | None, experiment: Experiment, steps: int) -> Result:
    """Descend with a progress bar on the terminal `bar`; without a terminal some steps get a line in `lines`."""
    losses: list[float] = []
    gradient_seconds = []
    found = np.zeros_like(experiment.truth)
    start = time.perf_counter()
    with make_progress(bar, TextColumn("loss {task.fields[loss]:.2e}")) as progress:
        task = progress.add_task("descending", total=steps, loss=float("nan"))
        for number, step in enumerate(descend(experiment, steps)):
            losses.append(step.loss)
            found = step.weights
            if number:
                gradient_seconds.append(step.gradient_seconds)
            progress.update(task, completed=number, loss=step.loss)
            if lines is not None and not bar.is_terminal and _is_reported(number, steps):
                lines.print(f"   step {number:4d}   loss {step.loss:.3e}")
    return Result(experiment, found, tuple(losses), time.perf_counter() - start, float(np.median(gradient_seconds)))


def _is_reported(number: int, steps: int) -> bool:
    """0, 1, 2, 5, 10, 20, 50, ... and the last."""
    return number in (0, steps) or str(number).rstrip("0") in ("1", "2", "5")


def _write_picture(results: Sequence[Result], out: Path) -> None:
    from convgrad.commands.figure import draw_figure

    filtering, upsampling = (_describe_descent(result) for result in results)
    draw_figure(filtering, upsampling, out)


def _describe_descent(result: Result) -> Descent:
    from convgrad.commands.figure import Descent

    return Descent(result.experiment, result.found, result.losses)


# What is printed


def _print_heading(console: Console, number: int, experiment: Experiment) -> None:
    console.print(Text(f"{number}  {experiment.operation}", "bold"))
    console.print(f"   {experiment.title}: {experiment.truth.size} weights to find")


def _print_result(console: Console, result: Result) -> None:
    summary = result.summary
    fall = summary["first_loss"] / summary["last_loss"]
    console.print(
        f"   loss   {summary['first_loss']:.2e} -> {summary['last_loss']:.2e} in {summary['steps']} steps, "
        f"{fall:,.0f} times less"
    )
    console.print(f"   noise  {summary['noise_floor']:.2e} is what the hidden filter itself has")
    console.print(f"   error  {100 * summary['relative_error']:.2g} % of the hidden filter's length")
    console.print(f"   time   {summary['seconds']:.1f} s, {summary['gradient_milliseconds']:.1f} ms a gradient\n")
    _print_filters(console, result)
    console.print()


def _print_filters(console: Console, result: Result) -> None:
    """Print the hidden filters above the found ones, in 80 columns: in colours where there are any, else shaded."""
    truth, labels = result.experiment.truth, result.experiment.labels
    paint = _paint_colours if console.color_system in ("truecolor", "256") else _shade
    grid = Table.grid(padding=(0, 2, 0, 0))
    for _ in labels:
        grid.add_column(no_wrap=True)
    grid.add_row(*labels)
    for name, filters in (("hidden", truth), ("found", result.found)):
        grid.add_row()
        grid.add_row(Text(name, "bold"))
        grid.add_row(*(paint(console, weights, hidden) for weights, hidden in zip(filters, truth, strict=True)))
    console.print(grid)
    if paint is _shade:
        console.print("(blocks are positive, strokes negative, the colours added up)")


def _paint_colours(console: Console, weights: Weights, hidden: Weights) -> Text:
    """(3, height, width) as coloured cells, two rows of pixels in a line; the hidden filter decides the scale."""
    shades = np.clip(127.5 + 127.5 * weights / np.abs(hidden).max(), 0, 255).round().astype(int)
    halves = console.encoding.startswith("utf")
    text = Text()
    for row in range(0, shades.shape[1], 2 if halves else 1):
        for column in range(shades.shape[2]):
            style = _name_colour(shades[:, row, column])
            if not halves:
                text.append("  ", f"on {style}")
            elif row + 1 < shades.shape[1]:
                text.append("▀", f"{style} on {_name_colour(shades[:, row + 1, column])}")
            else:
                text.append("▀", style)
        text.append("\n")
    text.rstrip()
    return text


def _name_colour(rgb: NDArray[np.int_]) -> str:
    return "rgb({},{},{})".format(*rgb)


def _shade(console: Console, weights: Weights, hidden: Weights) -> Text:
    """(3, height, width) as characters, two a pixel; the hidden filter decides the scale."""
    positive, negative = (" ░▒▓█", " ·-=≡") if console.encoding.startswith("utf") else (" +*#@", " .-=%")
    sums = weights.sum(0) / np.abs(hidden.sum(0)).max()
    # By the square root, or the faint parts would not show.
    levels = np.clip(np.rint(4 * np.sqrt(np.abs(sums))), 0, 4).astype(int)
    signs = np.where(sums < 0, -1, 1)
    rows = (
        "".join(2 * (positive if sign > 0 else negative)[level] for level, sign in zip(*row, strict=True))
        for row in zip(levels, signs, strict=True)
    )
    return Text("\n".join(rows))


def _print_checks(console: Console, checks: Sequence[Check]) -> None:
    console.print(Text("every operation against the float64 sum", "bold"))
    console.print(PROBLEM, soft_wrap=True)
    table = Table(box=box.SIMPLE, pad_edge=False)
    table.add_column("operation", no_wrap=True)
    table.add_column("layouts", no_wrap=True)
    table.add_column("gradient", no_wrap=True)
    table.add_column("error /\nmax |dW|", justify="right", no_wrap=True)
    table.add_column("time\nms", justify="right", no_wrap=True)
    table.add_column("", no_wrap=True)
    for check in checks:
        verdict = Text("ok", "green") if check.passed else Text("WRONG", "bold red")
        table.add_row(
            check.operation,
            check.layouts,
            "x".join(map(str, check.weights_shape)),
            f"{check.relative_error:.1e}",
            f"{check.milliseconds:.1f}",
            verdict,
        )
    console.print(table)
