# SPDX-License-Identifier: Apache-2.0
"""What one field of an operation says about another: names that must exist, words that must match.

Each check reads only the sections it needs and is left out when one of them is missing, so that a file with an error
in one section still has its other sections checked. Names that could not be read are None among the known ones: then
any name may be meant, and nothing is said of it.
"""

from __future__ import annotations

import ast
import keyword
from collections.abc import Callable, Collection, Iterable, Iterator

from specs.attribute_checks import attribute_problems, value_problem
from specs.draft import Draft, Problem
from specs.expressions import formula_names
from specs.formula_checks import check_formulas, check_numbers, known_symbols
from specs.index_notation import Factor, parse_term
from specs.model import Attribute, Example, Operation, Reading, Tensor
from specs.vocabulary import ELEMENT_TYPES, RESERVED_OPERATIONS, RESERVED_PARAMETERS, SHAPE_TYPES

Check = Callable[[Draft], Iterator[Problem]]

_REQUIRED_ROLES = (
    "strides",
    "pads_begin",
    "pads_end",
    "dilations",
    "groups",
    "data_format",
    "weights_format",
    "weights_shape",
)
_SPATIAL = {"IC": "I", "OC": "O"}
"""The spatial symbol that goes with each channel symbol."""


def check_consistency(draft: Draft) -> list[Problem]:
    """Every contradiction between the fields of an operation, of which sections may be missing."""
    problems: list[Problem] = []
    for sections, check in _CHECKS:
        if draft.operation.model_fields_set.issuperset(sections):
            problems.extend(row for row in check(draft) if not _is_consequence(draft, row))
    return problems


def _is_consequence(draft: Draft, problem: Problem) -> bool:
    """Whether a field seems to be missing because its key is misspelt, or is part of an entry with another error."""
    field = problem[0]
    left = draft.strayed.get(field[:2])
    return field[:2] in draft.faulty or (left is not None and len(field) > 2 and field[2] not in left)


def _is_unknown(name: str | None, known: Collection[str | None]) -> bool:
    return None not in known and name not in known


def _duplicates(section: str, names: Iterable[str | int | None]) -> Iterator[Problem]:
    seen: set[str | int] = set()
    for index, name in enumerate(names):
        if name in seen:
            yield (section, index), f"{name!r} is there twice"
        if name is not None:
            seen.add(name)


def _check_operation(draft: Draft) -> Iterator[Problem]:
    name = draft.operation.name
    if keyword.iskeyword(name) or keyword.iskeyword(name.lower()) or name in RESERVED_OPERATIONS:
        yield ("name",), f"{name!r} means something else in Python or in the generated package"


def _check_versioned_name(draft: Draft) -> Iterator[Problem]:
    name, versioned = draft.operation.name, draft.operation.versioned_name
    base, dash, number = versioned.partition("-")
    if base != name or (dash and not (number.isascii() and number.isdigit())):
        yield ("versioned_name",), f"expected {name!r} or {name + '-<number>'!r}, not {versioned!r}"


def _check_counterpart(draft: Draft) -> Iterator[Problem]:
    if draft.operation.counterpart == draft.operation.name:
        yield ("counterpart",), "an operation is not its own counterpart"


def _check_attributes(draft: Draft) -> Iterator[Problem]:
    attributes = draft.operation.attributes
    yield from _duplicates("attributes", [attribute.name for attribute in attributes])
    yield from _duplicates("attributes", [attribute.role for attribute in attributes])
    roles = [attribute.role for attribute in attributes]
    for role in _REQUIRED_ROLES:
        if _is_unknown(role, roles):
            yield ("attributes",), f"no attribute has the role {role!r}"
    for index, attribute in draft.sound("attributes", attributes):
        yield from _reserved(("attributes", index), attribute.name)
        for field, message in attribute_problems(attribute, attributes):
            yield ("attributes", index, field), message


def _reserved(field: tuple[str, int], name: str) -> Iterator[Problem]:
    if keyword.iskeyword(name):
        yield (*field, "name"), f"{name!r} is a keyword of Python"
    elif name in RESERVED_PARAMETERS:
        yield (*field, "name"), f"{name!r} means something else in generated functions"


