# SPDX-License-Identifier: Apache-2.0
"""An operation as far as its file can be read, so that one wrong entry does not hide what else is wrong.

An unknown key is left out. An entry of a list (an attribute, a rule, ...) with an error inside stays in its place as a
stand-in: what it is called and what it plays remain known to the checks of other entries, and nothing is said about
the entry itself beyond the error that it has.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar, get_args

from pydantic import BaseModel, TypeAdapter, ValidationError

from specs.model import Operation

Field = tuple[int | str, ...]
"""Where in the file: keys and places in lists, from the outside in."""
Problem = tuple[Field, str]

Entry = TypeVar("Entry")

_NAMES = ("name", "id", "symbol", "role", "channels", "spatial")
"""Keys of entries by which other entries speak of them."""
_HALF_CHARACTERS = re.compile("[\ud800-\udfff]")


@dataclass(frozen=True, slots=True)
class Draft:
    """An operation whose sections may be missing, and whose lists may hold stand-ins."""

    operation: Operation
    """Has those sections that could be read; fields of stand-ins are None where the file has nothing sensible."""
    faulty: frozenset[Field]
    """(section, place) of each stand-in, and (section,) of a list that is itself wrong, such as one too short."""
    strayed: Mapping[Field, frozenset[str]]
    """(section, place) of each entry that had unknown keys, with the keys that are left."""

    def sound(self, section: str, entries: Sequence[Entry]) -> Iterator[tuple[int, Entry]]:
        """The entries of a section that are no stand-ins, with their places."""
        return ((place, entry) for place, entry in enumerate(entries) if (section, place) not in self.faulty)

    def is_whole(self, *sections: str) -> bool:
        """Whether the sections are as their author meant them: with no stand-in and no unknown key."""
        return not any(field[0] in sections for field in (*self.faulty, *self.strayed))


def find_faults(data: Mapping[str, Any]) -> tuple[list[Problem], Draft]:
    """What is wrong with the fields taken one by one, and the draft in which they can be compared."""
    faults, unknown = _validate(data)
    known, strayed = _without(data, unknown)
    # The same errors as before but for the unknown keys; a list that an unknown key emptied is sound again.
    remaining, _ = _validate(known)
    unreadable = [row for row in faults if row[0] == ()]
    draft = _make_draft({} if unreadable else known, remaining, strayed)
    return [*((field, "Extra inputs are not permitted") for field in unknown), *(unreadable or remaining)], draft


def _validate(data: Mapping[str, Any]) -> tuple[list[Problem], list[Field]]:
    """Errors of fields, and fields that are unknown."""
    try:
        Operation.model_validate_json(_as_json(data))
    except ValidationError as error:
        items = error.errors(include_url=False, include_context=False)
    else:
        return [], []
    messages: dict[Field, list[str]] = {}
    for item in items:
        if item["type"] != "extra_forbidden":
            field = item["loc"] if item["type"] == "missing" else _field_in_data(data, item["loc"])
            messages.setdefault(field, []).append(item["msg"].removeprefix("Value error, "))
    # A list that lost all its entries to errors is reported as too short as well: that is no error of its own.
    faults = [
        (field, ", or: ".join(dict.fromkeys(texts)))
        for field, texts in messages.items()
        if not any(_is_below(item["loc"], field) and item["type"] != "extra_forbidden" for item in items)
        or not texts[0].startswith("Tuple should have")
    ]
    return faults, [item["loc"] for item in items if item["type"] == "extra_forbidden"]


def _as_json(data: Any) -> str:
    """As JSON, with what JSON does not have replaced by something that no field takes."""
    text = json.dumps(data, ensure_ascii=False, default=lambda date: 0.5)
    return _HALF_CHARACTERS.sub("\uffff", text)


def _is_below(field: Field, parent: Field) -> bool:
    return len(field) > len(parent) and field[: len(parent)] == parent


def _field_in_data(data: Any, field: Field) -> Field:
    """The field without what only the validator knows, such as which of several types it tried."""
    for place, key in enumerate(field):
        try:
            data = data[key]
        except (KeyError, IndexError, TypeError):
            return field[:place]
    return field


def _without(data: Mapping[str, Any], unknown: Sequence[Field]) -> tuple[dict[str, Any], dict[Field, frozenset[str]]]:
    copy: Any = _copy(data)
    strayed: dict[Field, frozenset[str]] = {}
    for field in unknown:
        table = copy
        for key in field[:-1]:
            table = table[key]
        del table[field[-1]]
        if len(field) == 3:
            strayed[field[:2]] = frozenset(table)
    return copy, strayed


def _copy(data: Any) -> Any:
    """Tables and lists copied all the way down; the same table may stand in several places."""
    if isinstance(data, Mapping):
        return {key: _copy(value) for key, value in data.items()}
    return [_copy(value) for value in data] if isinstance(data, list) else data


def _make_draft(data: Mapping[str, Any], faults: Sequence[Problem], strayed: Mapping[Field, frozenset[str]]) -> Draft:
    sections: dict[str, Any] = {}
    faulty: set[Field] = set()
    for name, field in Operation.model_fields.items():
        wrong = [fault for fault, _ in faults if fault[:1] == (name,)]
        entry = _entry_model(field.annotation)
        if name not in data or (wrong and (entry is None or not isinstance(data[name], list) or not data[name])):
            continue
        if entry is None or not wrong:
            sections[name] = _load(field.rebuild_annotation(), data[name])
            continue
        faulty |= {fault[:2] for fault in wrong}
        entries = []
        for place, value in enumerate(data[name]):
            keys = {fault[2] for fault in wrong if fault[:2] == (name, place) and len(fault) > 2}
            is_sound = (name, place) not in faulty
            entries.append(_load(entry, value) if is_sound else _stand_in(entry, value, keys))
        sections[name] = tuple(entries)
    return Draft(Operation.model_construct(_fields_set=set(sections), **sections), frozenset(faulty), strayed)


def _load(annotation: Any, value: Any) -> Any:
    return TypeAdapter(annotation).validate_json(_as_json(value), strict=True)


def _entry_model(annotation: Any) -> type[BaseModel] | None:
    """The model of a list section's entries; None for a section that is no list."""
    arguments = get_args(annotation)
    if len(arguments) == 2 and arguments[1] is Ellipsis and issubclass(arguments[0], BaseModel):
        model: type[BaseModel] = arguments[0]
        return model
    return None


def _stand_in(model: type[BaseModel], value: Any, wrong: Collection[int | str]) -> BaseModel:
    """An entry with the fields that are right, and with its names even when they are not what names should be."""
    given = value if isinstance(value, Mapping) else {}
    fields: dict[str, Any] = {}
    for name in model.model_fields:
        known = given.get(name)
        if name in wrong and not (name in _NAMES and isinstance(known, str)):
            known = None
        fields[name] = tuple(known) if isinstance(known, list) else known
    return model.model_construct(**fields)
