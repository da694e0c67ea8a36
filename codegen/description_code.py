# SPDX-License-Identifier: Apache-2.0
"""The Python expression that describes an operation to the generated package, from its specification."""

from __future__ import annotations

from codegen.python_code import layout_call, layout_text, layout_tuple, quote, quote_tuple
from codegen.roles import assign_roles
from specs.expressions import formula_names, split_comparison
from specs.model import Attribute, Operation, Reading, Rule

_ROW = 8
"""Indentation of a row of one of the description's tuples."""


def data_types(operation: Operation) -> tuple[str, ...]:
    """The element types of the data inputs."""
    variables = {variable.name: variable.types for variable in operation.type_variables}
    return variables[operation.data_inputs[0].type]


def layout_description(operation: Operation) -> str:
    """The constructor call of convgrad.description.Description."""
    shape = operation.attribute("weights_shape")
    assert shape is not None, "the loader requires the attribute"
    inputs = [
        layout_call(
            "Input",
            [quote(row.name), f"channels={quote(row.channels or '')}", f"spatial={quote(row.spatial or '')}"],
            _ROW,
        )
        for row in operation.data_inputs
    ]
    definitions = [
        layout_call(
            "Definition",
            [quote(row.symbol), f"per_axis={row.per_axis}", f"formula={_layout_formula(row.formula, _ROW + 4)}"],
            _ROW,
        )
        for row in operation.definitions
    ]
    arguments = [
        f"name={quote(operation.name)}",
        f"attributes={layout_tuple([_layout_attribute(row) for row in operation.attributes], 4)}",
        f"inputs={layout_tuple(inputs, 4)}",
        f"shape_name={quote(shape.name)}",
        f"dtypes={quote_tuple(data_types(operation))}",
        f"definitions={layout_tuple(definitions, 4)}",
        f"same_total={_layout_formula(operation.padding.same_total, 4)}",
        f"readings={layout_tuple([_layout_reading(operation, row) for row in operation.readings], 4)}",
        f"rules={layout_tuple([_layout_rule(row) for row in operation.rules], 4)}",
    ]
    return layout_call("Description", arguments, 0)


def _layout_formula(text: str, indent: int) -> str:
    names = formula_names(text)
    function = f"lambda {', '.join(names)}: {text}" if names else f"lambda: {text}"
    return layout_call("Formula", [quote(text), quote_tuple(names), function], indent)


def _layout_attribute(attribute: Attribute) -> str:
    arguments = [quote(attribute.name), f"role={quote(attribute.role)}", f"kind={quote(attribute.kind)}"]
    if attribute.range is not None:
        arguments.append(f"range={quote(attribute.range)}")
    if attribute.words:
        arguments.append(f"words={quote_tuple(attribute.words)}")
    if attribute.any_case:
        arguments.append("any_case=True")
    if attribute.length is not None:
        arguments.append(f"length={quote(attribute.length)}")
    if attribute.required:
        arguments.append("required=True")
    if attribute.default is not None:
        default = quote(attribute.default) if isinstance(attribute.default, str) else str(attribute.default)
        arguments.append(f"default={default}")
    if attribute.ignored_when is not None:
        words = (attribute.ignored_when.attribute, attribute.ignored_when.unless)
        arguments.append(f"ignored_unless={quote_tuple(words)}")
    return layout_call("Attribute", arguments, _ROW)


def _layout_reading(operation: Operation, reading: Reading) -> str:
    layouts = ", ".join(f"{quote(name)}: {quote_tuple(axes)}" for name, axes in reading.layouts.items())
    plain = assign_roles(operation, reading).plain.name
    return layout_call("Reading", [quote(reading.id), f"layouts={{{layouts}}}", f"plain={quote(plain)}"], _ROW)


def _layout_rule(rule: Rule) -> str:
    sides = split_comparison(rule.formula)
    arguments = [
        f"id={quote(rule.id)}",
        f"subject={quote(rule.subject)}",
        layout_text("sentence", rule.sentence, _ROW + 4),
        f"per_axis={rule.per_axis}",
        f"left={_layout_formula(sides.left, _ROW + 4)}",
        f"comparison={quote(sides.operator)}",
        f"right={_layout_formula(sides.right, _ROW + 4)}",
    ]
    if rule.remedy is not None:
        formula = _layout_formula(rule.remedy.formula, _ROW + 8)
        arguments.append(f"remedy={layout_call('Remedy', [quote(rule.remedy.attribute), formula], _ROW + 4)}")
    return layout_call("Rule", arguments, _ROW)
