# SPDX-License-Identifier: Apache-2.0
"""The compiled kernels on disk, in a folder that belongs to the user alone.

    <folder>/entries/<name>/module.so    a shared object
                            entry.json   what it was made from, and its sha256
    <folder>/builds/<name>.<random>/     one build under way, or what a killed one left
    <folder>/locks/<name>.lock           held while that entry is built; the kernel frees it when its holder dies

<name> is ``<module>-<16 digits of the recipe's hash>-<key>``, and the key is a sha256 over everything that decides the
bytes of the shared object. An entry appears by one rename, complete. Before each use the owner and the mode of
everything on the way to it are checked, and it is compared with its metadata: what does not match is built again.
Kernels with fixed sizes are bounded in number: see eviction.py.

Where the folder cannot be used (read-only, full, noexec, no home), the shared object is built in a private folder that
lives as long as this process, with one warning.
"""

from __future__ import annotations

import atexit
import contextlib
import errno
import functools
import hashlib
import json
import os
import shutil
import stat
import threading
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from convgrad.compiler import COMPILE_SECONDS, Compiler
from convgrad.errors import CompileError
from convgrad.eviction import SIZED, evict_entries, touch_entry
from convgrad.private_files import CACHE_VARIABLE, make_private, make_workspace, read_private, require_private, sync

VARIABLE = CACHE_VARIABLE
LOCK_SECONDS = COMPILE_SECONDS + 60.0
"""How long to wait for another process that builds the same entry."""

_FORMAT = 1
_BINARY = "module.so"
_METADATA = "entry.json"
_METADATA_LIMIT = 1 << 20
_BINARY_LIMIT = 256 << 20


class Recipe(NamedTuple):
    """Everything but the compiler that decides the bytes of a shared object.

    module     name of the Python module in it, a C identifier; with SIZED at its end, it is a kernel with fixed sizes
               and no Python module
    sources    (file name, text) of everything that is compiled or included
    arguments  the compiler's arguments
    isa        the instruction set, resolved: never "native"
    abi        what has to be equal where it is loaded: Python's ABI tag, machine, C library, cffi
    """

    module: str
    sources: tuple[tuple[str, str], ...]
    arguments: tuple[str, ...]
    isa: str
    abi: tuple[str, ...]

    def describe(self) -> dict[str, Any]:
        """Return this as JSON, with the hash of each source in place of its text."""
        return {
            "module": self.module,
            "sources": [[name, _hash_text(text)] for name, text in self.sources],
            "arguments": list(self.arguments),
            "isa": self.isa,
            "abi": list(self.abi),
        }


def cache_directory() -> Path:
    """Return the folder of the cache, which need not exist: CONVGRAD_CACHE_DIR, else the user's cache folder.

    Raises CompileError if neither the variable nor a home says where that is.
    """
    if chosen := os.environ.get(VARIABLE):
        return Path(os.path.abspath(os.path.expanduser(chosen)))
    import platformdirs

    with contextlib.suppress(RuntimeError):  # no home: some versions raise, others leave the ~ in it
        if (folder := Path(platformdirs.user_cache_dir("convgrad"))).is_absolute():
            return folder
    raise CompileError(f"there is no home, so no folder for compiled kernels: set {VARIABLE} to one of your own")


def obtain(recipe: Recipe, find_compiler: Callable[[], Compiler], produce: Callable[[Compiler, Path], Path]) -> Path:
    """Return the path of the shared object for `recipe`, building it if no valid one is there.

    `produce(compiler, folder)` makes it in an empty private folder and returns its path. Where no compiler is to be
    had, an entry that any compiler made from the same recipe will do.

    Raises CacheSecurityError if others could have written to the cache, and CompileError if nothing valid is there and
    none can be built.
    """
    try:
        compiler: Compiler | CompileError = find_compiler()
    except CompileError as error:
        compiler = error
    try:
        folder = cache_directory()
    except CompileError as error:
        reason = str(error)
    else:
        try:
            return Cache(folder).obtain(recipe, compiler, produce)
        except OSError as error:
            reason = f"cannot use the cache {folder}: {_describe(error)}; set {VARIABLE} to a folder of your own"
    if isinstance(compiler, CompileError):
        raise CompileError(f"{compiler}\nAnd nothing compiled earlier is at hand: {reason}.") from compiler
    return _obtain_private(recipe, compiler, reason, produce)


