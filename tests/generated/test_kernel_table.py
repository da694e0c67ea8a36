# SPDX-License-Identifier: Apache-2.0
"""The table of kernels: a symbol becomes a name in C, a file and a compiler's argument, so it is a plain one."""

import re

import pytest

from convgrad.kernel import Kernel
from convgrad.kernel_table import KERNELS
from convgrad.loader import KERNEL_FOLDER

NAME = re.compile(r"wgrad_[123]d_(ncx|nxc)_(f32|bf16|f16)_[a-z][a-z0-9_]*", re.ASCII)


@pytest.mark.parametrize("kernel", KERNELS, ids=lambda kernel: kernel.symbol)
def test_symbol_is_a_plain_name_that_its_fields_spell(kernel: Kernel) -> None:
    rank, data_format, dtype, strategy = kernel[1:]
    assert NAME.fullmatch(kernel.symbol), kernel
    assert kernel.symbol == f"wgrad_{rank}d_{data_format.lower()}_{dtype}_{strategy}"
    assert (KERNEL_FOLDER / kernel.file).is_file()


def test_every_kernel_is_listed_once() -> None:
    assert len(KERNELS) > 10
    assert len({kernel.symbol for kernel in KERNELS}) == len(KERNELS)
