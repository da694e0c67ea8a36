# SPDX-License-Identifier: Apache-2.0
"""`import convgrad` takes little more than `import numpy`: what only plans and compilations need comes with those."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

BUDGET_MS = 60.0
"""Processor time of the import after that of NumPy."""
RUNS = 15
PROGRAM = """\
import json, sys, time
import numpy
before = set(sys.modules)
start = time.process_time()
import convgrad
milliseconds = 1000 * (time.process_time() - start)
print(json.dumps([milliseconds, sorted(set(sys.modules) - before)]))
"""
LATER = {
    *("cffi", "filelock", "platformdirs", "threadpoolctl", "torch", "typer", "rich"),
    *("concurrent.futures", "hashlib", "logging", "pathlib", "shlex", "shutil", "subprocess", "sysconfig", "tempfile"),
    *(f"convgrad.{name}" for name in ("cache", "compiler", "loader", "planner", "self_test", "specialise")),
}
"""What the import of the package does not bring along. (NumPy may: then it costs nothing more.)"""
MOST_MODULES = 45


def import_package(folder: Path) -> tuple[float, set[str]]:
    """(milliseconds, modules beside NumPy's) in a new process whose bytecode is kept in the folder."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    environment |= {"PYTHONPATH": os.pathsep.join(sys.path), "PYTHONPYCACHEPREFIX": str(folder)}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, env=environment, timeout=120, check=True
    )
    milliseconds, modules = json.loads(done.stdout)
    return milliseconds, set(modules)


def test_the_import_stays_within_its_budget(tmp_path: Path) -> None:
    import_package(tmp_path)  # writes the bytecode
    # Processor time, and the best of several: other programs make it longer, never shorter.
    best = min(import_package(tmp_path)[0] for _ in range(RUNS))
    assert best <= BUDGET_MS, f"{best:.1f} ms"


def test_what_only_plans_and_compilations_need_comes_later(tmp_path: Path) -> None:
    _, modules = import_package(tmp_path)
    assert {"convgrad", "convgrad.operation", "convgrad.plan"} <= modules
    assert not modules & LATER
    assert len(modules) <= MOST_MODULES, sorted(modules)


def test_names_of_what_comes_later_exist() -> None:
    """A module that was renamed would never be found among those that are loaded."""
    for name in LATER:
        if name.startswith("convgrad."):
            __import__(name)


FIRST_RESULT = """\
import json, sys
import numpy as np
import convgrad
operation = convgrad.ConvolutionBackwardWeights(
    strides=(1,), pads_begin=(0,), pads_end=(0,), dilations=(1,), weights_shape=(2, 4, 4)
)
before = set(sys.modules)
result = operation(np.ones((1, 9, 4), np.float32), np.ones((1, 8, 4), np.float32))
print(json.dumps([result.tolist(), sorted(set(sys.modules) - before)]))
"""
COMPILING = {
    *("cffi", "concurrent.futures", "dataclasses", "filelock", "logging", "sysconfig", "tempfile"),
    "convgrad.self_test",
}
"""What only a compilation needs; milliseconds each."""


def test_a_first_result_from_the_cache_loads_nothing_that_only_a_compilation_needs(tmp_path: Path) -> None:
    path = os.pathsep.join(sys.path)
    environment = {
        **os.environ,
        "PYTHONPATH": path,
        "CONVGRAD_CACHE_DIR": str(tmp_path),
        "CONVGRAD_SPECIALIZE": "never",
    }
    for warm in (False, True):
        done = subprocess.run(
            [sys.executable, "-c", FIRST_RESULT],
            capture_output=True,
            text=True,
            env=environment,
            timeout=120,
            check=True,
        )
        result, modules = json.loads(done.stdout)
        assert result == [[[8.0] * 4] * 4] * 2
        assert "convgrad.loader" in modules
        assert bool(COMPILING & set(modules)) != warm, sorted(COMPILING & set(modules))