def look_up(recipe: Recipe, find_compiler: Callable[[], Compiler]) -> Path | None:
    """Return the path of the shared object for `recipe` if the cache has a valid one. Builds and says nothing."""
    try:
        compiler: Compiler | None = find_compiler()
    except CompileError:
        compiler = None
    try:
        cache = Cache(cache_directory())
        if not os.path.lexists(cache.folder):
            return None
        cache.check()
        return cache.find(recipe, compiler)
    except (CompileError, OSError):
        return None


class Cache:
    """The cache in one folder. Its methods raise OSError where the folder cannot be used."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.entries = folder / "entries"
        self.builds = folder / "builds"
        self.locks = folder / "locks"

    def check(self) -> None:
        """Make the folder if it is missing. Raise CacheSecurityError or OSError if it must not or cannot be used."""
        if not os.path.lexists(self.folder):
            make_private(self.folder)
        for folder in (self.folder, self.entries, self.builds, self.locks):
            if os.path.lexists(folder):
                status = os.lstat(folder)
                require_private(folder, status, root=folder == self.folder)
                if not stat.S_ISDIR(status.st_mode):
                    raise NotADirectoryError(errno.ENOTDIR, "not a folder", str(folder))
        if os.statvfs(self.folder).f_flag & getattr(os, "ST_NOEXEC", 0):
            raise PermissionError(errno.EACCES, "the file system is mounted noexec")

    def obtain(
        self, recipe: Recipe, compiler: Compiler | CompileError, produce: Callable[[Compiler, Path], Path]
    ) -> Path:
        """Find the entry or build it. In place of a compiler comes the error that says why there is none."""
        self.check()
        if isinstance(compiler, CompileError):
            if (found := self.find(recipe, None)) is not None:
                return found
            raise compiler
        return self.find(recipe, compiler) or self._build(recipe, compiler, produce)

    def find(self, recipe: Recipe, compiler: Compiler | None) -> Path | None:
        """Return the shared object of a valid entry for the recipe, made by the compiler (None: by any)."""
        description = recipe.describe()
        if compiler is not None:
            return self._verify(_name(description, _identity(compiler)), description)
        prefix = _prefix(description)
        try:
            names = sorted(name for name in os.listdir(self.entries) if name.startswith(prefix))
        except FileNotFoundError:
            return None
        return next((path for name in names if (path := self._verify(name, description)) is not None), None)

    def _verify(self, name: str, description: dict[str, Any]) -> Path | None:
        """Return the shared object of the entry `name` if all of it is as it was written for this recipe."""
        folder = self.entries / name
        if not os.path.lexists(folder):
            return None
        try:
            require_private(folder, os.lstat(folder))
            text = read_private(folder / _METADATA, _METADATA_LIMIT)
            binary = read_private(folder / _BINARY, _BINARY_LIMIT)
            metadata = json.loads(text)
            identity = metadata["compiler"]
        except (FileNotFoundError, NotADirectoryError, ValueError, KeyError, TypeError, RecursionError):
            return None
        # The name holds the key: an entry that was moved here from another name does not match it.
        if name == _name(description, identity) and metadata == _metadata(description, identity, binary):
            if description["module"].endswith(SIZED):
                touch_entry(folder)
            return folder / _BINARY
        return None

    def _build(self, recipe: Recipe, compiler: Compiler, produce: Callable[[Compiler, Path], Path]) -> Path:
        name = _name(recipe.describe(), _identity(compiler))
        for folder in (self.entries, self.builds, self.locks):
            make_private(folder)
        self.check()
        with self._locked(name, LOCK_SECONDS):
            if (found := self.find(recipe, compiler)) is not None:
                return found  # another process has built it while we waited
            self._sweep(name)
            workspace = make_workspace(f"{name}.", self.builds)
            try:
                binary = produce(compiler, workspace)
                path = self._publish(name, recipe.describe(), compiler, binary, workspace)
            except CompileError:
                _probe(workspace)
                raise
            finally:
                shutil.rmtree(workspace, ignore_errors=True)
        if recipe.module.endswith(SIZED):
            evict_entries(self.entries, self.builds, self.locks, name, lambda other: self._locked(other, 0.0))
        return path

    def _publish(
        self, name: str, description: dict[str, Any], compiler: Compiler, binary: Path, workspace: Path
    ) -> Path:
        """Write the entry beside the build, then put it in its place by one rename."""
        new, entry = workspace / "entry", self.entries / name
        os.mkdir(new, 0o700)
        os.rename(binary, new / _BINARY)
        os.chmod(new / _BINARY, 0o600)  # linkers go by the umask
        metadata = _metadata(description, _identity(compiler), (new / _BINARY).read_bytes())
        (new / _METADATA).write_text(json.dumps(metadata, indent=1, sort_keys=True) + "\n", encoding="utf-8")
        os.chmod(new / _METADATA, 0o600)
        # After a loss of power an entry should be there in full or not at all. (Its hash would tell in any case.)
        for path in (new / _BINARY, new / _METADATA, new):
            sync(path)
        if os.path.lexists(entry):
            os.rename(entry, workspace / "replaced")  # it did not pass _verify; it goes with the workspace
        os.rename(new, entry)
        sync(self.entries)
        return entry / _BINARY

    @contextlib.contextmanager
    def _locked(self, name: str, seconds: float) -> Iterator[None]:
        import filelock  # here, because a process that finds all it needs never locks

        path = self.locks / f"{name}.lock"
        try:
            lock = filelock.FileLock(path, timeout=seconds, mode=0o600)
            lock.acquire()
        except filelock.Timeout as error:
            raise CompileError(
                f"another process has been building {name} for more than {seconds:g} s and holds {path}. Wait for it, "
                f"end it, or set {VARIABLE} to another folder."
            ) from error
        except NotImplementedError as error:
            raise OSError(errno.ENOLCK, f"the file system has no locks ({error})") from error
        try:
            yield
        finally:
            lock.release()

    def _sweep(self, name: str) -> None:
        """Delete what killed builds have left. Called with the lock of `name` held.

        A build holds the lock of its name all the time: what lies under a name whose lock is free is dead.
        """
        for leftover in sorted(os.listdir(self.builds)):
            owner = leftover.rpartition(".")[0]
            with contextlib.suppress(CompileError, OSError), contextlib.ExitStack() as stack:
                if owner != name:
                    stack.enter_context(self._locked(owner, 0.0))
                shutil.rmtree(self.builds / leftover, ignore_errors=True)


_private_guard = threading.Lock()
_private_folders: dict[int, Path] = {}
"""By process: a fork must neither use nor remove the folder of its parent."""
_warned = False


def _obtain_private(recipe: Recipe, compiler: Compiler, reason: str, produce: Callable[[Compiler, Path], Path]) -> Path:
    """Build in a folder of this process alone."""
    global _warned
    try:
        with _private_guard:
            folder = _private_folders.get(os.getpid())
            if folder is None or not folder.is_dir():
                folder = make_workspace("convgrad-")
                _private_folders[os.getpid()] = folder
                atexit.register(_remove_private, os.getpid())
            warn, _warned = not _warned, True
        if warn:
            warnings.warn(
                f"convgrad: {reason}. Kernels are compiled in {folder} for this process only.",
                RuntimeWarning,
                stacklevel=2,
            )
        return Cache(folder).obtain(recipe, compiler, produce)
    except OSError as error:
        raise CompileError(
            f"{reason}; and a temporary folder does not help: {_describe(error)}. {VARIABLE} must name a folder "
            "that is writable, has some free megabytes, and is not mounted noexec."
        ) from error


def _remove_private(process: int) -> None:
    if process == os.getpid():
        shutil.rmtree(_private_folders[process], ignore_errors=True)


def _reset_after_fork() -> None:
    global _private_guard
    _private_guard = threading.Lock()  # another thread may have held it in the parent


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_reset_after_fork)


def _name(description: dict[str, Any], identity: object) -> str:
    return _prefix(description) + _hash_json({"recipe": description, "compiler": identity})


def _prefix(description: dict[str, Any]) -> str:
    """Return what the names of all entries for one recipe start with, whatever compiler made them."""
    return f"{description['module']}-{_hash_json(description)[:16]}-"


def _identity(compiler: Compiler) -> dict[str, Any]:
    return {"argv": list(compiler.argv), "path": compiler.path, "version": compiler.version}


def _metadata(description: dict[str, Any], identity: object, binary: bytes) -> dict[str, Any]:
    return {
        "format": _FORMAT,
        "recipe": description,
        "compiler": identity,
        "bytes": len(binary),
        "sha256": _sha256(binary),
    }


def _hash_json(value: object) -> str:
    return _sha256(json.dumps(value, sort_keys=True).encode())


@functools.lru_cache(maxsize=256)
def _hash_text(text: str) -> str:
    return _sha256(text.encode())  # the same sources serve many recipes


def _sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def _probe(folder: Path) -> None:
    """Raise OSError if the folder takes no data: then a failed compiler was not to blame."""
    import tempfile

    with tempfile.TemporaryFile(dir=folder) as file:
        file.write(bytes(1 << 20))
        file.flush()
        os.fsync(file.fileno())


def _describe(error: OSError) -> str:
    return f"{error.strerror or error}" + (f" ({error.filename})" if error.filename else "")
