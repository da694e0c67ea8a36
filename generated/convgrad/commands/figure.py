# SPDX-License-Identifier: Apache-2.0
"""The demo's picture: photographs before and after, filters hidden and found, and the way the loss fell."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray

from convgrad.commands.deconvolution import Experiment, Picture, Weights
from convgrad.figure_style import LINE, QUIET, STYLE

_ACCENTS = ("#2563eb", "#d9480f")
_LEFT, _RIGHT = 0.04, 0.975


@dataclass(frozen=True, slots=True)
class Descent:
    """An experiment and how it went: the filter that was found, and the loss before each step and at the end."""

    experiment: Experiment
    found: Weights
    losses: Sequence[float]


def draw_figure(filtering: Descent, upsampling: Descent, path: Path) -> None:
    """Write the picture as PNG; raises OSError where `path` cannot be written."""
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(13, 11.6), dpi=120, facecolor="white")
        figure.text(_LEFT, 0.965, "Which filter turned one picture into the other?", size=20, weight="bold")
        figure.text(
            _LEFT, 0.943,
            "Found by gradient descent from a filter of zeros; every gradient is one call of convgrad. "
            "A filter's pixel shows its weights for red, green and blue: grey is zero.",
            size=10.5, color=QUIET,
        )  # fmt: skip
        grid = figure.add_gridspec(
            2, 1, left=_LEFT, right=_RIGHT, bottom=0.045, top=0.872, height_ratios=(1.32, 1), hspace=0.21
        )
        _draw_filtering(figure, grid[0], filtering)
        _draw_upsampling(figure, grid[1], upsampling)
        figure.savefig(path, format="png", metadata={"Software": None})


def _draw_filtering(figure: Figure, place: Any, descent: Descent) -> None:
    experiment = descent.experiment
    _draw_heading(figure, place, descent, "1", _ACCENTS[0])
    left, right = place.subgridspec(1, 2, width_ratios=(1, 2.05), wspace=0.09)
    above, below = left.subgridspec(2, 1, height_ratios=(1.5, 1), hspace=0.2)
    _draw_photograph(figure, above, experiment.before, f"before, {_size(experiment.before)}")
    _draw_losses(figure, below, descent, _ACCENTS[0])
    count = len(experiment.labels)
    grid = right.subgridspec(4, count, hspace=0.1, wspace=0.06, height_ratios=(1.04, 1, 1, 1))
    for column, label in enumerate(experiment.labels):
        axes = figure.add_subplot(grid[0, column])
        axes.imshow(_stretch(experiment.after[column]), cmap="gray", vmin=0, vmax=1, interpolation="lanczos")
        _title(axes, label)
        _frame(axes)
        if column == 0:
            _name_row(axes, "after")
        _draw_filters(figure, [grid[row, column] for row in (1, 2, 3)], descent, column, named=column == 0)


def _draw_upsampling(figure: Figure, place: Any, descent: Descent) -> None:
    experiment = descent.experiment
    _draw_heading(figure, place, descent, "2", _ACCENTS[1])
    left, middle, right = place.subgridspec(1, 3, width_ratios=(1, 1.16, 1.06), wspace=0.13)
    above, below = left.subgridspec(2, 1, height_ratios=(1, 1.35), hspace=0.24)
    # Half as wide as what comes of it, as it is.
    half = above.subgridspec(1, 2, width_ratios=(1.16, 2 - 1.16), wspace=0)[0]
    _draw_photograph(figure, half, experiment.before, f"before, {_size(experiment.before)}")
    _draw_losses(figure, below, descent, _ACCENTS[1])
    _draw_photograph(figure, middle, experiment.after, f"after, {_size(experiment.after)}")
    grid = right.subgridspec(3, len(experiment.labels), hspace=0.1, wspace=0.08)
    for column, label in enumerate(experiment.labels):
        first = _draw_filters(figure, [grid[row, column] for row in range(3)], descent, column, named=column == 0)
        _title(first, label)


def _draw_heading(figure: Figure, place: Any, descent: Descent, number: str, accent: str) -> None:
    experiment, losses = descent.experiment, descent.losses
    height = place.get_position(figure).y1 + 0.029
    figure.text(_LEFT, height, f"{number}  {experiment.operation}", size=13, weight="bold", color=accent)
    error = 100 * experiment.relative_error(descent.found)
    result = (
        f"{experiment.title}: {descent.found.size} weights, relative error {error:.2g} %; "
        f"the loss fell {losses[0] / losses[-1]:,.0f}-fold"
    )
    figure.text(_RIGHT, height, result, size=10, color=QUIET, ha="right")


def _draw_photograph(figure: Figure, place: Any, picture: Picture, title: str) -> None:
    axes = figure.add_subplot(place)
    axes.imshow(_colours(picture), interpolation="lanczos")
    axes.set_anchor("NW")
    _title(axes, title)
    _frame(axes)


def _draw_losses(figure: Figure, place: Any, descent: Descent, accent: str) -> None:
    floor, losses = descent.experiment.noise_floor, descent.losses
    axes = figure.add_subplot(place)
    axes.axhline(floor, color=QUIET, linewidth=1, linestyle=(0, (4, 3)))
    axes.semilogy(range(len(losses)), losses, color=accent, linewidth=2.2, solid_capstyle="round")
    axes.annotate(
        "the hidden filter's own loss, from noise", (len(losses) - 1, floor), (0, 5),
        textcoords="offset points", ha="right", size=8, color=QUIET,
    )  # fmt: skip
    axes.set_xlim(0, max(1, len(losses) - 1))
    _title(axes, "loss after each step")
    axes.grid(axis="y", color=LINE, linewidth=0.7)
    axes.spines[["top", "right"]].set_visible(False)
    axes.tick_params(length=0, labelsize=8)
    axes.minorticks_off()


def _draw_filters(figure: Figure, places: Sequence[Any], descent: Descent, index: int, *, named: bool) -> Any:
    """Draw the hidden filter, the found one and what is between them; return the axes of the first."""
    hidden, found = descent.experiment.truth[index], descent.found[index]
    scale = float(np.abs(hidden).max())
    gain = _choose_gain(descent)
    rows = (("hidden", hidden), ("found", found), (f"difference x {gain:g}", gain * (found - hidden)))
    drawn = []
    for place, (name, weights) in zip(places, rows, strict=True):
        axes = figure.add_subplot(place)
        axes.imshow(filter_colours(weights, scale), interpolation="nearest")
        _frame(axes)
        if named:
            _name_row(axes, name)
        drawn.append(axes)
    return drawn[0]


def _choose_gain(descent: Descent) -> float:
    """Return a round factor that makes the largest difference just visible: 1, 2 or 5 times a power of ten."""
    truth = descent.experiment.truth
    share = float((np.abs(descent.found - truth).max((1, 2, 3)) / np.abs(truth).max((1, 2, 3))).max())
    gains = [mantissa * 10.0**exponent for exponent in range(7) for mantissa in (1, 2, 5)]
    return max((gain for gain in gains if gain * share <= 1), default=1.0)


def filter_colours(weights: Weights, scale: float) -> NDArray[np.float32]:
    """(3, height, width) as (height, width, 3) in 0..1: zero is grey, `scale` white and -`scale` black."""
    return np.asarray(np.clip(0.5 + 0.5 * weights.transpose(1, 2, 0) / scale, 0, 1), np.float32)


def _stretch(picture: NDArray[np.float32]) -> NDArray[np.float32]:
    """One channel, so that all but its brightest and darkest pixels fill 0..1."""
    low, high = np.percentile(picture, (0.5, 99.5))
    return np.asarray(np.clip((picture - low) / (high - low), 0, 1), np.float32)


def _colours(picture: Picture) -> NDArray[np.float32]:
    return np.asarray(np.clip(picture.transpose(1, 2, 0), 0, 1), np.float32)


def _size(picture: Picture) -> str:
    return f"{picture.shape[1]} x {picture.shape[2]} pixels"


def _title(axes: Any, text: str) -> None:
    axes.set_title(text, size=10, weight="bold", pad=5, loc="left")


def _frame(axes: Any) -> None:
    axes.set_xticks([])
    axes.set_yticks([])
    for spine in axes.spines.values():
        spine.set_linewidth(0.8)


def _name_row(axes: Any, name: str) -> None:
    axes.set_ylabel(name, size=9, color=QUIET, labelpad=5)
