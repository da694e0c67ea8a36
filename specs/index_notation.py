# SPDX-License-Identifier: Apache-2.0
"""Sums in index notation: a product of two tensors with integer index formulas, summed over free indices.

A data tensor is always indexed as [batch, channel, spatial], whatever its layout in memory; the spatial index stands
for all spatial axes at once, each with its own stride, dilation and padding.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import product

from specs.expressions import evaluate_formula, parse_expression, parse_formula


@dataclass(frozen=True, slots=True)
class Factor:
    """One tensor of the product with the formulas of its three indices."""

    tensor: str
    batch: str
    channel: str
    spatial: str


@lru_cache(maxsize=64)
def parse_term(text: str) -> tuple[Factor, Factor]:
    """The two factors of a term such as `src[n, g*ICg + j, o*s + k*d - pb] * diff_dst[n, oc, o]`.

    Raises:
        ValueError: the text is not a product of two tensors with three index formulas each.
    """
    tree = parse_expression(text, "term")
    if not isinstance(tree, ast.BinOp) or not isinstance(tree.op, ast.Mult):
        raise ValueError(f"not a term: {text!r} (expected a product of two tensors)")
    return _parse_factor(tree.left, text), _parse_factor(tree.right, text)


def _parse_factor(node: ast.expr, text: str) -> Factor:
    match node:
        case ast.Subscript(value=ast.Name(id=tensor), slice=ast.Tuple(elts=[batch, channel, spatial])):
            formulas = [ast.unparse(index) for index in (batch, channel, spatial)]
            for formula in formulas:
                parse_formula(formula)
            return Factor(tensor, *formulas)
    raise ValueError(f"not a term: {text!r} (expected tensor[batch, channel, spatial] on each side)")


def interpret_sum(
    term: str,
    where: Mapping[str, str],
    gradient: Mapping[str, int],
    over_batch: tuple[str, int],
    over_spatial: tuple[str, Sequence[int]],
    tap: tuple[str, Sequence[int]],
    call_values: Mapping[str, int],
    axis_values: Sequence[Mapping[str, int]],
    element: Callable[[str, int, int, tuple[int, ...]], float],
) -> float:
    """One element of the gradient, by the letter of the specification: slow, and the yardstick for everything else.

    Args:
        term: the product, see `parse_term`.
        where: index -> formula for the indices that follow from others (the group).
        gradient: channel index -> value for the element asked for.
        over_batch: name and extent of the batch index.
        over_spatial: name and extents (one for each spatial axis) of the summed spatial index.
        tap: name of the kernel index and its value on each spatial axis.
        call_values: symbols with one value for the call (IC, OC, groups, ICg, OCg).
        axis_values: for each spatial axis its symbols (s, d, pb).
        element: reads tensor `name` at (batch, channel, spatial position); 0.0 outside its extents.
    """
    factors = parse_term(term)
    values = {**call_values, **gradient}
    for name, formula in where.items():
        values[name] = evaluate_formula(formula, values)
    total = 0.0
    for batch in range(over_batch[1]):
        values[over_batch[0]] = batch
        for position in product(*(range(extent) for extent in over_spatial[1])):
            term_value = 1.0
            for factor in factors:
                spatial = []
                for axis, symbols in enumerate(axis_values):
                    here = {**symbols, over_spatial[0]: position[axis], tap[0]: tap[1][axis]}
                    spatial.append(evaluate_formula(factor.spatial, here))
                channel = evaluate_formula(factor.channel, values)
                term_value *= element(factor.tensor, evaluate_formula(factor.batch, values), channel, tuple(spatial))
            total += term_value
    return total
