# SPDX-License-Identifier: Apache-2.0
"""The exported JSON Schemas are valid, closed, and agree with the loader and with the validators."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest

import convgrad
from convgrad.operations import OPERATIONS
from specs.loader import dump_operation, load_operations
from specs.model import Operation

FOLDER = Path(__file__).resolve().parents[2] / "generated" / "schema"
SPECS = {operation.name: operation for operation in load_operations()}


def load_schema(name: str) -> Any:
    schema = json.loads((FOLDER / name).read_text())
    jsonschema.Draft202012Validator.check_schema(schema)
    assert schema["$schema"] == "https://json-schema.org/draft/2020-12/schema"
    assert schema["$id"].startswith("urn:convgrad:schema:")
    return schema


def closed_objects(schema: Any) -> int:
    found = 0
    if isinstance(schema, dict):
        if schema.get("type") == "object" and "properties" in schema:
            assert schema["additionalProperties"] is False, schema.get("title")
            found += 1
        return found + sum(closed_objects(value) for value in schema.values())
    if isinstance(schema, list):
        return sum(closed_objects(value) for value in schema)
    return 0


def test_there_is_a_schema_for_the_format_and_for_each_operation() -> None:
    names = {f"{operation.__name__}.attributes.schema.json" for operation in OPERATIONS}
    assert {path.name for path in FOLDER.iterdir()} == names | {"operation.schema.json"}


def test_every_object_is_closed() -> None:
    assert closed_objects(load_schema("operation.schema.json")) >= 12
    for operation in OPERATIONS:
        assert closed_objects(load_schema(f"{operation.__name__}.attributes.schema.json")) == 1


@pytest.mark.parametrize("operation", SPECS.values(), ids=lambda operation: operation.name)
def test_the_format_schema_accepts_every_operation_and_refuses_changes(operation: Operation) -> None:
    validator = jsonschema.Draft202012Validator(load_schema("operation.schema.json"))
    data = json.loads(dump_operation(operation))
    validator.validate(data)
    for change in ({"bogus": 1}, {"name": "lower"}, {"index_base": 2}, {"attributes": []}, {"generation": "2.x"}):
        assert not validator.is_valid({**data, **change}), change


def attribute_cases(operation: Operation) -> list[dict[str, Any]]:
    shape = operation.attribute("weights_shape")
    weights = operation.attribute("weights_format")
    assert shape is not None and weights is not None
    good = {"strides": [1, 2], "pads_begin": [0, 1], "pads_end": [1, 0], "dilations": [1, 1]}
    without_pads = {"strides": [1, 2], "dilations": [1, 1]}
    return [
        good,
        without_pads,
        {**without_pads, "auto_pad": "none"},
        {**without_pads, "auto_pad": "NONE"},
        {**without_pads, "auto_pad": "same_upper"},
        {**without_pads, "auto_pad": "Valid"},
        {**without_pads, "auto_pad": "same"},
        {**good, "auto_pad": "SAME_LOWER"},
        {**good, "pads_begin": [-1, 0]},
        {**good, "strides": [0, 1]},
        {**good, "strides": 1},
        {**good, "strides": [1.5, 1]},
        {**good, "strides": [2**63, 1]},
        {**good, "dilations": [1, "1"]},
        {**good, "groups": 4},
        {**good, "groups": 0},
        {**good, "groups": [1]},
        {**good, "data_format": "NCX"},
        {**good, "data_format": "ncx"},
        {**good, weights.name: weights.words[0]},
        {**good, weights.name: "OXI"},
        {**good, shape.name: [4, 3, 3, 3]},
        {**good, shape.name: [4, 3, 3, 0]},
        {**good, "output_padding": [0, 1]},
        {**good, "output_padding": [0, -1]},
        {**good, "bogus": 1},
        {**good, ("weights_shape" if shape.name == "filter_shape" else "filter_shape"): [4, 3, 3, 3]},
    ]


@pytest.mark.parametrize("name", SPECS)
def test_attribute_schema_and_validators_agree(name: str) -> None:
    validator = jsonschema.Draft202012Validator(load_schema(f"{name}.attributes.schema.json"))
    verdicts = []
    for attributes in attribute_cases(SPECS[name]):
        try:
            getattr(convgrad, name)(**attributes)
            accepted = True
        except (convgrad.SpecError, TypeError):
            accepted = False
        assert validator.is_valid(attributes) == accepted, attributes
        verdicts.append(accepted)
    assert 6 <= sum(verdicts) <= len(verdicts) - 12
