# SPDX-License-Identifier: Apache-2.0
"""The benchmark: its problem strings, its counts, its statistics, and whole runs with peers, without them, and with one
that ends the process.
"""

from __future__ import annotations

import itertools
import json
import math
import os
import random
import shutil
import subprocess
import sys
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest

import convgrad
from convgrad.attributes import INT64_MAX
from convgrad.bench import session
from convgrad.bench.command import choose_layers
from convgrad.bench.contender import OURS, UnavailableError
from convgrad.bench.onednn_peer import check_supported
from convgrad.bench.operands import LAYOUTS, exact_gradient, make_operands
from convgrad.bench.operation import find_operation, resolve_problem
from convgrad.bench.problem import Problem, ProblemError, parse_problem
from convgrad.bench.report import make_document
from convgrad.bench.session import LARGEST_ERROR, LayerResult, Run, Score
from convgrad.bench.statistics import Estimate, estimate_geometric_mean, estimate_median
from convgrad.bench.suites import DEFAULT_SUITE, SUITES, Layer
from convgrad.bench.worker import Settings
from convgrad.commands.reference import reference_gradient

ROOT = str(Path(convgrad.__file__).resolve().parents[1])
TINY = 'g2mb2ic4ih9oc6kh3sh2ph1n"tiny"'


# Problem strings


def numbers(text: str) -> dict[str, Any]:
    return parse_problem(text)[0].as_dict()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            "g1mb2ic3ih32oc16oh32kh3ph1",
            {
                "batch": 2, "groups": 1, "input_channels": 3, "output_channels": 16, "input": (32, 32),
                "output": (32, 32), "kernel": (3, 3), "strides": (1, 1), "dilations": (1, 1), "pads_begin": (1, 1),
                "pads_end": (1, 1),
            },
        ),
        ("ic1iw10oc1kw3", {"batch": 1, "input": (10,), "output": (8,), "kernel": (3,), "pads_begin": (0,)}),
        ("ic1id8oc1kd3pd1", {"input": (8, 8, 8), "output": (8, 8, 8), "kernel": (3, 3, 3), "pads_end": (1, 1, 1)}),
        ("ic1id4ih8iw6oc1kd1kh3", {"input": (4, 8, 6), "output": (4, 6, 4), "kernel": (1, 3, 3)}),
        ("ic1ih17oc1kh1kw7ph0pw3", {"input": (17, 17), "kernel": (1, 7), "pads_begin": (0, 3), "output": (17, 17)}),
        ("ic1ih33oc1kh3dh5ph6", {"dilations": (6, 6), "output": (33, 33)}),
        ("ic1iw8oc1kw3dw0", {"dilations": (1,), "output": (6,)}),
        ("mb3_ic2_iw7_oc4_kw2_sw3", {"batch": 3, "strides": (3,), "output": (2,)}),
        ("oc4kw2iw7ic2", {"input_channels": 2, "output_channels": 4}),
        # Padding that o asks for, split evenly; the odd one behind.
        ("ic1iw8oc1ow8kw4", {"pads_begin": (1,), "pads_end": (2,)}),
        # Both given: what is behind is as much as o needs.
        ("ic1iw8oc1ow8kw3pw2", {"pads_begin": (2,), "pads_end": (0,)}),
        ("ic1iw8oc1ow10kw3pw2", {"pads_begin": (2,), "pads_end": (2,)}),
        # The same padding at both ends where that gives o as well.
        ("ic3ih224oc64oh112kh7sh2ph3", {"pads_begin": (3, 3), "pads_end": (3, 3)}),
    ],
)  # fmt: skip
def test_a_problem_string_says(text: str, expected: dict[str, Any]) -> None:
    found = numbers(text)
    assert {name: found[name] for name in expected} == expected


