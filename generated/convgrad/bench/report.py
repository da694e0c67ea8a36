# SPDX-License-Identifier: Apache-2.0
"""A run as tables for people and as one JSON document for machines."""

from __future__ import annotations

import math
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from convgrad.bench.contender import OURS, TITLES
from convgrad.bench.session import LayerResult, Run, Score
from convgrad.bench.statistics import Estimate
from convgrad.bench.suites import SUITES

FORMAT = 1
"""Of the JSON document; a change that could break its readers counts it up."""

_OWN_FACTS = ("plan", "schedule", "strategy", "specialised", "isa", "items", "scratch_bytes")
"""What the worker says of this package's kernel, as it is in the JSON document."""

_AHEAD, _EVEN, _BEHIND = "bold green", "yellow", "bold red"


def print_run(console: Console, run: Run) -> None:
    """Print what was measured on what, a table of the layers, and what it comes to."""
    console.print()
    console.print(Text(run.title, "bold"))
    console.print(Text(describe_settings(run), "dim"))
    console.print(Text(describe_machine(run), "dim"))
    console.print(Text(describe_roofs(run), "dim"))
    console.print(_make_table(run))
    for line in summarise(run):
        console.print(line)
    _print_remarks(console, run)


def describe_settings(run: Run) -> str:
    """What was asked for, in one line."""
    settings = run.settings
    operation = "ConvTransposeBackwardWeights" if run.transposed else "ConvolutionBackwardWeights"
    threads = f"{settings.threads} thread{'s' if settings.threads > 1 else ''}"
    kernels = "kernels for any size" if settings.any_size else "kernels with compile-time sizes"
    return f"{operation}, {settings.dtype}, {settings.layout}, {threads}, {kernels}"


def describe_machine(run: Run) -> str:
    """On what, in one line."""
    peers = [f"{TITLES[name]} {found}" for name, found in run.facts["peers"].items() if found is not None]
    return ", ".join([run.machine["cpu"], run.machine["compiler"], *peers])


def describe_roofs(run: Run) -> str:
    """What the machine could do, in one line."""
    levels = [f"{name} {rate * 1e-9:.0f}" for name, rate in run.facts["bandwidth"].items()]
    return f"roofs: {run.facts['row']} {run.facts['arithmetic'] * 1e-9:.0f} GF/s; reading, GB/s: {', '.join(levels)}"


def _make_table(run: Run) -> Table:
    contenders = (OURS, *run.settings.peers)
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, header_style="bold", padding=(0, 1))
    table.add_column("layer", no_wrap=True, overflow="ellipsis", min_width=18)
    if run.network:
        table.add_column("times", justify="right")
    table.add_column("ms", justify="right", no_wrap=True)
    for name in contenders:
        table.add_column(f"{TITLES[name]}\nGF/s", justify="right", style="bold" if name == OURS else "")
    table.add_column("% of\nroof", justify="right")
    if run.settings.peers:
        table.add_column("to the better\n[95 %]", justify="right", no_wrap=True)
    for name in contenders:
        table.add_column(f"error\n{TITLES[name]}", justify="right", no_wrap=True, style="dim")
    for result in run.results:
        cells: list[str | Text] = [result.layer.name]
        if run.network:
            cells.append(str(result.layer.count))
        if result.skipped is not None:
            table.add_row(*cells, Text("left out", "yellow"))
            continue
        ours = result.scores[OURS]
        assert ours.seconds is not None
        assert result.percent is not None
        cells.append(format_milliseconds(ours.seconds.value))
        cells += [_format_speed(result.scores[name]) for name in contenders]
        cells.append(f"{result.percent.value:.0f}{'' if result.bound == 'arithmetic' else ' bw'}")
        if run.settings.peers:
            cells.append(format_ratio(result.ratio) if result.ratio is not None else Text("-", "dim"))
        cells += [
            "-" if result.scores[name].absent is not None else f"{result.scores[name].error:.0e}" for name in contenders
        ]
        table.add_row(*cells)
    return table


def _format_speed(score: Score) -> Text:
    if score.absent is not None:
        return Text("not installed" if score.absent == "not installed" else "-", "dim")
    return Text(f"{score.gflops:.1f}" if score.gflops < 100 else f"{score.gflops:.0f}")


def format_milliseconds(seconds: float) -> str:
    """Three digits, as far as that goes."""
    milliseconds = 1e3 * seconds
    digits = max(0, 2 - math.floor(math.log10(milliseconds))) if milliseconds > 0 else 0
    return f"{milliseconds:.{min(digits, 4)}f}"


def format_ratio(ratio: Estimate) -> Text:
    """The ratio with its interval: green if all of it is ahead, red if all of it is behind."""
    style = _AHEAD if ratio.low >= 1 else _BEHIND if ratio.high < 1 else _EVEN
    return Text.assemble((f"{ratio.value:.2f}", style), (f" [{ratio.low:.2f}, {ratio.high:.2f}]", "dim"))


def summarise(run: Run) -> list[Text]:
    """What it all comes to, a line each."""
    lines = []
    mean = run.geometric_mean
    if mean is not None:
        rated = [result for result in run.measured if result.ratio is not None]
        slowest = min(rated, key=lambda result: result.ratio.value if result.ratio else 0.0)
        behind = [result for result in rated if result.ratio is not None and result.ratio.high < 1]
        text = Text("to the better peer: geometric mean ")
        text.append_text(format_ratio(mean))
        text.append(f" of {len(rated)} layers, least on {slowest.layer.name}: ")
        assert slowest.ratio is not None
        text.append_text(format_ratio(slowest.ratio))
        text.append(f"; behind on {len(behind)} of {len(rated)}")
        lines.append(text)
    totals = run.network_seconds()
    if run.network and totals:
        parts = [f"{TITLES[name]} {format_milliseconds(seconds)} ms" for name, seconds in totals.items()]
        lines.append(Text(f"all layers of the network, as often as it has them: {', '.join(parts)}"))
    costs = run.facts["call_microseconds"]
    shown = [f"{costs['plan']:.1f} us for a plan, {costs['operation']:.1f} us for an operation"]
    if "torch" in costs:
        shown.append(f"{costs['torch']:.1f} us for torch")
    lines.append(Text(f"a call from Python, not in the times above: {', '.join(shown)}"))
    return lines


