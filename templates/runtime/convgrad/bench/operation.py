# SPDX-License-Identifier: Apache-2.0
"""The operation whose gradient a problem is: the convolution's, or the transposed one's with src and dst exchanged."""

from __future__ import annotations

from typing import Any

from convgrad.attributes import check_attributes
from convgrad.bench.operands import LAYOUTS, data_shape, weights_shape
from convgrad.bench.problem import Problem
from convgrad.geometry import Geometry, resolve_geometry
from convgrad.operations import OPERATIONS


def find_operation(*, transposed: bool) -> Any:
    """The operation's class. Raises LookupError if this package was generated without it."""
    name = "ConvTransposeBackwardWeights" if transposed else "ConvolutionBackwardWeights"
    for operation in OPERATIONS:
        if operation.description.name == name:
            return operation
    raise LookupError(f"this package was generated without {name}, which the problem needs")


def make_operation(problem: Problem, layout: str, *, transposed: bool) -> Any:
    """The operation with all attributes that the problem has; `layout` is a key of LAYOUTS."""
    return find_operation(transposed=transposed)(**_list_attributes(problem, layout, transposed))


def resolve_problem(problem: Problem, layout: str, *, transposed: bool) -> Geometry:
    """The problem in the numbers that kernels are planned for, without data; `layout` is a key of LAYOUTS.

    Raises:
        LookupError: this package was generated without the operation.
        SpecError: the problem is larger than operations take.
    """
    description = find_operation(transposed=transposed).description
    defaults = {attribute.name: attribute.default for attribute in description.attributes}
    settings = check_attributes(description, {**defaults, **_list_attributes(problem, layout, transposed)})
    data_format, weights_format = LAYOUTS[layout]
    src = data_shape(problem.batch, problem.input_channels, problem.input, data_format)
    dst = data_shape(problem.batch, problem.output_channels, problem.output, data_format)
    first, second = (dst, src) if transposed else (src, dst)
    return resolve_geometry(description, settings, first, second, weights_shape(problem, weights_format))


def transposed_weights_format(weights_format: str) -> str:
    """The transposed operation's word for the same order in memory: its inputs are the convolution's outputs."""
    return {"OIX": "IOX", "XIO": "XOI"}[weights_format]


def _list_attributes(problem: Problem, layout: str, transposed: bool) -> dict[str, Any]:
    data_format, weights_format = LAYOUTS[layout]
    attributes: dict[str, Any] = {
        "strides": problem.strides,
        "dilations": problem.dilations,
        "pads_begin": problem.pads_begin,
        "pads_end": problem.pads_end,
        "groups": problem.groups,
        "data_format": data_format,
        "weights_format": weights_format,
        "weights_shape": weights_shape(problem, weights_format),
    }
    if transposed:
        attributes["pads_end"], attributes["output_padding"] = problem.transposed_pads()
        attributes["weights_format"] = transposed_weights_format(weights_format)
    return attributes
