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
        "made_up.toml: rules[groups_divide_input_channels].formula: not a formula",
        "made_up.toml: outputs[diff_weights].type: there is no type variable 'Q'",
        "made_up.toml: decisions[3].sources: document '999' is not among the sources",
    )
    for start in expected:
        assert any(problem.startswith(start) for problem in problems), (start, problems)
    assert len(problems) == len(expected)


def test_a_wrong_entry_hides_nothing_and_invents_nothing(data: Data) -> None:
    data["attributes"][0]["kindd"] = "s64"
    data["attributes"][8]["kind"] = "words"
    data["rules"][0]["subject"] = "weights"
    del data["readings"][0]["layouts"]["IOX"]
    data["examples"][0]["attributes"]["pad"] = 1
    assert set(problems_of(data)) == {
        "made_up.toml: attributes[strides].kindd: Extra inputs are not permitted",
        "made_up.toml: attributes[weights_format].kind: Input should be 's64', 's64[]' or 'string'",
        "made_up.toml: rules[groups_divide_input_channels].subject: there is no attribute or input 'weights'",
        "made_up.toml: readings[document].layouts: lays out ['XOI'], but the attribute allows ['IOX', 'XOI']",
        "made_up.toml: examples[0].attributes.pad: there is no such attribute",
    }


def entries_of(data: Data) -> list[tuple[str, int]]:
    sections = (name for name, value in data.items() if isinstance(value, list))
    return [(section, place) for section in sections for place in range(len(data[section]))]


def test_one_wrong_entry_is_one_error(data: Data) -> None:
    """Whatever is wrong inside an entry, only that is reported: not what others no longer find in it."""
    wrong = 0
    for section, place in entries_of(data):
        for key in [*data[section][place], None]:
            changed = copy.deepcopy(data)
            if key is None:
                changed[section][place]["bogus"] = 1
            else:
                changed[section][place][key] = {"no": {"such": ["thing"]}}
            problems = problems_of(changed)
            fields = {problem.split(": ")[1].split("].")[-1].split(".")[0] for problem in problems}
            assert fields == {key or "bogus"}, (section, place, key, problems)
            wrong += 1
    assert wrong > 150


