# SPDX-License-Identifier: Apache-2.0
"""Operation files to models. A wrong file gets all of its errors at once, each with the file and the field."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from specs.consistency import check_consistency
from specs.draft import Problem, find_faults
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
    return operation_from_data(_read(path), str(path))


def load_operations(folder: Path = OPERATIONS) -> tuple[Operation, ...]:
    """All operations of a folder, sorted by name.

    Raises:
        SpecFileError: with every problem of every file, or for two files that name the same operation.
    """
    operations: dict[str, tuple[Operation, Path]] = {}
    problems: list[str] = []
    names: set[object] = set()
    """Of all files that can be read, whether the rest of them is right or not; None when some name is unknown."""
    for path in sorted([*folder.glob("*.toml"), *folder.glob("*.json")]):
        name: object = None
        try:
            data = _read(path)
            name = data["name"] if isinstance(data.get("name"), str) else None
            operation = operation_from_data(data, str(path))
        except SpecFileError as error:
            problems.extend(error.problems)
            continue
        finally:
            names.add(name)
        if operation.name in operations:
            problems.append(f"{path}: name: another file of this folder already describes {operation.name}")
            continue
        for other in operations:
            if other.lower() == operation.name.lower():
                # Both would give the same Python module, and the same page where file names ignore case.
                problems.append(f"{path}: name: {operation.name!r} differs from {other!r} only in upper and lower case")
        operations[operation.name] = (operation, path)
    for operation, path in operations.values():
        if operation.counterpart is not None and names.isdisjoint((operation.counterpart, None)):
            problems.append(f"{path}: counterpart: no file of this folder describes {operation.counterpart!r}")
    if not names:
        problems.append(f"{folder}: no operation files (*.toml or *.json) here")
    if problems:
        raise SpecFileError(problems)
    return tuple(operations[name][0] for name in sorted(operations))


def operation_from_data(data: Mapping[str, Any], where: str) -> Operation:
    """The operation that plain data (tables, lists, words, numbers) describes; `where` is named in errors.

    Raises:
        SpecFileError: with every problem of the data.
    """
    problems, draft = find_faults(data)
    problems += check_consistency(draft)
    if problems:
        raise SpecFileError(_problem_lines(data, where, problems))
    return Operation.model_validate_json(json.dumps(data))


def _problem_lines(data: Mapping[str, Any], where: str, problems: Iterable[Problem]) -> list[str]:
    """A line for each problem; a field's text may come from the file and hold line breaks of its own."""
    return [" ".join(f"{where}: {_field_text(data, field)}: {message}".splitlines()) for field, message in problems]


def dump_operation(operation: Operation) -> str:
    """The operation as JSON; loading it again gives an equal operation."""
    return operation.model_dump_json(indent=2, exclude_unset=True)


def _read(path: Path) -> Mapping[str, Any]:
    try:
        text = path.read_text(encoding="utf-8")
        data = json.loads(text, object_pairs_hook=_no_duplicates) if path.suffix == ".json" else tomllib.loads(text)
    except (ValueError, OSError, RecursionError) as error:
        raise SpecFileError([f"{path}: {error}"]) from None
    if not isinstance(data, dict):
        raise SpecFileError([f"{path}: expected an object"])
    return data


def _no_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in pairs:
        if key in found:
            raise ValueError(f"duplicate key {key!r}")
        found[key] = value
    return found


def _field_text(data: Any, field: tuple[int | str, ...]) -> str:
    """The path to a field; list entries that have a name, id or number are called by it."""
    text = ""
    for key in field:
        label = str(key)
        try:
            data = data[key]
            if isinstance(key, int) and isinstance(data, Mapping):
                names = [data.get(name) for name in ("name", "id", "symbol", "number")]
                label = next((str(name) for name in names if isinstance(name, (str, int))), label)
        except (KeyError, IndexError, TypeError):
            data = None
        text += f"[{label}]" if isinstance(key, int) else f".{label}" if text else label
    return text or "(file)"
