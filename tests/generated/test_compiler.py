# SPDX-License-Identifier: Apache-2.0
"""Finding a C compiler, and what happens when it misbehaves."""

from __future__ import annotations

import os
import platform
import resource
import shlex
import signal
import sys
import sysconfig
import time
from pathlib import Path

import pytest

from convgrad import compiler
from convgrad.compiler import (
    FLAGS,
    ISA_FLAGS,
    SOURCE,
    Compiler,
    compile_shared_object,
    find_compiler,
    python_include_arguments,
    require_python_headers,
)
from convgrad.errors import CompileError

ANSWERS = 'case "$*" in *--version*) echo "fake 1.0"; exit 0;; esac\n'


def script(path: Path, body: str, *, answers: bool = True) -> Path:
    """Write an executable shell script; `answers`: it has a version like a compiler."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("#!/bin/sh\n" + (ANSWERS if answers else "") + body, encoding="utf-8")
    path.chmod(0o755)
    return path


@pytest.fixture(autouse=True)
def bare_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("CONVGRAD_CC", "CC"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with something to compile."""
    path = tmp_path / "build"
    path.mkdir()
    (path / SOURCE).write_text("int answer(void) { return 42; }\n", encoding="utf-8")
    return path


def failing(tmp_path: Path, folder: Path, body: str) -> str:
    """Compile with a script for a compiler; return the text of the CompileError."""
    fake = script(tmp_path / "fake", body)
    with pytest.raises(CompileError) as caught:
        compile_shared_object(Compiler((str(fake),), str(fake), "fake 1.0", "CONVGRAD_CC"), [*FLAGS], folder)
    message = str(caught.value)
    assert f"command: {fake} {shlex.join(FLAGS)} -o module.so module.c" in message
    return message


# Finding


def test_a_compiler_is_found_and_compiles(folder: Path) -> None:
    found = find_compiler()
    assert Path(found.argv[0]).is_absolute() and Path(found.path).resolve() == Path(found.path)
    assert found.version and found.version.splitlines()[0] in found.summary
    output = compile_shared_object(found, [*FLAGS, *python_include_arguments()], folder)
    assert output == folder / "module.so" and output.read_bytes()[:4] == b"\x7fELF"


def test_the_order_is_convgrad_cc_then_cc_then_the_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ours, theirs = script(tmp_path / "ours", ""), script(tmp_path / "theirs", "")
    for number, name in enumerate(("clang", "gcc", "cc")):
        # Each round puts a better one in front; what one environment gave is not kept when it changes.
        script(tmp_path / f"bin{number}" / name, "")
        monkeypatch.setenv("PATH", ":".join(str(tmp_path / f"bin{k}") for k in range(number + 1)))
        assert find_compiler().argv == (str(tmp_path / f"bin{number}" / name),)
        assert find_compiler().origin == "PATH"
    monkeypatch.setenv("CC", str(theirs))
    assert (find_compiler().argv, find_compiler().origin) == ((str(theirs),), "CC")
    monkeypatch.setenv("CONVGRAD_CC", str(ours))
    assert (find_compiler().argv, find_compiler().origin) == ((str(ours),), "CONVGRAD_CC")


def test_of_the_path_the_first_that_works_is_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script(tmp_path / "cc", "exit 1", answers=False)
    script(tmp_path / "gcc", "exit 0", answers=False)
    script(tmp_path / "clang", "")
    monkeypatch.setenv("PATH", str(tmp_path))
    assert find_compiler().argv == (str(tmp_path / "clang"),)


