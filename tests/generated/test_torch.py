# SPDX-License-Identifier: Apache-2.0
"""torch tensors in, torch tensors out, over the same memory; and what is said about tensors that cannot be taken."""

from __future__ import annotations

import pickle
import re
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt
import pytest

import convgrad
from convgrad import DTypeError, SpecError
from convgrad.tensors import view_array
from reference.geometries import WORDS, Problem, random_problems
from reference.integer_data import exact_integers

torch: Any = pytest.importorskip("torch", reason="torch tensors are an extra: install torch==2.13.0")

pytestmark = pytest.mark.extra

Array = npt.NDArray[Any]

OPERATIONS = tuple(WORDS)
TORCH_DTYPES = {"f32": torch.float32, "bf16": torch.bfloat16, "f16": torch.float16}
CONV = "ConvolutionBackwardWeights"
TYPES = "one of f32 (float32), bf16 (bfloat16), f16 (float16)"

operations = pytest.mark.parametrize("op", OPERATIONS)
dtypes = pytest.mark.parametrize("dtype", TORCH_DTYPES)


def _tensor(array: Array) -> Any:
    """A torch tensor of its own with the same values, bfloat16 included."""
    if array.dtype == ml_dtypes.bfloat16:
        return torch.from_numpy(array.view(np.int16).copy()).view(torch.bfloat16)
    return torch.from_numpy(array.copy())


def _bits(value: Any) -> Array:
    """The bits of an array or a tensor, as integers."""
    if isinstance(value, torch.Tensor):
        value = value.detach()
        return np.asarray(value.view(torch.int32 if value.element_size() == 4 else torch.int16).numpy())
    return np.asarray(value).view(np.int32 if value.dtype.itemsize == 4 else np.int16)


def _operation(problem: Problem) -> Any:
    return getattr(convgrad, problem.op)(**problem.attributes, **{problem.words.shape: problem.weights_shape})


def _check(result: Any, expected: Array, dtype: str) -> None:
    assert type(result) is torch.Tensor
    assert result.dtype == TORCH_DTYPES[dtype]
    assert result.device.type == "cpu"
    assert result.is_contiguous()
    assert not result.requires_grad and result.grad_fn is None
    assert tuple(result.shape) == expected.shape
    np.testing.assert_array_equal(_bits(result), _bits(expected))


def _right() -> tuple[Any, Any, Any]:
    """An operation and two tensors that it takes."""
    operation = convgrad.ConvolutionBackwardWeights(
        strides=(1, 1),
        pads_begin=(0, 0),
        pads_end=(0, 0),
        dilations=(1, 1),
        data_format="NCX",
        weights_format="OIX",
        weights_shape=(4, 3, 3, 3),
    )
    generator = torch.Generator().manual_seed(1)
    first, second = (torch.randint(-2, 3, shape, generator=generator) for shape in ((2, 3, 8, 8), (2, 4, 6, 6)))
    return operation, first.float(), second.float()


# -------------------------------------------------------------------------------------------- tensors in, tensors out


@dtypes
@operations
def test_every_form_gives_the_same_bits_as_numpy(op: str, dtype: str) -> None:
    for seed, problem in enumerate(random_problems("torch", 6, (op,), dtypes=(dtype,))):
        source, delta = exact_integers(problem, seed)
        first, second = _tensor(source), _tensor(delta)
        kept = first.clone(), second.clone()
        operation = _operation(problem)
        function = getattr(convgrad, problem.words.function)
        expected = operation(source, delta)
        assert type(expected) is np.ndarray

        _check(operation(first, second), expected, dtype)
        shape = torch.tensor(problem.weights_shape, dtype=torch.int32)
        for tensor in (shape, shape.long(), torch.Size(problem.weights_shape)):
            _check(operation(first, second, tensor), expected, dtype)
            _check(function(first, second, tensor, **problem.attributes), expected, dtype)
        plan = operation.prepare(first, second)
        assert plan.dtype == plan.out_dtype == dtype
        _check(plan(first, second), expected, dtype)
        _check(operation.prepare(first.shape, second.shape, dtype=first.dtype)(first, second), expected, dtype)
        np.testing.assert_array_equal(_bits(plan(source, delta)), _bits(expected))
        assert torch.equal(first, kept[0]) and torch.equal(second, kept[1])


