# SPDX-License-Identifier: Apache-2.0
"""The cache of compiled kernels: shared between processes, corrupted, hostile, read-only, full, killed in between."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import pty
import re
import shutil
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

import convgrad.cache
from convgrad.cache import Recipe, cache_directory, obtain
from convgrad.compiler import Compiler, find_compiler
from convgrad.errors import CacheSecurityError, CompileError
from convgrad.kernel_table import KERNELS

# CONVGRAD_LONG=1: many more rounds, some minutes.
LONG = os.environ.get("CONVGRAD_LONG") == "1"
CROWDS = ((2, 1), (8, 1), (32, 100)) if LONG else ((2, 1), (8, 1))  # (processes at once, rounds)
KILLS = 500 if LONG else 24
FLIPS = 1000 if LONG else 100  # in each of the two files of an entry
TIME_LIMIT = 3600.0 if LONG else 300.0  # s, for one process

SETUP = """
import json, os, sys, warnings
before = set(sys.modules)
import ml_dtypes, numpy
import convgrad.loader
from convgrad.errors import CompileError
from convgrad.kernel_table import KERNELS
from convgrad.loader import build_all, load_kernel, load_runtime

def call(kernel=KERNELS[0]):
    # One gradient element, 1*1 + 2*1 + 3*2 + 4*1 = 13: the compiled kernel, run by the compiled runtime.
    ffi, lib = load_runtime()
    address = load_kernel(kernel)
    dtype = {"f32": numpy.float32, "bf16": ml_dtypes.bfloat16, "f16": numpy.float16}[kernel.dtype]
    plain, windowed, out = (numpy.array(values, dtype) for values in ([1, 2, 3, 4], [1, 1, 2, 1], [0]))
    geometry = {name: 1 for name in ("N", "G", "P", "W", "out_group", "out_plain", "out_windowed")}
    geometry |= {name: [1, 1, 1] for name in ("K", "stride", "dilation", "out_tap")}
    geometry |= {name: [1, 1, 4] for name in ("O", "I")}
    geometry |= {"block_rows": 20, "block_columns": 4, "group_rows": 1, "group_columns": 4}
    operands = [ffi.from_buffer(array.view(numpy.uint8)) for array in (plain, windowed, out)]
    assert lib.wgrad_run(address, ffi.new("wgrad_geometry *", geometry), *operands, 1, 1 << 22, 1) == 0
    return float(out[0])

def answer():
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            result = {"sum": call()}
        except CompileError as error:
            result = {"error": type(error).__name__, "text": str(error)}
    result["warnings"] = [str(warning.message) for warning in caught]
    return result
"""
ANSWER = "\nprint(json.dumps(answer()))\n"
RIGHT: dict[str, Any] = {"sum": 13.0, "warnings": []}

# Hands out shared objects that the real compiler made earlier, and logs each of its calls.
REPLAY = """#!/bin/sh
case "$*" in *--version*) echo "replay 1.0"; exit 0;; esac
echo call >> "$LOG"
[ -z "$DELAY" ] || sleep "$DELAY"
unit=$(echo wgrad_*.c)
cp "$PREBUILT/${unit%.c}.so" module.so
"""

# Root may write into a read-only folder; a root without these two capabilities may not.
ORDINARY = """
import ctypes, os, sys
if os.geteuid() == 0:
    for capability in (1, 2):
        if ctypes.CDLL(None).prctl(24, capability, 0, 0, 0):
            sys.exit("cannot drop a capability")
