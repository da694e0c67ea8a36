# SPDX-License-Identifier: Apache-2.0
"""One grammar for kernel symbols, there and back."""

from __future__ import annotations

import pytest

from codegen.naming import kernel_symbol, parse_kernel_symbol, snake_case
from codegen.variants import STRATEGIES, KernelVariant, list_variants


def test_every_variant_survives_the_round_trip() -> None:
    variants = list(list_variants())
    symbols = {kernel_symbol(variant) for variant in variants}
    assert len(symbols) == len(variants) == 3 * 2 * sum(len(strategy.dtypes) for strategy in STRATEGIES) == 30
    assert [parse_kernel_symbol(kernel_symbol(variant)) for variant in variants] == variants
    assert variants == sorted(variants)


def test_symbol_is_as_documented() -> None:
    assert kernel_symbol(KernelVariant(2, "NCX", "bf16", "direct")) == "wgrad_2d_ncx_bf16_direct"


@pytest.mark.parametrize(
    "symbol",
    ["wgrad_4d_ncx_f32_direct", "wgrad_2d_cnx_f32_direct", "wgrad_2d_ncx_f32", "wgrad_2d_ncx_f32_direct.c", ""],
)
def test_what_is_no_symbol_is_refused(symbol: str) -> None:
    with pytest.raises(ValueError, match="is no kernel symbol: expected wgrad_<rank>d_"):
        parse_kernel_symbol(symbol)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("ConvolutionBackwardWeights", "convolution_backward_weights"),
        ("ConvTransposeBackpropFilters", "conv_transpose_backprop_filters"),
        ("HTTPConv2D", "http_conv2_d"),
    ],
)
def test_snake_case(name: str, expected: str) -> None:
    assert snake_case(name) == expected
