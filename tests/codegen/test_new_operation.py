# SPDX-License-Identifier: Apache-2.0
"""Adding an operation that is the same sum under another name takes one specification file and nothing else."""

from __future__ import annotations

import os
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


def test_one_file_makes_an_operation(tmp_path: Path) -> None:
    specs, out = tmp_path / "specs", tmp_path / "out"
    shutil.copytree(OPERATIONS, specs)
    text = (OPERATIONS / "convolution_backward_weights.toml").read_text()
    text = text.replace("ConvolutionBackwardWeights", "CorrelationKernelGradient")
    text = text.replace('counterpart = "ConvolutionBackpropFilters"\n', "")
    text = text.replace("diff_dst", "error").replace("diff_weights", "kernel_gradient").replace("src", "signal")
    (specs / "correlation.toml").write_text(text)
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