os.execv(sys.argv[1], sys.argv[1:])
"""


class Bench:
    """A cache folder, a home and a temporary folder of one test, and processes that use them."""

    def __init__(self, path: Path, **environment: str) -> None:
        self.folder, self.log, self.temporary = path / "cache", path / "log", path / "tmp"
        self.temporary.mkdir(parents=True)
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("CONVGRAD_", "XDG_", "CC"))}
        packages = os.pathsep.join([str(Path(convgrad.cache.__file__).parent.parent), *filter(None, sys.path)])
        self.environment = {**kept, "PYTHONPATH": packages, "HOME": str(path / "home"), "TMPDIR": str(self.temporary)}
        self.environment |= {"CONVGRAD_CACHE_DIR": str(self.folder), "LOG": str(self.log), **environment}

    def start(self, program: str = ANSWER, *, ordinary: bool = False, **environment: str) -> subprocess.Popen[str]:
        command = [sys.executable, "-c", SETUP + program]
        if ordinary:
            command = [sys.executable, "-S", "-c", ORDINARY, *command]
        environment = {name: value for name, value in {**self.environment, **environment}.items() if value != "unset"}
        return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def run(self, program: str = ANSWER, *, ordinary: bool = False, **environment: str) -> Any:
        return finish(self.start(program, ordinary=ordinary, **environment))

    @property
    def calls(self) -> int:
        """How often the compiler was called to compile."""
        return len(self.log.read_text().splitlines()) if self.log.exists() else 0

    def entry(self, name: str) -> Path:
        (path,) = (self.folder / "entries").glob(f"_{name}_base-*")
        return path


def finish(process: subprocess.Popen[str]) -> Any:
    output, errors = process.communicate(timeout=TIME_LIMIT)
    assert process.returncode == 0, errors
    return json.loads(output)


@pytest.fixture(scope="session")
def replay(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The environment in which compiling is a copy of what the real compiler made; its cache is filled beside it."""
    path = tmp_path_factory.mktemp("replay")
    real = Bench(path / "real")
    assert real.run("build_all(KERNELS[:2])\nprint(json.dumps(True))")
    (path / "prebuilt").mkdir()
    for name in ("wgrad_runtime", *(kernel.symbol for kernel in KERNELS[:2])):
        shutil.copy(real.entry(name) / "module.so", path / "prebuilt" / f"{name}.so")
    (path / "cc").write_text(REPLAY, encoding="utf-8")
    (path / "cc").chmod(0o755)
    environment = {"CONVGRAD_CC": str(path / "cc"), "PREBUILT": str(path / "prebuilt")}
    assert Bench(path / "warm", **environment).run() == RIGHT
    return environment


@pytest.fixture
def cold(tmp_path: Path, replay: dict[str, str]) -> Bench:
    return Bench(tmp_path / "bench", **replay)


@pytest.fixture
def warm(cold: Bench, replay: dict[str, str]) -> Bench:
    shutil.copytree(Path(replay["CONVGRAD_CC"]).parent / "warm" / "cache", cold.folder)
    return cold


# With real processes


def test_cold_then_warm_with_the_real_compiler_in_a_folder_of_odd_characters(tmp_path: Path) -> None:
    real = find_compiler()
    bench = Bench(tmp_path / 'it\'s "a" $HOME;\t(%20) ünïcode\n*')
    wrapper = tmp_path / "my cc"
    wrapper.write_text('#!/bin/sh\ncase "$*" in *--version*) ;; *) echo call >> "$LOG";; esac\nexec "$@"\n')
    wrapper.chmod(0o755)
    command = f"'{wrapper}' {' '.join(real.argv)} -DUNUSED='a b'"  # a compiler with arguments
    program = """
result = answer()
result["imported"] = sorted({"setuptools", "distutils"} & (set(sys.modules) - before))
print(json.dumps(result))
"""
    assert bench.run(program, CONVGRAD_CC=command) == {**RIGHT, "imported": []}
    assert bench.calls == 2, "the runtime and one kernel"
    assert bench.run(program, CONVGRAD_CC=command) == {**RIGHT, "imported": []}
    assert bench.calls == 2
    assert bench.folder.stat().st_mode & 0o777 == 0o700 and not list((bench.folder / "builds").iterdir())


def test_a_warm_cache_needs_neither_compiler_nor_headers(warm: Bench) -> None:
    no_headers = "import sysconfig\nfrom pathlib import Path\nPath.is_file = lambda self: False\n"
    assert warm.run(no_headers + ANSWER, CONVGRAD_CC="/bin/false") == RIGHT
    assert warm.run(no_headers + ANSWER, CONVGRAD_CC="unset", PATH="/nonexistent") == RIGHT
    assert warm.calls == 0


def test_a_cold_cache_without_a_compiler_or_headers_says_so(cold: Bench) -> None:
    result = cold.run(CONVGRAD_CC="/bin/false")
    assert result["error"] == "CompileError" and result["text"].startswith("CONVGRAD_CC='/bin/false' cannot be used")
    result = cold.run("from pathlib import Path\nPath.is_file = lambda self: False\n" + ANSWER)
    assert result["error"] == "CompileError" and "apt install python3-dev" in result["text"]


