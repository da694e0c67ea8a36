# SPDX-License-Identifier: Apache-2.0
"""Which filter turned one picture into the other? Found by gradient descent on the filter.

Two experiments, each with a filter that the descent does not see:

    filtering    after = convolution(before, filter) + noise, four filters at once; the gradient of the loss comes from
                 convgrad.ConvolutionBackwardWeights
    upsampling   after = transposed convolution(before, filter) + noise, twice as high and wide; the gradient comes
                 from convgrad.ConvTransposeBackwardWeights

On a bare photograph the descent would take millions of steps: neighbouring pixels are nearly equal, and so are their
colours, so the loss curves tens of millions of times more in one direction than in another. Both likenesses are taken
out beforehand (`whiten`), in a way that leaves the sought filter what it is. What remains is a ratio of about 70, which
Nesterov's momentum masters within some fifty steps.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from convgrad.operations import OPERATIONS

Picture = NDArray[np.float32]
"""(channels, height, width); 0 is black and 1 is white."""
Weights = NDArray[np.float32]

COLOURS = 3
NEIGHBOUR_CORRELATION = 0.95
"""Of two neighbouring pixels in a photograph."""
POWER_ITERATIONS = 20
CURVATURE_MARGIN = 1.05
"""Power iteration approaches the largest curvature from below."""


@dataclass(frozen=True, slots=True)
class Experiment:
    """A picture before and after a filter, and what a descent needs to find that filter.

    title        what the filter does
    operation    name of the one whose gradient leads there
    before       what went in
    after        what came out, noise included
    noise        standard deviation of that noise
    truth        the hidden filter, OIX for a convolution and IOX for a transposed one
    labels       a name for each filter that is shown by itself: along the first axis of `truth`
    noise_floor  the loss that the hidden filter itself has
    evaluate     the output of any filter, on the whitened picture
    target       what that should be: the whitened `after`
    gradient     from an error at the output to the gradient of a filter, on the whitened picture
    restore      from a filter over decorrelated colours to one over the picture's own
    """

    title: str
    operation: str
    before: Picture
    after: Picture
    noise: float
    truth: Weights
    labels: tuple[str, ...]
    noise_floor: float
    evaluate: Callable[[Weights], Picture]
    target: Picture
    gradient: Callable[[Picture], Weights]
    restore: Callable[[Weights], Weights]

    def relative_error(self, weights: Weights) -> float:
        """The distance between a filter and the hidden one, as a part of the hidden one's length."""
        return float(np.linalg.norm(weights - self.truth) / np.linalg.norm(self.truth))


@dataclass(frozen=True, slots=True)
class Step:
    """Where a descent is after one step.

    loss              half the mean square of the error at the output
    weights           the filter so far, over the picture's own colours
    gradient_seconds  what the gradient took, without the forward pass
    """

    loss: float
    weights: Weights
    gradient_seconds: float


# The pictures


def find_operation(name: str) -> Any:
    """The class of an operation.

    Raises:
        LookupError: this package was generated without it.
    """
    for operation in OPERATIONS:
        if operation.__name__ == name:
            return operation
    raise LookupError(f"this package was generated without {name}, which the demo needs")


def make_filtering(photograph: Picture, *, extent: int = 9, noise: float = 1e-4, seed: int = 7) -> Experiment:
    """Hide four filters of extent x extent taps over three colours; `photograph` is (3, height, width)."""
    truth = hidden_filters(extent)
    shape = truth.shape
    operation = find_operation("ConvolutionBackwardWeights")(
        strides=(1, 1), pads_begin=(0, 0), pads_end=(0, 0), dilations=(1, 1),
        data_format="NCX", weights_format="OIX", weights_shape=shape,
    )  # fmt: skip
    clean = convolve(photograph, truth)
    disturbance = _noise(clean.shape, noise, seed)
    source, mixing = whiten(photograph)
    target = remove_neighbours(clean + disturbance, 1)
    plan = operation.prepare((1, *source.shape), (1, *target.shape), dtype=np.float32)
    windows = unfold(source, (extent, extent))  # kept, for it never changes
    return Experiment(
        title=f"four {extent} x {extent} filters on a colour picture",
        operation=operation.description.name,
        before=photograph,
        after=clean + disturbance,
        noise=noise,
        truth=truth,
        labels=("motion blur", "edges", "sharpen", "red against green"),
        noise_floor=_loss(remove_neighbours(disturbance, 1)),
        evaluate=lambda weights: (weights.reshape(len(weights), -1) @ windows).reshape(target.shape),
        target=target,
        gradient=lambda error: plan(source[None], error[None]),
        restore=lambda weights: np.einsum("oihw,ij->ojhw", weights, mixing),
    )


