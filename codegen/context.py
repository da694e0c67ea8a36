# SPDX-License-Identifier: Apache-2.0
"""Typed, frozen views that templates lay out: every decision is taken here, so that templates only place text."""

from __future__ import annotations

from dataclasses import dataclass

from codegen.naming import kernel_symbol
from codegen.variants import KernelVariant, Strategy
from specs.vocabulary import ELEMENT_TYPES, SPATIAL_AXES

COMMAND = "python -m codegen generate"


def make_banner(open_comment: str, close_comment: str, spec: str, template: str) -> str:
    """The first lines of a generated file: licence, where it comes from, how to make it again."""
    lines = [
        "SPDX-License-Identifier: Apache-2.0",
        f"Generated from {spec} and templates/{template}.",
        f"Do not edit: `{COMMAND}` writes it again.",
    ]
    if close_comment:
        return f"{open_comment} " + "\n * ".join(lines) + f" {close_comment}"
    return "\n".join(f"{open_comment} {line}" for line in lines)


@dataclass(frozen=True, slots=True)
class AxisContext:
    """The C names of one spatial axis."""

    name: str
    """d, h or w."""
    slot: int
    """Its place in the arrays of wgrad_geometry."""
    position_of_row: str
    """Its position in the plain tensor, from the number of a row (a run along the innermost axis)."""

    @property
    def plain(self) -> str:
        return f"o{self.name}"

    @property
    def windowed(self) -> str:
        return f"i{self.name}"

    @property
    def tap(self) -> str:
        return f"k{self.name}"

    @property
    def O(self) -> str:
        return f"O{self.name.upper()}"

    @property
    def I(self) -> str:
        return f"I{self.name.upper()}"

    @property
    def K(self) -> str:
        return f"K{self.name.upper()}"


@dataclass(frozen=True, slots=True)
class KernelContext:
    """What a kernel template is filled with."""

    banner: str
    symbol: str
    rank: int
    data_format: str
    dtype: str
    dtype_sentence: str
    plain_tile: int
    windowed_tile: int
    axes: tuple[AxisContext, ...]

    @property
    def outer_axes(self) -> tuple[AxisContext, ...]:
        """All spatial axes but the innermost, which positions run along."""
        return self.axes[:-1]

    @property
    def image_rows(self) -> str:
        """Rows of one image of the plain tensor."""
        return " * ".join(axis.O for axis in self.outer_axes) or "1"

    @property
    def image_rows_of_geometry(self) -> str:
        """The same, before the extents have names."""
        return " * ".join(f"geometry->O[{axis.slot}]" for axis in self.outer_axes) or "1"

    @property
    def plain_channel(self) -> str:
        """Elements from one channel of the plain tensor to the next."""
        return " * ".join(axis.O for axis in self.axes) if self.data_format == "NCX" else "1"

    @property
    def windowed_channel(self) -> str:
        return " * ".join(axis.I for axis in self.axes) if self.data_format == "NCX" else "1"

    @property
    def plain_channel_of_geometry(self) -> str:
        slots = [f"geometry->O[{axis.slot}]" for axis in self.axes]
        return " * ".join(slots) if self.data_format == "NCX" else "1"

    @property
    def windowed_channel_of_geometry(self) -> str:
        return self.plain_channel_of_geometry.replace("->O", "->I")

    @property
    def plain_position(self) -> str:
        """Elements from one column of the plain tensor to the next."""
        return "1" if self.data_format == "NCX" else "PC"

    @property
    def windowed_position(self) -> str:
        return "1" if self.data_format == "NCX" else "WC"

    @property
    def plain_row(self) -> str:
        """Offset of the row's first column."""
        if self.data_format == "NXC":
            return "row * OW * PC"
        return "n * PC * plain_channel + row % image_rows * OW"

    @property
    def inside(self) -> str:
        """Whether a row of the windowed tensor is inside it, in C."""
        return " && ".join(f"{axis.windowed} >= 0 && {axis.windowed} < {axis.I}" for axis in self.outer_axes) or "1"

    @property
    def input_row(self) -> str:
        """Number of a row of the windowed tensor, all images one after the other."""
        return self._nested("n")

    @property
    def windowed_row(self) -> str:
        return self.windowed_offset("windowed_channel", "")

    def windowed_offset(self, image: str, step: str) -> str:
        """Offset of a row's first column; in NCX `image` are the positions of an image, `step` goes with a column."""
        if self.data_format == "NXC":
            return f"{self._nested('n')} * IW * WC"
        if not self.outer_axes:
            return f"n * WC * {image}"
        return f"n * WC * {image} + {self._nested('')} * IW{step}"

    def _nested(self, index: str) -> str:
        for axis in self.outer_axes:
            index = f"({index} * {axis.I} + {axis.windowed})" if index else axis.windowed
        return index

    @property
    def tap_parameters(self) -> str:
        return ", ".join(f"int64_t {axis.tap}" for axis in self.axes)

    @property
    def taps(self) -> str:
        return ", ".join(axis.tap for axis in self.axes)

    @property
    def positions(self) -> str:
        return ", ".join(axis.plain for axis in self.axes)

    def _extents(self, channels: str, names: list[str]) -> str:
        spatial = "".join(f"[{name}]" for name in names)
        return f"[N][{channels}]{spatial}" if self.data_format == "NCX" else f"[N]{spatial}[{channels}]"

    @property
    def plain_extents(self) -> str:
        return self._extents("G * P", [axis.O for axis in self.axes])

    @property
    def windowed_extents(self) -> str:
        return self._extents("G * W", [axis.I for axis in self.axes])

    @property
    def tap_extents(self) -> str:
        return "".join(f"[{axis.K}]" for axis in self.axes)

    @property
    def tap_indices(self) -> str:
        return "".join(f"[{axis.tap}]" for axis in self.axes)

    @property
    def plain_term(self) -> str:
        return self._term("plain", "g * P + p", [axis.plain for axis in self.axes])

    @property
    def windowed_term(self) -> str:
        return self._term("windowed", "g * W + w", [axis.windowed for axis in self.axes])

    def _term(self, tensor: str, channel: str, names: list[str]) -> str:
        return tensor + self._extents(channel, names).replace("[N]", "[n]")


def make_kernel_context(variant: KernelVariant, strategy: Strategy) -> KernelContext:
    """The view of one kernel."""
    names = SPATIAL_AXES[variant.rank]
    outer = names[:-1]
    axes = []
    for place, name in enumerate(names):
        inner = " * ".join(f"O{other.upper()}" for other in outer[place + 1 :])
        position = f"row / ({inner})" if " " in inner else f"row / {inner}" if inner else "row"
        axes.append(AxisContext(name, 3 - variant.rank + place, f"{position} % O{name.upper()}"))
    element = next(row for row in ELEMENT_TYPES if row.name == variant.dtype)
    return KernelContext(
        banner=make_banner("/*", "*/", "specs/vocabulary.py", strategy.template),
        symbol=kernel_symbol(variant),
        rank=variant.rank,
        data_format=variant.data_format,
        dtype=variant.dtype,
        dtype_sentence=element.sentence,
        plain_tile=strategy.plain_tile,
        windowed_tile=strategy.windowed_tile,
        axes=tuple(axes),
    )