@pytest.mark.parametrize(("processes", "rounds"), CROWDS)
def test_processes_at_once_compile_each_kernel_once(
    processes: int, rounds: int, tmp_path: Path, replay: dict[str, str]
) -> None:
    for turn in range(rounds):
        bench = Bench(tmp_path / str(turn), **replay)
        started = [bench.start(DELAY=str(max(0.4, 0.05 * processes))) for _ in range(processes)]
        assert [finish(process) for process in started] == [RIGHT] * processes, f"round {turn}"
        assert bench.calls == 2, f"round {turn}"


def test_threads_at_once_compile_each_kernel_once(cold: Bench) -> None:
    program = """
from concurrent.futures import ThreadPoolExecutor
with ThreadPoolExecutor(8) as executor:
    types = list(executor.map(lambda _: load_runtime()[0], range(8)))
    sums = list(executor.map(lambda _: call(), range(8)))
print(json.dumps([len({id(ffi) for ffi in types}), sums]))
"""
    assert cold.run(program, DELAY="0.2") == [1, [13.0] * 8], "one set of types: cffi keeps those of two modules apart"
    assert cold.calls == 2


def test_building_ahead_reports_each_step(cold: Bench) -> None:
    program = """
steps = []
build_all(KERNELS[:2], lambda s: steps.append([s.name, s.position, s.total, s.compiled, s.seconds > 0]))
print(json.dumps([steps, call(KERNELS[1])]))
"""
    names = ["wgrad_runtime", *(kernel.symbol for kernel in KERNELS[:2])]
    for compiled in (True, False):
        steps, value = cold.run(program)
        assert value == 13.0 and sorted(step[0] for step in steps) == sorted(names)
        assert [step[1:] for step in steps] == [[k, len(names), compiled, True] for k in range(1, len(names) + 1)]
    assert cold.calls == len(names)


def test_a_terminal_is_told_about_a_first_use_only(cold: Bench) -> None:
    def on_terminal() -> str:
        ours, theirs = pty.openpty()
        command = [sys.executable, "-c", SETUP + ANSWER]
        try:
            subprocess.run(
                command, env=cold.environment, stdout=subprocess.PIPE, stderr=theirs, check=True, timeout=300
            )
            os.set_blocking(ours, False)
            return os.read(ours, 1 << 16).decode()
        except BlockingIOError:
            return ""
        finally:
            os.close(theirs)
            os.close(ours)

    line = r"convgrad: compiling {} \(first use; cached afterwards\) \.\.\. \d+\.\d s\r\n"
    assert re.fullmatch(line.format("wgrad_runtime") + line.format(KERNELS[0].symbol), on_terminal())
    assert on_terminal() == ""


def test_a_kernel_that_computes_wrongly_is_never_published(cold: Bench, tmp_path: Path) -> None:
    symbol = KERNELS[0].symbol
    broken = tmp_path / "broken"
    broken.write_text(
        f"""#!/bin/sh
[ -f {symbol}.c ] && [ "$1" != --version ] && sed -i 's/\\b{symbol}\\b/unused/' {symbol}.c && cat >> {symbol}.c <<'END'
void {symbol}(const wgrad_geometry *geometry, const void *plain, const void *windowed, void *out, void *scratch,
              int64_t first, int64_t last) {{ }}
END
exec {" ".join(find_compiler().argv)} "$@"
""",
        encoding="utf-8",
    )
    broken.chmod(0o755)
    result = cold.run(CONVGRAD_CC=str(broken))
    assert result["error"] == "CompileError" and f"{symbol} was compiled, but fails its self-test" in result["text"]
    assert [path.name.split("-")[0] for path in (cold.folder / "entries").iterdir()] == ["_wgrad_runtime_base"]
    assert cold.run() == RIGHT


def test_a_read_only_cache_that_holds_the_kernel_works(warm: Bench) -> None:
    paths = [warm.folder, *warm.folder.rglob("*")]
    for path in paths:
        path.chmod(0o500 if path.is_dir() else 0o400)
    try:
        assert warm.run(ordinary=True) == RIGHT
    finally:
        for path in paths:
            path.chmod(0o700)  # so that pytest can clear up
    assert warm.calls == 0


