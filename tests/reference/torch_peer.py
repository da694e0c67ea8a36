# SPDX-License-Identifier: Apache-2.0
"""The same gradients from PyTorch's autograd in float64: an implementation that knows nothing of our sums.

PyTorch pads symmetrically, stores weights as (OC, IC / G, K...) for convolutions and (IC, OC / G, K...) for
transposed ones, and allows an output_padding smaller than the stride or the dilation. What it cannot say directly is
said by padding or cropping a tensor.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import torch
from torch.nn import functional

from reference.geometries import Problem

Array = npt.NDArray[np.float64]

_CONVOLUTION = {1: functional.conv1d, 2: functional.conv2d, 3: functional.conv3d}
_TRANSPOSED = {1: functional.conv_transpose1d, 2: functional.conv_transpose2d, 3: functional.conv_transpose3d}


def is_native(problem: Problem) -> bool:
    """Whether PyTorch's own padding (and output_padding) arguments can express the problem."""
    pads = problem.resolved_pads
    if any(begin != end for begin, end in pads):
        return False
    if not problem.words.transposed:
        return True
    extra = problem.output_padding or (0,) * problem.rank
    return all(o < max(s, d) for o, s, d in zip(extra, problem.strides, problem.dilations, strict=True))


def torch_gradient(problem: Problem, x: npt.ArrayLike, y: npt.ArrayLike) -> Array:
    """The float64 gradient in the problem's weights layout. ``x`` and ``y`` are in its data_format."""
    source = _channels_second(problem, x)
    delta = _channels_second(problem, y)
    gradient = _transposed(problem, source, delta) if problem.words.transposed else _convolution(problem, source, delta)
    if problem.words.transposed and problem.document_layout:
        # (G * ICg, OCg, K...) -> (ICg, G * OCg, K...): the same numbers, the group index moves to the other channel
        # axis.
        g = problem.groups
        split = gradient.reshape(g, problem.input_channels // g, *gradient.shape[1:]).transpose(0, 1)
        gradient = split.reshape(problem.input_channels // g, problem.output_channels, *problem.kernel)
    # PyTorch's first weights axis is O for convolutions and I for transposed ones.
    first, second = ("I", "O") if problem.words.transposed else ("O", "I")
    axes = {first: [0], second: [1], "X": list(range(2, gradient.ndim))}
    order = [axis for letter in problem.weights_format for axis in axes[letter]]
    return gradient.permute(order).contiguous().numpy()


def _channels_second(problem: Problem, tensor: npt.ArrayLike) -> torch.Tensor:
    converted = torch.from_numpy(np.array(tensor, np.float64))
    return converted if problem.data_format == "NCX" else converted.movedim(-1, 1).contiguous()


def _pad_argument(amounts: list[tuple[int, int]]) -> list[int]:
    """functional.pad counts axes from the last; negative amounts crop."""
    return [amount for pair in reversed(amounts) for amount in pair]


def _convolution(problem: Problem, source: torch.Tensor, delta: torch.Tensor) -> torch.Tensor:
    weights = torch.zeros(
        problem.output_channels,
        problem.input_channels // problem.groups,
        *problem.kernel,
        dtype=torch.float64,
        requires_grad=True,
    )
    pads = list(problem.resolved_pads)
    padding = [0] * problem.rank
    if is_native(problem):
        padding = [begin for begin, _ in pads]
    else:
        source = functional.pad(source, _pad_argument(pads))
    forward = _CONVOLUTION[problem.rank]
    output = forward(source, weights, None, problem.strides, padding, problem.dilations, problem.groups)
    return _backward(output, delta, weights)


def _transposed(problem: Problem, source: torch.Tensor, delta: torch.Tensor) -> torch.Tensor:
    weights = torch.zeros(
        problem.input_channels,
        problem.output_channels // problem.groups,
        *problem.kernel,
        dtype=torch.float64,
        requires_grad=True,
    )
    forward = _TRANSPOSED[problem.rank]
    pads = problem.resolved_pads
    if is_native(problem):
        padding = [begin for begin, _ in pads]
        extra = problem.output_padding or (0,) * problem.rank
        output = forward(source, weights, None, problem.strides, padding, extra, problem.groups, problem.dilations)
        return _backward(output, delta, weights)
    # The full output, with nothing cropped; the delta is laid over it from position pb on. Rows that output_padding
    # adds beyond the full output meet no input at all, and may be all there is.
    output = forward(source, weights, None, problem.strides, 0, 0, problem.groups, problem.dilations)
    whole = torch.zeros_like(output)
    begins = [begin for begin, _ in pads]
    kept = [
        max(0, min(n, full - b)) for n, full, b in zip(problem.output_extents, output.shape[2:], begins, strict=True)
    ]
    target = (slice(None), slice(None), *(slice(b, b + n) for b, n in zip(begins, kept, strict=True)))
    whole[target] = delta[(slice(None), slice(None), *(slice(0, n) for n in kept))]
    return _backward(output, whole, weights)


def _backward(output: torch.Tensor, delta: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
    if output.shape != delta.shape:
        raise ValueError(f"PyTorch's output has shape {tuple(output.shape)}, the delta {tuple(delta.shape)}")
    (gradient,) = torch.autograd.grad(output, weights, delta)
    return gradient.detach()