def _check_tensors(draft: Draft) -> Iterator[Problem]:
    operation = draft.operation
    for section, index, name in _later_duplicates(operation):
        yield (section, index), f"{name!r} is there twice"
    for field, tensor in _tensors(draft):
        yield from _reserved(field, tensor.name)
    for index, tensor in draft.sound("inputs", operation.inputs):
        channels, spatial = tensor.channels, tensor.spatial
        if (channels is None) != (spatial is None):
            key = "channels" if channels is None else "spatial"
            yield ("inputs", index, key), "a data tensor names both its channels and its spatial sizes"
        elif channels is None and tensor.overrides is None:
            yield ("inputs", index, "overrides"), "an input that carries no data names the attribute it overrides"
        elif channels is not None and _SPATIAL.get(channels) is None:
            yield ("inputs", index, "channels"), f"expected one of {list(_SPATIAL)}, not {channels!r}"
        elif channels is not None and spatial != _SPATIAL[channels]:
            expected = _SPATIAL[channels]
            yield ("inputs", index, "spatial"), f"expected {expected!r} beside {channels!r}, not {spatial!r}"
        elif channels is not None and (tensor.overrides is not None or not tensor.required):
            key = "required" if tensor.overrides is None else "overrides"
            yield ("inputs", index, key), "a data tensor is required, and overrides no attribute"
    data = operation.data_inputs
    if draft.is_whole("inputs"):
        if len(data) != 2:
            yield ("inputs",), f"expected two data inputs (with channels and spatial), not {len(data)}"
        elif data[0].channels == data[1].channels and data[0].channels in _SPATIAL:
            yield ("inputs",), f"both data inputs have the channels {data[0].channels!r}"
        if len(operation.inputs) - len(data) > 1:
            yield ("inputs",), "expected at most one input beside the data, the shape of the weights"


def _later_duplicates(operation: Operation) -> Iterator[tuple[str, int, str]]:
    seen: set[str] = set()
    for section, tensors in (("inputs", operation.inputs), ("outputs", operation.outputs)):
        for index, tensor in enumerate(tensors):
            if tensor.name in seen:
                yield section, index, tensor.name
            if tensor.name is not None:  # of a stand-in
                seen.add(tensor.name)


def _check_indices(draft: Draft) -> Iterator[Problem]:
    for field, tensor in _tensors(draft):
        expected = draft.operation.index_base + int(field[1])
        if tensor.index != expected:
            yield (*field, "index"), f"expected {expected}, not {tensor.index}"


def _check_tensor_types(draft: Draft) -> Iterator[Problem]:
    operation = draft.operation
    types = [variable.name for variable in operation.type_variables]
    elements = [row.name for row in ELEMENT_TYPES]
    of_data: str | None = None
    for field, tensor in _tensors(draft):
        if tensor.type not in types:
            if _is_unknown(tensor.type, types):
                yield (*field, "type"), f"there is no type variable {tensor.type!r}"
            continue
        is_shape = field[0] == "inputs" and tensor.channels is None and tensor.spatial is None
        if not is_shape:
            of_data = of_data or tensor.type
            if tensor.type != of_data:
                yield (*field, "type"), f"all data tensors have one type, {of_data!r}, not {tensor.type!r}"
        index = types.index(tensor.type)
        allowed = list(SHAPE_TYPES) if is_shape else elements
        if ("type_variables", index) in draft.faulty:
            continue
        for name in operation.type_variables[index].types:
            if name not in allowed and name in (*elements, *SHAPE_TYPES):
                yield (*field, "type"), f"{tensor.type!r} includes {name!r}; {tensor.name} may be {allowed}"


def _check_tensor_attributes(draft: Draft) -> Iterator[Problem]:
    attributes = draft.operation.attributes
    roles = {attribute.name: attribute.role for attribute in attributes}
    for field, tensor in _tensors(draft):
        is_output = field[0] == "outputs"
        of_layout = "weights_format" if is_output else "data_format"
        for key, name, role in (("layout", tensor.layout, of_layout), ("overrides", tensor.overrides, "weights_shape")):
            if name is None:
                continue
            if name not in roles:
                if _is_unknown(name, roles):
                    yield (*field, key), f"there is no attribute {name!r}"
            elif roles[name] not in (role, None):
                yield (*field, key), f"expected the attribute in the role {role!r}, not {name!r}"
        if tensor.overrides is not None and tensor.overrides in roles and tensor.name != tensor.overrides:
            yield (*field, "name"), f"expected {tensor.overrides!r}, the name of the attribute that it overrides"
        if (is_output or tensor.channels is not None) and tensor.overrides is None and tensor.name in roles:
            yield (*field, "name"), f"{tensor.name!r} is the name of an attribute too"
    for index, attribute in draft.sound("attributes", attributes):
        if "name" in draft.operation.model_fields_set and attribute.name == draft.operation.name:
            yield ("attributes", index, "name"), f"{attribute.name!r} is the name of the operation too"


def _check_tensor_operation_names(draft: Draft) -> Iterator[Problem]:
    for field, tensor in _tensors(draft):
        if tensor.name == draft.operation.name:
            yield (*field, "name"), f"{tensor.name!r} is the name of the operation too"


def _tensors(draft: Draft) -> Iterator[tuple[tuple[str, int], Tensor]]:
    for section, tensors in (("inputs", draft.operation.inputs), ("outputs", draft.operation.outputs)):
        for index, tensor in draft.sound(section, tensors):
            yield (section, index), tensor