def make_upsampling(photograph: Picture, *, extent: int = 8, noise: float = 1e-4, seed: int = 8) -> Experiment:
    """Hide a filter that doubles height and width, with colour fringes; `photograph` is (3, height, width)."""
    stride = 2
    pad = extent - stride  # cuts off what only a part of the filter's taps has reached
    truth = hidden_upsampler(extent, stride)
    shape = truth.shape
    operation = find_operation("ConvTransposeBackwardWeights")(
        strides=(stride, stride), pads_begin=(pad, pad), pads_end=(pad, pad), dilations=(1, 1),
        data_format="NCX", weights_format="IOX", weights_shape=shape,
    )  # fmt: skip
    clean = convolve_transposed(photograph, truth, stride, pad)
    disturbance = _noise(clean.shape, noise, seed)
    source, mixing = whiten(photograph)
    target = remove_neighbours(clean + disturbance, stride)
    plan = operation.prepare((1, *source.shape), (1, *target.shape), dtype=np.float32)
    return Experiment(
        title=f"an {extent} x {extent} upsampling filter with colour fringes, stride {stride}",
        operation=operation.description.name,
        before=photograph,
        after=clean + disturbance,
        noise=noise,
        truth=truth,
        labels=("from red", "from green", "from blue"),
        noise_floor=_loss(remove_neighbours(disturbance, stride)),
        evaluate=lambda weights: convolve_transposed(source, weights, stride, pad),
        target=target,
        gradient=lambda error: plan(source[None], error[None]),
        restore=lambda weights: np.einsum("iohw,ij->johw", weights, mixing),
    )


def hidden_filters(extent: int) -> Weights:
    """Four filters over three colours, (4, 3, extent, extent)."""
    x = np.arange(extent) - (extent - 1) / 2
    u, v = np.meshgrid(x, x, indexing="ij")
    angle = np.deg2rad(35)
    along, across = v * np.cos(angle) - u * np.sin(angle), v * np.sin(angle) + u * np.cos(angle)

    def bell(width: float) -> NDArray[np.float64]:
        values = np.exp(-(u**2 + v**2) / (2 * width**2))
        return np.asarray(values / values.sum())

    line = np.exp(-(across**2) / 0.5) * (np.abs(along) <= extent / 2)
    blur = line / line.sum()
    edges = -across * bell(1.4)
    sharpen = bell(0.9) + 8 * (1 - (u**2 + v**2) / (2 * 1.2**2)) * bell(1.2)
    grey, red, green = (np.array(colour)[:, None, None] for colour in ((1 / 3, 1 / 3, 1 / 3), (1, 0, 0), (0, 1, 0)))
    filters = grey * blur, 1.5 * grey * edges, grey * sharpen, 2 * (red * bell(1.2) - green * bell(2.0))
    return np.stack(filters).astype(np.float32)


def hidden_upsampler(extent: int, stride: int) -> Weights:
    """A Lanczos filter over three colours, warmed up and out of register by half a pixel, (3, 3, extent, extent)."""
    warm = np.array([[0.80, 0.28, 0.06], [0.24, 0.62, 0.20], [0.06, 0.10, 0.56]])  # from a colour, to a colour
    fringe = 0.5
    weights = np.zeros((COLOURS, COLOURS, extent, extent))
    for colour, shift in enumerate((-fringe, 0.0, fringe)):
        position = (np.arange(extent) - (extent - 1) / 2 - shift) / stride
        profile = np.sinc(position) * np.sinc(position / 2) * (np.abs(position) < 2)
        for phase in range(stride):
            profile[phase::stride] /= profile[phase::stride].sum()  # a flat picture stays flat
        weights[:, colour] = warm[:, colour, None, None] * np.outer(profile, profile)
    return weights.astype(np.float32)


def _noise(shape: tuple[int, ...], deviation: float, seed: int) -> Picture:
    return (deviation * np.random.default_rng(seed).standard_normal(shape)).astype(np.float32)


# The forward passes


