# SPDX-License-Identifier: Apache-2.0
# Generated from the specifications and templates/python/kernel_table.py.j2.
# Do not edit: `python -m codegen generate` writes it again.
"""Every kernel of the package, and the tile of the gradient that a work item owns where the C fixes it."""

from __future__ import annotations

from typing import NamedTuple

from convgrad.kernel import Kernel


class Tile(NamedTuple):
    """Channels that one work item covers."""

    plain: int
    windowed: int


TILES: dict[str, Tile] = {
    "direct": Tile(plain=8, windowed=4),
}

KERNELS: tuple[Kernel, ...] = (
    Kernel("wgrad_1d_ncx_bf16_direct", 1, "NCX", "bf16", "direct"),
    Kernel("wgrad_1d_ncx_f16_direct", 1, "NCX", "f16", "direct"),
    Kernel("wgrad_1d_ncx_f32_direct", 1, "NCX", "f32", "direct"),
    Kernel("wgrad_1d_ncx_f32_lanes", 1, "NCX", "f32", "lanes"),
    Kernel("wgrad_1d_ncx_f32_outer", 1, "NCX", "f32", "outer"),
    Kernel("wgrad_1d_nxc_bf16_direct", 1, "NXC", "bf16", "direct"),
    Kernel("wgrad_1d_nxc_f16_direct", 1, "NXC", "f16", "direct"),
    Kernel("wgrad_1d_nxc_f32_direct", 1, "NXC", "f32", "direct"),
    Kernel("wgrad_1d_nxc_f32_lanes", 1, "NXC", "f32", "lanes"),
    Kernel("wgrad_1d_nxc_f32_outer", 1, "NXC", "f32", "outer"),
    Kernel("wgrad_2d_ncx_bf16_direct", 2, "NCX", "bf16", "direct"),
    Kernel("wgrad_2d_ncx_f16_direct", 2, "NCX", "f16", "direct"),
    Kernel("wgrad_2d_ncx_f32_direct", 2, "NCX", "f32", "direct"),
    Kernel("wgrad_2d_ncx_f32_lanes", 2, "NCX", "f32", "lanes"),
    Kernel("wgrad_2d_ncx_f32_outer", 2, "NCX", "f32", "outer"),
    Kernel("wgrad_2d_nxc_bf16_direct", 2, "NXC", "bf16", "direct"),
    Kernel("wgrad_2d_nxc_f16_direct", 2, "NXC", "f16", "direct"),
    Kernel("wgrad_2d_nxc_f32_direct", 2, "NXC", "f32", "direct"),
    Kernel("wgrad_2d_nxc_f32_lanes", 2, "NXC", "f32", "lanes"),
    Kernel("wgrad_2d_nxc_f32_outer", 2, "NXC", "f32", "outer"),
    Kernel("wgrad_3d_ncx_bf16_direct", 3, "NCX", "bf16", "direct"),
    Kernel("wgrad_3d_ncx_f16_direct", 3, "NCX", "f16", "direct"),
    Kernel("wgrad_3d_ncx_f32_direct", 3, "NCX", "f32", "direct"),
    Kernel("wgrad_3d_ncx_f32_lanes", 3, "NCX", "f32", "lanes"),
    Kernel("wgrad_3d_ncx_f32_outer", 3, "NCX", "f32", "outer"),
    Kernel("wgrad_3d_nxc_bf16_direct", 3, "NXC", "bf16", "direct"),
    Kernel("wgrad_3d_nxc_f16_direct", 3, "NXC", "f16", "direct"),
    Kernel("wgrad_3d_nxc_f32_direct", 3, "NXC", "f32", "direct"),
    Kernel("wgrad_3d_nxc_f32_lanes", 3, "NXC", "f32", "lanes"),
    Kernel("wgrad_3d_nxc_f32_outer", 3, "NXC", "f32", "outer"),
)
