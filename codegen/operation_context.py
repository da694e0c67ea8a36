# SPDX-License-Identifier: Apache-2.0
"""The view of one operation that its Python module is laid out from."""

from __future__ import annotations

import textwrap
from dataclasses import dataclass

from codegen.context import make_banner
from codegen.description_code import data_types, layout_description
from codegen.naming import snake_case
from codegen.python_code import escape_docstring, quote
from specs.model import Attribute, Operation, Reading

_WIDTH = 108


@dataclass(frozen=True, slots=True)
class AttributeContext:
    """One attribute as a parameter of a generated signature."""

    name: str
    annotation: str
    default: str


@dataclass(frozen=True, slots=True)
class OperationContext:
    """What the template of an operation's module is filled with."""

    banner: str
    name: str
    function: str
    summary: str
    sources: tuple[str, ...]
    description_names: tuple[str, ...]
    """What the module imports from convgrad.description."""
    description: str
    """The constructor call of the operation's Description."""
    class_documentation: str
    attributes: tuple[AttributeContext, ...]
    first: str
    second: str
    shape_name: str
    call_documentation: str
    function_documentation: str

    @property
    def function_attributes(self) -> tuple[AttributeContext, ...]:
        """The attributes that the function takes as keywords: all but the shape, which it takes once, in front."""
        return tuple(attribute for attribute in self.attributes if attribute.name != self.shape_name)


def make_operation_context(operation: Operation) -> OperationContext:
    """The view of one operation.

    Raises:
        UnsupportedSumError: no kernel computes its sum.
    """
    first, second = operation.data_inputs
    shape = operation.attribute("weights_shape")
    assert shape is not None, "the loader requires the attribute"
    names = ["Attribute", "Definition", "Description", "Formula", "Input", "Reading", "Rule"]
    if any(rule.remedy is not None for rule in operation.rules):
        names.append("Remedy")
    return OperationContext(
        banner=make_banner("#", "", f"the specification of {operation.name}", "python/operation.py.j2"),
        name=operation.name,
        function=snake_case(operation.name),
        summary=escape_docstring(operation.summary),
        sources=tuple(escape_docstring(source.title) for source in operation.sources),
        description_names=tuple(sorted(names)),
        description=layout_description(operation),
        class_documentation=escape_docstring(_class_documentation(operation)),
        attributes=tuple(_make_attribute(attribute) for attribute in operation.attributes),
        first=first.name,
        second=second.name,
        shape_name=shape.name,
        call_documentation=escape_docstring(_call_documentation(operation, shape)),
        function_documentation=escape_docstring(_function_documentation(operation, shape)),
    )


def _make_attribute(attribute: Attribute) -> AttributeContext:
    annotation = {"s64[]": "Sequence[int] | None", "s64": "int", "string": "str"}[attribute.kind]
    default = "None"
    if attribute.default is not None and attribute.kind != "s64[]":
        default = quote(attribute.default) if isinstance(attribute.default, str) else str(attribute.default)
    return AttributeContext(attribute.name, annotation, default)


def _attribute_documentation(attribute: Attribute) -> str:
    """Sentence, what is allowed, and whether it must be given."""
    if attribute.kind == "string":
        allowed = "One of " + ", ".join(repr(word) for word in attribute.words)
        allowed += ", in any case." if attribute.any_case else "."
    else:
        numbers = "integers" if attribute.kind == "s64[]" else "integer"
        article = "A " if attribute.kind == "s64" else ""
        allowed = f"{article}{attribute.range} {numbers}"
        allowed = allowed[0].upper() + allowed[1:]
        if attribute.length == "spatial":
            allowed += ", one for each spatial axis"
        allowed += "."
    condition = ""
    if attribute.required:
        condition = " Required."
        if attribute.ignored_when is not None:
            when = attribute.ignored_when
            condition = f" Required while {when.attribute} is {when.unless!r}, ignored otherwise."
    elif attribute.default is not None:
        condition = f" Default {attribute.default!r}{' for every axis' if attribute.kind == 's64[]' else ''}."
    return f"{attribute.sentence} {allowed}{condition}"