def _print_remarks(console: Console, run: Run) -> None:
    reasons: dict[tuple[str, str], list[str]] = {}
    for result in run.measured:
        for name, score in result.scores.items():
            if score.absent is not None:
                reasons.setdefault((name, score.absent), []).append(result.layer.name)
    for result in run.results:
        if result.skipped is not None:
            console.print(Text(f"left out: {result.layer.name}: {result.skipped}", "yellow"), soft_wrap=True)
    general = [result.layer.name for result in run.measured if result.raw and not result.raw["specialised"]]
    if general and not run.settings.any_size:
        where = "" if len(general) == len(run.measured) else f" on {', '.join(general)}"
        console.print(Text(f"convgrad{where}: the kernel for any size, for there is no other", "dim"), soft_wrap=True)
    for (name, reason), layers in reasons.items():
        where = "" if len(layers) == len(run.measured) else f" on {', '.join(layers)}"
        console.print(Text(f"{TITLES[name]}{where}: {reason}", "yellow"), soft_wrap=True)
    if run.crowded:
        text = (
            f"{run.machine['cpus']} CPUs had a load of {run.machine['load'][0]:.1f} before this began, and "
            f"{run.settings.threads} threads are timed by the wall clock: these figures are the neighbours' as well"
        )
        console.print(Text(text, "yellow"), soft_wrap=True)
    for result in run.wrong:
        console.print(
            Text(f"WRONG: {result.layer.name}: the error is {result.scores[OURS].error:.1e}", _BEHIND), soft_wrap=True
        )


def list_suites(console: Console) -> None:
    """Print what there is to measure."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, header_style="bold")
    table.add_column("suite", style="bold")
    table.add_column("layers", justify="right")
    table.add_column("what it is")
    for name, suite in SUITES.items():
        table.add_row(name, str(len(suite.layers)), suite.title)
    console.print(table)


def make_document(run: Run) -> dict[str, Any]:
    """The whole run, raw samples included, ready for JSON. Seconds, bytes, FLOPs; "gflops" are 1e9 FLOPs a second."""
    mean = run.geometric_mean
    return {
        "format": FORMAT,
        "title": run.title,
        "settings": {
            "dtype": run.settings.dtype,
            "layout": run.settings.layout,
            "threads": run.settings.threads,
            "transposed": run.transposed,
            "any_size": run.settings.any_size,
            "rounds": run.settings.rounds,
            "seconds": run.settings.seconds,
            "peers": list(run.settings.peers),
            "clock": "CPU clock of the thread" if run.settings.threads == 1 else "wall clock",
        },
        "machine": run.machine,
        "versions": {"numpy": run.facts["numpy"], **run.facts["peers"]},
        "roofs": {
            "instructions": run.facts["row"],
            "flops_per_second": run.facts["arithmetic"],
            "bytes_per_second": run.facts["bandwidth"],
            "cache_bytes": run.facts["caches"],
        },
        "call_microseconds": run.facts["call_microseconds"],
        "summary": {
            "ratio_to_the_better_peer": None if mean is None else mean.as_dict(),
            "compared_layers": sum(result.ratio is not None for result in run.measured),
            "left_out": [result.layer.name for result in run.results if result.skipped is not None],
            "network_seconds": run.network_seconds() if run.network else None,
            "wrong": [result.layer.name for result in run.wrong],
        },
        "layers": [_layer_document(run, result) for result in run.results],
    }


def _layer_document(run: Run, result: LayerResult) -> dict[str, Any]:
    problem = result.layer.problem
    document: dict[str, Any] = {
        "name": result.layer.name,
        "problem": str(problem),
        "transposed": result.layer.transposed,
        "times_in_network": result.layer.count,
        "flops": problem.flops,
    }
    if result.skipped is not None:
        return {**document, "skipped": result.skipped}
    assert result.raw is not None
    assert result.percent is not None
    contenders: dict[str, dict[str, Any]] = {}
    for name, score in result.scores.items():
        if score.absent is not None:
            contenders[name] = {"absent": score.absent}
            continue
        assert score.seconds is not None
        samples = result.raw["contenders"][name]
        contenders[name] = {
            "seconds": score.seconds.as_dict(),
            "gflops": score.gflops,
            "error": score.error,
            "remark": score.remark,
            "repeats": samples["repeats"],
            "wall_samples": samples["wall"],
            "cpu_samples": samples["cpu"],
        }
    memory = run.facts["bandwidth"]["memory"]
    return {
        **document,
        "bytes": result.raw["bytes"],
        "flops_per_byte": result.intensity,
        "roof": {
            "gflops": result.roof,
            "bound": result.bound,
            "bytes_per_second": result.raw["bandwidth"],
            "gflops_from_memory": 1e-9 * min(run.facts["arithmetic"], result.intensity * memory),
            "flops_per_second_samples": result.raw["arithmetic"],
        },
        "percent_of_roof": result.percent.as_dict(),
        "better_peer": result.better,
        "ratio_to_the_better_peer": None if result.ratio is None else result.ratio.as_dict(),
        **{name: result.raw[name] for name in _OWN_FACTS},
        "contenders": contenders,
    }
