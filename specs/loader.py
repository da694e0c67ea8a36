# SPDX-License-Identifier: Apache-2.0
"""Operation files to models. A wrong file gets all of its errors at once, each with the file and the field."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from specs.consistency import check_consistency
from specs.model import Operation

OPERATIONS = Path(__file__).parent / "operations"
"""The folder of the operation files that ship."""


class SpecFileError(ValueError):
    """One or more operation files are wrong. `problems` holds a line for each, `file: field: what`."""

    def __init__(self, problems: Iterable[str]) -> None:
        self.problems = tuple(problems)
        super().__init__("\n".join(self.problems))


def load_operation(path: Path) -> Operation:
    """The operation that a .toml or .json file describes.

    Raises:
        SpecFileError: with every problem of the file.
    """
    try:
        data = _read(path)
    except (ValueError, OSError) as error:
        raise SpecFileError([f"{path}: {error}"]) from None
    return operation_from_data(data, str(path))


def load_operations(folder: Path = OPERATIONS) -> tuple[Operation, ...]:
    """All operations of a folder, sorted by name.

    Raises:
        SpecFileError: with every problem of every file, or for two files that name the same operation.
    """
    operations: dict[str, Operation] = {}
    problems: list[str] = []
    for path in sorted([*folder.glob("*.toml"), *folder.glob("*.json")]):
        try:
            operation = load_operation(path)
        except SpecFileError as error:
            problems.extend(error.problems)
            continue
        if operation.name in operations:
            problems.append(f"{path}: name: another file of this folder already describes {operation.name}")
        operations[operation.name] = operation
    if not operations and not problems:
        problems.append(f"{folder}: no operation files (*.toml or *.json) here")
    if problems:
        raise SpecFileError(problems)
    return tuple(operations[name] for name in sorted(operations))


def operation_from_data(data: Mapping[str, Any], where: str) -> Operation:
    """The operation that plain data (tables, lists, words, numbers) describes; `where` is named in errors."""
    problems = _structural_problems(data)
    sound = {name: value for name, value in data.items() if not any(field[0] == name for field, _ in problems)}
    problems += check_consistency(_load_sections(sound))
    if problems:
        raise SpecFileError(f"{where}: {_field_text(data, field)}: {message}" for field, message in problems)
    return Operation.model_validate_json(json.dumps(data))


def dump_operation(operation: Operation) -> str:
    """The operation as JSON; loading it again gives an equal operation."""
    return operation.model_dump_json(indent=2, exclude_unset=True)


def _read(path: Path) -> Mapping[str, Any]:
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".json":
        data = json.loads(text, object_pairs_hook=_no_duplicates)
        if not isinstance(data, dict):
            raise ValueError("expected an object")
        return data
    return tomllib.loads(text)


def _no_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in pairs:
        if key in found:
            raise ValueError(f"duplicate key {key!r}")
        found[key] = value
    return found


def _structural_problems(data: Mapping[str, Any]) -> list[tuple[tuple[int | str, ...], str]]:
    try:
        Operation.model_validate_json(json.dumps(data, default=str))
    except ValidationError as error:
        items = error.errors(include_url=False, include_context=False)
        problems = [(item["loc"], item["msg"]) for item in items]
        # A list that lost all its entries to errors is reported as too short as well: that is no error of its own.
        return [row for row in problems if not any(other != row and _is_below(other[0], row[0]) for other in problems)]
    return []


def _is_below(field: tuple[int | str, ...], parent: tuple[int | str, ...]) -> bool:
    return len(field) > len(parent) and field[: len(parent)] == parent


def _load_sections(data: Mapping[str, Any]) -> Operation:
    """A partial operation that holds just the sections that are sound, so that those are checked all the same."""
    sections = {}
    for name, field in Operation.model_fields.items():
        if name in data:
            sections[name] = TypeAdapter(field.rebuild_annotation()).validate_json(json.dumps(data[name]), strict=True)
    return Operation.model_construct(_fields_set=set(sections), **sections)


def _field_text(data: Any, field: tuple[int | str, ...]) -> str:
    """The path to a field; list entries that have a name, id or number are called by it."""
    text = ""
    for key in field:
        label = str(key)
        try:
            data = data[key]
            if isinstance(key, int) and isinstance(data, Mapping):
                label = next((str(data[name]) for name in ("name", "id", "symbol", "number") if name in data), label)
        except (KeyError, IndexError, TypeError):
            data = None
        text += f"[{label}]" if isinstance(key, int) else f".{label}" if text else label
    return text or "(file)"