@dtypes
@operations
def test_out_is_filled_and_returned(op: str, dtype: str) -> None:
    problem = next(random_problems("torch out", 1, (op,), dtypes=(dtype,)))
    source, delta = exact_integers(problem, 1)
    first, second, operation = _tensor(source), _tensor(delta), _operation(problem)
    expected = operation(source, delta)
    plan = operation.prepare(first, second)
    for call in (operation, plan):
        out = torch.full(problem.weights_shape, float("nan"), dtype=TORCH_DTYPES[dtype])
        address = out.data_ptr()
        assert call(first, second, out=out) is out
        assert out.data_ptr() == address
        _check(out, expected, dtype)


@dtypes
def test_no_copy_is_made(dtype: str) -> None:
    tensor = torch.arange(24).reshape(2, 3, 4).to(TORCH_DTYPES[dtype])
    array = view_array(CONV, "src", tensor)
    assert array.ctypes.data == tensor.data_ptr()
    assert array.shape == (2, 3, 4)
    tensor[1, 2, 3] = -5
    assert array[1, 2, 3] == -5
    row = view_array(CONV, "src", tensor[1:])
    assert row.ctypes.data == tensor.data_ptr() + 12 * tensor.element_size()


def test_bfloat16_passes_although_numpy_has_no_such_type() -> None:
    with pytest.raises(TypeError):
        torch.ones(1, dtype=torch.bfloat16).numpy()
    operation, first, second = _right()
    result = operation(first.bfloat16(), second.bfloat16())
    assert result.dtype == torch.bfloat16
    assert torch.equal(result, operation(first, second).bfloat16())


def test_nan_payloads_of_inputs_and_negative_zeros_pass_bit_for_bit() -> None:
    patterns = torch.tensor([0x7FC1, -0x8000, 0x0001, 0x7F80], dtype=torch.int16)
    array = view_array(CONV, "src", patterns.view(torch.bfloat16))
    np.testing.assert_array_equal(array.view(np.int16), patterns.numpy())


@pytest.mark.parametrize("dtype", ["bf16", "f16"])
def test_out_in_f32_and_accumulate(dtype: str) -> None:
    operation, first, second = _right()
    narrow = first.to(TORCH_DTYPES[dtype]), second.to(TORCH_DTYPES[dtype])
    expected = operation(first, second)
    out = torch.full((4, 3, 3, 3), float("nan"))
    assert operation(*narrow, out=out) is out
    assert torch.equal(out, expected)
    assert operation(*narrow, out=out, accumulate=True) is out
    assert torch.equal(out, 2 * expected)
    result = operation.prepare(*narrow, out_dtype=torch.float32)(*narrow)
    assert result.dtype == torch.float32
    assert torch.equal(result, expected)


def test_tensors_and_arrays_may_be_mixed() -> None:
    """The first input decides what comes back; out is what was given."""
    operation, first, second = _right()
    expected = operation(first, second)
    assert type(operation(first, second.numpy())) is torch.Tensor
    assert type(operation(first.numpy(), second)) is np.ndarray
    out = np.empty((4, 3, 3, 3), np.float32)
    assert operation(first, second, out=out) is out
    np.testing.assert_array_equal(out, expected.numpy())
    tensor = torch.empty(4, 3, 3, 3)
    assert operation(first.numpy(), second.numpy(), out=tensor) is tensor
    assert torch.equal(tensor, expected)


def test_parameters_and_subclasses() -> None:
    class Named(torch.Tensor):  # type: ignore[misc]
        pass

    operation, first, second = _right()
    expected = operation(first, second)
    result = operation(torch.nn.Parameter(first), second.as_subclass(Named))
    assert torch.equal(result, expected)
    assert not result.requires_grad


def test_an_empty_batch() -> None:
    operation, first, second = _right()
    result = operation(first[:0], second[:0])
    assert torch.equal(result, torch.zeros(4, 3, 3, 3))


def test_channels_last_memory_is_the_other_data_format() -> None:
    operation, first, second = _right()
    other = convgrad.ConvolutionBackwardWeights(
        strides=(1, 1),
        pads_begin=(0, 0),
        pads_end=(0, 0),
        dilations=(1, 1),
        data_format="NXC",
        weights_format="OIX",
        weights_shape=(4, 3, 3, 3),
    )
    views = [tensor.to(memory_format=torch.channels_last).permute(0, 2, 3, 1) for tensor in (first, second)]
    assert torch.equal(other(*views), operation(first, second))


