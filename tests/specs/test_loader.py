# SPDX-License-Identifier: Apache-2.0
"""Operation files: the identity of load and dump, closed and frozen models, and all errors of a file at once."""

from __future__ import annotations

import copy
import json
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from specs.loader import OPERATIONS, SpecFileError, dump_operation, load_operation, load_operations, operation_from_data
from specs.model import Operation

FILES = sorted(OPERATIONS.glob("*.toml"))
Data = dict[str, Any]


@pytest.fixture
def data() -> Data:
    return tomllib.loads((OPERATIONS / "conv_transpose_backward_weights.toml").read_text())


def problems_of(data: Data) -> tuple[str, ...]:
    with pytest.raises(SpecFileError) as caught:
        operation_from_data(data, "made_up.toml")
    return caught.value.problems


def test_the_four_operations_are_there() -> None:
    assert [operation.name for operation in load_operations()] == [
        "ConvTransposeBackpropFilters",
        "ConvTransposeBackwardWeights",
        "ConvolutionBackpropFilters",
        "ConvolutionBackwardWeights",
    ]
    assert len(FILES) == 4


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_load_dump_load_is_the_identity(path: Path, tmp_path: Path) -> None:
    operation = load_operation(path)
    dumped = tmp_path / "operation.json"
    dumped.write_text(dump_operation(operation))
    again = load_operation(dumped)
    assert again == operation
    assert dump_operation(again) == dump_operation(operation)


def test_models_are_frozen() -> None:
    operation = load_operation(FILES[0])
    with pytest.raises(ValidationError, match="frozen"):
        operation.name = "Other"
    with pytest.raises(ValidationError, match="frozen"):
        operation.attributes[0].name = "other"


def test_all_errors_of_a_file_come_at_once(data: Data) -> None:
    data["bogus"] = 1
    data["attributes"][0]["kindd"] = "s64"
    data["attributes"][1]["kind"] = "s32"
    data["rules"][0]["formula"] = "IC ** 2 == 4"
    data["outputs"][0]["type"] = "Q"
    data["decisions"][1]["sources"] = ["999"]
    problems = problems_of(data)
    expected = (
        "made_up.toml: bogus: Extra inputs are not permitted",
        "made_up.toml: attributes[strides].kindd: Extra inputs are not permitted",
        "made_up.toml: attributes[pads_begin].kind: Input should be 's64', 's64[]' or 'string'",
        "made_up.toml: rules[groups_divide_input_channels].formula: Value error, not a formula",
        "made_up.toml: outputs[diff_weights].type: there is no type variable 'Q'",
        "made_up.toml: decisions[3].sources: document '999' is not among the sources",
    )
    for start in expected:
        assert any(problem.startswith(start) for problem in problems), (start, problems)
    assert len(problems) == len(expected)


Edit = Callable[[Data], object]

CONTRADICTIONS: tuple[tuple[str, Edit, str], ...] = (
    ("twice the same attribute", lambda d: d["attributes"].append(d["attributes"][0]), "'strides' is there twice"),
    ("a role nobody plays", lambda d: d["attributes"].pop(0), "no attribute has the role 'strides'"),
    ("a list without length", lambda d: d["attributes"][0].pop("length"), "a list has a length"),
    ("a number without range", lambda d: d["attributes"][0].pop("range"), "numbers have a range"),
    ("a string without words", lambda d: d["attributes"][4].update(words=[]), "a string lists its words"),
    (
        "a default that is no word",
        lambda d: d["attributes"][4].update(default="same"),
        "'same' is not one of the words",
    ),
    (
        "required with default",
        lambda d: d["attributes"][6].update(required=True),
        "a required attribute has no default",
    ),
    ("an unknown layout", lambda d: d["attributes"][7].update(words=["XNC", "NXC"]), "data layouts are"),
    (
        "ignored by nobody",
        lambda d: d["attributes"][1]["ignored_when"].update(attribute="padding"),
        "there is no attribute 'padding'",
    ),
    (
        "ignored unless no word",
        lambda d: d["attributes"][1]["ignored_when"].update(unless="never"),
        "'never' is not a word of 'auto_pad'",
    ),
    ("a wrong kind for a role", lambda d: d["attributes"][6].update(kind="string"), "is 's64', not 'string'"),
    ("a gap in the inputs", lambda d: d["inputs"][1].update(index=5), "expected 1, not 5"),
    ("channels without spatial", lambda d: d["inputs"][0].pop("spatial"), "names both its channels and its spatial"),
    ("one data input", lambda d: [d["inputs"][0].pop(k) for k in ("channels", "spatial")], "expected two data inputs"),
    ("an unknown layout attribute", lambda d: d["inputs"][0].update(layout="format"), "there is no attribute 'format'"),
    ("an unknown type", lambda d: d["type_variables"][0].update(types=["f64"]), "'f64' is not a type"),
    ("an unknown symbol", lambda d: d["rules"][2].update(formula="O == Z"), "unknown symbol 'Z'"),
    ("an axis symbol in a call rule", lambda d: d["rules"][0].update(formula="IC >= K"), "unknown symbol 'K'"),
    ("a rule about nothing", lambda d: d["rules"][0].update(subject="weights"), "there is no attribute or input"),
    ("a remedy for nothing", lambda d: d["rules"][2]["remedy"].update(attribute="padding"), "there is no attribute"),
    ("a layout left out", lambda d: d["readings"][0]["layouts"].pop("IOX"), "but the attribute allows"),
    ("axes not those of the sum", lambda d: d["readings"][0]["layouts"].update(IOX=["IC", "OC", "X"]), "not the axes"),
    (
        "a sum over one tensor",
        lambda d: d["readings"][0]["sum"].update(term="src[n, oc, i] * src[n, oc, i * s + k * d - pb]"),
        "expected one factor for each of",
    ),
    (
        "a sum without a window",
        lambda d: d["readings"][0]["sum"].update(term="src[n, oc, i] * diff_dst[n, oc, i]"),
        "the window moves over exactly one",
    ),
    (
        "an unknown index",
        lambda d: d["readings"][0]["sum"].update(term="src[n, q, i] * diff_dst[n, oc, i * s + k * d - pb]"),
        "unknown index 'q'",
    ),
    ("an example of another op", lambda d: d["examples"][0]["shapes"].update(x=[1]), "expected a shape for each of"),
    ("an example's attribute", lambda d: d["examples"][0]["attributes"].update(pad=1), "there is no such attribute"),
    ("no operation name", lambda d: d.update(name="lower"), "String should match pattern"),
    ("a bad axis", lambda d: d["readings"][0]["layouts"].update(IOX=["C", "OC", "X"]), "String should match pattern"),
    ("a number for a word", lambda d: d["attributes"][0].update(required="yes"), "Input should be a valid boolean"),
)


