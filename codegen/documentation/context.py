# SPDX-License-Identifier: Apache-2.0
"""What an operation's page shows, in the order of the page; the Markdown and HTML templates share it."""

from __future__ import annotations

import re
from dataclasses import dataclass

from codegen.documentation.differences import ComparisonContext
from codegen.documentation.drawing import Drawing
from codegen.documentation.errors import ErrorGroupContext
from codegen.documentation.examples import ExampleContext, SmallExampleContext
from codegen.documentation.text import CodeContext, Pieces, SumContext
from specs.vocabulary import ElementType


@dataclass(frozen=True, slots=True)
class SymbolContext:
    """A symbol of the formulas."""

    symbol: Pieces
    code: str
    """As formulas of error messages spell it."""
    meaning: Pieces
    formula: Pieces
    """What it abbreviates; empty for a number that is given."""
    per_axis: bool


@dataclass(frozen=True, slots=True)
class AttributeContext:
    """An attribute as a row of the table."""

    name: str
    anchor: str
    type: str
    words: tuple[str, ...]
    allowed: str
    default: str
    given: Pieces
    sentence: Pieces


@dataclass(frozen=True, slots=True)
class TensorContext:
    """An input or output as a row of the table."""

    index: int
    name: str
    type: str
    types: str
    given: str
    shapes: tuple[tuple[str, tuple[Pieces, ...]], ...]
    """Each layout with its axes."""
    sentence: Pieces


@dataclass(frozen=True, slots=True)
class LayoutContext:
    """A layout of the weights in one reading."""

    name: str
    default: bool
    axes: tuple[Pieces, ...]
    example: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class ReadingContext:
    """One way to lay the weights out, with its sum."""

    id: str
    anchor: str
    sentence: Pieces
    sources: tuple[str, ...]
    sum: SumContext
    layouts: tuple[LayoutContext, ...]
    divided: Pieces
    drawing: Drawing


@dataclass(frozen=True, slots=True)
class RuleContext:
    """A shape relation."""

    id: str
    anchor: str
    formula: Pieces
    scope: str
    subject: str
    sentence: Pieces
    remedy: str
    """The attribute whose right value the error names; empty when there is none."""
    remedy_formula: Pieces


@dataclass(frozen=True, slots=True)
class PaddingRow:
    """Numbers that a same_* word gives."""

    numbers: tuple[int, ...]
    """I, K, s, d, total."""
    upper: tuple[int, int]
    lower: tuple[int, int]
    outputs: int


@dataclass(frozen=True, slots=True)
class PaddingContext:
    """What the words of auto_pad mean."""

    attribute: str
    words: tuple[str, ...]
    ignored: tuple[str, ...]
    total: Pieces
    sentence: Pieces
    rows: tuple[PaddingRow, ...]


@dataclass(frozen=True, slots=True)
class TypeContext:
    """A type variable."""

    name: str
    tensors: tuple[str, ...]
    types: tuple[str, ...]
    elements: tuple[ElementType, ...]


@dataclass(frozen=True, slots=True)
class DecisionContext:
    """A question that the documents leave open, and its answer."""

    number: int
    anchor: str
    question: Pieces
    answer: Pieces
    sources: tuple[str, ...]
    extension: bool


@dataclass(frozen=True, slots=True)
class SourceContext:
    """A document."""

    id: str
    title: str


@dataclass(frozen=True, slots=True)
class PageContext:
    """Everything on the page of an operation."""

    name: str
    versioned_name: str
    function: str
    generation: str
    forward: str
    summary: Pieces
    description: Pieces
    index_base: int
    symbols: tuple[SymbolContext, ...]
    readings: tuple[ReadingContext, ...]
    small: SmallExampleContext
    windows: Drawing
    plane: Drawing
    rules: tuple[RuleContext, ...]
    padding: PaddingContext | None
    attributes: tuple[AttributeContext, ...]
    inputs: tuple[TensorContext, ...]
    outputs: tuple[TensorContext, ...]
    shape_name: str
    types: tuple[TypeContext, ...]
    error_setup: CodeContext
    error_groups: tuple[ErrorGroupContext, ...]
    decisions: tuple[DecisionContext, ...]
    comparison: ComparisonContext | None
    examples: tuple[ExampleContext, ...]
    sources: tuple[SourceContext, ...]

    @property
    def name_parts(self) -> tuple[str, ...]:
        """The name, taken apart where a narrow screen may break it."""
        return tuple(re.split(r"(?<=[a-z])(?=[A-Z])", self.versioned_name))

    @property
    def error_count(self) -> int:
        return sum(len(group.errors) for group in self.error_groups)

    @property
    def sections(self) -> tuple[tuple[str, str], ...]:
        """Anchor and title of each section, in order."""
        sections = [
            ("sum", "The sum"),
            ("example", "A small example"),
            ("shapes", "Shape relations"),
            ("padding", "Automatic padding"),
            ("attributes", "Attributes"),
            ("tensors", "Inputs and outputs"),
            ("layouts", "Layouts"),
            ("types", "Types"),
            ("errors", "Errors"),
            ("decisions", "Decisions"),
            ("generations", "The other generation"),
            ("examples", "Examples"),
            ("sources", "Sources"),
        ]
        absent = {
            anchor for anchor, part in (("padding", self.padding), ("generations", self.comparison)) if part is None
        }
        return tuple(row for row in sections if row[0] not in absent)
