# SPDX-License-Identifier: Apache-2.0
"""A planned file: rendered from a template, or copied as it is."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path, PurePosixPath

TEMPLATES = Path(__file__).resolve().parent.parent / "templates"
"""Everything that outputs are made from: templates, and below runtime/ files that are copied as they are."""


@dataclass(frozen=True, slots=True)
class Output:
    """A file rendered from a template, to which the context is known as `context`."""

    path: PurePosixPath
    """Below generated/."""
    template: str
    """Below templates/."""
    context: object


@dataclass(frozen=True, slots=True)
class Copy:
    """A file that does not vary, and so is no template."""

    path: PurePosixPath
    source: Path
