# SPDX-License-Identifier: Apache-2.0
"""What one layer asks for, and the strings that say so: `g1mb2ic3ih32oc16oh32kh3ph1`, in the manner of benchdnn.

A string is keys, each with a number, in any order; `_` between them means nothing, and n"name" at the end names it.

    g  groups                        mb  batch (1)
    ic oc  channels of src and dst of the convolution, all groups together
    id ih iw   od oh ow   kd kh kw   extents of src, dst and kernel
    sd sh sw  strides (1)            dd dh dw  dilations, counted from 0 (0)          pd ph pw  padding before (0)

The rank is that of the first axis named: `id` 3, `ih` 2, `iw` 1. An axis that is left out is as the one before it: ih32
alone is 32 x 32. Without o, it follows from the rest, with the same padding behind as before. Without p but with o, the
padding that o needs is split evenly. With both, what follows the last element is as much as o needs.

A problem is always put as the convolution's. The transposed operation computes the same sum with src and dst exchanged.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, replace
from typing import Any

AXES = "dhw"
_TOKEN = re.compile(r"([a-z]+)([0-9]*)")
_NAME = re.compile(r"""n(?:"([^"]*)"|'([^']*)')\Z""")
_PLAIN_KEYS = ("g", "mb", "ic", "oc")
_AXIS_KEYS = ("i", "o", "k", "s", "d", "p")
_KEYS = (*_PLAIN_KEYS, *(key + axis for key in _AXIS_KEYS for axis in AXES))
_MAY_BE_ZERO = {"d", "p"}
_DIGITS = 9

Shape = tuple[int, ...]


class ProblemError(ValueError):
    """A problem string cannot be read, or its numbers contradict each other; the text says where and why."""


