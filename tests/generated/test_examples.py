# SPDX-License-Identifier: Apache-2.0
"""The documentation tells the truth: every program of the exported Markdown runs, every example has the gradient of
the reference, and every line of the catalogue of errors raises exactly what stands below it.
"""

from __future__ import annotations

import importlib.util
import re
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import ml_dtypes
import numpy as np
import pytest

import convgrad
from reference.specified_operation import specified_gradient
from specs import Operation, load_operations

DOCS = Path(convgrad.__file__).resolve().parents[1] / "docs"
OPERATIONS = {operation.name: operation for operation in load_operations()}

UNIT_ROUNDOFF = {np.dtype(np.float32): 2.0**-24, np.dtype(np.float16): 2.0**-11, np.dtype(ml_dtypes.bfloat16): 2.0**-8}
SUM_BOUND = 32 * 2.0**-24  # of the sum of absolute products, whatever their number

_PROGRAM = re.compile(r"^```python\n(.*?)^```$", re.DOTALL | re.MULTILINE)
_ERROR = re.compile(r"^- (.*) `([^`]+)`\n\n  ```text\n  (\w+): (.*)\n  ```$", re.MULTILINE)


class ErrorEntry(NamedTuple):
    """An entry of the catalogue as the page has it."""

    call: str
    exception: str
    message: str


@cache
def read_page(name: str) -> str:
    return (DOCS / f"{name}.md").read_text(encoding="utf-8")


def programs(name: str) -> list[str]:
    return _PROGRAM.findall(read_page(name))


def section(name: str, anchor: str) -> str:
    """The text of a page from one anchor of a section to the next section."""
    page = read_page(name)
    return re.split(r'\n<a id="\w+"></a>\n\n## ', page[page.index(f'<a id="{anchor}"></a>') :], maxsplit=1)[0]


def error_entries(name: str) -> list[ErrorEntry]:
    return [ErrorEntry(*match[1:]) for match in _ERROR.findall(section(name, "errors"))]


def run(program: str) -> dict[str, Any]:
    namespace: dict[str, Any] = {}
    exec(compile(program, "<documentation>", "exec"), namespace)
    return namespace


PROGRAMS = [
    pytest.param(name, number, id=f"{name}-{number}") for name in OPERATIONS for number in range(len(programs(name)))
]
EXAMPLES = [
    pytest.param(operation, number, id=f"{name}-{number + 1}")
    for name, operation in OPERATIONS.items()
    for number in range(len(operation.examples))
]
ERRORS = [
    pytest.param(name, entry, id=f"{name}-{entry.call}")
    for name in OPERATIONS
    for entry in error_entries(name)
    if "torch." not in entry.call
]
TORCH_ERRORS = [
    pytest.param(name, entry, id=f"{name}-{entry.call}")
    for name in OPERATIONS
    for entry in error_entries(name)
    if "torch." in entry.call
]


@pytest.mark.parametrize("name", OPERATIONS)
def test_nothing_escapes_the_parametrization(name: str) -> None:
    """What the page claims to hold is what these tests take from it."""
    examples = OPERATIONS[name].examples
    assert len(programs(name)) == 3 + len(examples)  # the small example, every way to call it, the start of the errors
    assert section(name, "examples").count("```python") == len(examples) > 0
    claimed = re.search(r"^(\d+) ways to go wrong", section(name, "errors"), re.MULTILINE)
    assert claimed is not None
    assert len(error_entries(name)) == int(claimed[1]) >= 60


@pytest.mark.parametrize(("name", "number"), PROGRAMS)
def test_programs_run(name: str, number: int) -> None:
    run(programs(name)[number])


@pytest.mark.parametrize(("operation", "number"), EXAMPLES)
def test_examples_have_the_gradient_of_the_reference(operation: Operation, number: int) -> None:
    names = _PROGRAM.findall(section(operation.name, "examples"))
    namespace = run(names[number])
    first, second = (namespace[row.name] for row in operation.data_inputs)
    gradient = namespace[operation.outputs[0].name]
    attributes = dict(operation.examples[number].attributes)
    shape_name = next(row.name for row in operation.attributes if row.role == "weights_shape")
    shape = attributes.pop(shape_name)
    assert isinstance(shape, tuple)

    expected = specified_gradient(operation, (first, second), shape, attributes)

    assert gradient.dtype == first.dtype == second.dtype
    error = np.abs(gradient.astype(np.float64) - expected.gradient)
    rounding = UNIT_ROUNDOFF[gradient.dtype] * np.abs(expected.gradient)
    assert np.all(error <= SUM_BOUND * expected.magnitude + rounding)
    assert np.count_nonzero(expected.gradient) > expected.gradient.size // 2


@pytest.mark.parametrize("name", OPERATIONS)
def test_small_example_agrees_with_the_reference(name: str) -> None:
    operation = OPERATIONS[name]
    namespace = run(programs(name)[0])
    first, second = (namespace[row.name] for row in operation.data_inputs)
    settings = dict(re.findall(r"^    (\w+)=(.+),$", programs(name)[0], re.MULTILINE))
    values = {key: eval(text) for key, text in settings.items()}
    shape = values.pop(next(row.name for row in operation.attributes if row.role == "weights_shape"))
    expected = specified_gradient(operation, (first, second), shape, values).gradient
    assert np.array_equal(namespace[operation.outputs[0].name], expected)
    for value in expected.ravel():
        assert f"= {int(value)}\n" in section(name, "example")


def check_error(name: str, entry: ErrorEntry, **names: object) -> None:
    namespace = run(programs(name)[2]) | names
    operation = OPERATIONS[name]
    tensors = [namespace[row.name] for row in operation.data_inputs]
    kind = {"TypeError": TypeError}.get(entry.exception) or getattr(convgrad, entry.exception)
    # Text that depends on the machine is left out of the page, and so of the comparison.
    pattern = ".*".join(re.escape(part) for part in entry.message.split("…"))
    # Python's own message about an unknown argument may go on with a guess of what was meant.
    pattern += ".*" if entry.exception == "TypeError" else r"\Z"
    with pytest.raises(kind) as caught:
        eval(entry.call, namespace)
    assert caught.type is kind
    assert re.match(pattern, str(caught.value)), f"documented: {entry.message}\nraised:     {caught.value}"
    assert all(np.all(tensor == 1) for tensor in tensors), "an error left its mark on an input"


@pytest.mark.parametrize(("name", "entry"), ERRORS)
def test_errors_are_what_the_catalogue_says(name: str, entry: ErrorEntry) -> None:
    check_error(name, entry)


@pytest.mark.extra
@pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="PyTorch is not installed, and no dependency")
@pytest.mark.parametrize(("name", "entry"), TORCH_ERRORS)
def test_errors_of_torch_tensors_are_what_the_catalogue_says(name: str, entry: ErrorEntry) -> None:
    import torch

    check_error(name, entry, torch=torch)


def test_every_rule_has_its_error() -> None:
    for name, operation in OPERATIONS.items():
        messages = [entry.message for entry in error_entries(name)]
        for rule in operation.rules:
            assert any(rule.sentence in message for message in messages), f"{name}: {rule.id}"
            if rule.remedy is not None:
                assert any("would fit" in message for message in messages), f"{name}: {rule.id}"
