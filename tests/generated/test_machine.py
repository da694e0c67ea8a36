# SPDX-License-Identifier: Apache-2.0
"""What the planner is told of the machine."""

from __future__ import annotations

from pathlib import Path

import pytest

from convgrad.machine import MACHINE, Machine, read_machine


def write_caches(folder: Path, rows: list[tuple[str, str, str]]) -> None:
    for number, row in enumerate(rows):
        place = folder / f"index{number}"
        place.mkdir()
        for name, text in zip(("level", "type", "size"), row, strict=True):
            (place / name).write_text(text + "\n")


def test_caches_are_what_the_system_says(tmp_path: Path) -> None:
    rows = [("1", "Data", "80K"), ("1", "Instruction", "32K"), ("2", "Unified", "3072K"), ("3", "Unified", "99999K")]
    write_caches(tmp_path, rows)
    assert read_machine(tmp_path) == Machine(l1_bytes=80 << 10, l2_bytes=3 << 20)


@pytest.mark.parametrize("size", ["", "lots", "0K", "-4K", "1M"])
def test_what_cannot_be_read_is_left_as_it_was(tmp_path: Path, size: str) -> None:
    write_caches(tmp_path, [("1", "Data", size)])
    assert read_machine(tmp_path) == read_machine(tmp_path / "missing") == Machine()


def test_this_machine_has_caches() -> None:
    assert 0 < MACHINE.l1_bytes < MACHINE.l2_bytes
