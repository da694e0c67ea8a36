# SPDX-License-Identifier: Apache-2.0
"""The demo finds the hidden filters, and its check of the operations can fail."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import convgrad
from convgrad.commands import check, deconvolution, demo
from convgrad.commands.deconvolution import (
    Experiment,
    Picture,
    descend,
    largest_curvature,
    make_filtering,
    make_upsampling,
)
from convgrad.commands.reference import ReferenceSum, reference_gradient
from convgrad.operations import OPERATIONS
from reference.specified_operation import family_of, specified_gradient
from specs import load_operations

pytestmark = pytest.mark.extra

ROOT = str(Path(convgrad.__file__).resolve().parents[1])
SPECIFIED = {operation.name: operation for operation in load_operations()}
Make = Callable[..., Experiment]


def run_demo(*arguments: str) -> subprocess.CompletedProcess[str]:
    pytest.importorskip("skimage", reason="the demo's photograph is in scikit-image")
    pytest.importorskip("matplotlib", reason="the demo's picture is drawn by matplotlib")
    return run_program("-m", "convgrad", "demo", *arguments)


def run_program(*arguments: str) -> subprocess.CompletedProcess[str]:
    # At most one thread in NumPy's products: the tests share the machine.
    settings = {"PYTHONPATH": ROOT, "OPENBLAS_NUM_THREADS": "1", "PYTHONIOENCODING": "utf-8"}
    return subprocess.run(
        [sys.executable, *arguments],
        env={**os.environ, **settings},
        capture_output=True,
        text=True,
        encoding="utf-8",
        timeout=240,
        check=False,
    )


def draw_landscape(height: int, seed: int = 5) -> Picture:
    """A picture whose neighbouring pixels and whose colours are alike, as in a photograph."""
    random = np.random.default_rng(seed)
    steps = random.standard_normal((3, height, height * 3 // 2))
    picture = np.cumsum(np.cumsum(steps, 1), 2)
    picture = picture[0] + 0.2 * picture
    return np.ascontiguousarray((picture - picture.min()) / np.ptp(picture), np.float32)


# From end to end


def test_the_demo_finds_both_filters_and_writes_a_picture(tmp_path: Path) -> None:
    picture = tmp_path / "picture.png"
    done = run_demo("--steps", "40", "--size", "96", "--json", "--out", str(picture))
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert report["ok"] is True and report["picture"] == str(picture)
    assert report["photograph"] == {"file": "chelsea.png", "height": 96, "width": 144}
    filtering, upsampling = report["experiments"]
    assert filtering["operation"] == "ConvolutionBackwardWeights" and filtering["weights"] == 4 * 3 * 9 * 9
    assert upsampling["operation"] == "ConvTransposeBackwardWeights" and upsampling["weights"] == 3 * 3 * 8 * 8
    for experiment, error in ((filtering, 0.025), (upsampling, 0.006)):
        assert experiment["steps"] == 40
        assert experiment["last_loss"] * 5_000 < experiment["first_loss"]
        assert experiment["last_loss"] < 1.1 * experiment["noise_floor"]
        assert experiment["relative_error"] < error
    assert [operation["operation"] for operation in report["operations"]] == [
        operation.description.name for operation in OPERATIONS
    ]
    for operation in report["operations"]:
        assert operation["passed"] is True
        assert 0 < operation["relative_error"] < 1e-6 and operation["milliseconds"] > 0
    assert picture.read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"
    from matplotlib.image import imread

    pixels = imread(picture)
    assert pixels.shape[0] > 1000 and pixels.shape[1] > 1000
    assert np.unique(pixels[..., :3].reshape(-1, 3), axis=0).shape[0] > 10_000


def test_the_demo_prints_losses_filters_and_a_line_for_each_operation(tmp_path: Path) -> None:
    done = run_demo("--steps", "12", "--size", "64", "--no-picture")
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    reported = [line.split() for line in lines if line.startswith("   step")]
    numbers = [int(words[1]) for words in reported]
    assert numbers == [0, 1, 2, 5, 10, 12] * 2
    losses = [float(words[3]) for words in reported]
    assert losses[0] > losses[2] > losses[4] and losses[6] > losses[8] > losses[10]
    assert sum("█" in line for line in lines) >= 4
    assert {"hidden", "found"} <= {line.strip() for line in lines}
    for operation in OPERATIONS:
        assert [line.split()[-1] for line in lines if line.split()[:1] == [operation.description.name]] == ["ok"]
    assert "\x1b" not in done.stdout


def test_no_picture_needs_no_folder_and_writes_none(tmp_path: Path) -> None:
    out = tmp_path / "missing" / "picture.png"
    done = run_demo("--steps", "2", "--size", "64", "--no-picture", "--json", "--out", str(out))
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["picture"] is None
    assert list(tmp_path.iterdir()) == []


def test_the_photograph_comes_without_network() -> None:
    pytest.importorskip("skimage", reason="the demo's photograph is in scikit-image")
    program = """
