# SPDX-License-Identifier: Apache-2.0
"""The three weight-gradient sums, written down once more by hand, in float64.

This is an oracle: it shares nothing with the specifications, the templates or the kernels, and it prefers being read
to being fast. Each sum exists twice: ``*_by_element`` walks the indices exactly as the formula does (tiny sizes
only), ``*_by_tap`` slices both tensors once per filter tap. ``tests/reference/test_reference.py`` holds each against
the other.

Names: N batch, IC/OC input/output channels of the forward operation, G groups, ICg = IC / G, OCg = OC / G, I/O
extents of the input / of the delta, K kernel extents, s stride, d dilation, pb/pe pads at the beginning/end. In every
function ``x`` is the forward input (src, input_forward) and ``y`` the gradient of the forward output (diff_dst,
output_delta).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]
Extents = tuple[int, ...]
Index = tuple[Any, ...]  # of slices, one per spatial axis


class Sum(NamedTuple):
    """A gradient and, element by element, the magnitude S = sum of |x * y| over the same terms (what error bounds
    scale with).
    """

    gradient: Array
    magnitude: Array


class Window(NamedTuple):
    """How the forward operation walks: one number per spatial axis, pads already resolved."""

    kernel: Extents
    strides: Extents
    dilations: Extents
    pads_begin: Extents


# ------------------------------------------------------------------------------------------------------------ padding


def effective_extent(kernel: int, dilation: int) -> int:
    """Extent of a dilated filter: (K - 1) * d + 1."""
    return (kernel - 1) * dilation + 1


def convolution_pads(
    auto_pad: str, extent: int, effective: int, stride: int, given: tuple[int, int]
) -> tuple[int, int]:
    """(pb, pe) of one axis of a convolution whose input has ``extent`` positions."""
    mode = auto_pad.lower()
    if mode == "none":
        return given
    if mode == "valid":
        return 0, 0
    last_step = stride if extent % stride == 0 else extent % stride
    return _split(mode, max(0, effective - last_step))


def transposed_pads(auto_pad: str, effective: int, stride: int, given: tuple[int, int]) -> tuple[int, int]:
    """(pb, pe) of one axis of a transposed convolution. output_padding plays no part in it."""
    mode = auto_pad.lower()
    if mode == "none":
        return given
    if mode == "valid":
        return 0, 0
    return _split(mode, max(0, effective - stride))


def _split(mode: str, total: int) -> tuple[int, int]:
    smaller = total // 2
    larger = total - smaller
    if mode == "same_upper":
        return smaller, larger
    if mode == "same_lower":
        return larger, smaller
    raise ValueError(f"auto_pad: {mode!r} is none of none, valid, same_upper, same_lower")


# --------------------------------------------------------------------------------------- the sums, element by element


def convolution_by_element(x: Array, y: Array, window: Window, groups: int) -> Sum:
    """dW(oc, j, k) = sum over n, o of x[n, g*ICg + j, o*s + k*d - pb] * y[n, oc, o],  g = oc / OCg.

    ``x`` is [N][IC][I...], ``y`` is [N][OC][O...]; the result is [OC][ICg][K...].
    """
    input_channels, output_channels = x.shape[1], y.shape[1]
    channels_in, channels_out = input_channels // groups, output_channels // groups
    total = _empty_sum((output_channels, channels_in, *window.kernel))
    for oc in range(output_channels):
        g = oc // channels_out
        for j in range(channels_in):
            for k in np.ndindex(*window.kernel):
                for n in range(x.shape[0]):
                    for o in np.ndindex(*y.shape[2:]):
                        i = _position(o, k, window)
                        if _inside(i, x.shape[2:]):
                            _add(total, (oc, j, *k), x[(n, g * channels_in + j, *i)] * y[(n, oc, *o)])
    return total


def transposed_by_element(x: Array, y: Array, window: Window, groups: int) -> Sum:
    """dW(ic, m, k) = sum over n, i of x[n, ic, i] * y[n, g*OCg + m, i*s + k*d - pb],  g = ic / ICg.

    ``x`` is [N][IC][I...], ``y`` is [N][OC][O...]; the result is [IC][OCg][K...].
    """
    input_channels, output_channels = x.shape[1], y.shape[1]
    channels_in, channels_out = input_channels // groups, output_channels // groups
    total = _empty_sum((input_channels, channels_out, *window.kernel))
    for ic in range(input_channels):
        g = ic // channels_in
        for m in range(channels_out):
            for k in np.ndindex(*window.kernel):
                for n in range(x.shape[0]):
                    for i in np.ndindex(*x.shape[2:]):
                        o = _position(i, k, window)
                        if _inside(o, y.shape[2:]):
                            _add(total, (ic, m, *k), x[(n, ic, *i)] * y[(n, g * channels_out + m, *o)])
    return total


def transposed_document_by_element(x: Array, y: Array, window: Window, groups: int) -> Sum:
    """dW(j, oc, k) = sum over n, i of x[n, g*ICg + j, i] * y[n, oc, i*s + k*d - pb],  g = oc / OCg.

    ``x`` is [N][IC][I...], ``y`` is [N][OC][O...]; the result is [ICg][OC][K...], as document 002 shapes the weights.
    """
    input_channels, output_channels = x.shape[1], y.shape[1]
    channels_in, channels_out = input_channels // groups, output_channels // groups
    total = _empty_sum((channels_in, output_channels, *window.kernel))
    for oc in range(output_channels):
        g = oc // channels_out
        for j in range(channels_in):
            for k in np.ndindex(*window.kernel):
                for n in range(x.shape[0]):
                    for i in np.ndindex(*x.shape[2:]):
                        o = _position(i, k, window)
                        if _inside(o, y.shape[2:]):
                            _add(total, (j, oc, *k), x[(n, g * channels_in + j, *i)] * y[(n, oc, *o)])
    return total


def _empty_sum(shape: Sequence[int]) -> Sum:
    return Sum(np.zeros(shape), np.zeros(shape))


def _add(total: Sum, element: tuple[int, ...], term: float) -> None:
    total.gradient[element] += term
    total.magnitude[element] += abs(term)


def _position(outer: Extents, tap: Extents, window: Window) -> Extents:
    return tuple(
        o * s + k * d - pb
        for o, k, s, d, pb in zip(outer, tap, window.strides, window.dilations, window.pads_begin, strict=True)
    )


def _inside(position: Extents, extents: Extents) -> bool:
    return all(0 <= p < extent for p, extent in zip(position, extents, strict=True))


# ----------------------------------------------------------------------------------------------- the sums, tap by tap


def convolution_by_tap(x: Array, y: Array, window: Window, groups: int, magnitude: bool = True) -> Sum:
    """The sum of ``convolution_by_element``, one matrix product per tap and group."""
    _, input_channels, *input_extents = x.shape
    _, output_channels, *output_extents = y.shape
    channels_in, channels_out = input_channels // groups, output_channels // groups
    # [G][C][N][extents...]: a tap's slice then flattens to one axis of terms, whatever the rank.
    inputs = _group_channels(x, groups, channels_in)
    deltas = _group_channels(y, groups, channels_out)
    gradient = np.zeros((groups, channels_out, channels_in, *window.kernel))
    absolute = np.zeros_like(gradient)
    for tap in np.ndindex(*window.kernel):
        slices = tap_slices(tap, tuple(output_extents), tuple(input_extents), window)
        if slices is None:
            continue
        outer, inner = slices
        a = deltas[(..., *outer)].reshape(groups, channels_out, -1)
        b = inputs[(..., *inner)].reshape(groups, channels_in, -1).transpose(0, 2, 1)
        gradient[(..., *tap)] = a @ b
        if magnitude:
            absolute[(..., *tap)] = np.abs(a) @ np.abs(b)
    shape = (output_channels, channels_in, *window.kernel)
    return Sum(gradient.reshape(shape), absolute.reshape(shape))


def transposed_by_tap(x: Array, y: Array, window: Window, groups: int, magnitude: bool = True) -> Sum:
    """The sum of ``transposed_by_element``, one matrix product per tap and group."""
    _, input_channels, *input_extents = x.shape
    _, output_channels, *output_extents = y.shape
    channels_in, channels_out = input_channels // groups, output_channels // groups
    inputs = _group_channels(x, groups, channels_in)
    deltas = _group_channels(y, groups, channels_out)
    gradient = np.zeros((groups, channels_in, channels_out, *window.kernel))
    absolute = np.zeros_like(gradient)
    for tap in np.ndindex(*window.kernel):
        slices = tap_slices(tap, tuple(input_extents), tuple(output_extents), window)
        if slices is None:
            continue
        outer, inner = slices
        a = inputs[(..., *outer)].reshape(groups, channels_in, -1)
        b = deltas[(..., *inner)].reshape(groups, channels_out, -1).transpose(0, 2, 1)
        gradient[(..., *tap)] = a @ b
        if magnitude:
            absolute[(..., *tap)] = np.abs(a) @ np.abs(b)
    shape = (input_channels, channels_out, *window.kernel)
    return Sum(gradient.reshape(shape), absolute.reshape(shape))


def transposed_document_by_tap(x: Array, y: Array, window: Window, groups: int, magnitude: bool = True) -> Sum:
    """The sum of ``transposed_document_by_element``: output channel oc reads the input channels of its own group."""
    _, input_channels, *input_extents = x.shape
    _, output_channels, *output_extents = y.shape
    channels_in, channels_out = input_channels // groups, output_channels // groups
    gradient = np.zeros((channels_in, output_channels, *window.kernel))
    absolute = np.zeros_like(gradient)
    for g in range(groups):
        inputs = _group_channels(x[:, g * channels_in : (g + 1) * channels_in], 1, channels_in)[0]
        own = slice(g * channels_out, (g + 1) * channels_out)
        deltas = _group_channels(y[:, own], 1, channels_out)[0]
        for tap in np.ndindex(*window.kernel):
            slices = tap_slices(tap, tuple(input_extents), tuple(output_extents), window)
            if slices is None:
                continue
            outer, inner = slices
            a = inputs[(..., *outer)].reshape(channels_in, -1)
            b = deltas[(..., *inner)].reshape(channels_out, -1).T
            gradient[(slice(None), own, *tap)] = a @ b
            if magnitude:
                absolute[(slice(None), own, *tap)] = np.abs(a) @ np.abs(b)
    return Sum(gradient, absolute)


def _group_channels(tensor: Array, groups: int, channels: int) -> Array:
    """[N][G * C][extents...] as a contiguous [G][C][N][extents...]."""
    n, _, *extents = tensor.shape
    split = tensor.reshape(n, groups, channels, *extents)
    return np.ascontiguousarray(split.transpose(1, 2, 0, *range(3, split.ndim)))


def tap_slices(tap: Extents, outer: Extents, inner: Extents, window: Window) -> tuple[Index, Index] | None:
    """The positions of one tap that count: slices of the stepping tensor and of the tensor it steps over, None if
    there are none.
    """
    outer_slices: list[Any] = []
    inner_slices: list[Any] = []
    for k, count, extent, s, d, pb in zip(
        tap, outer, inner, window.strides, window.dilations, window.pads_begin, strict=True
    ):
        # 0 <= o*s + k*d - pb <= extent - 1, solved for o; -(-a // b) is the ceiling.
        first = max(0, -(-(pb - k * d) // s))
        last = min(count - 1, (extent - 1 + pb - k * d) // s)
        if first > last:
            return None
        start = first * s + k * d - pb
        outer_slices.append(slice(first, last + 1))
        inner_slices.append(slice(start, start + (last - first) * s + 1, s))
    return tuple(outer_slices), tuple(inner_slices)


# -------------------------------------------------------------------------------------------- the operations as spelt


class Family(NamedTuple):
    """What tells one operation from another, here: the sum, and the words for the layout of the weights."""

    name: str
    transposed: bool
    two_layouts: bool  # the shape tells a weights layout of document 002 from one of the library
    format_name: str
    default_format: str


FAMILIES = {
    family.name: family
    for family in (
        Family("ConvolutionBackwardWeights", False, False, "weights_format", "XIO"),
        Family("ConvTransposeBackwardWeights", True, True, "weights_format", "XOI"),
        Family("ConvolutionBackpropFilters", False, False, "filter_format", "XIO"),
        Family("ConvTransposeBackpropFilters", True, False, "filter_format", "XIO"),
    )
}


def reference_gradient(
    op: str | Family,
    x: npt.ArrayLike,
    y: npt.ArrayLike,
    shape: Sequence[int],
    attributes: Mapping[str, Any],
    *,
    by_element: bool = False,
    magnitude: bool = True,
) -> Sum:
    """The float64 gradient of an operation, in the weights layout that its attributes ask for.

    ``op`` is the name of one of the four operations, or what another one is like; ``x`` and ``y`` are its two tensors
    in ``data_format``, ``shape`` is the weights (filter) shape and ``attributes`` are the operation's own, spelt as its
    document spells them; absent ones take the document's default. Raises ValueError when the shapes do not fit each
    other: the oracle never guesses.
    """
    family = op if isinstance(op, Family) else FAMILIES.get(op)
    if family is None:
        raise ValueError(f"op: {op!r} is none of {', '.join(FAMILIES)}")
    known = dict(attributes)
    strides, dilations = tuple(known.pop("strides")), tuple(known.pop("dilations"))
    rank = len(strides)
    auto_pad = known.pop("auto_pad", "none")
    nothing = (0,) * rank
    given_begin, given_end = known.pop("pads_begin", nothing), known.pop("pads_end", nothing)
    output_padding = known.pop("output_padding", nothing)
    groups = known.pop("groups", 1)
    data_format = known.pop("data_format", "NXC")
    weights_format = known.pop(family.format_name, family.default_format)
    if known:
        raise ValueError(f"{family.name} has no attribute {', '.join(sorted(known))}")

    inputs, deltas = (
        _channels_second(np.asarray(x, np.float64), data_format),
        _channels_second(np.asarray(y, np.float64), data_format),
    )
    kernel = tuple(int(k) for k in (shape[2:] if weights_format.endswith("X") else shape[:rank]))
    pads_begin = []
    for axis in range(rank):
        effective = effective_extent(kernel[axis], dilations[axis])
        extent, stride = inputs.shape[2 + axis], strides[axis]
        given = int(given_begin[axis]), int(given_end[axis])
        if family.transposed:
            pb, pe = transposed_pads(auto_pad, effective, stride, given)
            expected = (extent - 1) * stride + effective - pb - pe + output_padding[axis]
        else:
            pb, pe = convolution_pads(auto_pad, extent, effective, stride, given)
            expected = (extent + pb + pe - effective) // stride + 1 if extent + pb + pe >= effective else 0
        if expected != deltas.shape[2 + axis] or expected < 1:
            raise ValueError(
                f"axis {axis}: the output extent would be {expected}, the delta has {deltas.shape[2 + axis]}"
            )
        pads_begin.append(pb)
    window = Window(kernel, strides, dilations, tuple(pads_begin))

    literal: Callable[[Array, Array, Window, int], Sum]
    sliced: Callable[[Array, Array, Window, int, bool], Sum]
    if not family.transposed:
        literal, sliced, canonical = convolution_by_element, convolution_by_tap, "OIX"
    elif family.two_layouts and _document_layout(weights_format, shape, inputs.shape[1], deltas.shape[1], groups):
        literal, sliced, canonical = transposed_document_by_element, transposed_document_by_tap, "IOX"
    else:
        literal, sliced, canonical = transposed_by_element, transposed_by_tap, "IOX"
    walk = inputs, deltas, window, groups
    total = literal(*walk) if by_element else sliced(*walk, magnitude)
    gradient, absolute = (_weights_layout(part, canonical, weights_format) for part in total)
    if gradient.shape != tuple(shape):
        raise ValueError(
            f"{family.format_name} {weights_format}: "
            f"the gradient has shape {gradient.shape}, {tuple(shape)} was asked for"
        )
    return Sum(gradient, absolute)


def _document_layout(
    weights_format: str, shape: Sequence[int], input_channels: int, output_channels: int, groups: int
) -> bool:
    """Whether the shape is (IC / G, OC, K...), as document 002 has it, and not (IC, OC / G, K...), as the library
    lays it out.
    """
    asked = tuple(shape[:2]) if weights_format == "IOX" else (shape[-1], shape[-2])
    if asked == (input_channels // groups, output_channels):
        return True
    if asked == (input_channels, output_channels // groups):
        return False
    raise ValueError(
        f"channels {asked} of the shape fit neither reading of IC={input_channels}, OC={output_channels}, G={groups}"
    )


def _channels_second(tensor: Array, data_format: str) -> Array:
    if data_format == "NCX":
        return tensor
    if data_format == "NXC":
        return np.moveaxis(tensor, -1, 1)
    raise ValueError(f"data_format: {data_format!r} is neither NCX nor NXC")


def _weights_layout(gradient: Array, canonical: str, wanted: str) -> Array:
    """Reorders [first][second][K...] (``canonical``, OIX or IOX) to the ``wanted`` one of OIX, IOX, XIO, XOI."""
    spatial = tuple(range(2, gradient.ndim))
    axes = {canonical[0]: (0,), canonical[1]: (1,), "X": spatial}
    order = [axis for letter in wanted for axis in axes[letter]]
    return np.ascontiguousarray(gradient.transpose(order))
