# SPDX-License-Identifier: Apache-2.0
"""What the operating system says of the processor, for people to read. (isa.py chooses kernels, and asks itself.)"""

from __future__ import annotations

import platform
from pathlib import Path


def read_processor() -> tuple[str, frozenset[str]]:
    """Return the name of the processor and the flags that Linux gives it; elsewhere a guess and none."""
    try:
        text = Path("/proc/cpuinfo").read_text("utf-8", errors="replace")
    except OSError:
        text = ""
    facts: dict[str, str] = {}
    for line in text.splitlines():
        name, _, value = line.partition(":")
        facts.setdefault(name.strip(), value.strip())
    model = facts.get("model name") or platform.processor() or "unknown model"
    return model, frozenset((facts.get("flags") or facts.get("Features") or "").split())
