# SPDX-License-Identifier: Apache-2.0
"""Examples as complete programs: those of the specification, and the small one whose numbers can be followed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import prod

from codegen.documentation.call import NumberedCall, Shape, Value, attribute_name, example_call, small_call
from codegen.documentation.drawing import PLAIN_VALUES
from codegen.documentation.errors import value_text
from codegen.documentation.text import CodeContext, Pieces, SentenceSetter, set_code
from codegen.naming import snake_case
from codegen.roles import assign_roles
from specs.model import Example, Operation, Tensor
from specs.vocabulary import ELEMENT_TYPES, SPATIAL_AXES

_PADDING_SIZES = ((5, 2, 1, 1), (5, 3, 1, 1), (5, 3, 2, 1), (6, 3, 2, 1), (5, 3, 2, 2), (6, 3, 2, 2))
"""I, K, s, d: odd and even totals, strides that divide the input and such that do not."""


@dataclass(frozen=True, slots=True)
class ExampleContext:
    """An example of the specification."""

    title: str
    anchor: str
    code: CodeContext
    facts: tuple[Pieces, ...]
    """What follows from its numbers."""


@dataclass(frozen=True, slots=True)
class SmallExampleContext:
    """The example on one axis."""

    code: CodeContext
    ways: CodeContext
    """The same result by every way to call."""
    sums: tuple[str, ...]
    """Each element of the gradient as the sum that it is."""


def make_example(operation: Operation, example: Example, number: int, sentence: SentenceSetter) -> ExampleContext:
    """An example as a program that makes random tensors and checks the shape of the gradient."""
    call = example_call(operation, example)
    element = next(row for row in ELEMENT_TYPES if row.name == example.type)
    numpy_type = element.numpy if "." in element.numpy else f"np.{element.numpy}"
    tensors = "\n".join(
        f"{row.name} = rng.standard_normal({call.shapes[row.name]}).astype({numpy_type})"
        for row in operation.data_inputs
    )
    modules = "import ml_dtypes\nimport numpy as np" if "." in element.numpy else "import numpy as np"
    output = operation.outputs[0].name
    first, second = (row.name for row in operation.data_inputs)
    code = f"""
{modules}

import convgrad

rng = np.random.default_rng(0)
{tensors}

op = convgrad.{operation.name}(
{_arguments(call.attributes, 4)}
)
{output} = op({first}, {second})

assert {output}.shape == {call.numbers("weights_shape")}
"""
    facts = tuple(sentence(text) for text in _facts(call))
    return ExampleContext(example.title, f"example-{number}", set_code(code), facts)


def _facts(call: NumberedCall) -> Iterable[str]:
    operation, reading = call.operation, call.reading()
    if call.value("auto_pad") not in (None, "none"):
        axes = zip(SPATIAL_AXES[call.rank], call.axis_values(), strict=True)
        pads = ", ".join(f"{name} {values['pb']} in front and {values['pe']} behind" for name, values in axes)
        yield f"Padding that {call.word('auto_pad')} gives: {pads}."
    assert reading is not None, f"{operation.name}: no reading fits the shape of an example"
    if len(operation.readings) > 1 and call.groups > 1:
        yield f"{attribute_name(operation, 'weights_shape')} fits the reading {reading.id}."
    elements = prod(call.numbers("weights_shape"))
    yield f"{elements:,} elements, each the sum of at most {call.products():,} products."


def _arguments(attributes: Mapping[str, Value], indent: int) -> str:
    return "\n".join(f"{' ' * indent}{name}={value_text(value)}," for name, value in attributes.items())


def make_small_example(operation: Operation) -> SmallExampleContext:
    """The small problem on one axis, with every number of the result."""
    call = small_call(operation, 1)
    reading = call.reading()
    assert reading is not None
    roles = assign_roles(operation, reading)
    values = call.axis_values()[0]
    plain = PLAIN_VALUES[: values[str(roles.plain.spatial)]]
    windowed = tuple(range(1, values[str(roles.windowed.spatial)] + 1))
    gradient, sums = [], []
    output = operation.outputs[0].name
    layout = reading.layouts[call.word("weights_format")]
    for tap in range(values["K"]):
        terms = [
            (windowed[position], factor)
            for place, factor in enumerate(plain)
            if 0 <= (position := place * values["s"] + tap * values["d"] - values["pb"]) < len(windowed)
        ]
        gradient.append(sum(one * other for one, other in terms))
        index = ", ".join(str(tap) if axis == "X" else "0" for axis in layout)
        products = " + ".join(f"{one} · {other}" for one, other in terms) or "nothing"
        sums.append(f"{output}[{index}] = {products} = {gradient[-1]}")
    numbers = {roles.plain.name: plain, roles.windowed.name: windowed}
    first, second = operation.data_inputs
    shape = call.numbers("weights_shape")
    tensors = "\n".join(_tensor_code(call, row, numbers[row.name]) for row in (first, second))
    expected = [float(value) for value in gradient]
    code = f"""
