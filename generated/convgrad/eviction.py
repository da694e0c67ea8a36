# SPDX-License-Identifier: Apache-2.0
"""Bounds how many kernels with fixed sizes the cache on disk keeps: those used last stay.

There are as many of them as there are shapes in the world, while the kernels for any size are a few dozen and stay. An
entry's time of modification says when a process last took it (`touch_entry`): access times are often not kept.

Processes may do this all at once. An entry goes by one rename out of the folder, so nobody finds a part of it; one that
is being built (its lock is held) or was used in the meantime stays; what a process has loaded stays loaded.
"""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

from convgrad.errors import CompileError
from convgrad.private_files import make_workspace

SIZED = ".sized"
"""Ends the module name of a kernel with fixed sizes: those are what is bounded."""
ENTRY_LIMIT = 1024
BYTE_LIMIT = 128 << 20
"""Whatever is reached first. An entry has some tens of kilobytes."""


def touch_entry(entry: Path) -> None:
    """Note that the entry is in use now."""
    with contextlib.suppress(OSError):  # in a read-only cache nothing is evicted
        os.utime(entry)


def evict_entries(
    entries: Path, builds: Path, locks: Path, keep: str, locked: Callable[[str], AbstractContextManager[None]]
) -> list[str]:
    """Delete the entries that were used longest ago until the limits hold, and return their names.

    `keep` is never deleted. `locked(name)` holds that entry's lock, or raises CompileError or OSError at once if it is
    not to be had.
    """
    kept = sorted(_list_sized(entries))
    count, size = len(kept), sum(item[1] for item in kept)
    evicted = []
    for used, item_size, name in kept:
        if count <= ENTRY_LIMIT and size <= BYTE_LIMIT:
            break
        if name != keep and _evict(name, used, entries, builds, locks, locked):
            evicted.append(name)
            count, size = count - 1, size - item_size
    return evicted


def _list_sized(entries: Path) -> list[tuple[int, int, str]]:
    """Return (time of last use, bytes, name) of each entry with fixed sizes."""
    found = []
    for name in os.listdir(entries):
        if f"{SIZED}-" in name:
            with contextlib.suppress(OSError):  # another process may have deleted it just now
                used = os.lstat(entries / name).st_mtime_ns
                with os.scandir(entries / name) as files:
                    found.append((used, sum(file.stat(follow_symlinks=False).st_size for file in files), name))
    return found


def _evict(
    name: str,
    used: int,
    entries: Path,
    builds: Path,
    locks: Path,
    locked: Callable[[str], AbstractContextManager[None]],
) -> bool:
    """Delete the entry unless it is in use. Return whether it is gone."""
    try:
        with locked(name):
            if os.lstat(entries / name).st_mtime_ns != used:
                return False
            # Named like a build: should this process be killed here, a later build sweeps it away.
            doomed = make_workspace(f"{name}.", builds)
            os.rename(entries / name, doomed / "entry")
            shutil.rmtree(doomed, ignore_errors=True)
            # A process that waits for the lock sees that its file is gone, and makes a new one.
            os.unlink(locks / f"{name}.lock")
    except (CompileError, OSError):
        return not os.path.lexists(entries / name)
    return True
