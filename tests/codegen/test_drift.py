# SPDX-License-Identifier: Apache-2.0
"""What is committed below generated/ is what the specifications and templates give, byte for byte, everywhere."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path, PurePosixPath

import pytest

from codegen.outputs import TEMPLATES, Copy
from codegen.plan import plan_outputs
from codegen.render import render_plan, tidy
from codegen.tree import check_tree, list_owned_files, write_tree
from specs import load_operations

ROOT = Path(__file__).resolve().parents[2]
GENERATED = ROOT / "generated"


@pytest.fixture(scope="session")
def rendered() -> dict[PurePosixPath, bytes]:
    return render_plan(plan_outputs(load_operations()))


def run(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "codegen", *arguments],
        cwd=ROOT,
        env={**os.environ, "NO_COLOR": "1", **environment},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def files_of(folder: Path) -> dict[str, bytes]:
    return {str(path): (folder / path).read_bytes() for path in list_owned_files(folder)}


def test_generated_is_up_to_date(rendered: dict[PurePosixPath, bytes]) -> None:
    drift = check_tree(GENERATED, rendered)
    assert not drift, (
        f"missing {drift.missing}, orphans {drift.orphans}\n"
        + "".join(drift.diffs.values())
        + "\nrun `python -m codegen generate`"
    )
    assert len(rendered) >= 50


def test_check_passes_and_writes_nothing() -> None:
    before = {path: path.stat().st_mtime_ns for path in GENERATED.rglob("*") if path.is_file()}
    result = run("generate", "--check")
    assert result.returncode == 0, result.stdout
    assert {path: path.stat().st_mtime_ns for path in before} == before


def test_every_locale_hash_seed_and_folder_gives_the_same_bytes(tmp_path: Path) -> None:
    expected = files_of(GENERATED)
    for number, environment in enumerate(
        ({"PYTHONHASHSEED": "1", "LC_ALL": "C"}, {"PYTHONHASHSEED": "77", "LC_ALL": "tr_TR.UTF-8", "TZ": "Asia/Tokyo"})
    ):
        out = tmp_path / f"ordner ü {number}"
        result = run("generate", "--out", str(out), **environment)
        assert result.returncode == 0, result.stderr
        assert files_of(out) == expected


def test_deleted_tree_comes_back(tmp_path: Path, rendered: dict[PurePosixPath, bytes]) -> None:
    out = tmp_path / "out"
    write_tree(out, rendered)
    expected = files_of(out)
    assert expected == files_of(GENERATED)
    shutil.rmtree(out)
    drift = write_tree(out, rendered)
    assert files_of(out) == expected and len(drift.missing) == len(expected)
    assert not write_tree(out, rendered), "a second run has nothing to do"


def test_drift_is_found_shown_and_mended(tmp_path: Path) -> None:
    out = tmp_path / "out"
    assert run("generate", "--out", str(out)).returncode == 0
    expected = files_of(out)
    (out / "convgrad" / "kernel_table.py").write_text("# changed by hand\n")
    (out / "convgrad" / "py.typed").unlink()
    (out / "convgrad" / "stray").mkdir()
    (out / "convgrad" / "stray" / "orphan.py").write_text("")
    changed = files_of(out)
    check = run("generate", "--check", "--out", str(out))
    assert check.returncode == 1
    for line in (
        "missing: convgrad/py.typed",
        "orphan: convgrad/stray/orphan.py",
        "changed: convgrad/kernel_table.py",
        "-# changed by hand",
        f"`python -m codegen generate --out {out}` mends it",
    ):
        assert line in check.stdout
    assert files_of(out) == changed, "--check writes nothing"
    mended = run("generate", "--out", str(out))
    assert mended.returncode == 0
    assert "removed convgrad/stray/orphan.py: nothing generates it any more" in mended.stdout
    assert files_of(out) == expected
    assert not (out / "convgrad" / "stray").exists()


def test_a_folder_with_other_work_is_not_taken_over(tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("mine")
    result = run("generate", "--out", str(tmp_path))
    assert result.returncode == 2 and "not the generator's" in result.stderr
    assert (tmp_path / "thesis.txt").read_text() == "mine"


SELECTED = """
import ml_dtypes, numpy, convgrad
names = [name for name in convgrad.__all__ if "onv" in name]
assert names == ["ConvolutionBackwardWeights", "convolution_backward_weights"]

def gradient(dtype, rank, data_format):
    shape = (1, *(3,) * rank, 1) if data_format == "NXC" else (1, 1, *(3,) * rank)
    one = numpy.ones(shape, dtype)
    given = dict(strides=[1] * rank, pads_begin=[0] * rank, pads_end=[0] * rank, dilations=[1] * rank)
    return convgrad.convolution_backward_weights(one, one, (1,) * (rank + 2), data_format=data_format, **given)

