# SPDX-License-Identifier: Apache-2.0
"""JSON Schema (draft 2020-12): of the operation files, and of the attributes of each operation."""

from __future__ import annotations

import json
from typing import Any

from specs.model import Attribute, Operation

DRAFT = "https://json-schema.org/draft/2020-12/schema"
IDENTIFIER = "urn:convgrad:schema:"
INT64_MAX = 2**63 - 1


def make_format_schema() -> dict[str, Any]:
    """The schema of an operation file, as the loader checks it before it looks at what fields say of each other."""
    schema = Operation.model_json_schema()
    return {"$schema": DRAFT, "$id": f"{IDENTIFIER}operation", **schema}


def make_attribute_schema(operation: Operation) -> dict[str, Any]:
    """The schema of one operation's attributes: a closed object with conditions for what is required when."""
    schema: dict[str, Any] = {
        "$schema": DRAFT,
        "$id": f"{IDENTIFIER}{operation.name}:attributes",
        "title": f"Attributes of {operation.name}",
        "description": operation.summary,
        "type": "object",
        "properties": {attribute.name: _property(attribute) for attribute in operation.attributes},
        "required": [row.name for row in operation.attributes if row.required and row.ignored_when is None],
        "additionalProperties": False,
    }
    conditions = _conditions(operation)
    if conditions:
        schema["allOf"] = conditions
    return schema


def schema_text(schema: dict[str, Any]) -> str:
    """A schema as text that does not change from run to run."""
    return json.dumps(schema, indent=2, ensure_ascii=False)


def _property(attribute: Attribute) -> dict[str, Any]:
    minimum = {"positive": 1, "non-negative": 0, None: None}[attribute.range]
    integer = {"type": "integer", "minimum": minimum, "maximum": INT64_MAX}
    schema: dict[str, Any] = {"description": attribute.sentence}
    if attribute.kind == "s64[]":
        low, high = (1, 3) if attribute.length == "spatial" else (3, 5)
        schema |= {"type": "array", "items": integer, "minItems": low, "maxItems": high}
    elif attribute.kind == "s64":
        schema |= integer
    elif attribute.any_case:
        schema |= {"type": "string", "pattern": f"^({'|'.join(_any_case(word) for word in attribute.words)})$"}
    else:
        schema |= {"type": "string", "enum": list(attribute.words)}
    if attribute.default is not None and attribute.kind != "s64[]":
        schema["default"] = attribute.default
    return schema


def _any_case(word: str) -> str:
    """A pattern for a word in any mixture of cases: JSON Schema's patterns have no flag for it."""
    return "".join(f"[{letter.lower()}{letter.upper()}]" if letter.isalpha() else letter for letter in word)


def _conditions(operation: Operation) -> list[dict[str, Any]]:
    """Attributes that are required only while another one holds a certain word, which may be its default."""
    required: dict[tuple[str, str], list[str]] = {}
    for attribute in operation.attributes:
        if attribute.required and attribute.ignored_when is not None:
            key = (attribute.ignored_when.attribute, attribute.ignored_when.unless)
            required.setdefault(key, []).append(attribute.name)
    return [
        {
            "if": {"properties": {other: {"pattern": f"^{_any_case(word)}$"}}},
            "then": {"required": names},
        }
        for (other, word), names in required.items()
    ]