@pytest.mark.parametrize(
    ("text", "name"), [('ic1iw4oc1kw1n"a b:c"', "a b:c"), ("ic1iw4oc1kw1n'x'", "x"), ("ic1iw4oc1kw1", None)]
)
def test_a_problem_may_have_a_name(text: str, name: str | None) -> None:
    assert parse_problem(text)[1] == name


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "expected keys and numbers, like g1mb2ic3"),
        ("ic3oc4kh3", "the extent of src is missing; expected iw (1-D), ih (2-D) or id (3-D)"),
        ("ih8oc4kh3", "ic, the number of channels, is missing"),
        ("ic3ih8kh3", "oc, the number of channels, is missing"),
        ("ic3ih8oc4", "kh, the extent of the kernel, is missing"),
        ("ic3ih8oc4kw3", "kh, the extent of the kernel, is missing"),
        ("ic3ih8oc4khh3", "at 'khh3': there is no key 'khh'"),
        ("ic3ih8oc4kh3nope", 'a name is written n"..." at the end'),
        ("ic3ih8oc4kh3 ph1", "at ' ph1': expected a key and a number"),
        ("ic3ih8oc4kh3IC4", "at 'IC4': expected a key and a number"),
        ("ic3ih8oc4kh-3", "at 'kh-3': kh has no number behind it"),
        ("ic3ih8oc4kh", "kh has no number behind it"),
        ("ic3ih8oc4kh3ic3", "at 'ic3': ic is there twice"),
        ("ic0ih8oc4kh3", "ic is 0; expected at least 1"),
        ("mb0ic1ih8oc4kh3", "mb is 0; expected at least 1"),
        ("ic1ih8oc4kh3sh0", "sh is 0; expected at least 1"),
        ("ic1ih8oc4kh0", "kh is 0; expected at least 1"),
        ("ic1ih9999999999oc4kh3", "9999999999 has more than 9 digits"),
        ("g2ic3ih8oc4kh3", "ic3 is no multiple of g2"),
        ("g2ic4ih8oc3kh3", "oc3 is no multiple of g2"),
        ("ic1iw8oc1kw3ph1", "ph is of an axis that src does not have; it has w"),
        ("ic1ih8oc1kh3kd3", "kd is of an axis that src does not have; it has h, w"),
        ("ic1iw4oc1kw3dw2", "(k - 1) * (d + 1) + 1 = 7, but i + 2 * p = 4 with iw4, kw3, sw1, dw2, pw0"),
        ("ic1ih8ow3oc1kh3", "ow3 leaves whole steps of src unread"),
        ("ic1iw8ow3oc1kw3pw1", "(i + p - (k - 1) * (d + 1) - 1) // s + 1 = 7 with iw8, kw3, sw1, dw0, pw1"),
    ],
)
def test_a_wrong_problem_string_is_told_where_and_why(text: str, message: str) -> None:
    with pytest.raises(ProblemError) as caught:
        parse_problem(text)
    assert message in str(caught.value)
    assert repr(text) in str(caught.value)


def draw_problem(source: random.Random, *, most: int = 7) -> Problem:
    """A small problem with whatever can go together."""
    while True:
        rank = source.randint(1, 3)
        groups = source.choice((1, 1, 2, 3))
        text = f"g{groups}mb{source.randint(1, 2)}ic{groups * source.randint(1, 2)}oc{groups * source.randint(1, 3)}"
        for axis in "dhw"[3 - rank :]:
            text += f"i{axis}{source.randint(1, most)}k{axis}{source.randint(1, 4)}s{axis}{source.randint(1, 3)}"
            text += f"d{axis}{source.randint(0, 2)}p{axis}{source.randint(0, 5)}"
            if source.random() < 0.4:
                text += f"o{axis}{source.randint(1, most + 3)}"
        try:
            return parse_problem(text)[0]
        except ProblemError:
            continue


def test_the_text_of_a_problem_reads_back_as_it() -> None:
    source = random.Random(5)
    problems = [layer.problem for suite in SUITES.values() for layer in suite.layers]
    problems += [draw_problem(source) for _ in range(2000)]
    uneven = 0
    for problem in problems:
        assert parse_problem(str(problem))[0] == problem, str(problem)
        assert Problem.from_dict(json.loads(json.dumps(problem.as_dict()))) == problem
        uneven += problem.pads_begin != problem.pads_end
    assert uneven >= 100


# Counts and sums


def count_products(problem: Problem) -> int:
    """Every product by itself, as the sum is written."""
    inside = 0
    for o in np.ndindex(*problem.output):
        for k in np.ndindex(*problem.kernel):
            places = [
                o[axis] * problem.strides[axis] + k[axis] * problem.dilations[axis] - problem.pads_begin[axis]
                for axis in range(problem.rank)
            ]
            inside += all(0 <= place < extent for place, extent in zip(places, problem.input, strict=True))
    return inside * problem.batch * problem.output_channels * problem.input_channels // problem.groups