assert gradient(ml_dtypes.bfloat16, 2, "NXC") == 9
for left_out in ((numpy.float32, 2, "NXC"), (ml_dtypes.bfloat16, 1, "NXC"), (ml_dtypes.bfloat16, 2, "NCX")):
    try:
        gradient(*left_out)
    except convgrad.SpecError as error:
        print(error)
"""


def test_selection_narrows_a_package_elsewhere(tmp_path: Path) -> None:
    out = tmp_path / "small"
    options = ("--op", "ConvolutionBackwardWeights", "--dtype", "bf16", "--rank", "2", "--data-format", "NXC")
    assert run("generate", "--out", str(out), *options).returncode == 0
    kernels = sorted(path.name for path in (out / "convgrad" / "kernels").glob("wgrad_2d*.c"))
    assert kernels and all(name.startswith("wgrad_2d_nxc_bf16_") for name in kernels)
    assert kernels == sorted(path.name for path in (out / "convgrad" / "kernels").glob("wgrad_[123]d*.c"))
    result = subprocess.run(
        [sys.executable, "-c", SELECTED],
        env={**os.environ, "PYTHONPATH": str(out)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    missing = "no kernel for {} is in this package, which was generated with 2d NXC bf16 alone"
    for line, kernel in zip(result.stdout.splitlines(), ("2d NXC f32", "1d NXC bf16", "2d NCX bf16"), strict=True):
        assert line.startswith(missing.format(kernel)), line
    demo = subprocess.run(
        [sys.executable, "-m", "convgrad", "demo", "--no-picture", "--steps", "1"],
        env={**os.environ, "PYTHONPATH": str(out)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert demo.returncode == 1 and demo.stderr.startswith("error: "), demo.stderr
    assert "Traceback" not in demo.stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--op", "ConvolutionBackwardWeights"), "give --out as well"),
        (("--out", "x", "--op", "Convolution"), "--op Convolution: expected one of ConvTranspose"),
        (("--out", "x", "--dtype", "f64"), "--dtype f64: expected one of f32, bf16, f16"),
        (("--out", "x", "--rank", "4"), "--rank 4: expected one of 1, 2, 3"),
        (("--out", "x", "--data-format", "NHWC"), "--data-format NHWC: expected one of NCX, NXC"),
        (("--specs", "/nonexistent"), "no operation files"),
    ],
)
def test_wrong_usage_exits_2_and_says_what_was_expected(arguments: tuple[str, ...], message: str) -> None:
    result = run("generate", *arguments)
    assert result.returncode == 2 and message in result.stderr


def test_docs_and_schema_are_exported_alone(tmp_path: Path) -> None:
    for command in ("docs", "schema"):
        out = tmp_path / command
        assert run(command, "--out", str(out)).returncode == 0
        assert files_of(out) == files_of(GENERATED / command)
        assert run(command, "--check").returncode == 0


def test_list_names_every_file() -> None:
    result = run("list")
    assert result.returncode == 0
    for path in list_owned_files(GENERATED):
        assert str(path) in result.stdout


def test_banner_names_spec_template_and_command(rendered: dict[PurePosixPath, bytes]) -> None:
    checked = 0
    for output in plan_outputs(load_operations()):
        if isinstance(output, Copy) or output.path.suffix in (".json", ".svg", ".css"):
            continue
        head = "\n".join(rendered[output.path].decode().splitlines()[:5])
        assert f"templates/{output.template}" in head and "python -m codegen generate" in head, output.path
        assert "SPDX-License-Identifier: Apache-2.0" in head, output.path
        checked += 1
    assert checked >= 25


def test_templates_stay_small_and_plain() -> None:
    """C templates read as C: control lines are under a quarter. Pages are lists and tables of what there is."""
    checked = 0
    for path in TEMPLATES.rglob("*.j2"):
        lines = path.read_text().splitlines()
        control = [line for line in lines if line.lstrip().startswith("{%")]
        share = 0.25 if path.parent.name == "c" and len(lines) > 20 else 0.6
        assert len(lines) <= 185, f"{path.name}: {len(lines)} lines"
        assert len(control) <= len(lines) * share, f"{path.name}: {len(control)} control lines of {len(lines)}"
        checked += 1
    assert checked >= 15


def test_tidy_normalises_blank_lines_and_the_end() -> None:
    assert tidy("a  \n\n\n\n\nb\n\n") == "a\n\n\nb\n"
