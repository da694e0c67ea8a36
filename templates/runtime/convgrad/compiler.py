# SPDX-License-Identifier: Apache-2.0
"""Finds a C compiler, and runs it within limits: an argument list (never a shell), its own process group, a time limit.

Whatever the compiler does (it is missing, fails, hangs, crashes, prints without end, leaves no output), the caller gets
a CompileError with the command and the end of what it printed.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import selectors
import shlex
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

from convgrad.errors import CompileError
from convgrad.isa import ISAS

SOURCE = "module.c"
OUTPUT = "module.so"

COMPILE_SECONDS = 120.0
"""A kernel takes about a second; this bounds a compiler that hangs."""
VERSION_SECONDS = 20.0
OUTPUT_LIMIT = 8 << 20
"""Bytes of messages after which a compiler is stopped."""
FILE_LIMIT = 256 << 20
"""Bytes that one file written by the compiler may have."""
_TAIL_CHARACTERS = 4000

_INSTALL = (
    "Install one: 'apt install gcc python3-dev' (Debian, Ubuntu), 'dnf install gcc python3-devel' (Fedora), or "
    "'pip install ziglang' (anywhere); or set CONVGRAD_CC to a C11 compiler and its arguments."
)


class Flags(NamedTuple):
    """Every flag a compiler gets, in this order; all of them belong to a cached entry's key.

    The sums must have the same bits everywhere, so nothing here may let the compiler reorder or fuse arithmetic.
    """

    language: str = "-std=c11"
    optimisation: str = "-O2"
    contraction: str = "-ffp-contract=off"  # clang fuses a * b + c unless told not to
    asserts: str = "-DNDEBUG"  # they are for test builds: none may end a user's process
    code: str = "-fPIC"
    kind: str = "-shared"


FLAGS = Flags()
THREAD_FLAGS = ("-pthread",)
ISA_FLAGS: Mapping[str, tuple[str, ...]] = MappingProxyType({name: row.arguments for name, row in ISAS.items()})
"""The flags that each instruction set adds."""


class Compiler(NamedTuple):
    """A C compiler that has answered ``--version``.

    argv     the command it is started with; argv[0] is an absolute path
    path     argv[0] with symbolic links resolved: what really runs
    version  what ``--version`` prints
    origin   where it was found: "CONVGRAD_CC", "CC", "PATH" or "ziglang"
    """

    argv: tuple[str, ...]
    path: str
    version: str
    origin: str

    @property
    def summary(self) -> str:
        """The command and the first line of the version, for people."""
        return f"{shlex.join(self.argv)} ({self.version.splitlines()[0]})"


_found: dict[tuple[str | None, ...], Compiler] = {}


def find_compiler() -> Compiler:
    """Return the compiler to use: CONVGRAD_CC, else CC, else the first of cc, gcc, clang and ziglang that works.

    The answer is kept for this process until one of the variables that decide it changes. Raises CompileError if a
    variable is set but its command cannot be used (it is never passed over), or if there is no compiler at all.
    """
    environment = tuple(os.environ.get(name) for name in ("CONVGRAD_CC", "CC", "PATH"))
    if (known := _found.get(environment)) is not None:
        return known
    compiler = _search()
    _found[environment] = compiler
    return compiler


def _search() -> Compiler:
    for variable in ("CONVGRAD_CC", "CC"):
        value = os.environ.get(variable, "").strip()
        if value:
            try:
                return _identify(_split(value), origin=variable)
            except (CompileError, ValueError) as error:
                raise CompileError(
                    f"{variable}={value!r} cannot be used as a C compiler: {error}\n"
                    f"Set {variable} to a C11 compiler and its arguments, or unset it to use cc, gcc or clang."
                ) from error
    for name in ("cc", "gcc", "clang"):
        if shutil.which(name) is not None:
            # A broken cc must not hide a working gcc: nobody asked for this one by name.
            with contextlib.suppress(CompileError):
                return _identify([name], origin="PATH")
    if importlib.util.find_spec("ziglang") is not None:
        with contextlib.suppress(CompileError):
            return _identify([sys.executable, "-m", "ziglang", "cc"], origin="ziglang")
    raise CompileError(
        f"no C compiler: none of CONVGRAD_CC, CC, cc, gcc, clang and the package ziglang works. {_INSTALL}"
    )


def _split(command: str) -> list[str]:
    try:
        return shlex.split(command)
    except ValueError as error:
        raise ValueError(f"its quotes do not match ({error}).") from error


def _identify(argv: list[str], *, origin: str) -> Compiler:
    found = shutil.which(argv[0])
    if found is None:
        raise CompileError(f"there is no executable {argv[0]!r}.")
    program = os.path.abspath(found)
    command = [program, *argv[1:]]
    version = _run([*command, "--version"], folder=Path("/"), seconds=VERSION_SECONDS).strip()
    if not version:
        raise CompileError(f"'{shlex.join(command)} --version' prints nothing.")
    return Compiler(tuple(command), os.path.realpath(program), version, origin)


def python_include_arguments() -> tuple[str, ...]:
    """Return the -I arguments for Python.h, which need not be there."""
    import sysconfig  # reads a table of a thousand variables: only what compiles needs it

    folders = dict.fromkeys(sysconfig.get_path(name) for name in ("include", "platinclude"))
    return tuple(f"-I{folder}" for folder in folders)


def require_python_headers() -> None:
    """Raise CompileError, saying what to install, if the headers of this Python are missing."""
    import sysconfig

    header = Path(sysconfig.get_path("include"), "Python.h")
    if not header.is_file():
        raise CompileError(
            f"the headers of Python {sys.version_info.major}.{sys.version_info.minor} are missing: there is no "
            f"{header}. Install them: 'apt install python3-dev' (Debian, Ubuntu) or 'dnf install python3-devel' "
            "(Fedora), for the Python that runs this."
        )


def compile_shared_object(
    compiler: Compiler, arguments: Sequence[str], folder: Path, stop: threading.Event | None = None
) -> Path:
    """Compile SOURCE in `folder` to OUTPUT beside it, and return the path of OUTPUT.

    When `stop` is set, by another thread, the compiler is killed within a tenth of a second. Raises CompileError then,
    and if the compiler fails in any way or leaves no output.
    """
    command = [*compiler.argv, *arguments, "-o", OUTPUT, SOURCE]
    # The compiler's temporary files go where a later sweep finds them, should all of this be killed.
    printed = _run(command, folder=folder, seconds=COMPILE_SECONDS, stop=stop, TMPDIR=str(folder))
    output = folder / OUTPUT
    if not output.is_file() or output.stat().st_size == 0:
        raise CompileError(_report(command, "ended well (exit code 0) but wrote no output", printed))
    return output


def _run(
    command: Sequence[str], *, folder: Path, seconds: float, stop: threading.Event | None = None, **environment: str
) -> str:
    """Run `command` in `folder` and return the end of what it printed; raise CompileError unless it exits with 0."""
    try:
        with _starting:
            process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                cwd=folder,
                env={**os.environ, "LC_ALL": "C", **environment},  # its messages go into ours, which are English
                start_new_session=True,
            )
    except OSError as error:
        raise CompileError(f"'{shlex.join(command)}' cannot be started: {error}") from error
    try:
        _limit(process.pid, seconds)
        stopped, printed = _watch(process, seconds, stop)
    finally:
        _end(process)
    if stopped is None and process.returncode == 0:
        return printed
    raise CompileError(_report(command, stopped or _describe_exit(process.returncode), printed))


# While a process is being started there are pipes whose end tells that it has started. A fork of another thread would
# copy them, and the start would seem to last until that fork ends: so forks wait for the millisecond that it takes.
_starting = threading.Lock()
_forking = threading.local()


def _before_fork() -> None:
    _forking.holds = _starting.acquire(timeout=1.0)


def _after_fork_in_parent() -> None:
    if _forking.holds:
        _starting.release()


def _after_fork_in_child() -> None:
    global _starting
    _starting = threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before_fork, after_in_parent=_after_fork_in_parent, after_in_child=_after_fork_in_child)


def _limit(pid: int, seconds: float) -> None:
    """Lower the limits of a process just started, so of all that it starts: no core files, no endless run or file.

    Set from outside: code between fork and exec (preexec_fn) may hang in a process that has threads.
    """
    if sys.platform != "linux":
        return
    import resource

    limits = {
        resource.RLIMIT_CORE: 0,
        resource.RLIMIT_CPU: int(4 * seconds) + 1,  # in one process; its threads add up
        resource.RLIMIT_FSIZE: FILE_LIMIT,
    }
    for kind, limit in limits.items():
        # It may have ended already, and a sandbox may forbid this. The time limit holds in any case.
        with contextlib.suppress(OSError, ValueError):
            _, hard = resource.prlimit(pid, kind)
            wanted = limit if hard == resource.RLIM_INFINITY else min(limit, hard)
            resource.prlimit(pid, kind, (wanted, wanted))


def _watch(process: subprocess.Popen[bytes], seconds: float, stop: threading.Event | None) -> tuple[str | None, str]:
    """Read until the process ends. Return why it must be stopped (None if it ended) and the end of what it printed."""
    assert process.stdout is not None
    late = f"was stopped because it had not ended after {seconds:g} s"
    deadline = time.monotonic() + seconds
    descriptor = process.stdout.fileno()
    tail, total = b"", 0
    with selectors.DefaultSelector() as selector:
        selector.register(descriptor, selectors.EVENT_READ)
        while True:
            remaining = deadline - time.monotonic()
            if remaining <= 0:
                return late, _decode(tail)
            if stop is not None and stop.is_set():
                return "was stopped because nobody waits for it any more", _decode(tail)
            if selector.select(min(remaining, 0.1)):
                chunk = os.read(descriptor, 1 << 16)
                if not chunk:
                    break
                total += len(chunk)
                tail = (tail + chunk)[-4 * _TAIL_CHARACTERS :]
                if total > OUTPUT_LIMIT:
                    return f"was stopped because it printed more than {OUTPUT_LIMIT >> 20} MiB", _decode(tail)
            elif process.poll() is not None:
                break  # it has ended, and something that it left behind holds the pipe
    try:
        process.wait(max(0.0, deadline - time.monotonic()))
    except subprocess.TimeoutExpired:
        return late, _decode(tail)
    return None, _decode(tail)


def _end(process: subprocess.Popen[bytes]) -> None:
    """Kill the process and everything in its group if it still runs, and collect it."""
    # The group is only killed while its leader is uncollected: later its number could belong to a stranger.
    if process.poll() is None:
        with contextlib.suppress(OSError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    assert process.stdout is not None
    process.stdout.close()


def _describe_exit(code: int) -> str:
    if code >= 0:
        return f"failed with exit code {code}"
    try:
        return f"was killed by {signal.Signals(-code).name}"
    except ValueError:
        return f"was killed by signal {-code}"


def _decode(output: bytes) -> str:
    return output.decode("utf-8", errors="replace")[-_TAIL_CHARACTERS:]


def _report(command: Sequence[str], ending: str, printed: str) -> str:
    message = f"the C compiler {ending}.\n  command: {shlex.join(command)}"
    if printed.strip():
        message += "\n  the end of its output:\n" + "\n".join(f"    {line}" for line in printed.strip().splitlines())
    return message
