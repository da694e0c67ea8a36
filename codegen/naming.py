# SPDX-License-Identifier: Apache-2.0
"""Names of generated things, and back: one grammar for kernel symbols, one for Python modules and functions.

symbol   = "wgrad_" rank "d_" data_format "_" dtype "_" strategy        wgrad_2d_ncx_bf16_direct
file     = symbol ".c"
module   = snake case of the operation's name                           convolution_backward_weights
"""

from __future__ import annotations

import re

from codegen.variants import KernelVariant

_SYMBOL = re.compile(r"wgrad_([123])d_(ncx|nxc)_([a-z][a-z0-9]*)_([a-z][a-z0-9]*)")


def kernel_symbol(variant: KernelVariant) -> str:
    """The C function that implements a variant."""
    return f"wgrad_{variant.rank}d_{variant.data_format.lower()}_{variant.dtype}_{variant.strategy}"


def parse_kernel_symbol(symbol: str) -> KernelVariant:
    """The variant that a symbol names; the inverse of `kernel_symbol`.

    Raises:
        ValueError: the symbol does not follow the grammar.
    """
    match = _SYMBOL.fullmatch(symbol)
    if match is None:
        raise ValueError(f"{symbol!r} is no kernel symbol: expected wgrad_<rank>d_<data format>_<dtype>_<strategy>")
    rank, data_format, dtype, strategy = match.groups()
    return KernelVariant(int(rank), data_format.upper(), dtype, strategy)


def snake_case(name: str) -> str:
    """An operation's CamelCase name as a Python function or module: ConvTransposeX -> conv_transpose_x."""
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", name).lower()
