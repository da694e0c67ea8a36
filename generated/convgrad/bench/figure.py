# SPDX-License-Identifier: Apache-2.0
"""The benchmark's picture: what each layer reaches, beside the peers and below its roof, and the roofs themselves."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl
import matplotlib.ticker
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from convgrad.bench.contender import ONEDNN, OURS, TITLES, TORCH
from convgrad.bench.report import describe_machine, describe_settings, summarise
from convgrad.bench.session import LayerResult, Run
from convgrad.figure_style import INK, LINE, QUIET, STYLE

_PALE = "#f5f7fa"
_COLOURS = {OURS: "#2563eb", TORCH: "#f08c4a", ONEDNN: "#8b9bb4"}
_AHEAD, _EVEN, _BEHIND = "#15803d", "#a16207", "#b91c1c"
_STYLE: Any = {**STYLE, "ytick.color": INK}
_WIDTH, _HEAD, _FOOT = 15.0, 1.6, 0.7  # inches
_ROW, _TALLEST_ROW, _ROOF_HEIGHT, _SUMMARY_HEIGHT = 0.40, 0.75, 4.4, 1.9
_LEFT, _BARS_LEFT, _BARS_RIGHT, _ROOF_LEFT, _RIGHT = 0.018, 0.232, 0.55, 0.69, 0.985
_PERCENT, _RATIO = 1.10, 1.245  # right edges of the columns of numbers; the bars end at 1
_NEAR = 1.25
_BAR = 0.27  # of a row


def draw_figure(run: Run, path: Path) -> None:
    """Write the picture as PNG; raises OSError where `path` cannot be written."""
    results = run.measured
    names = [name for name in (OURS, *run.settings.peers) if any(r.scores[name].seconds for r in results)]
    height = max(_HEAD + _ROOF_HEIGHT + _SUMMARY_HEIGHT, _HEAD + _FOOT + _ROW * len(results))
    row = min(_TALLEST_ROW, (height - _HEAD - _FOOT) / len(results))
    with mpl.rc_context(_STYLE):
        figure = Figure(figsize=(_WIDTH, height), dpi=120, facecolor="white")
        top = 1 - _HEAD / height

        def down(inches: float) -> float:
            return 1 - inches / height

        figure.text(_LEFT, down(0.48), run.title, size=19, weight="bold")
        figure.text(_LEFT, down(0.78), f"{describe_settings(run)}   ·   {describe_machine(run)}", color=QUIET, size=10)
        _draw_legend(figure, names, down(1.1))
        deep, tall = row * len(results) / height, _ROOF_HEIGHT / height
        bars = figure.add_axes((_BARS_LEFT, top - deep, _BARS_RIGHT - _BARS_LEFT, deep))
        _draw_bars(bars, results, names)
        roof = figure.add_axes((_ROOF_LEFT, top - tall, _RIGHT - _ROOF_LEFT, tall))
        _draw_roofline(roof, run, results, names)
        _draw_summary(figure, run, top - tall - 0.75 / height, height)
        figure.savefig(path, format="png", metadata={"Software": None})


def _draw_legend(figure: Figure, names: Sequence[str], place: float) -> None:
    handles: list[Any] = [
        Line2D([], [], marker="s", linestyle="", markersize=9, color=_COLOURS[name], label=TITLES[name])
        for name in names
    ]
    handles.append(Line2D([], [], marker="|", linestyle="", markersize=11, markeredgewidth=2, color=INK, label="roof"))
    figure.legend(
        handles=handles, loc="center left", bbox_to_anchor=(_BARS_LEFT - 0.012, place), ncols=len(handles),
        frameon=False, handletextpad=0.3, columnspacing=1.6, fontsize=10,
    )  # fmt: skip


def _draw_bars(axes: Any, results: Sequence[LayerResult], names: Sequence[str]) -> None:
    """GF/s, a group of bars for each layer, from the top; its roof, and how far ahead it is of the better peer."""
    largest = max([result.roof for result in results] + [score.gflops for r in results for score in r.scores.values()])
    thick = min(_BAR, 0.82 / len(names))
    for place, result in enumerate(results):
        if place % 2 == 0:
            axes.axhspan(place - 0.5, place + 0.5, color=_PALE, zorder=0, linewidth=0)
        for number, name in enumerate(names):
            score = result.scores[name]
            middle = place + (number - (len(names) - 1) / 2) * thick
            if score.seconds is not None:
                axes.barh(middle, score.gflops, thick * 0.9, color=_COLOURS[name], zorder=2, linewidth=0)
            else:
                reason = f"{TITLES[name]}: {score.absent}"
                axes.text(largest * 0.006, middle, reason, size=6.5, color=QUIET, va="center", zorder=4)
        axes.plot([result.roof] * 2, [place - 0.42, place + 0.42], color=INK, linewidth=1.8, zorder=3)
        _write_ratio(axes, place, result)
    axes.set_ylim(len(results) - 0.5, -0.5)
    axes.set_xlim(0, largest * 1.04)
    axes.set_yticks(range(len(results)), [result.layer.name for result in results])
    axes.tick_params(axis="both", length=0)
    axes.grid(axis="x", color=LINE, linewidth=0.7, zorder=1)
    axes.set_axisbelow(True)
    axes.spines[["top", "right", "bottom", "left"]].set_visible(False)
    axes.set_xlabel("GF/s, multiplications by padding not counted")
    heads = [(_PERCENT, "% of\nroof")]
    if any(result.ratio is not None for result in results):
        heads.append((_RATIO, "to the\nbetter"))
    for right, head in heads:
        axes.annotate(
            head, (right, 1), (0, 4), xycoords="axes fraction", textcoords="offset points", size=8, color=QUIET,
            ha="right", va="bottom", linespacing=1.05,
        )  # fmt: skip


def _write_ratio(axes: Any, place: int, result: LayerResult) -> None:
    across = axes.get_yaxis_transform()
    if result.percent is not None:
        percent = f"{result.percent.value:.0f}"
        axes.text(_PERCENT, place, percent, size=9.5, color=INK, ha="right", va="center", transform=across)
    ratio = result.ratio
    if ratio is None:
        return
    colour = _AHEAD if ratio.low >= 1 else _BEHIND if ratio.high < 1 else _EVEN
    axes.text(
        _RATIO, place, f"{ratio.value:.2f}", size=9.5, weight="bold", color=colour, ha="right", va="center",
        transform=across,
    )  # fmt: skip


def _draw_roofline(axes: Any, run: Run, results: Sequence[LayerResult], names: Sequence[str]) -> None:
    """FLOPs a second over FLOPs a byte, both logarithmic: slanted roofs are bandwidths, the flat one is arithmetic."""
    peak = 1e-9 * run.facts["arithmetic"]
    bandwidths = {name: 1e-9 * rate for name, rate in run.facts["bandwidth"].items()}
    intensities = [result.intensity for result in results]
    speeds = [result.scores[name].gflops for result in results for name in names if result.scores[name].seconds]
    low = min(min(intensities) / 1.5, peak / max(bandwidths.values()) / 5)
    high = max([*intensities, peak / min(bandwidths.values())]) * 2
    floor = min([*speeds, peak / 30]) / 1.6
    labels = _label_bandwidths(bandwidths)
    for place, (name, rate) in enumerate(bandwidths.items()):
        ridge = peak / rate
        axes.plot([low, ridge], [low * rate, peak], color=QUIET, linewidth=1.1, alpha=0.45 + 0.15 * place, zorder=2)
        start = max(low, floor / rate)
        where = start * (ridge / start) ** 0.14
        axes.text(
            where, where * rate * 1.06, labels[name], size=7.5, color=QUIET, rotation_mode="anchor",
            rotation=_slope(axes, low, high, floor, peak), ha="left", va="bottom",
        )  # fmt: skip
    axes.plot([peak / max(bandwidths.values()), high], [peak, peak], color=INK, linewidth=1.8, zorder=2)
    axes.text(high / 1.1, peak * 1.05, f"{run.facts['row']} {peak:.0f} GF/s", size=8.5, color=INK, ha="right")
    for name in reversed(names):
        points = [(r.intensity, r.scores[name].gflops) for r in results if r.scores[name].seconds is not None]
        axes.scatter(
            [x for x, _ in points], [y for _, y in points], s=34 if name == OURS else 24, color=_COLOURS[name],
            edgecolor="white", linewidth=0.7, zorder=4 if name == OURS else 3, alpha=1 if name == OURS else 0.85,
        )  # fmt: skip
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xlim(low, high)
    axes.set_ylim(floor, peak * 1.6)
    for axis, (start, end) in ((axes.xaxis, (low, high)), (axes.yaxis, (floor, peak * 1.6))):
        axis.set_major_locator(mpl.ticker.FixedLocator(_round_numbers(start, end)))
        axis.set_major_formatter(mpl.ticker.FuncFormatter(lambda value, _: f"{value:g}"))
        axis.set_minor_locator(mpl.ticker.NullLocator())
    axes.grid(color=LINE, linewidth=0.7, zorder=0)
    axes.spines[["top", "right"]].set_visible(False)
    axes.tick_params(length=0, labelsize=8, labelcolor=QUIET)
    axes.set_xlabel("FLOPs for each byte of src, diff_dst and gradient")
    axes.set_title("roofline, GF/s", size=10, weight="bold", loc="left", pad=8)


def _label_bandwidths(bandwidths: dict[str, float]) -> dict[str, str]:
    """What to write at each slanted roof: those too near to each other for two texts share the first one's."""
    groups: list[list[str]] = []
    for name, rate in bandwidths.items():
        if groups and 1 / _NEAR < rate / bandwidths[groups[-1][0]] < _NEAR:
            groups[-1].append(name)
        else:
            groups.append([name])
    labels = dict.fromkeys(bandwidths, "")
    return labels | {names[0]: f"{', '.join(names)} {bandwidths[names[0]]:.0f} GB/s" for names in groups}