def _check_types(draft: Draft) -> Iterator[Problem]:
    variables = draft.operation.type_variables
    yield from _duplicates("type_variables", [variable.name for variable in variables])
    known = {*(row.name for row in ELEMENT_TYPES), *SHAPE_TYPES}
    for index, variable in draft.sound("type_variables", variables):
        for name in variable.types:
            if name not in known:
                yield ("type_variables", index, "types"), f"{name!r} is not a type; known are {sorted(known)}"
        if len(set(variable.types)) != len(variable.types):
            yield ("type_variables", index, "types"), f"a type is there twice in {list(variable.types)}"


def _check_subjects(draft: Draft) -> Iterator[Problem]:
    operation = draft.operation
    attributes = {attribute.name for attribute in operation.attributes}
    subjects = attributes | {tensor.name for tensor in operation.inputs}
    for index, rule in draft.sound("rules", operation.rules):
        if _is_unknown(rule.subject, subjects):
            yield ("rules", index, "subject"), f"there is no attribute or input {rule.subject!r}"
        if rule.remedy is not None and _is_unknown(rule.remedy.attribute, attributes):
            yield ("rules", index, "remedy", "attribute"), f"there is no attribute {rule.remedy.attribute!r}"


def _check_layouts(draft: Draft) -> Iterator[Problem]:
    weights_format = draft.operation.attribute("weights_format")
    if weights_format is None or not weights_format.words:
        return
    words = weights_format.words
    for index, reading in draft.sound("readings", draft.operation.readings):
        if set(reading.layouts) != set(words):
            message = f"lays out {sorted(reading.layouts)}, but the attribute allows {sorted(words)}"
            yield ("readings", index, "layouts"), message


def _check_readings(draft: Draft) -> Iterator[Problem]:
    yield from _duplicates("readings", [reading.id for reading in draft.operation.readings])
    for index, reading in draft.sound("readings", draft.operation.readings):
        for field, message in (*_axes_problems(reading), *_sum_problems(draft, reading)):
            yield ("readings", index, *field), message


def _axes_problems(reading: Reading) -> Iterator[tuple[tuple[str, ...], str]]:
    axes = sorted(reading.sum.gradient.values())
    if axes not in (["IC", "OC/groups", "X"], ["IC/groups", "OC", "X"]):
        message = "expected one whole channel axis, the other divided by groups, and X for the kernel"
        yield ("sum", "gradient"), f"{message}, not {axes}"
    for name, layout in reading.layouts.items():
        if sorted(layout) != axes:
            yield ("layouts", name), f"{list(layout)} are not the axes of the sum's gradient, {axes}"


def _sum_problems(draft: Draft, reading: Reading) -> Iterator[tuple[tuple[str, ...], str]]:
    operation, total = draft.operation, reading.sum
    factors = parse_term(total.term)
    tensors = [tensor.name for tensor in operation.data_inputs]
    are_known = len(tensors) == 2 and None not in tensors
    if are_known and sorted(factor.tensor for factor in factors) != sorted(tensors):
        yield ("sum", "term"), f"expected one factor for each of {tensors}"
    symbols = known_symbols(operation, per_axis=True)
    for name in (*total.gradient, *total.over, *total.where):
        if name in symbols:
            yield ("sum",), f"the index {name!r} is a symbol with another meaning"
    known = {*total.gradient, *total.over, *total.where, *symbols}
    for factor in factors:
        for formula in (factor.batch, factor.channel, factor.spatial):
            for symbol in formula_names(formula):
                if _is_unknown(symbol, known):
                    yield ("sum", "term"), f"unknown index {symbol!r} in {formula!r}"
    earlier = {*total.gradient, *known_symbols(operation, per_axis=False)}
    for name, formula in total.where.items():
        for symbol in formula_names(formula):
            if _is_unknown(symbol, earlier):
                yield ("sum", "where", name), f"unknown index {symbol!r} in {formula!r}"
        earlier.add(name)
    plain = [factor for factor in factors if _is_bare(factor)]
    if len(plain) != 1:
        yield ("sum", "term"), "the window moves over exactly one of the two tensors"
        return
    spatial = next((row.spatial for row in operation.data_inputs if row.name == plain[0].tensor), None)
    for index, extent in ((plain[0].batch, "N"), (plain[0].spatial, spatial)):
        if extent is not None and total.over.get(index, extent) != extent:
            yield ("sum", "over", index), f"expected {extent!r}, the extent of {plain[0].tensor}"


def _is_bare(factor: Factor) -> bool:
    return isinstance(ast.parse(factor.spatial, mode="eval").body, ast.Name)