def _wrap(name: str, text: str, indent: int) -> str:
    """An entry of a docstring's list of arguments."""
    prefix = " " * indent
    return textwrap.fill(
        f"{name}: {text}", _WIDTH, initial_indent=prefix, subsequent_indent=prefix + "    ", break_long_words=False
    )


def _reading_documentation(operation: Operation, reading: Reading) -> list[str]:
    """The sum of a reading, and the layouts whose axes its indices run along."""
    total = reading.sum
    element = f"{operation.outputs[0].name}[{', '.join(total.gradient)}]"
    equation = f"{element} = sum over {', '.join(total.over)} of {total.term}"
    where = "".join(f", {index} = {formula}" for index, formula in total.where.items())
    layouts = "; ".join(f"{name} is ({', '.join(axes)})" for name, axes in reading.layouts.items())
    sentence = f"{layouts}, X standing for the kernel's axes. {reading.sentence}"
    return [_fill(equation + where, "        "), _fill(sentence, "    ")]


def _fill(text: str, subsequent_indent: str) -> str:
    return textwrap.fill(text, _WIDTH, initial_indent="    ", subsequent_indent=subsequent_indent)


def _class_documentation(operation: Operation) -> str:
    lines = [textwrap.fill(operation.description.replace("\n", " ").strip(), _WIDTH, subsequent_indent="    "), ""]
    for reading in operation.readings:
        lines += [*_reading_documentation(operation, reading), ""]
    symbols = ", ".join(f"{row.symbol} = {row.formula}" for row in operation.definitions if not row.per_axis)
    lines.append(_fill(f"There is no kernel flip{'; ' if symbols else ''}{symbols}.", "    "))
    lines += ["", "    Args:"]
    lines += [_wrap(row.name, _attribute_documentation(row), 8) for row in operation.attributes]
    lines += [
        "",
        "    Raises:",
        "        SpecError: an attribute is missing or its value is out of range; the message names it.",
        "",
        *(f"    Source: {source.title}." for source in operation.sources),
    ]
    return "\n".join(lines)


def _tensor_documentation(operation: Operation) -> list[str]:
    first, second = operation.data_inputs
    types = ", ".join(data_types(operation))
    shapes = "(N, {0}, {1}...) for NCX or (N, {1}..., {0}) for NXC"
    return [
        _wrap(first.name, f"{first.sentence} {shapes.format(first.channels, first.spatial)}; {types}.", 12),
        _wrap(second.name, f"{second.sentence} {shapes.format(second.channels, second.spatial)}; the same type.", 12),
    ]


def _ending_documentation(operation: Operation) -> list[str]:
    return [
        _wrap("out", "Takes the gradient: contiguous, of the weights' shape, of the inputs' type or f32.", 12),
        _wrap("accumulate", "Add to what out, which must be f32, holds.", 12),
        _wrap("num_threads", "Threads for this call; the result has the same bits for any number.", 12),
        "",
        "        Returns:",
        f"            {operation.outputs[0].sentence} It is out when that was given.",
        "",
        "        Raises:",
        "            SpecError: shapes, layout or memory do not fit; the message has the formula and its numbers.",
        "            DTypeError: unsupported or mixed element types.",
        "            CompileError: a kernel was needed for the first time, and could not be compiled.",
    ]


def _call_documentation(operation: Operation, shape: Attribute) -> str:
    lines = [f"{operation.summary}", "", "        Args:", *_tensor_documentation(operation)]
    lines.append(_wrap(shape.name, "Shape of the weights; 1-D integers. When given, the attribute does not count.", 12))
    return "\n".join([*lines, *_ending_documentation(operation)])


def _function_documentation(operation: Operation, shape: Attribute) -> str:
    lines = [f"{operation.summary}", "", "        Args:", *_tensor_documentation(operation)]
    lines.append(_wrap(shape.name, "Shape of the weights, as a list of integers or a 1-D integer array.", 12))
    lines += [
        _wrap(row.name, _attribute_documentation(row), 12) for row in operation.attributes if row.name != shape.name
    ]
    text = "\n".join([*lines, *_ending_documentation(operation)])
    return textwrap.dedent("        " + text).replace("\n", "\n    ").replace("\n    \n", "\n\n")
