# SPDX-License-Identifier: Apache-2.0
"""What a kernel is called and what it works on. The table of all kernels is in kernel_table.py."""

from __future__ import annotations

from typing import Literal, NamedTuple

Rank = Literal[1, 2, 3]
DataFormat = Literal["NCX", "NXC"]
DType = Literal["f32", "bf16", "f16"]


class Kernel(NamedTuple):
    """One generated C file with one function.

    symbol       name of the C function: ``wgrad_<rank>d_<data format>_<dtype>_<strategy>``, in lower case
    rank         number of spatial axes: 1, 2 or 3
    data_format  layout of both inputs: "NCX" (channels first) or "NXC" (channels last)
    dtype        element type of both inputs: "f32", "bf16" or "f16" (the sums are kept in f32)
    strategy     how the sum is worked out: one row of the generator's table of strategies

    The loader refuses a symbol that the other fields do not spell.
    """

    symbol: str
    rank: Rank
    data_format: DataFormat
    dtype: DType
    strategy: str

    @property
    def file(self) -> str:
        """Name of the C file in the package's folder ``kernels``."""
        return f"{self.symbol}.c"
