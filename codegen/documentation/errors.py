# SPDX-License-Identifier: Apache-2.0
"""The catalogue of errors: for each mistake a line of code that makes it, the exception, and its message.

All of it follows from the attributes, rules and readings of the specification and from the small problem; a test runs
every line against the package and compares type and message.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from codegen.documentation.call import NumberedCall, attribute_name, small_call
from codegen.documentation.text import CodeContext, Pieces, SentenceSetter, set_code
from specs.model import Attribute, Operation

ELSEWHERE = "…"
"""Stands in a message for text that depends on the machine."""
INT64_MAX = 2**63 - 1


@dataclass(frozen=True, slots=True)
class Mistake:
    """One error: what is wrong, a call that has it, and what is raised."""

    what: str
    call: str
    exception: str
    message: str
    named: bool = True
    """The message begins with the name of the operation, which is not repeated here."""


@dataclass(frozen=True, slots=True)
class ErrorContext:
    """One error of the catalogue."""

    what: Pieces
    call: CodeContext
    exception: str
    message: str


@dataclass(frozen=True, slots=True)
class ErrorGroupContext:
    """The errors about one thing."""

    title: str
    anchor: str
    intro: Pieces
    errors: tuple[ErrorContext, ...]


def set_errors(operation: Operation, sentence: SentenceSetter, mistakes: Iterator[Mistake]) -> tuple[ErrorContext, ...]:
    """Mistakes as a page shows them."""
    return tuple(
        ErrorContext(
            what=sentence(row.what),
            call=set_code(row.call),
            exception=row.exception,
            message=f"{operation.name}: {row.message}" if row.named else row.message,
        )
        for row in mistakes
    )


def value_text(value: object) -> str:
    """A value as Python source, with double quotes as the rest of the code has them."""
    return f'"{value}"' if isinstance(value, str) else repr(value)


def attribute_mistakes(operation: Operation) -> Iterator[Mistake]:
    """What construction rejects, attribute by attribute in the order of the specification."""
    call = small_call(operation, 2)
    for attribute in operation.attributes:
        yield from _missing(attribute)
        if attribute.kind == "string":
            yield from _wrong_words(attribute)
        elif attribute.kind == "s64":
            yield from _wrong_numbers(attribute, attribute.name, "{}")
        else:
            yield from _wrong_lists(operation, attribute, call)
    yield from _any_number(operation)
    yield from _ignored_but_checked(operation)
    yield Mistake(
        "An attribute that the operation does not have.",
        "make(kernel_size=(3, 3))",
        "TypeError",
        f"{operation.name}.__init__() got an unexpected keyword argument 'kernel_size'",
        named=False,
    )


def _missing(attribute: Attribute) -> Iterator[Mistake]:
    if not attribute.required:
        return
    condition, sentence = "", "is missing"
    if attribute.ignored_when is not None:
        when = attribute.ignored_when
        condition = f" while {when.attribute} is {when.unless!r}"
        sentence = f"is missing although {when.attribute} is {when.unless}"
    yield Mistake(
        f"`{attribute.name}` {sentence}.",
        f"make({attribute.name}=None)",
        "SpecError",
        f"{attribute.name} is required{condition}: expected a list of {attribute.range} integers, "
        f"one for each spatial axis",
    )


def _wrong_words(attribute: Attribute) -> Iterator[Mistake]:
    allowed = ", ".join(repr(word) for word in attribute.words)
    # The most likely mistake: a word of the other operations' layouts.
    word = {"data_format": "NHWC", "auto_pad": "same"}.get(attribute.role, "OXI")
    yield Mistake(
        f"`{attribute.name}` is not a string.",
        f"make({attribute.name}=3)",
        "SpecError",
        f"{attribute.name} = 3: expected a string, one of {allowed}",
    )
    yield Mistake(
        f"`{attribute.name}` is none of its words.",
        f'make({attribute.name}="{word}")',
        "SpecError",
        f"{attribute.name} = {word!r}: expected one of {allowed}",
    )


def _wrong_numbers(attribute: Attribute, what: str, pattern: str) -> Iterator[Mistake]:
    """Numbers of a wrong kind or out of range; `pattern` places one in the attribute's value."""
    name, least = attribute.name, 1 if attribute.range == "positive" else 0
    expected = f"expected a {attribute.range} integer"
    yield Mistake(
        f"`{name}` has a number that is no integer.",
        f"make({name}={pattern.format('2.0')})",
        "SpecError",
        f"{what} = 2.0: {expected}, not float",
    )
    yield Mistake(
        f"`{name}` has a number below {least}.",
        f"make({name}={pattern.format(least - 1)})",
        "SpecError",
        f"{what} = {least - 1}: {expected}",
    )