def test_flops_are_counted_without_padding() -> None:
    source = random.Random(11)
    padded = 0
    for _ in range(300):
        problem = draw_problem(source, most=5)
        assert problem.products == count_products(problem), str(problem)
        full = math.prod((problem.batch, problem.output_channels, problem.group_inputs, *problem.output))
        padded += problem.products < full * math.prod(problem.kernel)
    assert padded >= 100
    assert parse_problem("ic2iw4oc3kw3pw1")[0].flops == 2 * 2 * 3 * (3 + 4 + 3)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_the_float64_gradient_is_that_of_the_reference(layout: str) -> None:
    source = random.Random(23)
    for _ in range(25):
        problem = draw_problem(source, most=6)
        operands = make_operands(problem, "f32", layout, transposed=False, seed=source.randrange(1000))
        description = find_operation(transposed=False).description
        expected = reference_gradient(
            description, description.readings[0], operands.src, operands.dst, problem.kernel,
            strides=problem.strides, dilations=problem.dilations, pads_begin=problem.pads_begin, groups=problem.groups,
            data_format=operands.data_format, weights_format="OIX",
        )  # fmt: skip
        np.testing.assert_allclose(exact_gradient(operands), expected.gradient, rtol=1e-12, atol=1e-12)


# Suites


@pytest.mark.parametrize("transposed", [False, True], ids=["convolution", "transposed"])
@pytest.mark.parametrize("name", SUITES)
def test_every_layer_is_valid_for_the_operations(name: str, transposed: bool) -> None:
    for layer, layout in itertools.product(SUITES[name].layers, LAYOUTS):
        problem = layer.problem
        geometry = resolve_problem(problem, layout, transposed=transposed)
        assert problem.output_channels == geometry.G * geometry.P, layer.name
        assert problem.group_inputs == geometry.W
        assert geometry.O[3 - problem.rank :] == problem.output
        assert geometry.I[3 - problem.rank :] == problem.input
        assert geometry.pad[3 - problem.rank :] == problem.pads_begin
        assert problem.flops > 0
        assert layer.count >= 1


def test_any_problem_is_valid_for_both_operations() -> None:
    source = random.Random(31)
    for _ in range(300):
        problem = draw_problem(source)
        geometries = [resolve_problem(problem, "NCX", transposed=transposed) for transposed in (False, True)]
        for field in ("N", "G", "P", "W", "O", "I", "K", "stride", "dilation", "pad"):
            assert getattr(geometries[0], field) == getattr(geometries[1], field), (field, str(problem))


@pytest.mark.parametrize(
    ("name", "convolutions"), [("resnet50", 53), ("mobilenetv2", 52), ("convnext", 58), ("resnext", 53), ("c3d", 8)]
)
def test_a_network_has_all_of_its_convolutions(name: str, convolutions: int) -> None:
    assert SUITES[name].network
    assert sum(layer.count for layer in SUITES[name].layers) == convolutions


@pytest.mark.parametrize(
    ("name", "parameters", "others"),
    [
        # All parameters as published, but for classifier and batch normalisation.
        ("resnet50", 25_557_032, 2048 * 1000 + 1000 + 2 * 26_560),
        ("mobilenetv2", 3_504_872, 1280 * 1000 + 1000 + 2 * 17_056),
        ("resnext", 25_028_904, 2048 * 1000 + 1000 + 2 * 34_112),
        # But for the classifier, biases, scales and layer normalisation.
        ("convnext", 28_589_128, 768 * 1000 + 1000 + 2 * (96 + 96 + 192 + 384 + 768) + 96 + 192 + 384 + 768
         + sum(count * width * (1 + 2 + 4 + 1 + 1) for count, width in ((3, 96), (3, 192), (9, 384), (3, 768)))),
    ],
)  # fmt: skip
def test_a_network_has_as_many_weights_as_is_known(name: str, parameters: int, others: int) -> None:
    weights = sum(layer.count * layer.problem.elements[2] for layer in SUITES[name].layers)
    assert weights == parameters - others


def test_resnet50_has_as_much_work_as_is_known() -> None:
    padded = counted = 0
    for layer in SUITES["resnet50"].layers:
        problem = layer.problem
        padded += layer.count * problem.elements[2] * math.prod(problem.output)
        counted += layer.count * problem.products
    assert padded == 4_089_184_256 - 2048 * 1000  # with products by padding, as is usual; but for the classifier
    assert 0.96 < counted / padded < 0.97