def test_a_read_only_cache_that_does_not_hold_it_works_with_one_warning(cold: Bench) -> None:
    cold.folder.mkdir(0o500)
    result = cold.run(ordinary=True)
    assert result["sum"] == 13.0 and cold.calls == 2
    (warning,) = result["warnings"]
    assert "Permission denied" in warning and "CONVGRAD_CACHE_DIR" in warning and str(cold.temporary) in warning
    assert not list(cold.folder.iterdir()) and not list(cold.temporary.iterdir()), "removed at exit"


@pytest.mark.parametrize(
    ("prelude", "home"),
    [
        # A user whom the system does not know: neither HOME nor an entry in the user database.
        ("import pwd\ndef getpwuid(uid):\n    raise KeyError(uid)\npwd.getpwuid = getpwuid\n", "unset"),
        ("", "/proc/nonexistent"),
    ],
)
def test_no_home_works_with_one_warning(prelude: str, home: str, cold: Bench) -> None:
    result = cold.run(prelude + ANSWER, CONVGRAD_CACHE_DIR="unset", HOME=home)
    assert result["sum"] == 13.0
    (warning,) = result["warnings"]
    assert "CONVGRAD_CACHE_DIR" in warning


def test_without_the_variable_the_cache_is_in_the_home(cold: Bench) -> None:
    assert cold.run(CONVGRAD_CACHE_DIR="unset") == RIGHT
    home = Path(cold.environment["HOME"])
    assert (home / ".cache" / "convgrad" / "entries").is_dir() and not cold.folder.exists()


