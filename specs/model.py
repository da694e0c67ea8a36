# SPDX-License-Identifier: Apache-2.0
"""The models of an operation file, all frozen and closed: an unknown key is an error, and nothing changes later."""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from specs.expressions import check_formula, split_comparison
from specs.index_notation import parse_term
from specs.vocabulary import AttributeKind, Generation, Length, Role, ValueRange


def _check_comparison(text: str) -> str:
    split_comparison(text)
    return text


def _check_term(text: str) -> str:
    parse_term(text)
    return text


def _check_line(text: str) -> str:
    if not text.isprintable():
        odd = next(letter for letter in text if not letter.isprintable())
        raise ValueError(f"expected one line of printable text, which {odd!r} is not")
    return text


def _check_paragraph(text: str) -> str:
    _check_line(text.replace("\n", " "))
    return text


Identifier = Annotated[str, Field(pattern=r"^[A-Za-z][A-Za-z0-9_]*$")]
OperationName = Annotated[str, Field(pattern=r"^[A-Z][A-Za-z0-9]*$")]
LayoutName = Annotated[str, Field(pattern=r"^[A-Z]{3}$")]
WeightsAxis = Annotated[str, Field(pattern=r"^((IC|OC)(/groups)?|X)$")]
"""An axis of the weights: channels of the forward operation, whole or divided by groups, or X for the kernel axes."""
Formula = Annotated[str, AfterValidator(check_formula)]
ComparisonFormula = Annotated[str, AfterValidator(_check_comparison)]
Term = Annotated[str, AfterValidator(_check_term)]
Sentence = Annotated[str, Field(min_length=3), AfterValidator(_check_line)]
Paragraph = Annotated[str, Field(min_length=3), AfterValidator(_check_paragraph)]
"""Like a sentence, but may go over several lines."""


class Closed(BaseModel):
    """Base of every model: no unknown keys, no changes after loading, no silent conversion between types."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class Source(Closed):
    """A document that defines the operation."""

    id: Annotated[str, Field(pattern=r"^[0-9]{3}$", description="Short number that decision records cite.")]
    title: Sentence


class IgnoredWhen(Closed):
    """The attribute's value is checked but not used when another attribute holds anything but `unless`."""

    attribute: Identifier
    unless: str


class Attribute(Closed):
    """One attribute of an operation."""

    name: Identifier
    role: Annotated[Role, Field(description="What the attribute does, whatever this generation calls it.")]
    kind: AttributeKind
    symbol: Annotated[Identifier | None, Field(description="Its symbol in formulas.")] = None
    range: ValueRange | None = None
    words: Annotated[tuple[str, ...], Field(description="Allowed words of a string attribute.")] = ()
    any_case: Annotated[bool, Field(description="Words are accepted in any mixture of cases.")] = False
    length: Annotated[Length | None, Field(description="Of a list: one for each spatial axis or weights axis.")] = None
    required: bool
    default: Annotated[
        str | int | None, Field(description="Value when not given; for a list, the value of every entry.")
    ] = None
    ignored_when: IgnoredWhen | None = None
    sentence: Sentence


class TypeVariable(Closed):
    """A type that several tensors of one call share."""

    name: Identifier
    types: Annotated[tuple[str, ...], Field(min_length=1)]


class Tensor(Closed):
    """An input or output."""

    name: Identifier
    index: Annotated[int, Field(ge=0, description="As the operation's own documents count.")]
    type: Identifier
    required: bool = True
    channels: Annotated[str | None, Field(description="Symbol of its channel count.")] = None
    spatial: Annotated[str | None, Field(description="Symbol of its spatial sizes.")] = None
    layout: Annotated[Identifier | None, Field(description="The attribute that names its layout.")] = None
    overrides: Annotated[Identifier | None, Field(description="The attribute that this input replaces.")] = None
    sentence: Sentence


