# SPDX-License-Identifier: Apache-2.0
"""Tests run on the kernels for any size: thousands of geometries are no reason to compile thousands of kernels.

Those that are about specialised kernels ask for them. How many are compiled in one run, by all of its processes, is
counted, and a run that exceeds the limit fails. (Programs that tests start are not counted: they compile one or two.)

Tests that mostly wait for compilers are marked `matrix`, and skipped by name unless CONVGRAD_MATRIX=1, as in .ci/run.
"""

from __future__ import annotations

import os
import sys
import tempfile

import pytest

os.environ["CONVGRAD_SPECIALIZE"] = "never"

LIMIT = 300
VARIABLE = "CONVGRAD_TEST_COMPILATIONS"
"""Names the file that all processes of a run add to: one byte for each compilation."""
DEFINITION = "-DWGRAD_SIZES=1"


def _note_compilation(event: str, arguments: tuple[object, ...]) -> None:
    if event == "subprocess.Popen" and isinstance(arguments[1], (list, tuple)) and DEFINITION in arguments[1]:
        descriptor = os.open(os.environ[VARIABLE], os.O_WRONLY | os.O_APPEND)
        try:
            os.write(descriptor, b".")
        finally:
            os.close(descriptor)


def pytest_configure(config: pytest.Config) -> None:
    if not hasattr(config, "workerinput"):
        descriptor, path = tempfile.mkstemp(prefix="convgrad-test-compilations-")
        os.close(descriptor)
        os.environ[VARIABLE] = path
    sys.addaudithook(_note_compilation)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if os.environ.get("CONVGRAD_MATRIX") != "1":
        for item in items:
            if item.get_closest_marker("matrix"):
                item.add_marker(pytest.mark.skip(reason="of the matrix: CONVGRAD_MATRIX=1"))


@pytest.hookimpl(tryfirst=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    if not hasattr(session.config, "workerinput") and _count_compilations() > LIMIT and not _is_long():
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    count = _count_compilations()
    over = ": too many" if count > LIMIT and not _is_long() else ""
    terminalreporter.write_line(f"{count} kernels compiled for their sizes, at most {LIMIT} are wanted{over}")


def pytest_unconfigure(config: pytest.Config) -> None:
    if not hasattr(config, "workerinput"):
        os.unlink(os.environ[VARIABLE])


def _count_compilations() -> int:
    return os.path.getsize(os.environ[VARIABLE])


def _is_long() -> bool:
    return os.environ.get("CONVGRAD_LONG") == "1"
