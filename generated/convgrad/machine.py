# SPDX-License-Identifier: Apache-2.0
"""What the planner knows of a processor beside its instruction set. Wrong figures cost speed, never a bit."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import NamedTuple


class Machine(NamedTuple):
    """One core.

    fma_ports         vector multiply-adds that it starts in a cycle
    load_ports        vector loads, likewise
    issue             vector instructions, likewise
    wide_issue        the same, of 512 bits: a permutation may take the port of a multiply-add
    front_end         instructions of any kind that it brings in, when its other thread is busy as well
    least_cycles      from one multiply-add into an accumulator to the next, with what a loop costs around it
    l1_bytes          first-level data cache
    l1_ways           cache lines that have one place in it
    way_bytes         addresses so far apart have the same place in it
    l2_bytes          second-level cache of one core
    line_cycles       of a cache line from the second level, beside computation
    far_bytes         positions so far apart conflict in the first-level cache: a block's vectors do not stay there
    far_cycles        cycles that a vector then takes from the second level
    transpose_cycles  of one element that is packed
    """

    fma_ports: int = 2
    load_ports: int = 2
    issue: int = 3
    wide_issue: int = 2
    front_end: float = 3.5
    least_cycles: float = 5.2
    l1_bytes: int = 48 << 10
    l1_ways: int = 8
    way_bytes: int = 4096
    l2_bytes: int = 1 << 20
    line_cycles: float = 0.8
    far_bytes: int = 1024
    far_cycles: float = 3.2
    transpose_cycles: float = 0.35


def read_machine(folder: Path = Path("/sys/devices/system/cpu/cpu0/cache")) -> Machine:
    """The core that this runs on: its caches are what Linux says in `folder`, all else, and elsewhere, as above."""
    found: dict[str, int] = {}
    for place in sorted(folder.glob("index*")):
        with contextlib.suppress(OSError, ValueError):
            level, kind, size = (place.joinpath(name).read_text("ascii").strip() for name in ("level", "type", "size"))
            if kind != "Instruction" and level in ("1", "2") and size.endswith("K"):
                found[f"l{level}_bytes"] = int(size[:-1]) << 10
    return Machine(**{name: size for name, size in found.items() if size > 0})


MACHINE = read_machine()
