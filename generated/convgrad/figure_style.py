# SPDX-License-Identifier: Apache-2.0
"""Colours and type of the pictures that the demo and the benchmark draw."""

from __future__ import annotations

from typing import Any

INK, QUIET, LINE = "#1d2433", "#697386", "#d9dee7"
STYLE: Any = {
    "font.family": "DejaVu Sans",  # comes with matplotlib: the same picture everywhere
    "font.size": 9,
    "text.color": INK,
    "axes.edgecolor": LINE,
    "axes.labelcolor": QUIET,
    "xtick.color": QUIET,
    "ytick.color": QUIET,
}