import socket, sys
def refuse(*arguments, **options):
    raise AssertionError("the network was asked")
socket.socket.connect = socket.getaddrinfo = refuse
from convgrad.commands.demo import load_photograph
photograph = load_photograph(100)
print(photograph.shape, photograph.dtype, photograph.min() >= 0, photograph.max() <= 1, photograph.std() > 0.1)
print("skimage.data" in sys.modules, "pooch" in sys.modules)
"""
    done = run_program("-c", program)
    assert done.stdout.split("\n")[:2] == ["(3, 100, 150) float32 True True True", "False False"], done.stderr


def test_missing_packages_are_exit_code_1_and_say_how_to_install_them() -> None:
    program = """
import sys
from convgrad import __main__
from convgrad.commands import demo
demo.find_spec = lambda name: None
sys.argv = ["convgrad", "demo"]
__main__.main()
"""
    done = run_program("-c", program)
    assert done.returncode == 1
    assert done.stdout == ""
    assert done.stderr == (
        "error: the demo needs scikit-image (the photograph) and matplotlib (the picture), which is not installed: "
        "'pip install matplotlib scikit-image'\n"
    )


def test_without_a_picture_only_the_photograph_is_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(demo, "find_spec", lambda name: None)
    with pytest.raises(demo.DemoError) as caught:
        demo.run_demo(None, steps=1, size=64, as_json=True)
    assert "scikit-image (the photograph)" in str(caught.value) and "(the picture)" not in str(caught.value)


# The descent


@pytest.mark.parametrize("make", [make_filtering, make_upsampling])
def test_without_noise_the_filter_is_found_exactly(make: Make) -> None:
    experiment = make(draw_landscape(64), extent=6, noise=0.0)
    *_, last = descend(experiment, 120)
    assert experiment.noise_floor == 0
    assert last.loss < 1e-12
    assert experiment.relative_error(last.weights) < 1e-3
    assert experiment.relative_error(np.zeros_like(experiment.truth)) == 1


@pytest.mark.parametrize("make", [make_filtering, make_upsampling])
def test_the_gradient_is_the_slope_of_the_loss(make: Make) -> None:
    experiment = make(draw_landscape(40), extent=4)
    random = np.random.default_rng(11)
    weights, direction = random.standard_normal((2, *experiment.truth.shape)).astype(np.float32)

    def loss(position: Any) -> float:
        error = experiment.evaluate(position).astype(np.float64) - experiment.target
        return 0.5 * float(np.mean(error**2))

    # The loss is quadratic: central differences are exact but for rounding.
    slope = (loss(weights + direction) - loss(weights - direction)) / 2
    error = experiment.evaluate(weights) - experiment.target
    gradient = experiment.gradient(error / np.float32(error.size))
    assert np.vdot(gradient.astype(np.float64), direction) == pytest.approx(slope, rel=1e-4)


@pytest.mark.parametrize("make", [make_filtering, make_upsampling])
def test_the_step_rule_knows_the_largest_curvature(make: Make) -> None:
    experiment = make(draw_landscape(40), extent=4)
    size = experiment.truth.size
    responses = [
        experiment.evaluate(unit.reshape(experiment.truth.shape)).ravel() for unit in np.eye(size, dtype=np.float32)
    ]
    columns = np.stack(responses).astype(np.float64)
    largest = float(np.linalg.eigvalsh(columns @ columns.T / experiment.target.size)[-1])
    assert 0.98 * largest < largest_curvature(experiment) < 1.06 * largest


def test_the_forward_passes_are_the_sums_of_the_documents() -> None:
    random = np.random.default_rng(2)
    picture = random.standard_normal((2, 5, 6)).astype(np.float32)
    weights = random.standard_normal((3, 2, 3, 2)).astype(np.float32)
    expected = np.zeros((3, 3, 5))
    for oc, y, x, ic, k, l in np.ndindex(3, 3, 5, 2, 3, 2):
        expected[oc, y, x] += picture[ic, y + k, x + l] * weights[oc, ic, k, l]
    np.testing.assert_allclose(deconvolution.convolve(picture, weights), expected, rtol=1e-5, atol=1e-5)

    weights = random.standard_normal((2, 3, 4, 4)).astype(np.float32)
    spread = np.zeros((3, 12, 14))
    for oc, y, x, ic, k, l in np.ndindex(3, 5, 6, 2, 4, 4):
        spread[oc, 2 * y + k, 2 * x + l] += picture[ic, y, x] * weights[ic, oc, k, l]
    result = deconvolution.convolve_transposed(picture, weights, 2, 1)
    np.testing.assert_allclose(result, spread[:, 1:-1, 1:-1], rtol=1e-5, atol=1e-5)


# The check of the operations


@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda operation: operation.description.name)
def test_every_operation_passes_its_check(operation: Any) -> None:
    result = check.check_operation(operation)
    assert result.passed and 0 < result.bound_used < 1
    assert result.operation == operation.description.name


@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda operation: operation.description.name)
def test_the_check_fails_when_one_element_is_wrong(operation: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def disturb(*arguments: Any, **options: Any) -> ReferenceSum:
        right = reference_gradient(*arguments, **options)
        gradient = right.gradient.copy()
        gradient.flat[gradient.size // 2] += 2 * check.BOUND * right.magnitudes.flat[gradient.size // 2]
        return ReferenceSum(gradient, right.magnitudes)

    monkeypatch.setattr(check, "reference_gradient", disturb)
    result = check.check_operation(operation)
    assert not result.passed and 1 < result.bound_used < 3


@pytest.mark.parametrize("data_format", ["NCX", "NXC"])
@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda operation: operation.description.name)
def test_the_packages_reference_is_that_of_the_tests(operation: Any, data_format: str) -> None:
    description = operation.description
    random = np.random.default_rng(13)
    channels, kernel = {"IC": 6, "OC": 4}, (3, 3)
    specified = SPECIFIED[description.name]
    if family_of(specified).transposed:  # O = (I - 1) * s + (K - 1) * d + 1 - pb - pe
        extents = {"I": (5, 6), "O": (8, 8)}
        geometry = {"strides": (2, 1), "dilations": (1, 2), "pads_begin": (2, 1), "pads_end": (1, 1)}
    else:  # O = (I + pb + pe - (K - 1) * d - 1) // s + 1
        extents = {"I": (5, 6), "O": (3, 6)}
        geometry = {"strides": (2, 1), "dilations": (1, 2), "pads_begin": (2, 3), "pads_end": (1, 1)}
    tensors = []
    for data_input in description.inputs:
        x, c = extents[data_input.spatial], channels[data_input.channels]
        tensors.append(random.standard_normal((2, c, *x) if data_format == "NCX" else (2, *x, c)))
    compared = 0
    for reading in description.readings:
        for weights_format, axes in reading.layouts.items():
            shape: list[int] = []
            for axis in axes:
                symbol, _, divided = axis.partition("/")
                shape += kernel if symbol == "X" else [channels[symbol] // (2 if divided else 1)]
            own = reference_gradient(
                description, reading, tensors[0], tensors[1], kernel, groups=2, data_format=data_format,
                weights_format=weights_format, strides=geometry["strides"], dilations=geometry["dilations"],
                pads_begin=geometry["pads_begin"],
            )  # fmt: skip
            roles = {**geometry, "groups": 2, "data_format": data_format, "weights_format": weights_format}
            attributes = {description.attribute_name(role): value for role, value in roles.items()}
            theirs = specified_gradient(specified, tensors, shape, attributes, by_element=True)
            np.testing.assert_allclose(own.gradient, theirs.gradient, rtol=1e-12, atol=1e-12)
            np.testing.assert_allclose(own.magnitudes, theirs.magnitude, rtol=1e-12, atol=1e-12)
            compared += 1
    assert compared == sum(len(reading.layouts) for reading in description.readings) >= 2
