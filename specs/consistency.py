# SPDX-License-Identifier: Apache-2.0
"""What one field of an operation says about another: names that must exist, words that must match.

Each check reads only the sections it needs and is left out when one of them is missing or malformed, so that a file
with an error in one section still has its other sections checked.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Iterator

from specs.expressions import formula_names
from specs.index_notation import Factor, parse_term
from specs.model import Attribute, Operation, Reading, Tensor
from specs.vocabulary import AXIS_SYMBOLS, CALL_SYMBOLS, DATA_LAYOUTS, ELEMENT_TYPES, SHAPE_TYPES

Problem = tuple[tuple[int | str, ...], str]
Check = Callable[[Operation], Iterator[Problem]]

_REQUIRED_ROLES = ("strides", "pads_begin", "pads_end", "dilations", "groups", "data_format", "weights_format")
_KINDS = {"groups": "s64", "auto_pad": "string", "data_format": "string", "weights_format": "string"}


def check_consistency(operation: Operation) -> list[Problem]:
    """Every contradiction between the fields of an operation, of which sections may be missing."""
    problems: list[Problem] = []
    for sections, check in _CHECKS:
        if operation.model_fields_set.issuperset(sections):
            problems.extend(check(operation))
    return problems


def _duplicates(section: str, names: Iterable[str | int]) -> Iterator[Problem]:
    seen: set[str | int] = set()
    for index, name in enumerate(names):
        if name in seen:
            yield (section, index), f"{name!r} is there twice"
        seen.add(name)


def _check_attributes(operation: Operation) -> Iterator[Problem]:
    yield from _duplicates("attributes", [attribute.name for attribute in operation.attributes])
    yield from _duplicates("attributes", [attribute.role for attribute in operation.attributes])
    for role in _REQUIRED_ROLES:
        if all(attribute.role != role for attribute in operation.attributes):
            yield ("attributes",), f"no attribute has the role {role!r}"
    for index, attribute in enumerate(operation.attributes):
        for field, message in _attribute_problems(operation, attribute):
            yield ("attributes", index, field), message


def _attribute_problems(operation: Operation, attribute: Attribute) -> Iterator[tuple[str, str]]:
    kind = _KINDS.get(attribute.role, "s64[]")
    if attribute.kind != kind:
        yield "kind", f"an attribute in the role {attribute.role!r} is {kind!r}, not {attribute.kind!r}"
    if (attribute.length is None) != (attribute.kind != "s64[]"):
        yield "length", "a list has a length, and nothing else has"
    if (attribute.range is None) != (attribute.kind == "string"):
        yield "range", "numbers have a range, and words have none"
    if bool(attribute.words) != (attribute.kind == "string"):
        yield "words", "a string lists its words, and nothing else does"
    if attribute.kind == "string" and attribute.default is not None and attribute.default not in attribute.words:
        yield "default", f"{attribute.default!r} is not one of the words {list(attribute.words)}"
    if attribute.required and attribute.default is not None:
        yield "default", "a required attribute has no default"
    if attribute.role == "data_format" and not set(attribute.words) <= set(DATA_LAYOUTS):
        yield "words", f"data layouts are {sorted(DATA_LAYOUTS)}, not {list(attribute.words)}"
    if attribute.ignored_when is not None:
        by = next((other for other in operation.attributes if other.name == attribute.ignored_when.attribute), None)
        if by is None:
            yield "ignored_when", f"there is no attribute {attribute.ignored_when.attribute!r}"
        elif attribute.ignored_when.unless not in by.words:
            yield "ignored_when", f"{attribute.ignored_when.unless!r} is not a word of {by.name!r}"


def _check_tensors(operation: Operation) -> Iterator[Problem]:
    yield from _duplicates("inputs", [tensor.name for tensor in (*operation.inputs, *operation.outputs)])
    for field, tensor in _tensors(operation):
        expected = operation.index_base + int(field[1])
        if tensor.index != expected:
            yield (*field, "index"), f"expected {expected}, not {tensor.index}"
        if (tensor.channels is None) != (tensor.spatial is None):
            yield (*field, "spatial"), "a data tensor names both its channels and its spatial sizes"
    if len(operation.data_inputs) != 2:
        yield ("inputs",), f"expected two data inputs (with channels and spatial), not {len(operation.data_inputs)}"


def _check_tensor_types(operation: Operation) -> Iterator[Problem]:
    types = {variable.name for variable in operation.type_variables}
    for field, tensor in _tensors(operation):
        if tensor.type not in types:
            yield (*field, "type"), f"there is no type variable {tensor.type!r}"


def _check_tensor_attributes(operation: Operation) -> Iterator[Problem]:
    attributes = {attribute.name for attribute in operation.attributes}
    for field, tensor in _tensors(operation):
        for key, name in (("layout", tensor.layout), ("overrides", tensor.overrides)):
            if name is not None and name not in attributes:
                yield (*field, key), f"there is no attribute {name!r}"


def _tensors(operation: Operation) -> Iterator[tuple[tuple[str, int], Tensor]]:
    for section, tensors in (("inputs", operation.inputs), ("outputs", operation.outputs)):
        for offset, tensor in enumerate(tensors):
            yield (section, offset), tensor


def _check_types(operation: Operation) -> Iterator[Problem]:
    known = {*(row.name for row in ELEMENT_TYPES), *SHAPE_TYPES}
    for index, variable in enumerate(operation.type_variables):
        for name in variable.types:
            if name not in known:
                yield ("type_variables", index, "types"), f"{name!r} is not a type; known are {sorted(known)}"


def _symbols(operation: Operation, per_axis: bool) -> set[str]:
    symbols = set(CALL_SYMBOLS) | (set(AXIS_SYMBOLS) if per_axis else set())
    if operation.attribute("output_padding") is None:
        symbols.discard("op")
    return symbols | {row.symbol for row in operation.definitions if per_axis or not row.per_axis}


def _check_formulas(operation: Operation) -> Iterator[Problem]:
    yield from _duplicates("rules", [rule.id for rule in operation.rules])
    yield from _duplicates("definitions", [row.symbol for row in operation.definitions])
    formulas: list[tuple[tuple[int | str, ...], str, bool]] = [
        (("padding", "same_total"), operation.padding.same_total, True)
    ]
    for index, definition in enumerate(operation.definitions):
        formulas.append((("definitions", index, "formula"), definition.formula, definition.per_axis))
    for index, rule in enumerate(operation.rules):
        formulas.append((("rules", index, "formula"), rule.formula, rule.per_axis))
        if rule.remedy is not None:
            formulas.append((("rules", index, "remedy", "formula"), rule.remedy.formula, rule.per_axis))
    for field, formula, per_axis in formulas:
        known = _symbols(operation, per_axis)
        for name in formula_names(formula):
            if name not in known:
                yield field, f"unknown symbol {name!r} in {formula!r}; known are {sorted(known)}"


def _check_subjects(operation: Operation) -> Iterator[Problem]:
    attributes = {attribute.name for attribute in operation.attributes}
    subjects = attributes | {tensor.name for tensor in operation.inputs}
    for index, rule in enumerate(operation.rules):
        if rule.subject not in subjects:
            yield ("rules", index, "subject"), f"there is no attribute or input {rule.subject!r}"
        if rule.remedy is not None and rule.remedy.attribute not in attributes:
            yield ("rules", index, "remedy", "attribute"), f"there is no attribute {rule.remedy.attribute!r}"


def _check_readings(operation: Operation) -> Iterator[Problem]:
    yield from _duplicates("readings", [reading.id for reading in operation.readings])
    weights_format = operation.attribute("weights_format")
    words = () if weights_format is None else weights_format.words
    for index, reading in enumerate(operation.readings):
        for field, message in _reading_problems(operation, reading, words):
            yield ("readings", index, *field), message


def _reading_problems(
    operation: Operation, reading: Reading, words: tuple[str, ...]
) -> Iterator[tuple[tuple[str, ...], str]]:
    if set(reading.layouts) != set(words):
        yield ("layouts",), f"lays out {sorted(reading.layouts)}, but the attribute allows {sorted(words)}"
    axes = set(reading.sum.gradient.values())
    for name, layout in reading.layouts.items():
        if set(layout) != axes or len(layout) != len(axes):
            yield ("layouts", name), f"{list(layout)} are not the axes of the sum's gradient, {sorted(axes)}"
    factors = parse_term(reading.sum.term)
    tensors = [tensor.name for tensor in operation.data_inputs]
    if sorted(factor.tensor for factor in factors) != sorted(tensors):
        yield ("sum", "term"), f"expected one factor for each of {tensors}"
    known = {*reading.sum.gradient, *reading.sum.over, *reading.sum.where, *_symbols(operation, True)}
    for factor in factors:
        for formula in (factor.batch, factor.channel, factor.spatial):
            for symbol in formula_names(formula):
                if symbol not in known:
                    yield ("sum", "term"), f"unknown index {symbol!r} in {formula!r}"
    windowed = [factor for factor in factors if not _is_bare(factor)]
    if len(windowed) != 1:
        yield ("sum", "term"), "the window moves over exactly one of the two tensors"


def _is_bare(factor: Factor) -> bool:
    return isinstance(ast.parse(factor.spatial, mode="eval").body, ast.Name)


def _check_sources(operation: Operation) -> Iterator[Problem]:
    known = {source.id for source in operation.sources}
    yield from _duplicates("decisions", [decision.number for decision in operation.decisions])
    cited: list[tuple[tuple[int | str, ...], tuple[str, ...]]] = []
    cited += [(("readings", index, "sources"), reading.sources) for index, reading in enumerate(operation.readings)]
    cited += [(("decisions", index, "sources"), decision.sources) for index, decision in enumerate(operation.decisions)]
    for field, sources in cited:
        for source in sources:
            if source not in known:
                yield field, f"document {source!r} is not among the sources {sorted(known)}"


def _check_examples(operation: Operation) -> Iterator[Problem]:
    attributes = {attribute.name for attribute in operation.attributes}
    tensors = {tensor.name for tensor in operation.data_inputs}
    for index, example in enumerate(operation.examples):
        if set(example.shapes) != tensors:
            yield ("examples", index, "shapes"), f"expected a shape for each of {sorted(tensors)}"
        for name in example.attributes:
            if name not in attributes:
                yield ("examples", index, "attributes", name), "there is no such attribute"


_CHECKS: tuple[tuple[tuple[str, ...], Check], ...] = (
    (("attributes",), _check_attributes),
    (("inputs", "outputs", "index_base"), _check_tensors),
    (("inputs", "outputs", "type_variables"), _check_tensor_types),
    (("attributes", "inputs", "outputs"), _check_tensor_attributes),
    (("type_variables",), _check_types),
    (("attributes", "definitions", "padding", "rules"), _check_formulas),
    (("attributes", "inputs", "rules"), _check_subjects),
    (("attributes", "inputs", "definitions", "readings"), _check_readings),
    (("sources", "readings", "decisions"), _check_sources),
    (("attributes", "inputs", "examples"), _check_examples),
)
"""Each check with the sections it reads."""
