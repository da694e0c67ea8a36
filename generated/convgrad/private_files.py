# SPDX-License-Identifier: Apache-2.0
"""Files and folders that nobody but the user can have written to."""

from __future__ import annotations

import contextlib
import errno
import os
import shlex
import stat
from pathlib import Path

from convgrad.errors import CacheSecurityError

CACHE_VARIABLE = "CONVGRAD_CACHE_DIR"


def make_private(folder: Path) -> None:
    """Make the folder, and its parents where they are missing, for the user alone."""
    if not folder.parent.exists():
        make_private(folder.parent)
    with contextlib.suppress(FileExistsError):
        os.mkdir(folder, 0o700)


def make_workspace(prefix: str, parent: Path | None = None) -> Path:
    """Make a new folder for the user alone, and return it: in `parent`, or where temporary files go."""
    import tempfile  # with random and more: what finds all that it needs in the cache makes no folder

    return Path(tempfile.mkdtemp(prefix=prefix, dir=parent))


def require_private(path: Path, status: os.stat_result, *, root: bool = False) -> None:
    """Raise CacheSecurityError if somebody else could have written to `path`; `root`: it is the cache's own folder."""
    shared = bool(status.st_mode & (stat.S_IWGRP | stat.S_IWOTH))
    if stat.S_ISLNK(status.st_mode):
        problem = "is a symbolic link"
    elif status.st_uid != os.geteuid():
        problem = f"belongs to user {status.st_uid}, not to user {os.geteuid()}"
    elif shared:
        problem = f"can be written by others (mode {stat.S_IMODE(status.st_mode):04o})"
    else:
        return
    mend = f"rm -r -- {shlex.quote(str(path))}"
    if shared and stat.S_ISDIR(status.st_mode) and status.st_uid == os.geteuid():
        mend = f"chmod go-w -- {shlex.quote(str(path))}"  # what others put into it has another owner
    elif root and os.environ.get(CACHE_VARIABLE):
        mend = f"unset {CACHE_VARIABLE}"  # it may name a folder that has other uses: delete nothing
    raise CacheSecurityError(
        f"{path} {problem}, so no compiled kernel is loaded from it. Run: {mend}\n"
        f"(or set {CACHE_VARIABLE} to a folder that only you can write to)"
    )


def read_private(path: Path, limit: int) -> bytes:
    """Read a file after checking, on the open file, that nobody else can have written it."""
    flags = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
    try:
        descriptor = os.open(path, flags)
    except OSError as error:
        if error.errno == errno.ELOOP:
            require_private(path, os.lstat(path))
        raise
    try:
        status = os.fstat(descriptor)
        require_private(path, status)
        if not stat.S_ISREG(status.st_mode):
            raise FileNotFoundError(errno.ENOENT, "not a plain file", str(path))
        with open(descriptor, "rb", closefd=False) as file:
            return file.read(min(limit, status.st_size))  # read() sets aside what it is asked for
    finally:
        os.close(descriptor)


def sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