def unfold(picture: Picture, taps: tuple[int, int]) -> NDArray[np.float32]:
    """(C, H, W) to (C * K * K, positions): what each tap meets, so that a convolution is a product of matrices."""
    windows = np.lib.stride_tricks.sliding_window_view(picture, taps, axis=(1, 2))
    return np.ascontiguousarray(windows.transpose(0, 3, 4, 1, 2)).reshape(len(picture) * math.prod(taps), -1)


def convolve(picture: Picture, weights: Weights) -> Picture:
    """(C, H, W) and (OC, C, K, K) to (OC, H - K + 1, W - K + 1), without padding."""
    taps = weights.shape[2], weights.shape[3]
    rows, columns = picture.shape[1] - taps[0] + 1, picture.shape[2] - taps[1] + 1
    return (weights.reshape(len(weights), -1) @ unfold(picture, taps)).reshape(len(weights), rows, columns)


def convolve_transposed(picture: Picture, weights: Weights, stride: int, pad: int) -> Picture:
    """(C, H, W) and (C, OC, K, K) to (OC, (H - 1) * stride + K - 2 * pad, likewise), cut by `pad` on each side."""
    rows, columns = ((extent - 1) * stride + 1 for extent in picture.shape[1:])
    taps = weights.shape[2:]
    result = np.zeros((weights.shape[1], rows + taps[0] - 1, columns + taps[1] - 1), np.float32)
    for k, l in np.ndindex(*taps):
        spread = np.tensordot(weights[:, :, k, l].T, picture, axes=1)
        result[:, k : k + rows : stride, l : l + columns : stride] += spread
    return np.ascontiguousarray(result[:, pad : result.shape[1] - pad, pad : result.shape[2] - pad])


# What makes the descent short


def whiten(photograph: Picture) -> tuple[Picture, NDArray[np.float32]]:
    """Make neighbouring pixels and the three colours independent of each other.

    Filters commute: what takes the likeness of neighbours off both pictures leaves the filter between them what it is.
    The matrix that mixed the colours is returned as well, for it has mixed the filter's too.
    """
    innovations = remove_neighbours(photograph, 1)
    values, vectors = np.linalg.eigh(np.cov(innovations.reshape(COLOURS, -1).astype(np.float64)))
    mixing = ((vectors / np.sqrt(values)) @ vectors.T).astype(np.float32)
    return np.ascontiguousarray(np.einsum("ij,jhw->ihw", mixing, innovations)), mixing


def remove_neighbours(picture: Picture, distance: int) -> Picture:
    """Take off each pixel what those above it and to its left, `distance` away, already tell."""
    rows = picture[:, distance:] - NEIGHBOUR_CORRELATION * picture[:, :-distance]
    return np.ascontiguousarray(rows[:, :, distance:] - NEIGHBOUR_CORRELATION * rows[:, :, :-distance])


# The descent


def _loss(error: Picture) -> float:
    return 0.5 * float(np.mean(np.square(error, dtype=np.float64)))


def largest_curvature(experiment: Experiment, seed: int = 1) -> float:
    """Return the Lipschitz constant of the loss's gradient, by power iteration on forward pass and gradient."""
    direction = np.random.default_rng(seed).standard_normal(experiment.truth.shape).astype(np.float32)
    length = 1.0
    for _ in range(POWER_ITERATIONS):
        direction = experiment.gradient(experiment.evaluate(direction) / np.float32(experiment.target.size))
        length = float(np.linalg.norm(direction))
        direction /= np.float32(length)
    return CURVATURE_MARGIN * length


def descend(experiment: Experiment, steps: int) -> Iterator[Step]:
    """Descend from a filter of zeros, and yield where that is: at the start, then after each step.

    The step is 1 / L, L the largest curvature; the momentum is Nesterov's, dropped whenever it leads uphill.
    """
    weights = previous = np.zeros(experiment.truth.shape, np.float32)
    age = 1.0
    error = experiment.evaluate(weights) - experiment.target
    yield Step(_loss(error), experiment.restore(weights), 0.0)
    step = np.float32(1 / largest_curvature(experiment))
    for _ in range(steps):
        start = time.perf_counter()
        slope = experiment.gradient(error / np.float32(error.size))
        seconds = time.perf_counter() - start
        descended = weights - step * slope
        if np.vdot(slope, descended - previous) > 0:
            age = 1.0
        older, age = age, (1 + math.sqrt(1 + 4 * age**2)) / 2
        weights = descended + np.float32((older - 1) / age) * (descended - previous)
        previous = descended
        error = experiment.evaluate(weights) - experiment.target
        yield Step(_loss(error), experiment.restore(weights), seconds)