import numpy as np

import convgrad

{tensors}

op = convgrad.{operation.name}(
{_arguments(call.attributes, 4)}
)
{output} = op({first.name}, {second.name})

assert {output}.shape == {shape}
assert {output}.ravel().tolist() == {expected}
"""
    return SmallExampleContext(set_code(code), set_code(_ways(call, tensors)), tuple(sums))


def _tensor_code(call: NumberedCall, tensor: Tensor, values: Iterable[int]) -> str:
    listed = ", ".join(map(str, values))
    return f"{tensor.name} = np.array([{listed}], np.float32).reshape({call.shapes[tensor.name]})"


def _ways(call: NumberedCall, tensors: str) -> str:
    operation = call.operation
    first, second = (row.name for row in operation.data_inputs)
    shape_name, shape = attribute_name(operation, "weights_shape"), call.numbers("weights_shape")
    others = {name: value for name, value in call.attributes.items() if name != shape_name}
    both = f"{first}, {second}"
    return f"""
import numpy as np

import convgrad

{tensors}
attributes = dict(
{_arguments(others, 4)}
)

op = convgrad.{operation.name}(**attributes, {shape_name}={shape})
expected = op({both})

# The shape as an input, which wins over the attribute.
shape = np.array({list(shape)}, np.int32)
assert np.array_equal(op({both}, shape), expected)

# Into memory that is there already; out is what comes back.
out = np.empty({shape}, np.float32)
assert op({both}, out=out) is out
assert np.array_equal(out, expected)

# Added to what an f32 out holds (an extension).
op({both}, out=out, accumulate=True)
assert np.array_equal(out, 2 * expected)

# With everything done ahead that shapes and types decide.
plan = op.prepare({both})
assert np.array_equal(plan({both}), expected)

# In one go; the shape is a list or an array.
once = convgrad.{snake_case(operation.name)}({both}, {list(shape)}, **attributes)
assert np.array_equal(once, expected)
"""


def concrete_shape(call: NumberedCall, axes: Iterable[str]) -> Shape:
    """The shape that a layout gives the weights of a call."""
    values, taps = call.call_values(), [axis["K"] for axis in call.axis_values()]
    extents: list[int] = []
    for axis in axes:
        symbol, _, divided = axis.partition("/")
        extents += taps if axis == "X" else [values[symbol] // (call.groups if divided else 1)]
    return tuple(extents)


def padding_examples(operation: Operation) -> Iterable[tuple[dict[str, int], tuple[int, int], tuple[int, int]]]:
    """Sizes with what the same_* words give: symbols and the sizes that follow, same_upper pads, same_lower pads."""
    for inputs, taps, stride, dilation in _PADDING_SIZES:
        uppers = _with_same(operation, "same_upper", inputs, taps, stride, dilation)
        lowers = _with_same(operation, "same_lower", inputs, taps, stride, dilation)
        if uppers is not None and lowers is not None:
            yield uppers, (uppers["pb"], uppers["pe"]), (lowers["pb"], lowers["pe"])


def _with_same(
    operation: Operation, word: str, inputs: int, taps: int, stride: int, dilation: int
) -> dict[str, int] | None:
    """The symbols of one axis whose padding comes from auto_pad; the output size is the one that fits."""
    call = small_call(operation, 1)
    data, result = sorted(operation.data_inputs, key=lambda row: row.spatial != "I")
    shape = concrete_shape(call, call.operation.readings[0].layouts[call.word("weights_format")])
    call = call.changed(
        {
            attribute_name(operation, "auto_pad"): word,
            attribute_name(operation, "strides"): (stride,),
            attribute_name(operation, "dilations"): (dilation,),
            attribute_name(operation, "weights_shape"): tuple(taps if extent > 1 else extent for extent in shape),
        }
    ).with_spatial(data, inputs)
    for outputs in range(1, 64):
        candidate = call.with_spatial(result, outputs)
        if candidate.fits:
            return candidate.axis_values()[0]
    return None
