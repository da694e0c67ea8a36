# SPDX-License-Identifier: Apache-2.0
"""The part of the catalogue that is about calls: the weights' shape, types, memory, plans."""

from __future__ import annotations

from collections.abc import Iterator
from math import prod

from codegen.documentation.call import NumberedCall, Shape, attribute_name, small_call
from codegen.documentation.error_sizes import ones, size_mistakes
from codegen.documentation.errors import ErrorGroupContext, Mistake, attribute_mistakes, set_errors
from codegen.documentation.text import SentenceSetter
from codegen.roles import assign_roles
from specs.model import Operation
from specs.vocabulary import ELEMENT_TYPES

_SYMBOLS_OF_SHAPE = ("IC", "OC", "groups")


def make_error_groups(operation: Operation, sentence: SentenceSetter) -> tuple[ErrorGroupContext, ...]:
    """The whole catalogue, in the order in which the checks are made."""
    groups = (
        ("Attributes", "attributes", "Raised when the operation is constructed.", attribute_mistakes),
        ("Shape of the weights", "shape", "Raised by the call, before anything is read.", _shape_mistakes),
        ("Kind and type of tensors", "types", "Nothing is converted silently.", _type_mistakes),
        ("Sizes", "sizes", "Each message has the formula with its numbers.", size_mistakes),
        ("Memory, out and threads", "memory", "An error leaves `out` as it was.", _memory_mistakes),
        ("Prepared plans", "plans", "Raised by `prepare`, or by the plan that it gives.", _plan_mistakes),
        ("Tensors of PyTorch", "torch", "They need `import torch`.", _torch_mistakes),
    )
    return tuple(
        ErrorGroupContext(
            title, f"errors-{anchor}", sentence(intro), set_errors(operation, sentence, mistakes(operation))
        )
        for title, anchor, intro, mistakes in groups
    )


def _names(operation: Operation) -> tuple[str, str, str]:
    """The two data inputs and the shape."""
    first, second = operation.data_inputs
    return first.name, second.name, attribute_name(operation, "weights_shape")


def _shape_mistakes(operation: Operation) -> Iterator[Mistake]:
    call = small_call(operation, 2)
    first, second, name = _names(operation)
    shape = call.numbers("weights_shape")
    tensors = f"make()({first}, {second}, "
    yield Mistake(
        f"`{name}` is neither an attribute nor an input.",
        f"make({name}=None)({first}, {second})",
        "SpecError",
        f"{name} is missing: expected it as an attribute or as an input; the sizes of the tensors alone do not "
        f"determine the kernel",
    )
    yield Mistake(
        f"The input `{name}` is not 1-D.",
        f"{tensors}np.array([{list(shape)}]))",
        "SpecError",
        f"{name} has 2 axes; expected a 1-D tensor of {len(shape)} integers",
    )
    yield Mistake(
        f"The input `{name}` does not hold integers.",
        f"{tensors}np.array({list(map(float, shape))}))",
        "SpecError",
        f"{name} has dtype float64; expected integers (the specified type is s32)",
    )
    yield Mistake(
        f"The input `{name}` has a wrong number of entries.",
        f"{tensors}np.array({list(shape[:-1])}))",
        "SpecError",
        f"{name} = array({list(shape[:-1])}) has {len(shape) - 1} entries; expected {len(shape)}, "
        f"two channel axes and 2 spatial",
    )
    yield Mistake(
        f"An entry of the input `{name}` is below 1.",
        f"{tensors}np.array({[*shape[:-1], 0]}))",
        "SpecError",
        f"{name}[{len(shape) - 1}] = 0: expected a positive integer",
    )
    yield _unfit_shape(call)


