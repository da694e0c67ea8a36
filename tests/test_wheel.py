# SPDX-License-Identifier: Apache-2.0
"""A wheel, installed away from the checkout, holds everything that a kernel needs."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]

CODE = """
import numpy, convgrad
assert "site" in convgrad.__file__, convgrad.__file__
x = numpy.ones((1, 5, 5, 2), numpy.float16)
y = numpy.ones((1, 3, 3, 4), numpy.float16)
given = dict(strides=[1, 1], pads_begin=[0, 0], pads_end=[0, 0], dilations=[1, 1])
dw = convgrad.convolution_backward_weights(x, y, [3, 3, 2, 4], **given)
assert (dw == 9).all() and dw.shape == (3, 3, 2, 4)
print("ok")
"""


def test_wheel_runs_away_from_the_checkout(tmp_path: Path) -> None:
    source = tmp_path / "source"
    shutil.copytree(
        ROOT, source, ignore=shutil.ignore_patterns(".git", ".venv*", "__pycache__", "*.egg-info", ".*_cache")
    )
    command = [
        sys.executable,
        "-m",
        "pip",
        "wheel",
        "--no-deps",
        "--no-build-isolation",
        "-q",
        "-w",
        str(tmp_path),
        str(source),
    ]
    subprocess.run(command, check=True, capture_output=True, timeout=300)
    (wheel,) = tmp_path.glob("convgrad-*.whl")
    names = zipfile.ZipFile(wheel).namelist()
    shipped = {name for name in names if name.startswith("convgrad/")}
    expected = {
        f"convgrad/{path.relative_to(ROOT / 'generated' / 'convgrad').as_posix()}"
        for path in (ROOT / "generated" / "convgrad").rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    assert shipped == expected and len(shipped) >= 50
    assert not [name for name in names if name.startswith(("specs", "codegen", "templates", "tests", "docs"))]
    site = tmp_path / "site"
    zipfile.ZipFile(wheel).extractall(site)
    result = subprocess.run(
        [sys.executable, "-c", CODE],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(site)},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert result.returncode == 0 and result.stdout == "ok\n", result.stderr
