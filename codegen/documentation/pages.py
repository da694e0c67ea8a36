# SPDX-License-Identifier: Apache-2.0
"""Which documentation there is: a Markdown and an HTML page per operation, an index, one stylesheet, drawings."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import PurePosixPath

from codegen.context import make_banner
from codegen.documentation.context import PageContext
from codegen.documentation.drawing import Drawing, make_drawing_file, make_drawings
from codegen.documentation.page import make_page
from codegen.outputs import Output
from specs.model import Operation

FOLDER = PurePosixPath("docs")
PAGE_FORMATS = ("md", "html")


@dataclass(frozen=True, slots=True)
class FileContext:
    """A page in one format."""

    banner: str
    page: PageContext


@dataclass(frozen=True, slots=True)
class FamilyContext:
    """The operations that belong to one forward operation."""

    forward: str
    pages: tuple[PageContext, ...]


@dataclass(frozen=True, slots=True)
class MachineError:
    """An exception that the machine causes, not the call."""

    name: str
    base: str
    when: str
    holds: str


@dataclass(frozen=True, slots=True)
class IndexContext:
    """The index in one format."""

    banner: str
    families: tuple[FamilyContext, ...]
    drawing: Drawing | None
    machine_errors: tuple[MachineError, ...]


@dataclass(frozen=True, slots=True)
class StyleContext:
    """The stylesheet of all pages."""

    banner: str


MACHINE_ERRORS = (
    MachineError(
        "CompileError",
        "RuntimeError",
        "A kernel is needed for the first time, and there is no C compiler, it fails, or what it made cannot be "
        "stored or loaded.",
        "The command, how it ended and the end of what it printed; what to install or which variable to set.",
    ),
    MachineError(
        "CacheSecurityError",
        "CompileError",
        "The folder of compiled kernels, or a file in it, could have been written by somebody else.",
        "The path, its owner and mode, and the command that mends it. Nothing is loaded.",
    ),
    MachineError(
        "MemoryError",
        "Exception",
        "The memory for partial sums cannot be had.",
        "The bytes that each thread needs.",
    ),
)


def plan_documentation(operations: list[Operation]) -> list[Output]:
    """Every file below docs/."""
    by_name = {operation.name: operation for operation in operations}
    pages = []
    outputs: list[Output] = []
    for operation in operations:
        page = make_page(operation, by_name.get(operation.counterpart or ""))
        pages.append(page)
        outputs += _plan_page(operation, page)
        outputs += _plan_drawings(operation)
    outputs += _plan_index(operations, pages)
    style = "docs/style.css.j2"
    banner = make_banner("/*", "*/", "the documentation's own rules", style)
    return [*outputs, Output(FOLDER / "style.css", style, StyleContext(banner))]


def drawing_path(drawing: Drawing) -> PurePosixPath:
    """Where a drawing's own file is, seen from the pages."""
    return PurePosixPath("drawings") / f"{drawing.id}.svg"


def _plan_page(operation: Operation, page: PageContext) -> Iterator[Output]:
    for ending in PAGE_FORMATS:
        template = f"docs/operation.{ending}.j2"
        banner = make_banner("<!--", "-->", f"the specification of {operation.name}", template)
        yield Output(FOLDER / f"{operation.name}.{ending}", template, FileContext(banner, page))


def _plan_drawings(operation: Operation) -> Iterator[Output]:
    template = "docs/drawing.svg.j2"
    for drawing in make_drawings(operation):
        yield Output(FOLDER / drawing_path(drawing), template, make_drawing_file(operation, drawing, template))


def _plan_index(operations: list[Operation], pages: list[PageContext]) -> Iterator[Output]:
    forwards = sorted({operation.forward for operation in operations}, key=str.lower)
    newest_first = sorted(pages, key=lambda page: (page.generation != "current", page.name))
    families = tuple(
        FamilyContext(row, tuple(page for page in newest_first if page.forward == row)) for row in forwards
    )
    drawing = families[0].pages[0].windows if families else None
    for ending in PAGE_FORMATS:
        template = f"docs/index.{ending}.j2"
        banner = make_banner("<!--", "-->", "the specifications", template)
        yield Output(FOLDER / f"index.{ending}", template, IndexContext(banner, families, drawing, MACHINE_ERRORS))