# -------------------------------------------------------------------------------------------------------- autograd


def test_inputs_that_require_gradients() -> None:
    operation, first, second = _right()
    expected = operation(first, second)
    leaf = first.clone().requires_grad_()
    graph = leaf * 1  # not a leaf
    for tensor in (leaf, graph):
        result = operation(tensor, second.clone().requires_grad_())
        assert torch.equal(result, expected)
        assert not result.requires_grad and result.grad_fn is None
    assert leaf.grad is None
    with torch.no_grad():
        assert torch.equal(operation(leaf, second), expected)
    with torch.inference_mode():
        assert torch.equal(operation(first.clone(), second.clone()), expected)


def test_as_the_backward_of_a_layer() -> None:
    """The gradient that torch itself computes, from a layer whose backward calls the library."""
    operation, image, _ = _right()

    class Convolution(torch.autograd.Function):  # type: ignore[misc]
        @staticmethod
        def forward(context: Any, source: Any, weights: Any) -> Any:
            context.save_for_backward(source)
            return torch.nn.functional.conv2d(source, weights)

        @staticmethod
        def backward(context: Any, delta: Any) -> Any:
            (source,) = context.saved_tensors
            return None, operation(source, delta.contiguous())

    weights = torch.arange(108.0).reshape(4, 3, 3, 3).remainder(5).requires_grad_()
    gradients = []
    for layer in (Convolution.apply, torch.nn.functional.conv2d):
        weights.grad = None
        (layer(image, weights) * torch.arange(6.0)).sum().backward()
        assert weights.grad is not None
        gradients.append(weights.grad)
    assert torch.equal(gradients[0], gradients[1])


@pytest.mark.parametrize("leaf", [True, False])
def test_out_that_requires_a_gradient_is_refused(leaf: bool) -> None:
    operation, first, second = _right()
    out = torch.full((4, 3, 3, 3), 1.5, requires_grad=True)
    out = out if leaf else out * 1
    with pytest.raises(SpecError) as caught:
        operation(first, second, out=out)
    assert str(caught.value) == (
        f"{CONV}: out requires a gradient, and autograd would not see that it was written; pass out.detach()"
    )
    assert (out == 1.5).all()
    assert operation(first, second, out=out.detach()) is not out
    assert torch.equal(out, operation(first, second))


# ------------------------------------------------------------------------------------------ what cannot be taken


def _gaps(strides: str, shape: str, name: str = "src") -> str:
    return (
        f"{name} is not contiguous (strides of {strides} bytes for shape {shape}): "
        f"call numpy.ascontiguousarray({name}) or {name}.contiguous()"
    )


def _types(torch_type: str) -> str:
    return f"src has dtype {torch_type}; expected {TYPES}"


BASE = torch.ones(2, 3, 8, 8)
REFUSED = [
    ("transposed", BASE.transpose(2, 3), SpecError, _gaps("(768, 256, 4, 32)", "(2, 3, 8, 8)")),
    ("channels-last", BASE.to(memory_format=torch.channels_last), SpecError, _gaps("(768, 4, 96, 12)", "(2, 3, 8, 8)")),
    ("expanded", torch.ones(1, 3, 8, 8).expand(2, 3, 8, 8), SpecError, _gaps("(0, 256, 32, 4)", "(2, 3, 8, 8)")),
    ("every-second", torch.ones(2, 3, 8, 16)[..., ::2], SpecError, _gaps("(1536, 512, 64, 8)", "(2, 3, 8, 8)")),
    ("slice", torch.ones(2, 3, 8, 9)[..., :8], SpecError, _gaps("(864, 288, 36, 4)", "(2, 3, 8, 8)")),
    (
        "bf16-transposed",
        BASE.bfloat16().transpose(2, 3),
        SpecError,
        _gaps("(384, 128, 2, 16)", "(2, 3, 8, 8)"),
    ),
    (
        "double",
        BASE.double(),
        DTypeError,
        f"src has dtype float64; expected {TYPES}: call src.astype('float32') or src.float()",
    ),
    (
        "int",
        BASE.int(),
        DTypeError,
        f"src has dtype int32; expected {TYPES}: call src.astype('float32') or src.float()",
    ),
    ("complex", BASE.to(torch.complex64), DTypeError, f"src has dtype complex64; expected {TYPES}"),
    ("float8-other", BASE.to(torch.float8_e5m2), DTypeError, _types("torch.float8_e5m2")),
    ("float8", BASE.to(torch.float8_e4m3fn), DTypeError, _types("torch.float8_e4m3fn")),
    ("meta", BASE.to("meta"), SpecError, "src is on device meta; expected the CPU: call src.cpu()"),
    (
        "sparse",
        BASE.to_sparse(),
        SpecError,
        "src has layout torch.sparse_coo; expected a dense one: call src.to_dense()",
    ),
    (
        "opaque",
        BASE.to_mkldnn(),
        SpecError,
        "src has layout torch._mkldnn; expected a dense one: call src.to_dense()",
    ),
    (
        "negative-view",
        torch.ones(2, 3, 8, 8, dtype=torch.complex64).conj().imag,
        SpecError,
        "src is a lazy view: call src.resolve_conj().resolve_neg()",
    ),
    (
        "three-axes",
        BASE[0],
        SpecError,
        "src has 3 axes (shape (3, 8, 8)); expected 4, batch, channels and 2 spatial, because strides has 2 entries",
    ),
    ("scalar-type", torch.float32, DTypeError, "src is a dtype; expected a NumPy array or a torch tensor"),
    ("class", torch.Tensor, DTypeError, "src is a _TensorMeta; expected a NumPy array or a torch tensor"),
]


