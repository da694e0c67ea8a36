# SPDX-License-Identifier: Apache-2.0
"""From an operation's sum to the roles that kernels know: which tensor is plain, which is windowed.

All supported sums are one sum. The windowed tensor is read at `o * s + k * d - pb`, the plain one at `o`; channels of
one group meet only each other; the gradient runs over (plain channel, windowed channel, taps). A sum that is not of
this form has no kernel, and is refused here.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass

from specs.index_notation import Factor, parse_term
from specs.model import Operation, Reading, Tensor


class UnsupportedSumError(ValueError):
    """The specification is sound, but no template computes its sum."""


@dataclass(frozen=True, slots=True)
class Roles:
    """Which input plays which role in one reading of an operation."""

    plain: Tensor
    windowed: Tensor


def assign_roles(operation: Operation, reading: Reading) -> Roles:
    """The roles of the two data inputs.

    Raises:
        UnsupportedSumError: the sum is not the one that the kernels compute.
    """
    inputs = {tensor.name: tensor for tensor in operation.data_inputs}
    factors = parse_term(reading.sum.term)
    bare = [factor for factor in factors if isinstance(_tree(factor.spatial), ast.Name)]
    if len(bare) != 1:
        raise _unsupported(operation, reading, "exactly one tensor is read at a bare spatial index")
    plain = bare[0]
    windowed = factors[0] if factors[1] is plain else factors[1]
    taps = [index for index, axis in reading.sum.gradient.items() if axis == "X"]
    expected = f"{plain.spatial} * s + {taps[0]} * d - pb" if len(taps) == 1 else ""
    if windowed.spatial != expected:
        raise _unsupported(operation, reading, f"the other tensor is read at {expected!r}, not {windowed.spatial!r}")
    if set(reading.sum.over) != {plain.batch, plain.spatial} or windowed.batch != plain.batch:
        raise _unsupported(operation, reading, "the sum runs over the batch and the plain tensor's positions")
    _check_channels(operation, reading, inputs[plain.tensor], plain)
    _check_channels(operation, reading, inputs[windowed.tensor], windowed)
    return Roles(inputs[plain.tensor], inputs[windowed.tensor])


def _check_channels(operation: Operation, reading: Reading, tensor: Tensor, factor: Factor) -> None:
    """The channel index of a factor is a whole channel index, or one inside the group that the other one is in."""
    whole = [index for index, axis in reading.sum.gradient.items() if axis == tensor.channels]
    divided = [index for index, axis in reading.sum.gradient.items() if axis == f"{tensor.channels}/groups"]
    per_group = f"{tensor.channels}g"
    if whole and reading.sum.where != {"g": f"{whole[0]} // {per_group}"}:
        raise _unsupported(operation, reading, f"the group is g = {whole[0]} // {per_group}")
    expected = whole[0] if whole else f"g * {per_group} + {divided[0]}" if divided else None
    if factor.channel != expected:
        raise _unsupported(operation, reading, f"{tensor.name} is read at channel {expected!r}, not {factor.channel!r}")


def _tree(formula: str) -> ast.expr:
    return ast.parse(formula, mode="eval").body


def _unsupported(operation: Operation, reading: Reading, expected: str) -> UnsupportedSumError:
    return UnsupportedSumError(
        f"{operation.name}: no kernel computes the sum of reading {reading.id!r}: {reading.sum.term}; "
        f"the kernels need a sum in which {expected}"
    )