def test_layers_of_a_suite_have_names_of_their_own() -> None:
    for suite in SUITES.values():
        names = [layer.name for layer in suite.layers]
        assert len(set(names)) == len(names)
        assert all(layer.transposed == layer.name.endswith("(transposed)") for layer in suite.layers)


def test_what_is_chosen() -> None:
    assert choose_layers([], [], batch=None, transposed=False)[2] == list(SUITES[DEFAULT_SUITE].layers)
    title, network, layers = choose_layers(["resnet50"], [], batch=32, transposed=True)
    assert title == "ResNet-50 (v1.5), all 53 convolutions, N=32"
    assert network
    assert all(layer.problem.batch == 32 and layer.transposed for layer in layers)
    title, network, layers = choose_layers(["dcgan"], [TINY], batch=None, transposed=False)
    assert (network, [layer.transposed for layer in layers]) == (False, [True] * 5 + [False])
    assert layers[-1].name == "tiny"


def test_the_suites_that_targets_are_set_for() -> None:
    assert len(SUITES["table"].layers) == 21 and len(SUITES["awkward"].layers) == 18
    for layer in SUITES["table"].layers:
        assert layer.name.endswith(", N=4") == (layer.problem.batch == 4) and layer.problem.batch in (1, 4)


def test_a_layer_of_another_batch_does_not_name_the_old_one() -> None:
    _, _, layers = choose_layers(["table"], [], batch=32, transposed=False)
    assert {layer.problem.batch for layer in layers} == {32}
    assert not [layer.name for layer in layers if "N=" in layer.name]
    assert len({layer.name for layer in layers}) == len(layers)


# Statistics


@pytest.mark.parametrize(
    ("count", "rank"), [(1, 1), (5, 1), (6, 1), (8, 1), (9, 2), (12, 3), (15, 4), (25, 8), (50, 18)]
)
def test_the_interval_is_made_of_the_right_order_statistics(count: int, rank: int) -> None:
    values = list(range(1, count + 1))
    random.Random(1).shuffle(values)
    found = estimate_median([float(value) for value in values])
    assert found == Estimate((count + 1) / 2, float(rank), float(count + 1 - rank))


def test_the_interval_holds_the_median_as_often_as_it_says() -> None:
    source = np.random.default_rng(2)
    held = 0
    for _ in range(2000):
        found = estimate_median(list(source.lognormal(size=15)))
        held += found.low <= 1 <= found.high
    assert 0.95 <= held / 2000 <= 0.99  # 96.5 %: 15 values have no interval nearer to 95 % that is not below it


def test_the_geometric_mean_is_of_medians() -> None:
    found = estimate_geometric_mean([[2.0] * 9, [8.0] * 9])
    assert (found.value, found.low, found.high) == pytest.approx((4, 4, 4))
    found = estimate_geometric_mean([[0.9, 1.0, 1.1, 1.2, 0.8, 1.0, 1.05]])
    assert 0.8 <= found.low < found.value == pytest.approx(1.0)
    assert found.value < found.high <= 1.2


def make_run(error: float) -> Run:
    layer = Layer("x", parse_problem("ic1iw4oc1kw1")[0])
    seconds = Estimate(1e-3, 1e-3, 1e-3)
    raw: dict[str, Any] = {
        "bytes": 1, "bandwidth": 1.0, "arithmetic": [1.0], "plan": "", "schedule": "", "strategy": "direct",
        "specialised": False, "isa": "base", "items": 1, "scratch_bytes": 0,
        "contenders": {OURS: {"repeats": 1, "wall": [1e-3], "cpu": [1e-3]}},
    }  # fmt: skip
    result = LayerResult(
        layer, {OURS: Score(None, seconds, 1.0, error)}, 1.0, "arithmetic", 1.0, Estimate(1, 1, 1), raw=raw
    )
    settings = Settings("f32", "NXC", 1, 6, 0.0, ())
    facts = {
        "numpy": "2", "peers": {}, "row": "base", "arithmetic": 1.0, "bandwidth": {"memory": 1.0}, "caches": {},
        "call_microseconds": {"plan": 1.0, "operation": 1.0},
    }  # fmt: skip
    return Run("t", False, settings, False, {}, facts, (result,))