def _any_number(operation: Operation) -> Iterator[Mistake]:
    """What every number of every attribute is checked for, shown once."""
    name = attribute_name(operation, "groups")
    yield Mistake(
        "Any number: a truth value instead of an integer.",
        f"make({name}=True)",
        "SpecError",
        f"{name} = True: expected a positive integer, not bool",
    )
    yield Mistake(
        "Any number: more than 64 bits.",
        f"make({name}=2**63)",
        "SpecError",
        f"{name} = {2**63}: expected a 64-bit integer, at most {INT64_MAX}",
    )


def _wrong_lists(operation: Operation, attribute: Attribute, call: NumberedCall) -> Iterator[Mistake]:
    name = attribute.name
    good = call.attributes.get(name, (attribute.default or 0,) * call.rank)
    assert isinstance(good, tuple), f"{name} is a list"
    yield Mistake(
        f"`{name}` is not a list.",
        f"make({name}=2)",
        "SpecError",
        f"{name} = 2: expected a list of integers, not int",
    )
    rest = ", ".join(map(str, good[1:]))
    yield from _wrong_numbers(attribute, f"{name}[0]", f"({{}}, {rest})")
    strides = attribute_name(operation, "strides")
    longer = (*good, 1)
    if attribute.role == "strides":
        four = (1,) * 4
        end = f"{strides} has 4 entries; expected 1, 2 or 3, one for each spatial axis"
        yield Mistake(f"`{name}` has no entry, or more than three.", f"make({name}={four})", "SpecError", end)
        return
    reason = "like" if attribute.length == "spatial" else "two channel axes and the spatial axes of"
    yield Mistake(
        f"`{name}` has not one entry for each "
        + ("spatial axis." if attribute.length == "spatial" else "axis of the weights."),
        f"make({name}={longer})",
        "SpecError",
        f"{name} has {len(longer)} entries; expected {len(good)}, {reason} {strides}",
    )


def _ignored_but_checked(operation: Operation) -> Iterator[Mistake]:
    """Values that do not count are still checked."""
    for attribute in operation.attributes:
        if attribute.ignored_when is None or attribute.kind != "s64[]":
            continue
        when = attribute.ignored_when
        other = next(row for row in operation.attributes if row.name == when.attribute)
        word = next(word for word in other.words if word != when.unless)
        yield Mistake(
            f"`{attribute.name}` is wrong, although {when.attribute} makes it count for nothing.",
            f'make({when.attribute}="{word}", {attribute.name}=(-1, 0))',
            "SpecError",
            f"{attribute.name}[0] = -1: expected a {attribute.range} integer",
        )
        return


def setup_code(operation: Operation) -> str:
    """The right call that every line of the catalogue changes in one place."""
    call = small_call(operation, 2)
    first, second = operation.data_inputs
    attributes = "\n".join(f"        {name}={value_text(value)}," for name, value in call.attributes.items())
    return f"""
import numpy as np

import convgrad

{first.name} = np.ones({call.shapes[first.name]}, np.float32)
{second.name} = np.ones({call.shapes[second.name]}, np.float32)


def make(**changes):
    attributes = dict(
{attributes}
    )
    return convgrad.{operation.name}(**{{**attributes, **changes}})


make()({first.name}, {second.name})  # as it should be: every line below has one mistake
"""
