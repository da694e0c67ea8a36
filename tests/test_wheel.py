# SPDX-License-Identifier: Apache-2.0
"""A wheel, installed away from the checkout, holds everything that a kernel needs; a source distribution holds
everything that the wheel is made from.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tarfile
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


SDIST = """
import sys
from setuptools.build_meta import build_sdist
build_sdist(sys.argv[1])
"""

SOURCE_FOLDERS = (".ci", "codegen", "generated", "specs", "templates", "tests")
NOT_SOURCE = (".git", ".venv*", "__pycache__", "*.egg-info", ".*_cache", ".hypothesis")


def copy_checkout(to: Path) -> None:
    shutil.copytree(ROOT, to, ignore=shutil.ignore_patterns(*NOT_SOURCE))


def list_files(root: Path) -> set[str]:
    """Every file below a folder, but for what running and building leave there."""
    return {
        path.relative_to(root).as_posix()
        for path in root.rglob("*")
        if path.is_file() and not any(part == "__pycache__" or part.endswith(".egg-info") for part in path.parts)
    }


def build_wheel(source: Path, to: Path) -> Path:
    command = [sys.executable, "-m", "pip", "wheel", "--no-deps", "--no-build-isolation", "-q", "-w", str(to)]
    subprocess.run([*command, str(source)], check=True, capture_output=True, timeout=300)
    (wheel,) = to.glob("convgrad-*.whl")
    return wheel


def check_files_of_wheel(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    shipped = {name for name in names if name.startswith("convgrad/")}
    expected = {f"convgrad/{name}" for name in list_files(ROOT / "generated" / "convgrad")}
    assert shipped == expected and len(shipped) >= 50
    others = {name.partition("/")[0] for name in names} - {"convgrad"}
    assert len(others) == 1 and others.pop().endswith(".dist-info")


def test_wheel_runs_away_from_the_checkout(tmp_path: Path) -> None:
    copy_checkout(tmp_path / "source")
    wheel = build_wheel(tmp_path / "source", tmp_path)
    check_files_of_wheel(wheel)
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


def test_source_distribution_is_the_source(tmp_path: Path) -> None:
    source = tmp_path / "source"
    copy_checkout(source)
    # What an earlier build and a run leave in a checkout does not get in.
    (source / "generated" / "convgrad.egg-info").mkdir()
    (source / "generated" / "convgrad.egg-info" / "entry_points.old").write_text("")
    (source / "codegen" / "__pycache__").mkdir()
    (source / "codegen" / "__pycache__" / "plan.cpython-311.pyc").write_bytes(b"")
    command = [sys.executable, "-c", SDIST, str(tmp_path)]
    subprocess.run(command, cwd=source, check=True, capture_output=True, timeout=300)
    (archive,) = tmp_path.glob("convgrad-*.tar.gz")
    with tarfile.open(archive) as packed:
        names = packed.getnames()
        packed.extractall(tmp_path / "unpacked", filter="data")
    assert not [name for name in names if name.endswith(".pyc")]
    left = {name.partition("egg-info/")[2] for name in names if "egg-info/" in name}
    assert left <= {"SOURCES.txt"}, "setuptools writes its list of files anew; nothing else gets in"
    (unpacked,) = (tmp_path / "unpacked").iterdir()
    for folder in SOURCE_FOLDERS:
        assert list_files(unpacked / folder) == list_files(source / folder) != set(), folder
    assert {"LICENSE", "README.md", "pyproject.toml", "MANIFEST.in"} <= {path.name for path in unpacked.iterdir()}
    assert os.access(unpacked / ".ci" / "run", os.X_OK)

    command = [sys.executable, "-m", "codegen", "generate", "--check"]
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    result = subprocess.run(
        command, cwd=unpacked, env=environment, capture_output=True, text=True, timeout=120, check=False
    )
    assert result.returncode == 0, result.stdout + result.stderr
    check_files_of_wheel(build_wheel(unpacked, tmp_path))