def test_one_misspelt_key_is_no_more_than_that(data: Data) -> None:
    wrong = 0
    for section, place in entries_of(data):
        for key in data[section][place]:
            changed = copy.deepcopy(data)
            changed[section][place][key + "x"] = changed[section][place].pop(key)
            problems = problems_of(changed)
            assert all(".".join(("", key)) in problem for problem in problems), (section, place, key, problems)
            assert len(problems) <= 2, problems
            wrong += 1
    assert wrong > 150


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
        lambda d: d["attributes"][5].update(required=True),
        "attributes[output_padding].default: a required attribute has no default",
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
    ("no shape of the weights", lambda d: d["attributes"].pop(9), "no attribute has the role 'weights_shape'"),
    (
        "data of a shape's type",
        lambda d: d["type_variables"][0].update(types=["f32", "s32"]),
        "inputs[src].type: 'T' includes 's32'; src may be ['f32', 'bf16', 'f16']",
    ),
    (
        "a shape of a data type",
        lambda d: d["type_variables"][1].update(types=["f32"]),
        "inputs[weights_shape].type: 'S' includes 'f32'; weights_shape may be ['s32']",
    ),
    (
        "data of two types",
        lambda d: [d["type_variables"].append({"name": "U", "types": ["f32"]}), d["inputs"][1].update(type="U")],
        "inputs[diff_dst].type: all data tensors have one type, 'T', not 'U'",
    ),
    ("twice the same type", lambda d: d["type_variables"][0].update(types=["f32", "f32"]), "a type is there twice"),
    (
        "an example of no type",
        lambda d: d["examples"][0].update(type="f64"),
        "examples[0].type: expected one of ['f32', 'bf16', 'f16'], not 'f64'",
    ),
    (
        "an example's layout",
        lambda d: d["examples"][0]["attributes"].update(data_format="ABC"),
        "examples[0].attributes.data_format: 'ABC' is not one of the words ['NCX', 'NXC']",
    ),
    (
        "an example's word for a list",
        lambda d: d["examples"][0]["attributes"].update(strides="two"),
        "examples[0].attributes.strides: expected a list of positive integers, not 'two'",
    ),
    (
        "an example's list for a number",
        lambda d: d["examples"][0]["attributes"].update(groups=[2]),
        "examples[0].attributes.groups: expected a positive integer, not (2,)",
    ),
    (
        "an example's negative entry",
        lambda d: d["examples"][0]["attributes"].update(pads_end=[0, -1]),
        "examples[0].attributes.pads_end: expected a non-negative integer for each axis, not -1",
    ),
    (
        "an example's number of entries",
        lambda d: d["examples"][0]["attributes"].update(dilations=[1]),
        "examples[0].attributes.dilations: expected 2 entries, not 1",
    ),
    (
        "an example on four axes",
        lambda d: d["examples"][0]["attributes"].update(strides=[1, 1, 1, 1]),
        "examples[0].attributes.strides: expected 1, 2 or 3 entries, not 4",
    ),
    (
        "an example without strides",
        lambda d: d["examples"][0]["attributes"].pop("strides"),
        "examples[0].attributes: strides is required",
    ),
    (
        "an example without pads",
        lambda d: d["examples"][0]["attributes"].pop("pads_end"),
        "examples[0].attributes: pads_end is required",
    ),
    (
        "an example's number of axes",
        lambda d: d["examples"][0]["shapes"]["src"].pop(),
        "examples[0].shapes.src: expected 4 axes, not 3",
    ),
    (
        "an example's empty tensor",
        lambda d: d["examples"][0]["shapes"]["src"].__setitem__(3, 0),
        "examples[0].shapes.src: expected extents of at least 1",
    ),
    (
        "a layout without default",
        lambda d: d["attributes"][7].pop("default"),
        "attributes[data_format].default: an optional attribute has a default",
    ),
    (
        "a weights layout without default",
        lambda d: d["attributes"][8].pop("default"),
        "attributes[weights_format].default: an optional attribute has a default",
    ),
    (
        "groups without default",
        lambda d: d["attributes"][6].pop("default"),
        "attributes[groups].default: an optional attribute has a default",
    ),
    (
        "groups that are required",
        lambda d: [d["attributes"][6].pop("default"), d["attributes"][6].update(required=True)],
        "attributes[groups].required: an attribute of kind 's64' is optional, with a default",
    ),
    (
        "a default that is no number",
        lambda d: d["attributes"][6].update(default="one"),
        "attributes[groups].default: expected a positive integer, not 'one'",
    ),
    (
        "a default out of range",
        lambda d: d["attributes"][6].update(default=-3),
        "attributes[groups].default: expected a positive integer, not -3",
    ),
    (
        "a default beyond 64 bits",
        lambda d: d["attributes"][6].update(default=2**63),
        "attributes[groups].default: expected a positive integer, not 9223372036854775808",
    ),
    (
        "a list's default that is no number",
        lambda d: d["attributes"][5].update(default="0"),
        "attributes[output_padding].default: expected a non-negative integer for each axis, not '0'",
    ),
    (
        "a default that is a truth value",
        lambda d: d["attributes"][5].update(default=True),
        "attributes[output_padding].default: Input should be a valid string, or: Input should be a valid integer",
    ),
    (
        "strides that may be left out",
        lambda d: d["attributes"][0].update(required=False, default=1),
        "attributes[strides].required: an attribute in the role 'strides' is required",
    ),
    (
        "dilations that may be left out",
        lambda d: d["attributes"][3].update(required=False, default=1),
        "attributes[dilations].required: an attribute in the role 'dilations' is required",
    ),
    (
        "dilations that are ignored",
        lambda d: d["attributes"][3].update(ignored_when={"attribute": "auto_pad", "unless": "none"}),
        "attributes[dilations].ignored_when: only pads are ignored",
    ),
    (
        "pads that count for another word",
        lambda d: d["attributes"][1]["ignored_when"].update(unless="valid"),
        "attributes[pads_begin].ignored_when: pads are ignored unless",
    ),
    (
        "a shape that is required",
        lambda d: d["attributes"][9].update(required=True),
        "attributes[weights_shape].required: the shape of the weights may come from an input",
    ),
    (
        "a shape with a default",
        lambda d: d["attributes"][9].update(default=3),
        "attributes[weights_shape].default: the shape of the weights has no default",
    ),
    (
        "strides of zero",
        lambda d: d["attributes"][0].update(range="non-negative"),
        "attributes[strides].range: an attribute in the role 'strides' is positive",
    ),
    (
        "strides along the weights",
        lambda d: d["attributes"][0].update(length="weights"),
        "attributes[strides].length: an attribute in the role 'strides' has the length 'spatial'",
    ),
    (
        "an unknown way to pad",
        lambda d: d["attributes"][4].update(words=["none", "same"]),
        "attributes[auto_pad].words: expected 'none' and others of ['none', 'same_upper', 'same_lower', 'valid']",
    ),
    (
        "no way without padding",
        lambda d: d["attributes"][4].update(words=["valid"], default="valid"),
        "attributes[auto_pad].words: expected 'none' and others of",
    ),
    ("twice the same word", lambda d: d["attributes"][7].update(words=["NCX", "NCX"]), "a word is there twice"),
    (
        "capitals in any case",
        lambda d: d["attributes"][7].update(any_case=True),
        "attributes[data_format].any_case: words that are accepted in any case are written in lower case",
    ),
    (
        "a definition used too early",
        lambda d: d["definitions"].insert(0, {**d["definitions"][0], "symbol": "far", "formula": "eff + I"}),
        "definitions[far].formula: 'eff' is used before it is defined",
    ),
    (
        "a definition by itself",
        lambda d: d["definitions"][0].update(formula="eff + 1"),
        "definitions[eff].formula: 'eff' is defined by itself",
    ),
    (
        "a definition of a call from an axis",
        lambda d: d["definitions"][1].update(formula="IC // eff"),
        "definitions[ICg].formula: unknown symbol 'eff'",
    ),
    (
        "a definition from padding",
        lambda d: d["definitions"][0].update(formula="K + pb"),
        "definitions[eff].formula: unknown symbol 'pb'",
    ),
    (
        "padding from padding",
        lambda d: d["padding"].update(same_total="pb + 1"),
        "padding.same_total: unknown symbol 'pb'",
    ),
    (
        "a rule of a call with a definition",
        lambda d: d["rules"][0].update(formula="ICg * groups == IC"),
        "rules[groups_divide_input_channels].formula: unknown symbol 'ICg'",
    ),
    (
        "a second meaning",
        lambda d: d["definitions"].append({**d["definitions"][0], "symbol": "K", "formula": "3"}),
        "definitions[K].symbol: 'K' has a meaning already",
    ),
    (
        "a keyword for a symbol",
        lambda d: d["definitions"].append({**d["definitions"][0], "symbol": "lambda", "formula": "3"}),
        "definitions[lambda].symbol: 'lambda' is a keyword of Python",
    ),
    (
        "padding over zero",
        lambda d: d["padding"].update(same_total="I // 0"),
        "padding.same_total: 'I // 0' divides by zero with I = 1",
    ),
    (
        "a rule over zero",
        lambda d: d["rules"][2].update(formula="O == I % (s - s)"),
        "rules[output_size].formula: 'O == I % (s - s)' divides by zero with O = 1, I = 1, s = 1",
    ),
    (
        "a definition over what may be zero",
        lambda d: d["definitions"][0].update(formula="K // (s - 2)"),
        "definitions[eff].formula: 'K // (s - 2)' divides by zero with K = ",
    ),
    (
        "a remedy over zero",
        lambda d: d["rules"][2]["remedy"].update(formula="I // 0"),
        "rules[output_size].remedy.formula: 'I // 0' divides by zero with I = ",
    ),
    (
        "padding below zero",
        lambda d: d["padding"].update(same_total="eff - s"),
        "padding.same_total: 'eff - s' is below zero with eff = 1, s = ",
    ),
    (
        "groups that need not divide",
        lambda d: d["rules"].pop(1),
        "rules: no rule of the call refuses OC that groups does not divide with OC = ",
    ),
    ("a function without arguments", lambda d: d["padding"].update(same_total="max + 1"), "max is a function"),
    ("the largest of one", lambda d: d["padding"].update(same_total="max(I)"), "max takes two numbers or more"),
    ("a comment in a formula", lambda d: d["padding"].update(same_total="I # all"), "expected one line of ASCII"),
    (
        "an attribute called by a keyword",
        lambda d: d["attributes"][6].update(name="lambda"),
        "attributes[lambda].name: 'lambda' is a keyword of Python",
    ),
    *(
        (
            f"an attribute called {name}",
            lambda d, name=name: d["attributes"][6].update(name=name),
            f"attributes[{name}].name: {name!r} means something else in generated functions",
        )
        for name in ("self", "out", "accumulate", "num_threads", "dtype", "out_dtype", "tensor")
    ),
    (
        "an input called by a keyword",
        lambda d: d["inputs"][0].update(name="import"),
        "inputs[import].name: 'import' is a keyword of Python",
    ),
    (
        "an output called self",
        lambda d: d["outputs"][0].update(name="self"),
        "outputs[self].name: 'self' means something else",
    ),
    (
        "an input called like an attribute",
        lambda d: d["inputs"][0].update(name="groups"),
        "inputs[groups].name: 'groups' is the name of an attribute too",
    ),
    (
        "an output called like an input",
        lambda d: d["outputs"][0].update(name="src"),
        "outputs[src]: 'src' is there twice",
    ),
    (
        "an attribute called like the operation",
        lambda d: d["attributes"][6].update(name=d["name"]),
        "is the name of the operation too",
    ),
    ("an output called like the operation", lambda d: d["outputs"][0].update(name=d["name"]), "of the operation too"),
    ("an operation called None", lambda d: d.update(name="None", versioned_name="None"), "name: 'None' means"),
    ("an operation called Import", lambda d: d.update(name="Import", versioned_name="Import"), "name: 'Import' means"),
    ("an operation called Plan", lambda d: d.update(name="Plan", versioned_name="Plan"), "name: 'Plan' means"),
    (
        "a shape input of another name",
        lambda d: d["inputs"][2].update(name="shape"),
        "inputs[shape].name: expected 'weights_shape'",
    ),
    (
        "an input that overrides strides",
        lambda d: d["inputs"][2].update(overrides="strides", name="strides"),
        "inputs[strides].overrides: expected the attribute in the role 'weights_shape', not 'strides'",
    ),
    (
        "an input for nothing",
        lambda d: d["inputs"][2].pop("overrides"),
        "inputs[weights_shape].overrides: an input that carries no data names the attribute it overrides",
    ),
    (
        "the weights' layout for data",
        lambda d: d["inputs"][0].update(layout="weights_format"),
        "inputs[src].layout: expected the attribute in the role 'data_format', not 'weights_format'",
    ),
    ("unknown channels", lambda d: d["inputs"][0].update(channels="C"), "expected one of ['IC', 'OC'], not 'C'"),
    ("another one's positions", lambda d: d["inputs"][0].update(spatial="O"), "expected 'I' beside 'IC', not 'O'"),
    (
        "twice the same channels",
        lambda d: d["inputs"][1].update(channels="IC", spatial="I"),
        "inputs: both data inputs have the channels 'IC'",
    ),
    (
        "both channels divided",
        lambda d: d["readings"][0]["sum"]["gradient"].update(oc="OC/groups"),
        "readings[document].sum.gradient: expected one whole channel axis",
    ),
    (
        "a sum over the wrong extent",
        lambda d: d["readings"][0]["sum"]["over"].update(i="O"),
        "readings[document].sum.over.i: expected 'I', the extent of src",
    ),
    (
        "a group of nothing",
        lambda d: d["readings"][0]["sum"]["where"].update(g="q // OCg"),
        "readings[document].sum.where.g: unknown index 'q'",
    ),
    (
        "an index that is a symbol",
        lambda d: d["readings"][0]["sum"]["where"].update(s="oc"),
        "readings[document].sum: the index 's' is a symbol with another meaning",
    ),
    ("twice the same source", lambda d: d["sources"].append(d["sources"][0]), "'002' is there twice"),
    (
        "another operation's version",
        lambda d: d.update(versioned_name="ConvTransposeBackpropFilters-1"),
        "versioned_name: expected 'ConvTransposeBackwardWeights' or 'ConvTransposeBackwardWeights-<number>'",
    ),
    (
        "a version that is no number",
        lambda d: d.update(versioned_name="ConvTransposeBackwardWeights-x"),
        "versioned_name: expected 'ConvTransposeBackwardWeights' or",
    ),
    ("its own counterpart", lambda d: d.update(counterpart=d["name"]), "an operation is not its own counterpart"),
    (
        "a control character in a sentence",
        lambda d: d["attributes"][0].update(sentence="Step\x00 of the kernel."),
        "attributes[strides].sentence: expected one line of printable text, which '\\x00' is not",
    ),
    (
        "a line break in a title",
        lambda d: d["sources"][0].update(title="One\ntwo"),
        "sources[002].title: expected one line of printable text, which '\\n' is not",
    ),
    (
        "a line separator in the description",
        lambda d: d.update(description="One\u2028two"),
        "description: expected one line of printable text, which '\\u2028' is not",
    ),
    (
        "half a character",
        lambda d: d.update(summary="Gradient \ud800"),
        "summary: expected one line of printable text, which '\\uffff' is not",
    ),
    (
        "a date",
        lambda d: d.update(summary=tomllib.loads("day = 2020-01-01")["day"]),
        "summary: Input should be a valid string",
    ),
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


