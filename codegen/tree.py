# SPDX-License-Identifier: Apache-2.0
"""The folder that the generator owns: compare it with what was rendered, write it, remove what does not belong."""

from __future__ import annotations

import difflib
import os
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

_FOREIGN = ("__pycache__",)
_FOREIGN_SUFFIXES = (".egg-info",)


@dataclass(frozen=True, slots=True)
class Drift:
    """How a folder differs from what was rendered."""

    missing: tuple[PurePosixPath, ...] = ()
    changed: tuple[PurePosixPath, ...] = ()
    orphans: tuple[PurePosixPath, ...] = ()
    diffs: Mapping[PurePosixPath, str] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.missing or self.changed or self.orphans)


def list_owned_files(folder: Path) -> list[PurePosixPath]:
    """Every file below the folder that is the generator's: all but byte code and build metadata."""
    owned = []
    for path in sorted(folder.rglob("*")):
        relative = path.relative_to(folder)
        foreign = any(part in _FOREIGN or part.endswith(_FOREIGN_SUFFIXES) for part in relative.parts)
        if not foreign and (path.is_file() or path.is_symlink()):
            owned.append(PurePosixPath(relative.as_posix()))
    return owned


def check_tree(folder: Path, rendered: Mapping[PurePosixPath, bytes]) -> Drift:
    """What is missing, changed or an orphan, with a unified diff for each changed file. Writes nothing."""
    present = set(list_owned_files(folder))
    missing = sorted(set(rendered) - present)
    orphans = sorted(present - set(rendered))
    diffs = {}
    for path in sorted(present & set(rendered)):
        data = (folder / path).read_bytes()
        if data != rendered[path]:
            diffs[path] = _unified_diff(path, data, rendered[path])
    return Drift(tuple(missing), tuple(diffs), tuple(orphans), diffs)


def _unified_diff(path: PurePosixPath, on_disk: bytes, rendered: bytes) -> str:
    before, after = [content.decode(errors="replace").splitlines(keepends=True) for content in (on_disk, rendered)]
    lines = difflib.unified_diff(before, after, f"{path} (on disk)", f"{path} (rendered)")
    return "".join(line if line.endswith("\n") else line + "\n" for line in lines)


def write_tree(folder: Path, rendered: Mapping[PurePosixPath, bytes]) -> Drift:
    """Make the folder hold exactly what was rendered; files that are right already keep their time stamps.

    Args:
        folder: created when it is missing.
        rendered: path -> content.

    Returns:
        What was mended.
    """
    drift = check_tree(folder, rendered) if folder.exists() else Drift(missing=tuple(sorted(rendered)))
    wanting = {*drift.missing, *drift.changed}
    for path in drift.orphans:
        (folder / path).unlink()
        _remove_empty_parents(folder, folder / path)
    for path, content in rendered.items():
        if path in wanting:
            _write_whole(folder / path, content)
    return drift


def _write_whole(path: Path, data: bytes) -> None:
    """Write beside the file and rename, so that an interrupted run leaves no half-written file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=".")
    try:
        with os.fdopen(descriptor, "wb") as stream:
            stream.write(data)
        os.chmod(temporary, 0o644)
        os.replace(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise


def _remove_empty_parents(folder: Path, path: Path) -> None:
    for parent in path.parents:
        if parent == folder or any(parent.iterdir()):
            return
        parent.rmdir()