@pytest.mark.parametrize(("tensor", "error", "text"), [pytest.param(*row[1:], id=row[0]) for row in REFUSED])
def test_tensors_that_cannot_be_taken(tensor: Any, error: type[Exception], text: str) -> None:
    operation, _, second = _right()
    if getattr(tensor, "dtype", None) is torch.bfloat16:
        second = second.bfloat16()
    out = torch.full((4, 3, 3, 3), -1.5)
    with pytest.raises((ValueError, TypeError)) as caught:
        operation(tensor, second, out=out)
    assert type(caught.value) is error
    assert str(caught.value) == f"{CONV}: {text}"
    assert (out == -1.5).all()


def test_what_the_messages_advise_helps() -> None:
    operation, first, second = _right()
    expected = operation(first, second)
    wide = torch.stack([first, first], -1)[..., 0]
    assert not wide.is_contiguous()
    for tensor in (
        wide.contiguous(),
        first.double().float(),
        first.to_sparse().to_dense(),
        first.to_mkldnn().to_dense(),
        torch._neg_view(-first).resolve_conj().resolve_neg(),
    ):
        assert torch.equal(operation(tensor, second), expected)


def test_mixed_types() -> None:
    operation, first, second = _right()
    with pytest.raises(DTypeError) as caught:
        operation(first, second.half())
    assert str(caught.value) == (
        f"{CONV}: src is f32 and diff_dst is f16; expected one type for all tensors of a call: "
        f"call diff_dst.astype(src.dtype) or diff_dst.to(src.dtype)"
    )
    assert operation(first, second.half().to(first.dtype)).dtype == torch.float32


def test_out_that_cannot_be_taken() -> None:
    operation, first, second = _right()
    storage = torch.ones(500)
    overlapping = storage[:384].view(2, 3, 8, 8)
    rows: list[tuple[Any, Any, type[Exception], str]] = [
        (first, torch.zeros(4, 3, 9), SpecError, "out has shape (4, 3, 9); expected (4, 3, 3, 3)"),
        (first, torch.zeros(4, 3, 3, 3).double(), DTypeError, "out has dtype float64; expected f32 (float32)"),
        (first, torch.zeros(4, 3, 3, 3).bfloat16(), DTypeError, "out has dtype bfloat16; expected f32 (float32)"),
        (
            first,
            torch.zeros(4, 3, 3, 3).transpose(2, 3),
            SpecError,
            "out is not contiguous (strides of (108, 36, 4, 12) bytes for shape (4, 3, 3, 3)): "
            "expected an array in C order without gaps",
        ),
        (
            overlapping,
            storage[383:491].view(4, 3, 3, 3),
            SpecError,
            "out overlaps src in memory; expected memory of its own",
        ),
        (
            first,
            torch.zeros(4, 3, 3, 3, device="meta"),
            SpecError,
            "out is on device meta; expected the CPU: call out.cpu()",
        ),
    ]
    for source, out, error, text in rows:
        kept = None if out.is_meta else out.clone()
        with pytest.raises((ValueError, TypeError)) as caught:
            operation(source, second, out=out)
        assert type(caught.value) is error
        assert str(caught.value) == f"{CONV}: {text}"
        assert kept is None or torch.equal(out, kept)


