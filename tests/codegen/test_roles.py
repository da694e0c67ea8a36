# SPDX-License-Identifier: Apache-2.0
"""From sums to roles, the refusal of sums that no kernel computes, and how sums and sentences reach Python modules."""

from __future__ import annotations

import ast
import json
from typing import Any

import pytest

from codegen.operation_context import make_operation_context
from codegen.python_code import escape_docstring, layout_text
from codegen.render import make_environment
from codegen.roles import UnsupportedSumError, assign_roles
from specs.loader import dump_operation, load_operations, operation_from_data
from specs.model import Operation

OPERATIONS = {operation.name: operation for operation in load_operations()}


def with_sum(operation: Operation, **changes: Any) -> Operation:
    data = json.loads(dump_operation(operation))
    data["readings"][0]["sum"].update(changes)
    return operation_from_data(data, "made_up")


@pytest.mark.parametrize(
    ("name", "plain", "windowed"),
    [
        ("ConvolutionBackwardWeights", "diff_dst", "src"),
        ("ConvTransposeBackwardWeights", "src", "diff_dst"),
        ("ConvolutionBackpropFilters", "output_delta", "input_forward"),
        ("ConvTransposeBackpropFilters", "input_forward", "output_delta"),
    ],
)
def test_roles_of_the_four_operations(name: str, plain: str, windowed: str) -> None:
    for reading in OPERATIONS[name].readings:
        roles = assign_roles(OPERATIONS[name], reading)
        assert (roles.plain.name, roles.windowed.name) == (plain, windowed)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"term": "src[n, g * ICg + j, o * s + k * d + pb] * diff_dst[n, oc, o]"}, r"read at 'o \* s \+ k \* d - pb'"),
        ({"term": "src[n, g * ICg + j, o * s - k * d - pb] * diff_dst[n, oc, o]"}, r"read at 'o \* s \+ k \* d - pb'"),
        ({"term": "src[n, j, o * s + k * d - pb] * diff_dst[n, oc, o]"}, r"src is read at channel 'g \* ICg \+ j'"),
        ({"term": "src[n + 1, g * ICg + j, o * s + k * d - pb] * diff_dst[n, oc, o]"}, "the sum runs over the batch"),
        ({"where": {"g": "oc // ICg"}}, "the group is g = oc // OCg"),
    ],
)
def test_other_sums_are_refused(changes: dict[str, Any], message: str) -> None:
    operation = with_sum(OPERATIONS["ConvolutionBackwardWeights"], **changes)
    with pytest.raises(UnsupportedSumError, match=message):
        assign_roles(operation, operation.readings[0])


@pytest.mark.parametrize("operation", OPERATIONS.values(), ids=lambda operation: operation.name)
def test_each_sum_stands_above_its_layouts(operation: Operation) -> None:
    text = " ".join(make_operation_context(operation).class_documentation.split())
    for reading in operation.readings:
        total = reading.sum
        (group,) = total.where.items()
        assert (
            f"{operation.outputs[0].name}[{', '.join(total.gradient)}] = sum over {', '.join(total.over)} of "
            f"{total.term}, {group[0]} = {group[1]} {next(iter(reading.layouts))} is ("
        ) in text


ODD_TEXTS = ('A """ B', "A \\N{nothing} B", "A \\ B", '""" A', '"A" and ""B""" """"', "A \\u12 {{ B }} {# C")


@pytest.mark.parametrize("odd", ODD_TEXTS)
def test_any_sentence_makes_a_module_that_says_it(odd: str) -> None:
    data = json.loads(dump_operation(OPERATIONS["ConvTransposeBackwardWeights"]))
    data["summary"] = data["description"] = f"{odd} C."
    data["sources"][0]["title"] = data["readings"][0]["sentence"] = f"Title {odd} C."
    for section in ("attributes", "inputs", "outputs", "rules"):
        for entry in data[section]:
            entry["sentence"] = f"Sentence {odd} C."
    context = make_operation_context(operation_from_data(data, "made_up"))
    module = ast.parse(make_environment().get_template("python/operation.py.j2").render(context=context))
    shown = [
        " ".join((ast.get_docstring(node) or "").split())
        for node in ast.walk(module)
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef))
    ]
    assert len(shown) == 6
    assert sum(f"{odd} C." in text for text in shown) == 4  # all but those of __init__ and prepare
    assert any(isinstance(node, ast.Constant) and node.value == f"Sentence {odd} C." for node in ast.walk(module))


@pytest.mark.parametrize("odd", ODD_TEXTS)
def test_an_escaped_docstring_is_the_text(odd: str) -> None:
    assert ast.literal_eval(f'"""{escape_docstring(odd)} """') == f"{odd} "


@pytest.mark.parametrize("word", ["channels-behind", "x" * 150, "equal"])
def test_a_long_text_in_pieces_is_the_text(word: str) -> None:
    text = " ".join([word] * 40)
    (keyword,) = ast.parse(f"f({layout_text('sentence', text, 8)})", mode="eval").body.keywords  # type: ignore[attr-defined]
    assert ast.literal_eval(keyword.value) == text