def test_a_wrong_gradient_is_called_wrong() -> None:
    assert not make_run(LARGEST_ERROR["f32"]).wrong
    for error in (2 * LARGEST_ERROR["f32"], math.nan, math.inf):
        run = make_run(error)
        assert [result.layer.name for result in run.wrong] == ["x"]
        assert make_document(run)["summary"]["wrong"] == ["x"]


# What oneDNN 3.2 is kept from


def test_what_ends_onednns_process_is_not_asked() -> None:
    problem = parse_problem("ic2iw8oc2kw3")[0]
    with pytest.raises(UnavailableError, match="f16 needs a CPU with f16 arithmetic"):
        check_supported(make_operands(problem, "f16", "NXC", transposed=False), frozenset({"avx2", "avx512f"}))
    check_supported(make_operands(problem, "f16", "NXC", transposed=False), frozenset({"avx512_fp16"}))
    # Rows that no window reaches, a stride of them: src of the convolution goes on behind the last window.
    unread = replace(problem, strides=(1,), input=(9,), output=(6,), pads_end=(0,))
    assert unread.transposed_pads() == ((0,), (1,))
    with pytest.raises(UnavailableError, match="output_padding of a stride or more"):
        check_supported(make_operands(unread, "f32", "NXC", transposed=True), frozenset())
    check_supported(make_operands(unread, "f32", "NXC", transposed=False), frozenset())


# Whole runs


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("bench-cache") / "convgrad"


def run(cache: Path, *arguments: str, **changes: str) -> subprocess.CompletedProcess[str]:
    ours = ("CONVGRAD_", "FORCE_COLOR", "NO_COLOR", "COLUMNS", "CC", "OMP_")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(ours)}
    environment = {**kept, "PYTHONPATH": ROOT, "CONVGRAD_CACHE_DIR": str(cache), **changes}
    return subprocess.run(
        [sys.executable, "-m", "convgrad", "bench", *arguments],
        env=environment,
        capture_output=True,
        text=True,
        encoding="utf-8",
        timeout=240,
        check=False,
    )


QUICK = ("--repeat", "6", "--seconds", "0.05")


@pytest.mark.extra  # the picture
def test_a_run_without_peers_prints_and_writes_everything(cache: Path, tmp_path: Path) -> None:
    document_path, picture = tmp_path / "out.json", tmp_path / "out.png"
    drawing = ("--plot", str(picture)) if find_spec("matplotlib") is not None else ()
    done = run(cache, "--shape", TINY, "--no-peers", *QUICK, "--json", str(document_path), *drawing)
    assert done.returncode == 0, done.stderr
    for text in ("tiny", "roofs:", "convgrad", "a call from Python", "% of"):
        assert text in done.stdout
    document = json.loads(document_path.read_text("utf-8"))
    assert document["format"] == 1
    assert document["settings"]["peers"] == []
    assert set(document["machine"]) >= {"cpu", "compiler", "compiler_flags", "python"}
    assert document["roofs"]["flops_per_second"] > 1e8
    assert min(document["roofs"]["bytes_per_second"].values()) > 1e8
    (layer,) = document["layers"]
    problem = parse_problem(TINY)[0]
    assert (layer["problem"], layer["flops"]) == (str(problem), problem.flops)
    assert layer["ratio_to_the_better_peer"] is None
    ours = layer["contenders"]["convgrad"]
    assert len(ours["cpu_samples"]) == len(ours["wall_samples"]) >= 6
    assert 0 < ours["seconds"]["low"] <= ours["seconds"]["value"] <= ours["seconds"]["high"] < 0.1
    assert ours["error"] <= LARGEST_ERROR["f32"]
    assert ours["gflops"] == pytest.approx(1e-9 * problem.flops / ours["seconds"]["value"])
    assert 0 < layer["percent_of_roof"]["value"] < 120
    if drawing:
        assert picture.read_bytes().startswith(b"\x89PNG")
        assert picture.stat().st_size > 20_000


