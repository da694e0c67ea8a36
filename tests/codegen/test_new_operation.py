# SPDX-License-Identifier: Apache-2.0
"""Adding an operation that is the same sum under another name takes one specification file and nothing else."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

from specs.loader import OPERATIONS

ROOT = Path(__file__).resolve().parents[2]

CODE = """
import numpy, convgrad
from convgrad.operations import OPERATIONS
assert len(OPERATIONS) == 5
signal = numpy.arange(2 * 9 * 3, dtype=numpy.float32).reshape(2, 9, 3)
error = numpy.ones((2, 7, 4), numpy.float32)
given = dict(strides=[1], pads_begin=[0], pads_end=[0], dilations=[1])
mine = convgrad.correlation_kernel_gradient(signal, error, [3, 3, 4], **given)
same = convgrad.convolution_backward_weights(signal, error, [3, 3, 4], **given)
assert mine.shape == (3, 3, 4) and mine.any() and (mine == same).all()
try:
    convgrad.CorrelationKernelGradient(strides=[0], pads_begin=[0], pads_end=[0], dilations=[1])
except convgrad.SpecError as error:
    print(error)
"""


# What is driven by the specifications and must hold for one more of them, without a change to any test.
TESTS = (
    "tests/codegen/test_drift.py::test_generated_is_up_to_date",
    "tests/codegen/test_documentation.py",
    "tests/codegen/test_schema.py",
    "tests/generated/test_examples.py",
    "tests/generated/test_demo.py::test_every_operation_passes_its_check",
    "tests/generated/test_demo.py::test_the_packages_reference_is_that_of_the_tests",
)
NOT_SOURCE = (".git", ".venv*", "__pycache__", "*.egg-info", ".*_cache", ".hypothesis")


def made_up_operation() -> str:
    text = (OPERATIONS / "convolution_backward_weights.toml").read_text()
    text = text.replace("ConvolutionBackwardWeights", "CorrelationKernelGradient")
    text = text.replace('counterpart = "ConvolutionBackpropFilters"\n', "")
    return text.replace("diff_dst", "error").replace("diff_weights", "kernel_gradient").replace("src", "signal")


def test_one_file_makes_an_operation(tmp_path: Path) -> None:
    specs, out = tmp_path / "specs", tmp_path / "out"
    shutil.copytree(OPERATIONS, specs)
    (specs / "correlation.toml").write_text(made_up_operation())
    command = [sys.executable, "-m", "codegen", "generate", "--specs", str(specs), "--out", str(out)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True, timeout=120)
    result = subprocess.run(
        [sys.executable, "-c", CODE],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(out)},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    assert result.stdout.strip() == "CorrelationKernelGradient: strides[0] = 0: expected a positive integer"
    for page in ("docs/CorrelationKernelGradient.md", "docs/CorrelationKernelGradient.html"):
        assert "kernel_gradient" in (out / page).read_text()
    assert (out / "schema" / "CorrelationKernelGradient.attributes.schema.json").is_file()


def test_the_tests_hold_for_one_more_file(tmp_path: Path) -> None:
    """As the README's recipe has it: a file in specs/operations/, generate, and everything passes."""
    checkout = tmp_path / "checkout"
    shutil.copytree(ROOT, checkout, ignore=shutil.ignore_patterns(*NOT_SOURCE))
    (checkout / "specs" / "operations" / "correlation.toml").write_text(made_up_operation())
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("PYTEST", "PYTHONPATH"))}
    command = [sys.executable, "-m", "codegen", "generate"]
    subprocess.run(command, cwd=checkout, env=environment, check=True, capture_output=True, timeout=120)
    options = ["-v", "--no-header", "--tb=short", "-p", "no:cacheprovider", "--basetemp", str(tmp_path / "inner")]
    # The four have their own run; what is about the new one, or about all at once, is left.
    options += ["-k", "not ConvolutionBack and not ConvTransposeBack"]
    result = subprocess.run(
        [sys.executable, "-m", "pytest", *options, *TESTS],
        cwd=checkout,
        env=environment,
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert result.returncode == 0, result.stdout + result.stderr
    passed = re.findall(r"^(\S+?)::.*CorrelationKernelGradient.* PASSED", result.stdout, re.MULTILINE)
    assert {file.rpartition("/")[2] for file in passed} == {
        "test_documentation.py",
        "test_schema.py",
        "test_examples.py",
        "test_demo.py",
    }
    assert len(passed) >= 80
