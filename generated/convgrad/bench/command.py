# SPDX-License-Identifier: Apache-2.0
"""What `python -m convgrad bench` does with its options."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from convgrad.bench.contender import PEERS
from convgrad.bench.problem import parse_problem
from convgrad.bench.report import list_suites, make_document, print_run
from convgrad.bench.session import check_extras, measure_layers
from convgrad.bench.suites import DEFAULT_SUITE, SUITES, Layer
from convgrad.bench.worker import Settings
from convgrad.commands.console import make_console

STANDARD_OUTPUT = Path("-")


def show_suites() -> bool:
    """Print the names of the suites."""
    list_suites(make_console())
    return True


def choose_layers(
    suites: Sequence[str], shapes: Sequence[str], *, batch: int | None, transposed: bool
) -> tuple[str, bool, list[Layer]]:
    """What is to be measured: a title, whether it is one whole network, and its layers.

    Without suites and shapes, the default suite. Raises ProblemError for a shape that cannot be read.
    """
    names = list(suites) if suites or shapes else [DEFAULT_SUITE]
    layers = [layer for name in names for layer in SUITES[name].layers]
    for text in shapes:
        problem, name = parse_problem(text)
        layers.append(Layer(name or text.strip(), problem))
    layers = [
        replace(layer if batch is None else layer.with_batch(batch), transposed=transposed or layer.transposed)
        for layer in layers
    ]
    title = "; ".join(SUITES[name].title for name in names) or "Layers of your own"
    if batch is not None:
        title += f", N={batch}"
    return title, len(names) == 1 and not shapes and SUITES[names[0]].network, layers


def run_bench(
    title: str,
    layers: Sequence[Layer],
    *,
    network: bool,
    dtype: str,
    layout: str,
    threads: int,
    transposed: bool,
    repeat: int,
    seconds: float,
    peers: Sequence[str],
    json_path: Path | None,
    plot: Path | None,
    any_size: bool = False,
) -> bool:
    """Measure, print, and write what was asked for. Return whether every gradient of ours was right.

    Raises:
        BenchError: it cannot go on, or an extra is missing.
        CompileError: there is no compiler, or it failed.
        OSError: a file cannot be written.
        KeyboardInterrupt: it came before all was measured; what was measured has been shown and written.
    """
    check_extras(plot is not None)
    chosen = tuple(peer for peer in PEERS if peer in peers)
    settings = Settings(dtype, layout, threads, repeat, seconds, chosen, any_size)
    run = measure_layers(title, layers, settings, network=network, transposed=transposed)
    if json_path == STANDARD_OUTPUT:
        print(_dump(make_document(run)))
    else:
        print_run(make_console(), run)
        if json_path is not None:
            json_path.write_text(_dump(make_document(run)) + "\n", "utf-8")
    if plot is not None and run.measured:
        from convgrad.bench.figure import draw_figure

        draw_figure(run, plot)
    if len(run.results) < len(layers):
        raise KeyboardInterrupt
    return not run.wrong


def _dump(document: dict[str, Any]) -> str:
    return json.dumps(_without_nan(document), indent=1, ensure_ascii=False, allow_nan=False)


def _without_nan(value: Any) -> Any:
    """JSON has no NaN and no infinity: null."""
    if isinstance(value, dict):
        return {key: _without_nan(entry) for key, entry in value.items()}
    if isinstance(value, list):
        return [_without_nan(entry) for entry in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