@pytest.mark.parametrize("any_size", [False, True], ids=["specialised", "any-size"])
def test_either_kernel_is_measured_and_the_document_says_which(cache: Path, any_size: bool) -> None:
    options = ("--any-size",) if any_size else ()
    # What the environment says of specialised kernels does not matter here.
    mode = "wait" if any_size else "never"
    shape = ("--shape", TINY, "--no-peers")
    done = run(cache, *shape, *QUICK, *options, "--json", "-", CONVGRAD_SPECIALIZE=mode)
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    assert document["settings"]["any_size"] is any_size
    (layer,) = document["layers"]
    assert layer["specialised"] is not any_size
    assert layer["strategy"] in ("outer", "lanes")
    assert ("any size" if any_size else "specialised") in layer["schedule"]
    assert layer["schedule"] == layer["contenders"]["convgrad"]["remark"]


def has_onednn() -> bool:
    return Path(sys.prefix, "lib", "libdnnl.so.3").exists()


@pytest.mark.extra
@pytest.mark.skipif(find_spec("torch") is None or not has_onednn(), reason="torch or oneDNN is not installed")
@pytest.mark.parametrize(
    "options",
    [
        (),
        ("--layout", "NCX+XIO", "--batch", "3"),
        ("--layout", "NXC+OIX", "--threads", "2"),
        ("--transposed", "--layout", "NCX"),
        ("--dtype", "bf16"),
        ("--dtype", "f16", "--layout", "NCX"),
    ],
    ids=" ".join,
)
def test_a_run_with_peers_agrees_with_them(cache: Path, tmp_path: Path, options: tuple[str, ...]) -> None:
    shapes = [TINY, "ic4iw30oc6kw3sw2dw1pw2", "g4ic4id5oc4kd3pd1"]
    arguments = [part for shape in shapes for part in ("--shape", shape)]
    done = run(cache, *arguments, *QUICK, *options, "--json", "-")
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    assert document["versions"]["torch"] is not None
    assert document["versions"]["onednn"].startswith("3.")
    limit = LARGEST_ERROR[document["settings"]["dtype"]]
    compared = 0
    for layer in document["layers"]:
        for name, contender in layer["contenders"].items():
            if "absent" in contender:
                assert (name, contender["absent"]) == ("onednn", "f16 needs a CPU with f16 arithmetic")
                continue
            assert contender["error"] <= limit, (layer["name"], name)
            compared += 1
        assert layer["ratio_to_the_better_peer"]["low"] > 0
        assert layer["better_peer"] in ("torch", "onednn")
    assert compared >= 6
    assert document["call_microseconds"]["torch"] > 0


def test_a_peer_that_is_not_installed_is_said_to_be(cache: Path, tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text("import sys\nsys.modules['torch'] = None\n")
    path = os.pathsep.join((str(tmp_path), ROOT))
    done = run(cache, "--shape", TINY, *QUICK, "--json", "-", PYTHONPATH=path, CONVGRAD_LIBDNNL="/no/such/libdnnl.so")
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    contenders = document["layers"][0]["contenders"]
    assert contenders["torch"] == {"absent": "not installed"}
    assert contenders["onednn"]["absent"].startswith("cannot be loaded: ")
    assert document["layers"][0]["better_peer"] is None
    assert document["versions"]["torch"] is None


@pytest.mark.skipif(shutil.which("gcc") is None, reason="gcc is not installed")
@pytest.mark.parametrize("place", ["dnnl_engine_create", "dnnl_graph_op_create"])
def test_a_peer_that_ends_the_process_is_left_out_and_named(cache: Path, tmp_path: Path, place: str) -> None:
    # Stands in for the library: some of its calls succeed, one ends the process.
    source = tmp_path / "fake.c"
    names = ("dnnl_engine_create", "dnnl_stream_create", "dnnl_graph_logical_tensor_init_with_strides",
             "dnnl_graph_op_create")  # fmt: skip
    functions = "".join(f"int {name}(void) {{ {'abort();' if name == place else ''} return 0; }}\n" for name in names)
    source.write_text(
        "#include <stdlib.h>\n"
        "static const struct { int major, minor, patch; const char *hash; unsigned a, b; } found = {3, 2};\n"
        f"const void *dnnl_version(void) {{ return &found; }}\n{functions}"
    )
    library = tmp_path / "libfake.so"
    subprocess.run(["gcc", "-shared", "-fPIC", "-o", str(library), str(source)], check=True)
    shapes = ("--shape", TINY, "--shape", "ic1iw8oc1kw3")
    done = run(cache, *shapes, *QUICK, "--peer", "onednn", "--json", "-", CONVGRAD_LIBDNNL=str(library))
    assert done.returncode == 0, done.stderr
    layers = json.loads(done.stdout)["layers"]
    assert len(layers) == 2
    for layer in layers:
        assert layer["contenders"]["onednn"] == {"absent": "ended the process (SIGABRT)"}
        assert layer["contenders"]["convgrad"]["gflops"] > 0


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["--suite", "resnet51"], "resnet51"),
        (["--shape", "ic3ih8oc4kh"], "kh has no number"),
        (["--dtype", "f64"], "f64"),
        (["--layout", "nchw"], "NXC+OIX"),
        (["--threads", "0"], "--threads"),
        (["--batch", "0"], "--batch"),
        (["--repeat", "5"], "--repeat"),
        (["--peer", "cudnn"], "cudnn"),
        (["--json", "/no/such/folder/x.json"], "/no/such/folder"),
        (["--plot", "/no/such/folder/x.png"], "/no/such/folder"),
    ],
)
def test_wrong_usage_is_exit_code_2(tmp_path: Path, arguments: list[str], named: str) -> None:
    done = run(tmp_path / "cache", *arguments, COLUMNS="200")
    assert done.returncode == 2, done.stderr
    assert named in done.stderr
    assert done.stdout == ""
    assert not (tmp_path / "cache").exists()


