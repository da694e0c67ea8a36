# SPDX-License-Identifier: Apache-2.0
"""What a kernel is called and what it works on. The table of all kernels is in kernel_table.py."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

Rank = Literal[1, 2, 3]
DataFormat = Literal["NCX", "NXC"]
DType = Literal["f32", "bf16", "f16"]

_STRATEGY = re.compile(r"[a-z][a-z0-9_]*")


@dataclass(frozen=True, slots=True)
class Kernel:
    """One generated C file with one function.

    symbol       name of the C function: ``wgrad_<rank>d_<data format>_<dtype>_<strategy>``, in lower case
    rank         number of spatial axes: 1, 2 or 3
    data_format  layout of both inputs: "NCX" (channels first) or "NXC" (channels last)
    dtype        element type of both inputs: "f32", "bf16" or "f16" (the sums are kept in f32)
    strategy     how the sum is worked out: one row of the generator's table of strategies

    Raises ValueError if the symbol is not the one that the other fields spell: symbols end up in C source, in file
    names and in compiler arguments, so nothing but this grammar gets through.
    """

    symbol: str
    rank: Rank
    data_format: DataFormat
    dtype: DType
    strategy: str

    def __post_init__(self) -> None:
        expected = f"wgrad_{self.rank}d_{self.data_format.lower()}_{self.dtype}_{self.strategy}"
        known = self.rank in (1, 2, 3) and self.data_format in ("NCX", "NXC") and self.dtype in ("f32", "bf16", "f16")
        if not known or _STRATEGY.fullmatch(self.strategy) is None or self.symbol != expected:
            raise ValueError(f"not a kernel: symbol={self.symbol!r}, but its fields spell {expected!r}")

    @property
    def file(self) -> str:
        """Name of the C file in the package's folder ``kernels``."""
        return f"{self.symbol}.c"