def _check_sources(draft: Draft) -> Iterator[Problem]:
    operation = draft.operation
    known = {source.id for source in operation.sources}
    yield from _duplicates("sources", [source.id for source in operation.sources])
    yield from _duplicates("decisions", [decision.number for decision in operation.decisions])
    cited: list[tuple[tuple[str, int], tuple[str, ...]]] = []
    cited += [(("readings", index), row.sources) for index, row in draft.sound("readings", operation.readings)]
    cited += [(("decisions", index), row.sources) for index, row in draft.sound("decisions", operation.decisions)]
    for field, sources in cited:
        for source in sources:
            if _is_unknown(source, known):
                message = f"document {source!r} is not among the sources {sorted(known)}"
                yield (*field, "sources"), message


def _check_examples(draft: Draft) -> Iterator[Problem]:
    operation = draft.operation
    tensors = {tensor.name for tensor in operation.data_inputs}
    for index, example in draft.sound("examples", operation.examples):
        if len(tensors) == 2 and None not in tensors and set(example.shapes) != tensors:
            yield ("examples", index, "shapes"), f"expected a shape for each of {sorted(tensors)}"
        for field, message in _example_problems(draft, example):
            yield ("examples", index, *field), message


def _example_problems(draft: Draft, example: Example) -> Iterator[tuple[tuple[str, ...], str]]:
    """Attribute values and numbers of axes; what sizes must be is for the rules to say."""
    names = {attribute.name for attribute in draft.operation.attributes}
    attributes = {
        row.name: row
        for _, row in draft.sound("attributes", draft.operation.attributes)
        if not any(attribute_problems(row, draft.operation.attributes))
    }
    for name, value in example.attributes.items():
        if _is_unknown(name, names):
            yield ("attributes", name), "there is no such attribute"
        elif name in attributes and (message := value_problem(attributes[name], value)):
            yield ("attributes", name), message
    for name, attribute in attributes.items():
        if name not in example.attributes and _is_required(attribute, attributes, example):
            yield ("attributes",), f"{name} is required"
    strides = draft.operation.attribute("strides")
    given = example.attributes.get(strides.name) if strides is not None else None
    if not isinstance(given, tuple):
        return
    if len(given) not in (1, 2, 3):
        yield ("attributes", strides.name if strides else ""), f"expected 1, 2 or 3 entries, not {len(given)}"
        return
    for name, value in example.attributes.items():
        if isinstance(value, tuple) and name in attributes:
            expected = len(given) + (2 if attributes[name].length == "weights" else 0)
            if len(value) != expected:
                yield ("attributes", name), f"expected {expected} entries, not {len(value)}"
    for name, shape in example.shapes.items():
        if len(shape) != len(given) + 2:
            yield ("shapes", name), f"expected {len(given) + 2} axes, not {len(shape)}"
        elif min(shape[1:]) < 1 or shape[0] < 0:
            yield ("shapes", name), f"expected extents of at least 1, not {list(shape)}; only the batch may be empty"


def _is_required(attribute: Attribute, attributes: dict[str, Attribute], example: Example) -> bool:
    if not attribute.required or attribute.ignored_when is None:
        return attribute.required
    by = attributes.get(attribute.ignored_when.attribute)
    return by is not None and example.attributes.get(by.name, by.default) == attribute.ignored_when.unless


def _check_example_types(draft: Draft) -> Iterator[Problem]:
    operation = draft.operation
    data = operation.data_inputs
    sound = {row.name: row.types for _, row in draft.sound("type_variables", operation.type_variables)}
    types = sound.get(data[0].type) if data else None
    for index, example in draft.sound("examples", operation.examples):
        if types is not None and example.type not in types:
            yield ("examples", index, "type"), f"expected one of {list(types)}, not {example.type!r}"


_CHECKS: tuple[tuple[tuple[str, ...], Check], ...] = (
    (("name",), _check_operation),
    (("name", "versioned_name"), _check_versioned_name),
    (("name", "counterpart"), _check_counterpart),
    (("attributes",), _check_attributes),
    (("inputs", "outputs"), _check_tensors),
    (("inputs", "outputs", "index_base"), _check_indices),
    (("inputs", "outputs", "type_variables"), _check_tensor_types),
    (("attributes", "inputs", "outputs"), _check_tensor_attributes),
    (("name", "inputs", "outputs"), _check_tensor_operation_names),
    (("type_variables",), _check_types),
    (("attributes", "definitions", "padding", "rules"), check_formulas),
    (("attributes", "definitions", "padding", "rules"), check_numbers),
    (("attributes", "inputs", "rules"), _check_subjects),
    (("attributes", "readings"), _check_layouts),
    (("attributes", "inputs", "definitions", "readings"), _check_readings),
    (("sources", "readings", "decisions"), _check_sources),
    (("attributes", "inputs", "examples"), _check_examples),
    (("inputs", "type_variables", "examples"), _check_example_types),
)
"""Each check with the sections it reads."""