@pytest.mark.parametrize(
    ("edit", "message"), [row[1:] for row in CONTRADICTIONS], ids=[row[0] for row in CONTRADICTIONS]
)
def test_contradictions_are_named(data: Data, edit: Edit, message: str) -> None:
    original = copy.deepcopy(data)
    edit(data)
    assert data != original
    assert any(message in problem for problem in problems_of(data)), problems_of(data)


def test_duplicate_keys_are_errors(tmp_path: Path) -> None:
    toml = tmp_path / "twice.toml"
    toml.write_text('name = "A"\nname = "B"\n')
    with pytest.raises(SpecFileError, match=r"twice\.toml: .*overwrite"):
        load_operation(toml)
    twice = tmp_path / "twice.json"
    twice.write_text('{"name": "A", "name": "B"}')
    with pytest.raises(SpecFileError, match="duplicate key 'name'"):
        load_operation(twice)


def test_files_that_are_no_specification(tmp_path: Path) -> None:
    listing = tmp_path / "list.json"
    listing.write_text("[1]")
    with pytest.raises(SpecFileError, match="expected an object"):
        load_operation(listing)
    with pytest.raises(SpecFileError, match=r"missing\.toml"):
        load_operation(tmp_path / "missing.toml")
    (tmp_path / "empty").mkdir()
    with pytest.raises(SpecFileError, match="no operation files"):
        load_operations(tmp_path / "empty")


def test_all_files_of_a_folder_are_reported(tmp_path: Path, data: Data) -> None:
    for name in ("a", "b"):
        (tmp_path / f"{name}.json").write_text(json.dumps({**data, "bogus": name}))
    with pytest.raises(SpecFileError) as caught:
        load_operations(tmp_path)
    assert [Path(problem.split(":")[0]).name for problem in caught.value.problems] == ["a.json", "b.json"]


def test_two_files_cannot_describe_one_operation(tmp_path: Path, data: Data) -> None:
    for name in ("a", "b"):
        (tmp_path / f"{name}.json").write_text(json.dumps(data))
    with pytest.raises(SpecFileError, match="another file of this folder already describes"):
        load_operations(tmp_path)


@pytest.mark.parametrize("operation", load_operations(), ids=lambda operation: operation.name)
def test_every_operation_is_complete(operation: Operation) -> None:
    assert operation.attribute("weights_shape") is not None
    assert operation.shape_input is not None and not operation.shape_input.required
    assert [tensor.index for tensor in operation.inputs] == [operation.index_base + place for place in range(3)]
    assert len(operation.decisions) >= 11
    assert {variable.name: variable.types for variable in operation.type_variables}["T"] == ("f32", "bf16", "f16")
    assert (operation.attribute("output_padding") is not None) == ("Transpose" in operation.name)
    assert len(operation.readings) == (2 if operation.name == "ConvTransposeBackwardWeights" else 1)