def _slope(axes: Any, low: float, high: float, floor: float, peak: float) -> float:
    """Degrees, on the paper, of a line along which both quantities grow alike."""
    box = axes.get_position()
    width, height = (box.width, box.height)
    size = axes.figure.get_size_inches()
    across = width * size[0] / math.log(high / low)
    upward = height * size[1] / math.log(peak * 1.6 / floor)
    return math.degrees(math.atan2(upward, across))


def _round_numbers(low: float, high: float) -> list[float]:
    steps = (1, 2, 5) if high / low < 3000 else (1,)
    exponents = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    return [step * 10.0**exponent for exponent in exponents for step in steps if low <= step * 10.0**exponent <= high]


def _draw_summary(figure: Figure, run: Run, top: float, height: float) -> None:
    """What it comes to, below the roofline: one sentence a line, broken where it is too long."""
    place = top
    for line in summarise(run):
        for part in _wrap(line.plain, 72):
            figure.text(_ROOF_LEFT, place, part, size=8.5, color=INK, va="top")
            place -= 0.19 / height
        place -= 0.07 / height


def _wrap(text: str, width: int) -> list[str]:
    lines = [""]
    for word in text.split():
        if lines[-1] and len(lines[-1]) + 1 + len(word) > width:
            lines.append(word)
        else:
            lines[-1] = f"{lines[-1]} {word}".strip()
    return lines