def test_names_that_differ_in_case_only(tmp_path: Path, data: Data) -> None:
    del data["counterpart"]
    for name in ("ConvolutionGradient", "ConvolutionGRADIENT"):
        (tmp_path / f"{name}.json").write_text(json.dumps({**data, "name": name, "versioned_name": name}))
    with pytest.raises(SpecFileError, match="'ConvolutionGradient' differs from 'ConvolutionGRADIENT' only in"):
        load_operations(tmp_path)


def test_a_counterpart_is_in_the_folder(tmp_path: Path, data: Data) -> None:
    file = tmp_path / "alone.json"
    file.write_text(json.dumps(data))
    assert load_operation(file).counterpart == "ConvTransposeBackpropFilters"
    with pytest.raises(SpecFileError) as caught:
        load_operations(tmp_path)
    message = f"{file}: counterpart: no file of this folder describes 'ConvTransposeBackpropFilters'"
    assert caught.value.problems == (message,)
    # A counterpart whose own file is wrong is there all the same.
    other = tmp_path / "other.toml"
    other.write_text((OPERATIONS / "conv_transpose_backprop_filters.toml").read_text() + "bogus = 1\n")
    with pytest.raises(SpecFileError) as caught:
        load_operations(tmp_path)
    assert [problem.split(": ")[0] for problem in caught.value.problems] == [str(other)]
    other.write_text("name = ")
    with pytest.raises(SpecFileError) as caught:
        load_operations(tmp_path)
    assert [problem.split(": ")[0] for problem in caught.value.problems] == [str(other)]


@pytest.mark.parametrize("operation", load_operations(), ids=lambda operation: operation.name)
def test_every_operation_is_complete(operation: Operation) -> None:
    assert operation.attribute("weights_shape") is not None
    assert operation.shape_input is not None and not operation.shape_input.required
    assert [tensor.index for tensor in operation.inputs] == [operation.index_base + place for place in range(3)]
    assert len(operation.decisions) >= 11
    assert {variable.name: variable.types for variable in operation.type_variables}["T"] == ("f32", "bf16", "f16")
    assert (operation.attribute("output_padding") is not None) == ("Transpose" in operation.name)
    assert len(operation.readings) == (2 if operation.name == "ConvTransposeBackwardWeights" else 1)
