# SPDX-License-Identifier: Apache-2.0
"""The oracle for any operation that has a specification, and not only for the four that it knows by name.

From the specification come names, defaults, and which of the oracle's three sums is meant; the sums themselves stay
those that ``naive_gradient`` wrote by hand.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy.typing as npt

from reference.naive_gradient import Family, Sum, reference_gradient
from specs import Operation

_STEPS_OVER = {"O": False, "I": True}  # spatial extent that the sum runs over -> the forward operation is transposed


def family_of(operation: Operation) -> Family:
    """Which sum the specification means. Attributes are spelt by role; see ``specified_gradient``.

    Raises ValueError for a sum that is none of the oracle's.
    """
    extents = {symbol for reading in operation.readings for symbol in reading.sum.over.values()} - {"N"}
    if len(extents) != 1 or not extents <= set(_STEPS_OVER):
        raise ValueError(f"{operation.name}: the oracle has no sum over {sorted(extents)}; expected I or O")
    transposed = _STEPS_OVER[extents.pop()]
    document = {"IC/groups", "OC"}
    two_layouts = transposed and any(document <= set(reading.sum.gradient.values()) for reading in operation.readings)
    default = next(row.default for row in operation.attributes if row.role == "weights_format")
    return Family(operation.name, transposed, two_layouts, "weights_format", str(default))


def specified_gradient(
    operation: Operation,
    tensors: Sequence[npt.ArrayLike],
    shape: Sequence[int],
    attributes: Mapping[str, Any],
    *,
    by_element: bool = False,
) -> Sum:
    """The float64 gradient of ``operation``: ``tensors`` are its data inputs in their order, ``attributes`` are spelt
    as its specification spells them, and absent ones take its defaults. ``shape`` is that of the weights.
    """
    roles = {row.name: row.role for row in operation.attributes}
    given = {roles[name]: value for name, value in attributes.items()}
    rank = len(given["strides"])
    by_role: dict[str, Any] = {  # the default of a list is that of each entry
        row.role: (row.default,) * rank if row.kind == "s64[]" and isinstance(row.default, int) else row.default
        for row in operation.attributes
        if row.default is not None
    } | given
    by_spatial = {row.spatial: tensor for row, tensor in zip(operation.data_inputs, tensors, strict=True)}
    family = family_of(operation)
    return reference_gradient(family, by_spatial["I"], by_spatial["O"], shape, by_role, by_element=by_element)
