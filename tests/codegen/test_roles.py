# SPDX-License-Identifier: Apache-2.0
"""From sums to roles, and the refusal of sums that no kernel computes."""

from __future__ import annotations

import json
from typing import Any

import pytest

from codegen.roles import UnsupportedSumError, assign_roles
from specs.loader import dump_operation, load_operations, operation_from_data
from specs.model import Operation

OPERATIONS = {operation.name: operation for operation in load_operations()}


def with_sum(operation: Operation, **changes: Any) -> Operation:
    data = json.loads(dump_operation(operation))
    data["readings"][0]["sum"].update(changes)
    return operation_from_data(data, "made_up")


@pytest.mark.parametrize(
    ("name", "plain", "windowed"),
    [
        ("ConvolutionBackwardWeights", "diff_dst", "src"),
        ("ConvTransposeBackwardWeights", "src", "diff_dst"),
        ("ConvolutionBackpropFilters", "output_delta", "input_forward"),
        ("ConvTransposeBackpropFilters", "input_forward", "output_delta"),
    ],
)
def test_roles_of_the_four_operations(name: str, plain: str, windowed: str) -> None:
    for reading in OPERATIONS[name].readings:
        roles = assign_roles(OPERATIONS[name], reading)
        assert (roles.plain.name, roles.windowed.name) == (plain, windowed)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"term": "src[n, g * ICg + j, o * s + k * d + pb] * diff_dst[n, oc, o]"}, r"read at 'o \* s \+ k \* d - pb'"),
        ({"term": "src[n, g * ICg + j, o * s - k * d - pb] * diff_dst[n, oc, o]"}, r"read at 'o \* s \+ k \* d - pb'"),
        ({"term": "src[n, j, o * s + k * d - pb] * diff_dst[n, oc, o]"}, r"src is read at channel 'g \* ICg \+ j'"),
        ({"term": "src[n + 1, g * ICg + j, o * s + k * d - pb] * diff_dst[n, oc, o]"}, "the sum runs over the batch"),
        ({"where": {"g": "oc // ICg"}}, "the group is g = oc // OCg"),
    ],
)
def test_other_sums_are_refused(changes: dict[str, Any], message: str) -> None:
    operation = with_sum(OPERATIONS["ConvolutionBackwardWeights"], **changes)
    with pytest.raises(UnsupportedSumError, match=message):
        assign_roles(operation, operation.readings[0])
