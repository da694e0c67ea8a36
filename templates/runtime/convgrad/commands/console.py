# SPDX-License-Identifier: Apache-2.0
"""Where the command line writes: results to standard output, progress to standard error."""

from __future__ import annotations

import json
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, ProgressColumn, TextColumn, TimeElapsedColumn

_FILE_WIDTH = 160


def make_console(*, stderr: bool = False) -> Console:
    """Return a console. Colours are for terminals (and NO_COLOR turns them off); files get lines that do not wrap."""
    console = Console(stderr=stderr, highlight=False, markup=False, emoji=False)
    if not console.is_terminal:
        console = Console(stderr=stderr, highlight=False, markup=False, emoji=False, width=_FILE_WIDTH)
    return console


def make_progress(console: Console, *columns: ProgressColumn) -> Progress:
    """Return a bar that is removed when done, with `columns` behind it; nothing is drawn unless on a terminal."""
    return Progress(
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        TextColumn("{task.completed}/{task.total}", markup=False),
        *columns,
        TimeElapsedColumn(),
        console=console,
        transient=True,
        disable=not console.is_terminal,
    )


def print_json(value: dict[str, Any]) -> None:
    """Print one JSON document."""
    print(json.dumps(value, indent=2, ensure_ascii=False))