def test_a_layer_that_does_not_fit_into_memory_is_skipped(cache: Path) -> None:
    done = run(cache, "--shape", "mb1000000ic1000ih1000oc1000kh3", "--no-peers", *QUICK, "--json", "-")
    assert done.returncode == 0, done.stderr
    (layer,) = json.loads(done.stdout)["layers"]
    assert "GiB, more than" in layer["skipped"]


@pytest.mark.parametrize("measured", [0, 1, 2])
def test_an_interrupt_leaves_what_was_measured(measured: int, monkeypatch: pytest.MonkeyPatch) -> None:
    class Worker:
        facts: ClassVar[dict[str, Any]] = {}

        def __init__(self, _: Settings) -> None:
            self.left = measured

        def __enter__(self) -> Worker:
            return self

        def __exit__(self, *_: object) -> None: ...

        def measure(self, _: Layer) -> dict[str, Any]:
            self.left -= 1
            if self.left < 0:
                raise KeyboardInterrupt
            return {"skipped": "for a test"}

    monkeypatch.setattr(session, "_Worker", Worker)
    settings = Settings("f32", "NXC", 1, 6, 0.1, (), False)
    layers = [Layer(str(number), parse_problem(TINY)[0]) for number in range(3)]
    if measured == 0:
        with pytest.raises(KeyboardInterrupt):
            session.measure_layers("A title", layers, settings, network=True, transposed=False)
        return
    run = session.measure_layers("A title", layers, settings, network=True, transposed=False)
    assert run.title == f"A title (interrupted: {measured} of 3 layers)"
    assert len(run.results) == measured and not run.network


def test_a_missing_compiler_is_exit_code_3(tmp_path: Path) -> None:
    done = run(tmp_path / "cache", "--shape", TINY, "--no-peers", CONVGRAD_CC="/no/such/cc")
    assert done.returncode == 3
    assert "CONVGRAD_CC" in done.stderr
    assert "Traceback" not in done.stderr


def test_the_list_names_every_suite(tmp_path: Path) -> None:
    done = run(tmp_path / "cache", "--list")
    assert done.returncode == 0
    for name in SUITES:
        assert name in done.stdout
    assert not (tmp_path / "cache").exists()


def test_numbers_stay_inside_64_bits() -> None:
    problem = parse_problem("mb999999999ic1ih999999999oc1kh1")[0]
    assert problem.products == 999999999**3 > INT64_MAX  # the count is exact, however large


@pytest.mark.parametrize(
    ("threads", "load", "crowded"), [(1, 9.0, False), (2, 0.2, False), (2, 1.2, True), (4, 0.0, False)]
)
def test_neighbours_are_mentioned_where_they_count(threads: int, load: float, crowded: bool) -> None:
    done = make_run(0.0)
    busy = replace(
        done, settings=replace(done.settings, threads=threads), machine={"cpus": max(2, threads), "load": [load]}
    )
    assert busy.crowded is crowded