def _unfit_shape(call: NumberedCall) -> Mistake:
    """Channel axes that no reading gives: both whole, although there are groups."""
    operation, name = call.operation, attribute_name(call.operation, "weights_shape")
    word = call.word("weights_format")
    values = call.call_values()
    layout = operation.readings[0].layouts[word]
    taps = call.axis_values()[0]["K"]
    shape: Shape = ()
    for axis in layout:
        shape += (taps,) * call.rank if axis == "X" else (values[axis.partition("/")[0]],)
    expectations = []
    for reading in operation.readings:
        numbers = ", ".join("any" if want is None else str(want) for want in call.weights_extents(reading))
        expectations.append(f"({', '.join(reading.layouts[word])}) = ({numbers})")
    symbols = ", ".join(f"{symbol} = {values[symbol]}" for symbol in _SYMBOLS_OF_SHAPE)
    first, second, _ = _names(operation)
    return Mistake(
        f"Channel axes of `{name}` do not fit the tensors and groups.",
        f"make({name}={shape})({first}, {second})",
        "SpecError",
        f"{name} = {shape} does not fit {word} with {symbols}; expected {' or '.join(expectations)}",
    )


def _type_mistakes(operation: Operation) -> Iterator[Mistake]:
    first, second, _ = _names(operation)
    types = next(row.types for row in operation.type_variables if row.name == operation.data_inputs[0].type)
    numpy_names = {row.name: row.numpy.rpartition(".")[2] for row in ELEMENT_TYPES}
    expected = "expected one of " + ", ".join(f"{row} ({numpy_names[row]})" for row in types)
    yield Mistake(
        f"`{first}` is neither an array nor a tensor.",
        f"make()({first}.tolist(), {second})",
        "DTypeError",
        f"{first} is a list; expected a NumPy array or a torch tensor",
    )
    yield Mistake(
        f"`{first}` is a masked array.",
        f"make()(np.ma.masked_array({first}), {second})",
        "DTypeError",
        f"{first} is a masked array, and its mask would be ignored; pass {first}.filled(0)",
    )
    yield Mistake(
        f"`{first}` has a type that the operation does not take.",
        f"make()({first}.astype(np.float64), {second})",
        "DTypeError",
        f"{first} has dtype float64; {expected}: call {first}.astype('float32') or {first}.float()",
    )
    yield Mistake(
        f"The bytes of `{first}` are in the order of another machine.",
        f'make()({first}.astype(">f4"), {second})',
        "DTypeError",
        f"{first} has byte-swapped dtype >f4; expected native byte order: "
        f"call {first}.astype({first}.dtype.newbyteorder('='))",
    )
    if "f16" in types:
        yield Mistake(
            "The tensors have different types.",
            f"make()({first}, {second}.astype(np.float16))",
            "DTypeError",
            f"{first} is f32 and {second} is f16; expected one type for all tensors of a call: "
            f"call {second}.astype({first}.dtype) or {second}.to({first}.dtype)",
        )


def _memory_mistakes(operation: Operation) -> Iterator[Mistake]:
    call = small_call(operation, 2)
    first, second, _ = _names(operation)
    reading = call.reading()
    assert reading is not None
    windowed = assign_roles(operation, reading).windowed.name
    shape = call.shapes[first]
    weights = call.numbers("weights_shape")
    reversed_strides = (-4 * prod(shape[1:]), *(4 * prod(shape[axis + 1 :]) for axis in range(1, 4)))
    run = f"make()({first}, {second}, "
    yield Mistake(
        f"`{first}` is not contiguous.",
        f"make()({first}[::-1], {second})",
        "SpecError",
        f"{first} is not contiguous (strides of {reversed_strides} bytes for shape {shape}): "
        f"call numpy.ascontiguousarray({first}) or {first}.contiguous()",
    )
    yield Mistake(
        f"`{first}` starts inside an element.",
        f"make()(np.ones({first}.nbytes + 1, np.uint8)[1:].view(np.float32).reshape({shape}), {second})",
        "SpecError",
        f"{first} is not aligned to its 4-byte elements: call {first}.copy()",
    )
    yield Mistake(
        "`out` has another shape than the weights.",
        f"{run}out={ones(weights[::-1])})",
        "SpecError",
        f"out has shape {weights[::-1]}; expected {weights}",
    )
    yield Mistake(
        "`out` has a type that the gradient cannot have.",
        f"{run}out=np.ones({weights}))",
        "DTypeError",
        "out has dtype float64; expected f32 (float32)",
    )
    yield Mistake(
        "`out` is read-only.",
        f"{run}out=np.broadcast_to(np.float32(0), {weights}))",
        "SpecError",
        "out is read-only; expected an array that can be written",
    )
    double = (*weights[:-1], 2 * weights[-1])
    wide = tuple(4 * prod(double[place + 1 :]) for place in range(4))
    yield Mistake(
        "`out` is not contiguous.",
        f"{run}out={ones(double)}[..., :{weights[-1]}])",
        "SpecError",
        f"out is not contiguous (strides of {wide} bytes for shape {weights}): "
        "expected an array in C order without gaps",
    )
    yield Mistake(
        f"`out` shares memory with `{windowed}`.",
        f"{run}out={windowed}.ravel()[:{prod(weights)}].reshape({weights}))",
        "SpecError",
        f"out overlaps {windowed} in memory; expected memory of its own",
    )
    yield Mistake(
        "`accumulate` has nothing to add to.",
        f"{run}accumulate=True)",
        "SpecError",
        "accumulate needs an out to add to; expected an f32 array in out",
    )
    yield Mistake(
        "`accumulate` adds to a type other than f32.",
        f"make()({first}.astype(np.float16), {second}.astype(np.float16), "
        f"out=np.ones({weights}, np.float16), accumulate=True)",
        "DTypeError",
        "accumulate adds to an out of type f32, not f16",
    )
    yield Mistake(
        "`num_threads` is no possible number of threads.",
        f"{run}num_threads=0)",
        "SpecError",
        "num_threads = 0: expected an integer from 1 to 1024",
        named=False,
    )


