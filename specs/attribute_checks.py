# SPDX-License-Identifier: Apache-2.0
"""What the fields of one attribute say about each other, and which values an attribute takes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import get_args

from specs.model import Attribute
from specs.vocabulary import DATA_LAYOUTS, AutoPad

INT64_MAX = 2**63 - 1

_KINDS = {"groups": "s64", "auto_pad": "string", "data_format": "string", "weights_format": "string"}
_POSITIVE = ("strides", "dilations", "groups", "weights_shape")
_ALWAYS_REQUIRED = ("strides", "dilations")
_PADS = ("pads_begin", "pads_end")

_Found = Iterator[tuple[str, str]]


def attribute_problems(attribute: Attribute, attributes: Sequence[Attribute]) -> _Found:
    """Contradictions in an attribute, each with the key that it is about.

    Args:
        attribute: one whose fields are sound one by one.
        attributes: all of the operation, stand-ins included.
    """
    kind = _KINDS.get(attribute.role, "s64[]")
    if attribute.kind != kind:
        yield "kind", f"an attribute in the role {attribute.role!r} is {kind!r}, not {attribute.kind!r}"
        return
    yield from _kind_problems(attribute)
    yield from _word_problems(attribute)
    yield from _presence_problems(attribute)
    yield from _condition_problems(attribute, attributes)


def _kind_problems(attribute: Attribute) -> _Found:
    length = "weights" if attribute.role == "weights_shape" else "spatial"
    if (attribute.length is None) != (attribute.kind != "s64[]"):
        yield "length", "a list has a length, and nothing else has"
    elif attribute.length not in (None, length):
        yield "length", f"an attribute in the role {attribute.role!r} has the length {length!r}"
    if (attribute.range is None) != (attribute.kind == "string"):
        yield "range", "numbers have a range, and words have none"
    elif attribute.role in _POSITIVE and attribute.range != "positive":
        yield "range", f"an attribute in the role {attribute.role!r} is positive"
    if bool(attribute.words) != (attribute.kind == "string"):
        yield "words", "a string lists its words, and nothing else does"
    if attribute.any_case and (attribute.kind != "string" or any(word != word.lower() for word in attribute.words)):
        yield "any_case", "words that are accepted in any case are written in lower case"


def _word_problems(attribute: Attribute) -> _Found:
    words = set(attribute.words)
    if len(words) != len(attribute.words):
        yield "words", f"a word is there twice in {list(attribute.words)}"
    if attribute.role == "data_format" and not words <= set(DATA_LAYOUTS):
        yield "words", f"data layouts are {sorted(DATA_LAYOUTS)}, not {list(attribute.words)}"
    known = get_args(AutoPad)
    if attribute.role == "auto_pad" and words and not ("none" in words and words <= set(known)):
        yield "words", f"expected 'none' and others of {list(known)}, not {list(attribute.words)}"


def _presence_problems(attribute: Attribute) -> _Found:
    """Whether an attribute may be left out, and the value that it has then."""
    role, default = attribute.role, attribute.default
    if role == "weights_shape":
        if attribute.required:
            yield "required", "the shape of the weights may come from an input instead: it is never required"
        if default is not None:
            yield "default", "the shape of the weights has no default"
        return
    if attribute.required:
        if attribute.kind != "s64[]":
            yield "required", f"an attribute of kind {attribute.kind!r} is optional, with a default"
        elif default is not None:
            yield "default", "a required attribute has no default"
    elif role in _ALWAYS_REQUIRED:
        yield "required", f"an attribute in the role {role!r} is required: it tells the number of spatial axes"
    elif default is None:
        yield "default", "an optional attribute has a default"
    elif attribute.words or attribute.kind != "string":
        entry: object = (default,) if attribute.kind == "s64[]" else default
        if message := value_problem(attribute, entry):
            yield "default", message


def _condition_problems(attribute: Attribute, attributes: Sequence[Attribute]) -> _Found:
    when = attribute.ignored_when
    if when is None:
        return
    by = next((other for other in attributes if other.name == when.attribute), None)
    if attribute.role not in _PADS:
        yield "ignored_when", f"only pads are ignored under a condition, not {attribute.role!r}"
    elif by is None:
        if all(other.name is not None for other in attributes):  # a stand-in may have any name
            yield "ignored_when", f"there is no attribute {when.attribute!r}"
    elif by.words and when.unless not in by.words:
        yield "ignored_when", f"{when.unless!r} is not a word of {by.name!r}"
    elif by.role is not None and (by.role != "auto_pad" or when.unless != "none"):
        yield "ignored_when", "pads are ignored unless the attribute in the role 'auto_pad' is 'none'"


def value_problem(attribute: Attribute, value: object) -> str | None:
    """Why an attribute does not take a value, None when it does; lists are tuples here."""
    if attribute.kind == "string":
        return None if value in attribute.words else f"{value!r} is not one of the words {list(attribute.words)}"
    expected = f"a {attribute.range} integer"
    if attribute.kind == "s64":
        return None if _is_in_range(attribute, value) else f"expected {expected}, not {value!r}"
    if not isinstance(value, tuple):
        return f"expected a list of {attribute.range} integers, not {value!r}"
    wrong = [entry for entry in value if not _is_in_range(attribute, entry)]
    return f"expected {expected} for each axis, not {wrong[0]!r}" if wrong else None


def _is_in_range(attribute: Attribute, value: object) -> bool:
    lowest = 1 if attribute.range == "positive" else 0
    return isinstance(value, int) and not isinstance(value, bool) and lowest <= value <= INT64_MAX
