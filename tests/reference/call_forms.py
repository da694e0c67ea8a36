# SPDX-License-Identifier: Apache-2.0
"""The ways a user can ask for one gradient. All must give the same bits, so the campaigns take turns among them."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import numpy as np
import numpy.typing as npt

from reference.geometries import Problem

Tensor = npt.NDArray[Any]

FORMS = (
    "function",
    "function_shape_array",
    "attribute_shape",
    "shape_tensor",
    "out",
    "prepare_arrays",
    "prepare_shapes",
)


def call(module: ModuleType, problem: Problem, form: str, source: Tensor, delta: Tensor) -> Tensor:
    """The gradient of ``problem`` through one of ``FORMS``; ``module`` is the library (or a stand-in with its
    interface).
    """
    words, shape, attributes = problem.words, problem.weights_shape, problem.attributes
    shape_tensor = np.array(shape, np.int32)
    function, operation = getattr(module, words.function), getattr(module, problem.op)
    gradient: Tensor
    if form == "function":
        gradient = function(source, delta, shape, **attributes)
    elif form == "function_shape_array":
        gradient = function(source, delta, shape_tensor, **attributes)
    elif form == "attribute_shape":
        gradient = operation(**attributes, **{words.shape: shape})(source, delta)
    elif form == "shape_tensor":
        # The input wins over the attribute, silently.
        other = tuple(extent + 1 for extent in shape)
        gradient = operation(**attributes, **{words.shape: other})(source, delta, shape_tensor)
    elif form == "out":
        # Garbage in the buffer: every element must be written.
        buffer = np.full(shape, np.nan, source.dtype)
        gradient = operation(**attributes, **{words.shape: shape})(source, delta, out=buffer)
        assert gradient is buffer, f"out= must return the buffer itself: {problem}"
    elif form == "prepare_arrays":
        plan = operation(**attributes, **{words.shape: shape}).prepare(source, delta)
        gradient = plan(source, delta)
    elif form == "prepare_shapes":
        plan = operation(**attributes, **{words.shape: shape}).prepare(source.shape, delta.shape, dtype=source.dtype)
        buffer = np.full(shape, np.nan, source.dtype)
        gradient = plan(source, delta, out=buffer)
        assert gradient is buffer, f"out= must return the buffer itself: {problem}"
    else:
        raise ValueError(f"form: {form!r} is none of {', '.join(FORMS)}")
    return gradient


def check_form(problem: Problem, gradient: Tensor, source: Tensor) -> None:
    """The result is an array of the shape asked for and of the type of the inputs."""
    assert isinstance(gradient, np.ndarray), f"{type(gradient)} is no numpy array: {problem}"
    assert gradient.shape == problem.weights_shape, f"shape {gradient.shape}, not {problem.weights_shape}: {problem}"
    assert gradient.dtype == source.dtype, f"dtype {gradient.dtype}, not {source.dtype}: {problem}"