class Sum(Closed):
    """The sum that defines one element of the output, in index notation; no kernel flip.

    A term whose spatial index falls outside its tensor does not take part.
    """

    gradient: Annotated[dict[str, WeightsAxis], Field(description="Index -> axis of the weights it runs along.")]
    over: Annotated[dict[str, str], Field(description="Summed index -> symbol of its extent.")]
    where: Annotated[dict[str, Formula], Field(description="Index -> formula, for what follows from other indices.")]
    term: Term


class Reading(Closed):
    """One way to lay the weights out; an operation has several where its documents and its libraries differ."""

    id: Identifier
    sentence: Sentence
    sources: tuple[str, ...]
    layouts: Annotated[dict[LayoutName, tuple[WeightsAxis, ...]], Field(min_length=1)]
    sum: Sum


class Padding(Closed):
    """How auto_pad fixes the padding. `same_total` is split in half; the odd one goes behind for same_upper."""

    same_total: Formula
    sentence: Sentence


class Definition(Closed):
    """A symbol that abbreviates a formula."""

    symbol: Identifier
    formula: Formula
    per_axis: bool
    sentence: Sentence


class Remedy(Closed):
    """The attribute value that would have satisfied a rule, offered in the error when it is not negative."""

    attribute: Identifier
    formula: Formula


class Rule(Closed):
    """A named cross-field rule over resolved values."""

    id: Identifier
    subject: Annotated[Identifier, Field(description="The attribute or tensor that an error names.")]
    formula: ComparisonFormula
    per_axis: bool
    sentence: Sentence
    remedy: Remedy | None = None


class Decision(Closed):
    """A question that the documents leave open or contradict each other on, with the answer that holds here."""

    number: Annotated[int, Field(ge=1)]
    question: Sentence
    answer: Sentence
    sources: Annotated[tuple[str, ...], Field(description="Documents that raise it.")]
    extension: Annotated[bool, Field(description="Goes beyond what the documents specify.")] = False


class Example(Closed):
    """A call that the documentation shows and the tests run."""

    title: Sentence
    type: str
    shapes: Annotated[dict[str, tuple[int, ...]], Field(description="Shape of each data input.")]
    attributes: dict[str, str | int | tuple[int, ...]]


class Operation(Closed):
    """A complete operation: one file, one generation, nothing inherited."""

    name: OperationName
    generation: Generation
    versioned_name: str
    counterpart: Annotated[OperationName | None, Field(description="The same operation in the other generation.")] = (
        None
    )
    forward: Annotated[OperationName, Field(description="The operation whose weights the gradient belongs to.")]
    summary: Sentence
    description: Paragraph
    index_base: Annotated[int, Field(ge=0, le=1, description="Whether the documents count inputs from 0 or 1.")]
    sources: Annotated[tuple[Source, ...], Field(min_length=1)]
    attributes: Annotated[tuple[Attribute, ...], Field(min_length=1)]
    type_variables: Annotated[tuple[TypeVariable, ...], Field(min_length=1)]
    inputs: Annotated[tuple[Tensor, ...], Field(min_length=2)]
    outputs: Annotated[tuple[Tensor, ...], Field(min_length=1, max_length=1)]
    definitions: tuple[Definition, ...]
    padding: Padding
    readings: Annotated[tuple[Reading, ...], Field(min_length=1)]
    rules: tuple[Rule, ...]
    decisions: tuple[Decision, ...]
    examples: tuple[Example, ...]

    def attribute(self, role: Role) -> Attribute | None:
        """The attribute that plays a role, or None when the operation has none."""
        return next((attribute for attribute in self.attributes if attribute.role == role), None)

    @property
    def data_inputs(self) -> tuple[Tensor, ...]:
        """The inputs that carry data, in the order of their indices: all but the shape input."""
        return tuple(tensor for tensor in self.inputs if tensor.channels is not None)

    @property
    def shape_input(self) -> Tensor | None:
        """The input that carries the weights' shape."""
        return next((tensor for tensor in self.inputs if tensor.overrides is not None), None)