@pytest.mark.parametrize("damage", ["header", "middle", "end", "truncated", "empty", "gone", "swapped", "metadata"])
def test_a_damaged_entry_is_built_again_and_never_loaded(damage: str, warm: Bench) -> None:
    entry = warm.entry(KERNELS[0].symbol)
    binary = entry / "module.so"
    data = bytearray(binary.read_bytes())
    if damage in ("header", "middle", "end"):
        data[{"header": 4, "middle": len(data) // 2, "end": -1}[damage]] ^= 1
        binary.write_bytes(data)
    elif damage in ("truncated", "empty"):
        binary.write_bytes(data[: len(data) // 2 if damage == "truncated" else 0])
    elif damage == "gone":
        binary.unlink()
    elif damage == "swapped":
        other = warm.entry("wgrad_runtime")
        for source, target in ((entry, warm.folder / "x"), (other, entry), (warm.folder / "x", other)):
            source.rename(target)
    else:
        (entry / "entry.json").write_text("[" * 100_000, encoding="utf-8")
    assert warm.run() == RIGHT
    assert warm.calls == (2 if damage == "swapped" else 1)
    assert warm.run() == RIGHT
    assert warm.calls == (2 if damage == "swapped" else 1)


# Forked from one process that has everything imported, because there are many of them.
FORKS = """
import signal, time
import cffi.recompiler, filelock, tempfile, cffi.cparser
from pathlib import Path

def forked(folder, work):
    # Run `work` in a child; return (its pid, a function that waits for its answer).
    os.environ["CONVGRAD_CACHE_DIR"] = str(folder)
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.write(writing, json.dumps(work()).encode())
        except BaseException as error:
            os.write(writing, json.dumps({"unexpected": repr(error)}).encode())
        finally:
            os._exit(0)
    os.close(writing)
    def wait():
        with open(reading, "rb") as file:
            text = file.read()
        os.waitpid(pid, 0)
        return json.loads(text) if text else None
    return pid, wait

folder = Path(os.environ["CONVGRAD_CACHE_DIR"])
results = []
load_runtime()  # the forks have it: what they do is about the kernel
"""

KILLED = (
    FORKS
    + """
kills = int(os.environ["KILLS"])
for turn in range(kills):
    here = folder / str(turn)
    pid, wait = forked(here, answer)
    time.sleep(0.144 * turn / kills)
    os.kill(pid, signal.SIGKILL)
    wait()
    start = time.monotonic()
    # Another kernel is asked for as well: it is built in any case, so leftovers are swept.
    next_call, other = forked(here, lambda: [answer(), call(KERNELS[1])])[1]()
    results.append([next_call, time.monotonic() - start, other, sorted(os.listdir(here / "builds"))])
print(json.dumps(results))
"""
)

FAILING = (
    FORKS
    + """
import builtins, errno, fcntl, io

def failing_at(n):
    # Let the n-th call of any of these fail.
    state = {"calls": 0}
    def patch(module, name):
        real = getattr(module, name)
        def wrapper(*arguments, **keywords):
            state["calls"] += 1
            if state["calls"] == n:
                code = errno.EIO if name == "fsync" else errno.ENOLCK if name == "flock" else errno.ENOSPC
                raise OSError(code, "injected", name)
            return real(*arguments, **keywords)
        setattr(module, name, wrapper)
    for module, name in [(os, "open"), (os, "rename"), (os, "mkdir"), (os, "chmod"), (os, "fsync"), (os, "lstat"),
                         (os, "listdir"), (os, "statvfs"), (fcntl, "flock"), (io, "open"), (builtins, "open")]:
        patch(module, name)
    def work():
        return {**answer(), "reached": state["calls"] >= n}
    return work

n, reached = 0, True
while reached:
    n += 1
    here = folder / str(n)
    first = forked(here, lambda: failing_at(n)())[1]()
    reached = first.get("reached", True)
    results.append([first, forked(here, answer)[1]()])
print(json.dumps(results))
"""
)


def test_killed_at_any_moment_the_next_call_is_right(cold: Bench) -> None:
    results = cold.run(KILLED, DELAY="0.05", KILLS=str(KILLS))
    assert len(results) == KILLS
    for next_call, seconds, other, leftovers in results:
        assert next_call == RIGHT and seconds < 60, "no stale lock"
        assert other == 13.0 and leftovers == []


def test_whatever_call_of_the_system_fails_the_result_is_right_or_the_error_clear(cold: Bench) -> None:
    results = cold.run(FAILING)
    assert len(results) > 30, "the calls were counted"
    for first, second in results:
        if "error" in first:
            assert first["error"] == "CompileError" and "injected" in first["text"] and not first["warnings"], first
        else:
            assert first.get("sum") == 13.0 and len(first["warnings"]) <= 1, first
            assert all("CONVGRAD_CACHE_DIR" in warning for warning in first["warnings"])
        assert second == RIGHT, (first, second)
    assert any(first["warnings"] for first, _ in results) and results[-1][0] == {**RIGHT, "reached": False}


def test_a_fork_neither_uses_nor_removes_the_private_folder_of_its_parent(cold: Bench) -> None:
    cold.folder.touch()  # a file: no cache
    program = (
        FORKS
        + """
import atexit
def work():
    result = call(KERNELS[1])
    folders = sorted(os.listdir(os.environ["TMPDIR"]))
    atexit._run_exitfuncs()
    return [result, len(folders), len(os.listdir(os.environ["TMPDIR"]))]
call()
results.append(len(os.listdir(os.environ["TMPDIR"])))
print(json.dumps(results + forked(folder, work)[1]()))
"""
    )
    assert cold.run(program) == [1, 13.0, 2, 1]
    assert list(cold.temporary.iterdir()) == []


# In this process, with something shorter than a kernel

RECIPE = Recipe("toy", (("toy.c", "int x;"), ("toy.h", "")), ("-O2",), "base", ("cpython", "linux x86_64"))
COMPILER = Compiler(("/usr/bin/cc",), "/usr/bin/cc", "cc 1.0", "PATH")
CONTENT = bytes(range(256)) * 8


class Maker:
    """Writes CONTENT where a compiler would write a shared object, and counts."""

    def __init__(self, failures: int = 0) -> None:
        self.calls, self.failures = 0, failures

    def __call__(self, compiler: Compiler, folder: Path) -> Path:
        assert list(folder.iterdir()) == [] and folder.stat().st_mode & 0o777 == 0o700
        self.calls += 1
        if self.calls <= self.failures:
            raise CompileError("the compiler failed")
        (folder / "module.so").write_bytes(CONTENT)
        (folder / "module.so").chmod(0o777)
        return folder / "module.so"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("CONVGRAD_CACHE_DIR", str(tmp_path / "parent" / "cache"))
    monkeypatch.setattr(convgrad.cache, "_warned", False)
    return cache_directory()


def get(maker: Maker, recipe: Recipe = RECIPE, compiler: Compiler = COMPILER) -> Path:
    path = obtain(recipe, lambda: compiler, maker)
    assert path.read_bytes() == CONTENT
    return path


def test_everything_that_decides_the_bytes_is_in_the_key(folder: Path) -> None:
    recipes = [
        RECIPE,
        RECIPE._replace(module="toy2"),
        RECIPE._replace(sources=(("toy.c", "int y;"), ("toy.h", ""))),
        RECIPE._replace(sources=(("toy.c", "int x;"), ("toy.h", "/* a header changed */"))),
        RECIPE._replace(arguments=("-O2", "-g")),
        RECIPE._replace(isa="avx2"),
        RECIPE._replace(abi=("cpython", "linux aarch64")),
    ]
    compilers = [COMPILER, COMPILER._replace(version="cc 1.1"), COMPILER._replace(path="/usr/bin/cc-1.0")]
    compilers += [COMPILER._replace(argv=("/usr/bin/cc", "-w"))]
    maker = Maker()
    cases = [(recipe, COMPILER) for recipe in recipes] + [(RECIPE, compiler) for compiler in compilers[1:]]
    paths = {get(maker, *case) for case in cases}
    assert len(paths) == maker.calls == len(cases)
    assert {get(maker, *case) for case in cases} == paths and maker.calls == len(cases)
    assert all(re.fullmatch(r"toy2?-[0-9a-f]{16}-[0-9a-f]{64}", path.parent.name) for path in paths)


def test_folders_and_files_are_for_the_user_alone(folder: Path) -> None:
    previous = os.umask(0)
    try:
        get(Maker())
    finally:
        os.umask(previous)
    for path in [folder.parent, folder, *folder.rglob("*")]:
        assert path.stat().st_mode & 0o077 == 0, path


@pytest.mark.parametrize("name", ["module.so", "entry.json"])
def test_no_flipped_bit_gets_through(name: str, folder: Path) -> None:
    maker = Maker()
    path = get(maker).parent / name
    size = path.stat().st_size
    for turn in range(FLIPS):
        data = bytearray(path.read_bytes())
        data[turn * size // FLIPS] ^= 1 << turn % 8
        path.write_bytes(data)
        get(maker)
        assert maker.calls == turn + 2


def test_an_entry_under_the_name_of_another_is_not_taken(folder: Path) -> None:
    maker, other = Maker(), RECIPE._replace(abi=("cpython", "linux other"))
    ours, theirs = get(maker).parent, get(maker, other).parent
    shutil.rmtree(ours)
    theirs.rename(ours)
    get(maker)
    get(maker, other)
    assert maker.calls == 4


HOSTILE: dict[str, tuple[str, int | None]] = {
    # what: (path below the cache with {entry}, mode; None: a symbolic link)
    "the folder, group may write": ("", 0o770),
    "the folder, world may write": ("", 0o707),
    "the folder, as shared as /tmp": ("", 0o1777),
    "the entries": ("entries", 0o777),
    "the locks": ("locks", 0o722),
    "an entry": ("entries/{entry}", 0o770),
    "a binary": ("entries/{entry}/module.so", 0o666),
    "the metadata": ("entries/{entry}/entry.json", 0o660),
    "a link to the folder": ("", None),
    "a link to the entries": ("entries", None),
    "a link to an entry": ("entries/{entry}", None),
    "a link to a binary": ("entries/{entry}/module.so", None),
    "a link to the metadata": ("entries/{entry}/entry.json", None),
}


@pytest.mark.parametrize("case", HOSTILE)
def test_what_others_could_have_written_is_not_loaded_and_the_command_mends_it(
    case: str, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    maker = Maker()
    where, mode = HOSTILE[case]
    path = folder / where.format(entry=get(maker).parent.name)
    if mode is not None:
        path.chmod(mode)
    else:
        path.rename(tmp_path / "elsewhere")
        path.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(CacheSecurityError) as caught:
        get(maker)
    message = str(caught.value)
    assert message.startswith(f"{path} ") and "CONVGRAD_CACHE_DIR" in message and maker.calls == 1
    assert ("is a symbolic link" if mode is None else f"can be written by others (mode {mode:04o})") in message
    mend(message, tmp_path, monkeypatch)
    get(maker)


def mend(message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Do what the message says."""
    command = message.splitlines()[0].partition("Run: ")[2]
    if command == "unset CONVGRAD_CACHE_DIR":
        monkeypatch.delenv("CONVGRAD_CACHE_DIR")
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    else:
        subprocess.run(command, shell=True, check=True)


@pytest.mark.parametrize("where", ["", "entries", "entries/{entry}", "entries/{entry}/module.so"])
def test_what_belongs_to_somebody_else_is_not_loaded(
    where: str, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    maker = Maker()
    path = folder / where.format(entry=get(maker).parent.name)
    me = os.geteuid()
    if me == 0:
        os.chown(path, 12345, -1)
        with pytest.raises(CacheSecurityError, match="belongs to user 12345, not to user 0") as caught:
            get(maker)
        mend(str(caught.value), tmp_path, monkeypatch)
        get(maker)
    else:  # nobody but root can give files away: be somebody else instead
        monkeypatch.setattr(os, "geteuid", lambda: me + 1)
        with pytest.raises(CacheSecurityError, match=f"belongs to user {me}, not to user {me + 1}"):
            get(maker)


def test_a_shared_folder_is_never_recommended_for_deletion(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder.parent.mkdir()
    folder.symlink_to("/tmp")
    with pytest.raises(CacheSecurityError, match="Run: unset CONVGRAD_CACHE_DIR"):
        get(Maker())


def test_waiting_for_a_lock_ends_with_a_clear_error(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(convgrad.cache, "LOCK_SECONDS", 0.2)
    entry = get(Maker()).parent
    (lock,) = (folder / "locks").iterdir()
    shutil.rmtree(entry)
    holding, done = threading.Event(), threading.Event()

    def hold() -> None:
        with open(lock, "w") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            holding.set()
            done.wait(30)

    with ThreadPoolExecutor(1) as executor:
        executor.submit(hold)
        assert holding.wait(10)
        try:
            with pytest.raises(CompileError) as caught:
                get(Maker())
        finally:
            done.set()
    assert all(words in str(caught.value) for words in ("0.2 s", str(lock), "CONVGRAD_CACHE_DIR"))
    get(Maker())


def test_a_full_disk_is_not_taken_for_a_bad_compiler(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    maker = Maker(failures=1)
    real, full = os.fsync, [True]

    def fsync(descriptor: int) -> None:
        if full.pop() if full else False:
            raise OSError(errno.ENOSPC, "No space left on device")
        real(descriptor)

    monkeypatch.setattr(os, "fsync", fsync)
    with pytest.warns(RuntimeWarning, match="No space left on device.*CONVGRAD_CACHE_DIR") as warned:
        path = get(maker)
    assert folder not in path.parents and maker.calls == 2 and len(warned) == 1
    assert list((folder / "builds").iterdir()) == []


def test_a_failed_compiler_is_not_taken_for_a_full_disk(folder: Path) -> None:
    maker = Maker(failures=1)
    with pytest.raises(CompileError, match="the compiler failed"):
        get(maker)
    assert list((folder / "builds").iterdir()) == [] == list((folder / "entries").iterdir())
    get(maker)  # a failure is not remembered


def test_noexec(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real, noexec = os.statvfs, [str(folder)]

    class Mounted:
        f_flag = os.ST_NOEXEC

    monkeypatch.setattr(os, "statvfs", lambda path: Mounted if str(path).startswith(tuple(noexec)) else real(path))
    with pytest.warns(RuntimeWarning, match="mounted noexec.*CONVGRAD_CACHE_DIR") as warned:
        path = get(Maker())
        assert get(Maker(failures=1)) == path, "found again"
    assert len(warned) == 1
    noexec.append("/")
    with pytest.raises(CompileError, match="CONVGRAD_CACHE_DIR must name a folder that is writable"):
        get(Maker())


def test_a_file_where_the_folder_should_be(folder: Path) -> None:
    folder.parent.mkdir(mode=0o700)
    folder.touch(0o600)
    with pytest.warns(RuntimeWarning, match="not a folder.*CONVGRAD_CACHE_DIR"):
        get(Maker())
