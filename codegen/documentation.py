# SPDX-License-Identifier: Apache-2.0
"""Documentation pages."""

from __future__ import annotations

from codegen.outputs import Output
from specs.model import Operation


def plan_documentation(operations: list[Operation]) -> list[Output]:
    """The pages of the operations."""
    return []
