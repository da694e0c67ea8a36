# SPDX-License-Identifier: Apache-2.0
"""The table of kernels: a symbol becomes a name in C, a file and a compiler's argument, so it is a plain one."""

import re
from typing import Any

import pytest

from convgrad.kernel import Kernel
from convgrad.kernel_table import KERNELS
from convgrad.loader import KERNEL_FOLDER, load_kernel

NAME = re.compile(r"wgrad_[123]d_(ncx|nxc)_(f32|bf16|f16)_[a-z][a-z0-9_]*", re.ASCII)


@pytest.mark.parametrize("kernel", KERNELS, ids=lambda kernel: kernel.symbol)
def test_symbol_is_a_plain_name_that_its_fields_spell(kernel: Kernel) -> None:
    rank, data_format, dtype, strategy = kernel[1:]
    assert NAME.fullmatch(kernel.symbol), kernel
    assert kernel.symbol == f"wgrad_{rank}d_{data_format.lower()}_{dtype}_{strategy}"
    assert (KERNEL_FOLDER / kernel.file).is_file()


@pytest.mark.parametrize(
    "change",
    [
        {"symbol": "wgrad_1d_ncx_f32_outer; rm"},
        {"strategy": "Outer"},
        {"strategy": "a b"},
        {"rank": 4},
        {"dtype": "f64"},
    ],
    ids=str,
)
def test_the_loader_refuses_a_symbol_that_is_none(change: dict[str, Any]) -> None:
    kernel = KERNELS[0]._replace(**change)
    if "symbol" not in change:  # spelt by its fields, and still none
        spelt = f"wgrad_{kernel.rank}d_{kernel.data_format.lower()}_{kernel.dtype}_{kernel.strategy}"
        kernel = kernel._replace(symbol=spelt)
    with pytest.raises(ValueError, match="not a kernel"):
        load_kernel(kernel)


def test_every_kernel_is_listed_once() -> None:
    assert len(KERNELS) > 10
    assert len({kernel.symbol for kernel in KERNELS}) == len(KERNELS)