def _plan_mistakes(operation: Operation) -> Iterator[Mistake]:
    call = small_call(operation, 2)
    first, second, _ = _names(operation)
    shape, other = call.shapes[first], call.shapes[second]
    yield Mistake(
        "A shape is given without a type.",
        f"make().prepare({shape}, {second})",
        "DTypeError",
        f"{first} is given as a shape, which has no element type; expected dtype= as well",
    )
    yield Mistake(
        f"`{first}` is neither an array nor a shape.",
        f'make().prepare("{first}", {second})',
        "DTypeError",
        f"{first} is a str; expected a NumPy array, a torch tensor or a shape",
    )
    yield Mistake(
        f"The plan is called with another shape of `{second}`.",
        f"make().prepare({first}, {second})({first}, {ones((1, *other[1:]))})",
        "SpecError",
        f"{second} has shape {(1, *other[1:])}; this plan is for {other}",
    )
    yield Mistake(
        f"The plan is called with another type of `{first}`.",
        f"make().prepare({first}, {second})({first}.astype(np.float16), {second})",
        "DTypeError",
        f"{first} has dtype float16; this plan is for float32",
    )
    weights = call.numbers("weights_shape")
    yield Mistake(
        "The plan is called with an `out` of another type than it was made for.",
        f"make().prepare({first}, {second})({first}, {second}, out=np.ones({weights}, np.float16))",
        "DTypeError",
        "out has dtype float16; expected f32 (float32)",
    )


def _torch_mistakes(operation: Operation) -> Iterator[Mistake]:
    first, second, _ = _names(operation)
    tensor = f"torch.from_numpy({first})"
    yield Mistake(
        f"`{first}` is not in the memory of the CPU.",
        f'make()({tensor}.to("meta"), {second})',
        "SpecError",
        f"{first} is on device meta; expected the CPU: call {first}.cpu()",
    )
    yield Mistake(
        f"`{first}` is sparse.",
        f"make()({tensor}.to_sparse(), {second})",
        "SpecError",
        f"{first} has layout torch.sparse_coo; expected a dense one: call {first}.to_dense()",
    )
    yield Mistake(
        f"`{first}` is a view that is conjugated or negated lazily.",
        f"make()({tensor}.to(torch.complex64).conj().imag, {second})",
        "SpecError",
        f"{first} is a lazy view: call {first}.resolve_conj().resolve_neg()",
    )
    weights = small_call(operation, 2).numbers("weights_shape")
    yield Mistake(
        "`out` is a tensor that autograd follows.",
        f"make()({first}, {second}, out=torch.ones({weights}, requires_grad=True))",
        "SpecError",
        "out requires a gradient, and autograd would not see that it was written; pass out.detach()",
    )