@pytest.mark.parametrize(
    ("shape", "text"),
    [
        pytest.param(
            torch.tensor([4.0, 3, 3, 3]),
            "weights_shape has dtype torch.float32; expected integers (the specified type is s32)",
            id="float",
        ),
        pytest.param(
            torch.ones(4, dtype=torch.bool),
            "weights_shape has dtype torch.bool; expected integers (the specified type is s32)",
            id="bool",
        ),
        pytest.param(
            torch.ones(2, 2, dtype=torch.int32),
            "weights_shape has 2 axes; expected a 1-D tensor of 4 integers",
            id="two-axes",
        ),
        pytest.param(torch.tensor(4), "weights_shape has 0 axes; expected a 1-D tensor of 4 integers", id="scalar"),
        pytest.param(
            torch.tensor([4, 3, 3]),
            "weights_shape = tensor([4, 3, 3]) has 3 entries; expected 4, two channel axes and 2 spatial",
            id="short",
        ),
        pytest.param(torch.tensor([4, 0, 3, 3]), "weights_shape[1] = 0: expected a positive integer", id="zero"),
    ],
)
def test_shapes_that_cannot_be_taken(shape: Any, text: str) -> None:
    operation, first, second = _right()
    with pytest.raises(SpecError) as caught:
        operation(first, second, shape)
    assert str(caught.value) == f"{CONV}: {text}"


def test_a_shape_without_memory() -> None:
    operation, first, second = _right()
    with pytest.raises(SpecError, match=rf"^{CONV}: weights_shape cannot be read: "):
        operation(first, second, torch.empty(4, dtype=torch.int32, device="meta"))


def test_tensors_inside_transforms_are_refused() -> None:
    operation, first, second = _right()
    start = re.escape(f"{CONV}: src is a ")
    with pytest.raises(SpecError, match=rf"^{start}\w+ without memory to read: "):
        torch.func.vmap(lambda one: operation(one, second))(torch.stack([first, first]))


def test_fake_tensors_are_refused() -> None:
    from torch._subclasses.fake_tensor import FakeTensorMode

    operation, first, second = _right()
    with FakeTensorMode(), pytest.raises(SpecError, match=r"without memory to read|on device meta"):
        operation(torch.ones(2, 3, 8, 8), torch.ones(2, 4, 6, 6))
    assert operation(first, second) is not None


def test_attributes_of_torch_scalars() -> None:
    _, first, second = _right()
    attributes: dict[str, Any] = {"pads_begin": (0, 0), "pads_end": (0, 0), "dilations": (1, 1), "data_format": "NCX"}
    strides = (torch.tensor(1), torch.tensor(1, dtype=torch.uint8))
    result = convgrad.convolution_backward_weights(first, second, (3, 3, 3, 4), strides=strides, **attributes)
    assert tuple(result.shape) == (3, 3, 3, 4)
    for value, shown in (
        (torch.tensor(True), "tensor(True)"),
        (torch.tensor(1.0), "tensor(1.)"),
        (torch.tensor([1]), "tensor([1])"),
    ):
        with pytest.raises(SpecError) as caught:
            convgrad.convolution_backward_weights(first, second, (3, 3, 3, 4), strides=(1, value), **attributes)
        assert str(caught.value) == f"{CONV}: strides[1] = {shown}: expected a positive integer, not Tensor"


def test_prepare_refuses_torch_types_that_it_does_not_know() -> None:
    operation, first, second = _right()
    for dtype in (torch.float64, torch.int8, torch.float8_e5m2, torch.complex64):
        with pytest.raises(DTypeError) as caught:
            operation.prepare(first.shape, second.shape, dtype=dtype)
        assert str(caught.value) == f"{CONV}: dtype = {dtype}: expected {TYPES}"


def test_operations_that_saw_tensors_can_be_pickled() -> None:
    operation, first, second = _right()
    expected = operation(first, second)
    assert torch.equal(pickle.loads(pickle.dumps(operation))(first, second), expected)