def test_ziglang_is_the_last_resort(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "packages" / "ziglang"
    package.mkdir(parents=True)
    (package / "__init__.py").touch()
    (package / "__main__.py").write_text("import sys\nprint('fake zig', sys.argv[1:])\n", encoding="utf-8")
    monkeypatch.syspath_prepend(str(package.parent))
    monkeypatch.setenv("PYTHONPATH", str(package.parent))
    monkeypatch.setenv("PATH", str(tmp_path))
    found = find_compiler()
    assert found.argv == (os.path.abspath(sys.executable), "-m", "ziglang", "cc") and found.origin == "ziglang"
    assert found.version == "fake zig ['cc', '--version']"


def test_no_compiler_at_all_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(CompileError) as caught:
        find_compiler()
    for words in ("CONVGRAD_CC", "apt install gcc python3-dev", "dnf install gcc python3-devel", "pip install ziglang"):
        assert words in str(caught.value)


@pytest.mark.parametrize("variable", ["CONVGRAD_CC", "CC"])
@pytest.mark.parametrize(
    ("value", "reason"),
    [
        ("no-such-compiler -O2", "there is no executable 'no-such-compiler'"),
        ("/nonexistent/cc", "there is no executable '/nonexistent/cc'"),
        ("/bin/false", "failed with exit code 1"),
        ("sh -c true", "prints nothing"),
        ("gcc 'unfinished", "quotes do not match"),
        ("''", "there is no executable ''"),
    ],
)
def test_a_variable_that_cannot_be_used_is_an_error_not_a_fallback(
    variable: str, value: str, reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(variable, value)
    with pytest.raises(CompileError) as caught:
        find_compiler()
    assert str(caught.value).startswith(f"{variable}={value!r} cannot be used as a C compiler")
    assert reason in str(caught.value) and "unset it" in str(caught.value)


@pytest.mark.parametrize("value", ["", "   "])
def test_an_empty_variable_counts_as_unset(value: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(script(tmp_path / "cc", "").parent))
    monkeypatch.setenv("CONVGRAD_CC", value)
    assert find_compiler().origin == "PATH"


def test_a_variable_may_carry_arguments_and_no_shell_reads_it(
    tmp_path: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake = script(tmp_path / "odd 'name" / "my cc", f'printf "%s\\n" "$@" > {tmp_path}/arguments; echo x > module.so')
    words = ["-DNAME=a b", "$(touch bad)", ";", "*", "`touch bad`"]
    monkeypatch.setenv("CONVGRAD_CC", shlex.join([str(fake), *words]))
    found = find_compiler()
    assert found.argv == (str(fake), *words)
    compile_shared_object(found, ["-O2"], folder)
    assert (tmp_path / "arguments").read_text().splitlines() == [*words, "-O2", "-o", "module.so", "module.c"]
    assert not (folder / "bad").exists()


def test_the_identity_is_the_resolved_path_and_the_version(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = script(tmp_path / "cc-1.0", "")
    (tmp_path / "link").symlink_to(real)
    monkeypatch.setenv("CONVGRAD_CC", str(tmp_path / "link"))
    found = find_compiler()
    # It is started by the name it was given (ccache goes by that), and known by what this name leads to.
    assert found.argv == (str(tmp_path / "link"),) and found.path == str(real) and found.version == "fake 1.0"
    real.write_text("#!/bin/sh\necho fake 2.0\n", encoding="utf-8")
    assert find_compiler() is found, "asked once in a process"


def test_a_version_that_hangs_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiler, "VERSION_SECONDS", 0.3)
    monkeypatch.setenv("CONVGRAD_CC", str(script(tmp_path / "cc", "sleep 60", answers=False)))
    start = time.monotonic()
    with pytest.raises(CompileError, match=r"had not ended after 0\.3 s"):
        find_compiler()
    assert time.monotonic() - start < 20


# Misbehaving


def test_failing_shows_the_command_and_the_message(tmp_path: Path, folder: Path) -> None:
    message = failing(tmp_path, folder, "echo 'module.c:1: error: no' >&2; exit 1")
    assert "failed with exit code 1" in message and "module.c:1: error: no" in message


def test_missing(tmp_path: Path, folder: Path) -> None:
    gone = str(tmp_path / "gone")
    with pytest.raises(CompileError, match=r"cannot be started: .*No such file"):
        compile_shared_object(Compiler((gone,), gone, "fake 1.0", "PATH"), [], folder)


@pytest.mark.parametrize("body", ["exit 0", "touch module.so"])
def test_success_without_output(body: str, tmp_path: Path, folder: Path) -> None:
    assert "ended well (exit code 0) but wrote no output" in failing(tmp_path, folder, body)


@pytest.mark.parametrize("name", ["SIGSEGV", "SIGKILL", "SIGXCPU"])
def test_crashing(name: str, tmp_path: Path, folder: Path) -> None:
    message = failing(tmp_path, folder, f"echo last words; kill -{signal.Signals[name].value} $$")
    assert f"was killed by {name}" in message and "last words" in message


def test_hanging_is_stopped_with_all_its_processes(
    tmp_path: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compiler, "COMPILE_SECONDS", 0.5)
    start = time.monotonic()
    message = failing(tmp_path, folder, f"echo started; sleep 60 & echo $! > {tmp_path}/pid; wait")
    assert time.monotonic() - start < 20
    assert "had not ended after 0.5 s" in message and "started" in message
    child = int((tmp_path / "pid").read_text())
    for _ in range(100):  # its new parent may take a moment to collect it
        if not running(child):
            break
        time.sleep(0.02)
    assert not running(child)


def test_hanging_after_closing_its_output(tmp_path: Path, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiler, "COMPILE_SECONDS", 0.3)
    assert "had not ended after 0.3 s" in failing(tmp_path, folder, "exec >&- 2>&-; sleep 60")


def running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_what_it_leaves_in_the_background_is_not_waited_for(tmp_path: Path, folder: Path) -> None:
    fake = script(tmp_path / "fake", f"sleep 60 & echo $! > {tmp_path}/pid; echo x > module.so")
    start = time.monotonic()
    compile_shared_object(Compiler((str(fake),), str(fake), "fake 1.0", "PATH"), [], folder)
    assert time.monotonic() - start < 20
    os.kill(int((tmp_path / "pid").read_text()), signal.SIGKILL)


def test_flooding_is_stopped_and_only_the_end_is_kept(
    tmp_path: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    message = failing(tmp_path, folder, "while :; do echo 'the same message again and again'; done >&2")
    assert "printed more than 8 MiB" in message and len(message) < 20_000
    monkeypatch.setattr(compiler, "OUTPUT_LIMIT", 1 << 30)
    message = failing(tmp_path, folder, "yes early | head -100000; echo 'the last line'; exit 3")
    assert "failed with exit code 3" in message and "the last line" in message and len(message) < 20_000


def test_output_that_is_no_text(tmp_path: Path, folder: Path) -> None:
    assert "\ufffd" in failing(tmp_path, folder, "printf '\\377\\376'; exit 1")


def test_its_input_is_closed_and_its_limits_are_set(
    tmp_path: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compiler, "COMPILE_SECONDS", 10.0)
    limits, keyboard, pipe = resource.getrlimit(resource.RLIMIT_CORE), os.dup(0), os.pipe()
    os.dup2(pipe[0], 0)  # something to read from that never ends
    resource.setrlimit(resource.RLIMIT_CORE, (limits[1], limits[1]))
    # The limits are set from outside, just after the start: a moment passes until they hold.
    show = "echo core $(ulimit -c) file $(ulimit -f) cpu $(ulimit -t) $LC_ALL $TMPDIR"
    try:
        message = failing(tmp_path, folder, f"cat; sleep 0.3; {show}; exit 1")
    finally:
        resource.setrlimit(resource.RLIMIT_CORE, limits)
        os.dup2(keyboard, 0)
        for descriptor in (keyboard, *pipe):
            os.close(descriptor)
    blocks = compiler.FILE_LIMIT // 512
    assert f"core 0 file {blocks} cpu 41 C {folder}" in message


def test_an_endless_output_file_is_stopped(tmp_path: Path, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiler, "FILE_LIMIT", 1 << 20)
    message = failing(tmp_path, folder, "sleep 0.3; exec cat /dev/zero > module.so")
    assert "was killed by SIGXFSZ" in message or "File too large" in message
    assert (folder / "module.so").stat().st_size <= 1 << 20


def test_nothing_survives_an_interrupt(tmp_path: Path, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake = script(tmp_path / "fake", f"echo $$ > {tmp_path}/pid; exec sleep 60")

    def interrupt(*_: object) -> None:
        while not (tmp_path / "pid").exists() or not (tmp_path / "pid").read_text().strip():
            time.sleep(0.01)
        raise KeyboardInterrupt

    monkeypatch.setattr(compiler, "_watch", interrupt)
    with pytest.raises(KeyboardInterrupt):
        compile_shared_object(Compiler((str(fake),), str(fake), "fake 1.0", "PATH"), [], folder)
    assert not running(int((tmp_path / "pid").read_text()))


# Headers and flags


def test_missing_headers_say_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    require_python_headers()
    monkeypatch.setattr(sysconfig, "get_path", lambda name: str(tmp_path))
    with pytest.raises(CompileError) as caught:
        require_python_headers()
    for words in (str(tmp_path / "Python.h"), "apt install python3-dev", "dnf install python3-devel"):
        assert words in str(caught.value)
    assert python_include_arguments() == (f"-I{tmp_path}",)


def test_no_flag_lets_the_compiler_change_a_sum_or_look_at_this_machine() -> None:
    flags = [*FLAGS, *compiler.THREAD_FLAGS, *(flag for row in ISA_FLAGS.values() for flag in row)]
    assert "-ffp-contract=off" in flags and "-std=c11" in flags
    assert not [flag for flag in flags if "fast" in flag or "native" in flag or "unsafe" in flag]
    assert ISA_FLAGS["base"] == (("-march=x86-64-v2",) if platform.machine() in ("x86_64", "AMD64") else ())
