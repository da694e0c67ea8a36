# SPDX-License-Identifier: Apache-2.0
"""The view of the package as a whole: what it exports, its table of kernels, its vocabulary."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from codegen.context import make_banner
from codegen.naming import kernel_symbol, snake_case
from codegen.variants import STRATEGIES, KernelVariant, Strategy
from specs.model import Operation
from specs.vocabulary import DATA_LAYOUTS, ELEMENT_TYPES, SPATIAL_AXES, ElementType


@dataclass(frozen=True, slots=True)
class ExportContext:
    """An operation's public names."""

    name: str
    function: str


@dataclass(frozen=True, slots=True)
class KernelRow:
    """A row of the table of kernels."""

    symbol: str
    rank: int
    data_format: str
    dtype: str
    strategy: str


@dataclass(frozen=True, slots=True)
class PackageContext:
    """What the templates of the package's own modules are filled with."""

    banner: str
    exports: tuple[ExportContext, ...]
    kernels: tuple[KernelRow, ...]
    strategies: tuple[Strategy, ...]
    element_types: tuple[ElementType, ...]
    data_layouts: dict[str, tuple[str, ...]]
    spatial_axes: dict[int, tuple[str, ...]]


def make_package_context(
    operations: Iterable[Operation], variants: Iterable[KernelVariant], template: str
) -> PackageContext:
    """The view of a package with these operations and kernels."""
    return PackageContext(
        banner=make_banner("#", "", "the specifications", template),
        exports=tuple(ExportContext(operation.name, snake_case(operation.name)) for operation in operations),
        kernels=tuple(
            KernelRow(kernel_symbol(row), row.rank, row.data_format, row.dtype, row.strategy) for row in variants
        ),
        strategies=STRATEGIES,
        element_types=ELEMENT_TYPES,
        data_layouts=DATA_LAYOUTS,
        spatial_axes=SPATIAL_AXES,
    )