@dataclass(frozen=True, slots=True)
class Problem:
    """One convolution whose gradient with respect to the weights is wanted; axes are (depth, height, width) as far as
    there are any. `dilations` are counted from 1, unlike in the strings.
    """

    batch: int
    groups: int
    input_channels: int
    output_channels: int
    input: Shape
    output: Shape
    kernel: Shape
    strides: Shape
    dilations: Shape
    pads_begin: Shape
    pads_end: Shape

    @property
    def rank(self) -> int:
        """Number of spatial axes."""
        return len(self.kernel)

    @property
    def group_inputs(self) -> int:
        """Input channels of one group."""
        return self.input_channels // self.groups

    @property
    def products(self) -> int:
        """Multiplications whose two factors are both there: taps that meet padding are not counted."""
        total = self.batch * self.output_channels * self.group_inputs
        for axis in range(self.rank):
            total *= sum(self._positions(axis, tap) for tap in range(self.kernel[axis]))
        return total

    @property
    def flops(self) -> int:
        """A multiplication and an addition for each product."""
        return 2 * self.products

    @property
    def elements(self) -> tuple[int, int, int]:
        """Elements of src, of diff_dst and of the gradient."""
        return (
            self.batch * self.input_channels * math.prod(self.input),
            self.batch * self.output_channels * math.prod(self.output),
            self.output_channels * self.group_inputs * math.prod(self.kernel),
        )

    def _positions(self, axis: int, tap: int) -> int:
        """How many positions of dst reach a place inside src through this tap."""
        offset, stride = tap * self.dilations[axis] - self.pads_begin[axis], self.strides[axis]
        first = max(0, -(offset // stride))
        last = min(self.output[axis] - 1, (self.input[axis] - 1 - offset) // stride)
        return max(0, last - first + 1)

    def with_batch(self, batch: int) -> Problem:
        """The same layer on another number of images."""
        return replace(self, batch=batch)

    def as_dict(self) -> dict[str, Any]:
        """All numbers by name, for JSON and back."""
        return {name: getattr(self, name) for name in self.__slots__}

    @classmethod
    def from_dict(cls, numbers: dict[str, Any]) -> Problem:
        """What `as_dict` returned, once through JSON."""
        read: dict[str, Any] = {
            name: tuple(value) if isinstance(value, list) else value for name, value in numbers.items()
        }
        return cls(**read)

    def transposed_pads(self) -> tuple[Shape, Shape]:
        """(pads_end, output_padding) of the transposed operation from dst to src.

        Its output has extent (O - 1) * stride + (K - 1) * dilation + 1 - begin - end + output_padding, which is I.
        """
        ends, extras = [], []
        for axis in range(self.rank):
            reach = (self.output[axis] - 1) * self.strides[axis] + (self.kernel[axis] - 1) * self.dilations[axis] + 1
            begin, needed = self.pads_begin[axis], reach - self.pads_begin[axis] - self.input[axis]
            even = 0 <= begin - needed < self.strides[axis]  # the same at both ends, as torch wants it
            ends.append(begin if even else max(needed, 0))
            extras.append(ends[-1] - needed)
        return tuple(ends), tuple(extras)

    def __str__(self) -> str:
        """The string that `parse_problem` reads back."""
        axes = AXES[3 - self.rank :]
        padded = self.pads_end != self.pads_begin  # then o is there, and without p it would decide p
        parts = [f"g{self.groups}"] if self.groups != 1 else []
        parts += [f"mb{self.batch}"] if self.batch != 1 else []
        parts.append(f"ic{self.input_channels}")
        rows: tuple[tuple[str, Shape], ...] = (
            ("i", self.input), ("oc", ()), ("o", self.output), ("k", self.kernel), ("s", self.strides),
            ("d", tuple(dilation - 1 for dilation in self.dilations)), ("p", self.pads_begin),
        )  # fmt: skip
        for key, values in rows:
            if key == "oc":
                parts.append(f"oc{self.output_channels}")
                continue
            if set(values) == {0 if key in _MAY_BE_ZERO else 1} and key in "sdp" and not (key == "p" and padded):
                continue
            if key == "o" and self.pads_end == self.pads_begin:
                continue  # it follows
            shown = 1 if len(set(values)) == 1 else len(values)
            parts += [f"{key}{axis}{value}" for axis, value in zip(axes[:shown], values, strict=False)]
        return "".join(parts)


def parse_problem(text: str) -> tuple[Problem, str | None]:
    """Read a problem string. Returns the problem, and its name if it has one.

    Raises:
        ProblemError: names the key or the axis, what was expected, and the formula with its numbers.
    """
    body, name = text.strip(), None
    if (match := _NAME.search(body)) is not None:
        body, name = body[: match.start()], match[1] or match[2]
    numbers = _read_numbers(text, body)
    rank = next((3 - place for place, axis in enumerate(AXES) if "i" + axis in numbers), 0)
    if rank == 0:
        raise ProblemError(f"{text!r}: the extent of src is missing; expected iw (1-D), ih (2-D) or id (3-D)")
    for key in ("ic", "oc"):
        if key not in numbers:
            raise ProblemError(f"{text!r}: {key}, the number of channels, is missing")
    used = AXES[3 - rank :]
    for key in numbers:
        if key not in _PLAIN_KEYS and key[1] not in used:
            raise ProblemError(f"{text!r}: {key} is of an axis that src does not have; it has {', '.join(used)}")
    groups = numbers.get("g", 1)
    for key in ("ic", "oc"):
        if numbers[key] % groups:
            raise ProblemError(f"{text!r}: {key}{numbers[key]} is no multiple of g{groups}")
    rows = {key: _fill_axes(text, numbers, key, used) for key in _AXIS_KEYS}
    axes = [_resolve_axis(text, axis, {key: rows[key][place] for key in _AXIS_KEYS}) for place, axis in enumerate(used)]
    problem = Problem(
        batch=numbers.get("mb", 1),
        groups=groups,
        input_channels=numbers["ic"],
        output_channels=numbers["oc"],
        input=tuple(axis["i"] for axis in axes),
        output=tuple(axis["o"] for axis in axes),
        kernel=tuple(axis["k"] for axis in axes),
        strides=tuple(axis["s"] for axis in axes),
        dilations=tuple(axis["d"] for axis in axes),
        pads_begin=tuple(axis["p"] for axis in axes),
        pads_end=tuple(axis["end"] for axis in axes),
    )
    return problem, name


def _read_numbers(text: str, body: str) -> dict[str, int]:
    numbers: dict[str, int] = {}
    place = 0
    while place < len(body):
        if body[place] == "_":
            place += 1
            continue
        match = _TOKEN.match(body, place)
        where = f"{text!r}: at {body[place:]!r}"
        if match is None:
            raise ProblemError(f"{where}: expected a key and a number, like kh3")
        key, digits = match[1], match[2]
        if key not in _KEYS:
            known = "g mb ic oc, and i o k s d p with d, h or w behind it"
            named = '; a name is written n"..." at the end' if key.startswith("n") else ""
            raise ProblemError(f"{where}: there is no key {key!r}; expected one of {known}{named}")
        if not digits:
            raise ProblemError(f"{where}: {key} has no number behind it")
        if len(digits) > _DIGITS:
            raise ProblemError(f"{where}: {digits} has more than {_DIGITS} digits")
        if key in numbers:
            raise ProblemError(f"{where}: {key} is there twice")
        numbers[key] = int(digits)
        if numbers[key] == 0 and not (key[0] in _MAY_BE_ZERO and key[1:] in AXES):
            raise ProblemError(f"{where}: {key} is 0; expected at least 1")
        place = match.end()
    if not numbers:
        raise ProblemError(f"{text!r}: expected keys and numbers, like g1mb2ic3ih32oc16oh32kh3ph1")
    return numbers


def _fill_axes(text: str, numbers: dict[str, int], key: str, used: str) -> list[int | None]:
    """The numbers of one key on all axes: one that is left out is as the one before it."""
    values: list[int | None] = []
    for axis in used:
        before = values[-1] if values else None
        values.append(numbers.get(key + axis, before))
    if key == "k" and values[0] is None:
        raise ProblemError(f"{text!r}: k{used[0]}, the extent of the kernel, is missing")
    return values


def _resolve_axis(text: str, axis: str, given: dict[str, int | None]) -> dict[str, int]:
    """Everything about one axis: o and p follow from each other, and what is behind the last element from both."""
    i, k, s, d = given["i"], given["k"], given["s"] or 1, (given["d"] or 0) + 1
    assert i is not None
    assert k is not None
    extent = (k - 1) * d + 1
    o, p = given["o"], given["p"]
    sizes = f"i{axis}{i}, k{axis}{k}, s{axis}{s}, d{axis}{d - 1}"
    if o is None:
        begin = p or 0
        if i + 2 * begin < extent:
            raise ProblemError(
                f"{text!r}: the kernel reaches beyond the padded src on axis {axis}: (k - 1) * (d + 1) + 1 = {extent}, "
                f"but i + 2 * p = {i + 2 * begin} with {sizes}, p{axis}{begin}"
            )
        o = (i + 2 * begin - extent) // s + 1
    else:
        begin = p if p is not None else max(0, (o - 1) * s + extent - i) // 2
    if i + 2 * begin >= extent and (i + 2 * begin - extent) // s + 1 == o:
        end = begin
    else:
        end = max(0, (o - 1) * s + extent - i - begin)
        fits = (i + begin + end - extent) // s + 1
        if fits != o:
            raise ProblemError(
                f"{text!r}: o{axis}{o} leaves whole steps of src unread: without padding behind it, "
                f"(i + p - (k - 1) * (d + 1) - 1) // s + 1 = {fits} with {sizes}, p{axis}{begin}"
            )
    return {"i": i, "o": o, "k": k, "s": s, "d": d, "p": begin, "end": end}
