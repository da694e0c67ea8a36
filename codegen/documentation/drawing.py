# SPDX-License-Identifier: Apache-2.0
"""Drawings of a small problem in plain numbers: every cell, tap and arrow with its place on the page.

All lengths are in units of the drawing. Templates only place them.
"""

from __future__ import annotations

from dataclasses import dataclass

from codegen.context import make_banner
from codegen.documentation.call import CHANNELS, NumberedCall, small_call
from codegen.roles import Roles, assign_roles
from specs.model import Operation, Reading

_CELL = 28
_SMALL_CELL = 20
_LEFT = 56
_MARGIN = 8
_LINE = 16
PLAIN_VALUES = (1, 10, 100)
"""Values of the plain tensor in the example: its digits show in a sum which positions took part."""


@dataclass(frozen=True, slots=True)
class Cell:
    """A square with its upper left corner; `kind` is data, padding, output, chosen, first, second or empty."""

    x: int
    y: int
    size: int
    kind: str
    text: str = ""

    @property
    def middle(self) -> int:
        return self.x + self.size // 2

    @property
    def baseline(self) -> int:
        """Where text in the cell stands."""
        return self.y + self.size // 2 + 4


@dataclass(frozen=True, slots=True)
class Tap:
    """A kernel tap over a position; one over padding does not take part."""

    x: int
    y: int
    radius: int
    inside: bool
    text: str = ""


@dataclass(frozen=True, slots=True)
class Box:
    """An outline; `kind` is window or next."""

    x: int
    y: int
    width: int
    height: int
    kind: str


@dataclass(frozen=True, slots=True)
class Measure:
    """A dimension line between two places at one height, with its text above or below."""

    start: int
    end: int
    y: int
    text: str
    text_y: int

    @property
    def middle(self) -> int:
        return (self.start + self.end) // 2


@dataclass(frozen=True, slots=True)
class Label:
    """Text; `anchor` is middle or end, `kind` is name or index."""

    x: int
    y: int
    text: str
    anchor: str = "middle"
    kind: str = "index"


@dataclass(frozen=True, slots=True)
class Drawing:
    """A picture with what it shows in words."""

    id: str
    title: str
    description: str
    width: int
    height: int
    cells: tuple[Cell, ...] = ()
    taps: tuple[Tap, ...] = ()
    boxes: tuple[Box, ...] = ()
    measures: tuple[Measure, ...] = ()
    labels: tuple[Label, ...] = ()

    @property
    def shown_width(self) -> int:
        """Width in pixels where there is room: a quarter more than the units, so that text is as large as around it."""
        return self.width * 5 // 4

    @property
    def shown_height(self) -> int:
        return self.height * 5 // 4


@dataclass(frozen=True, slots=True)
class DrawingFileContext:
    """A drawing that is a file of its own."""

    banner: str
    drawing: Drawing


def make_drawing_file(operation: Operation, drawing: Drawing, template: str) -> DrawingFileContext:
    """The view of a drawing's own file."""
    return DrawingFileContext(make_banner("<!--", "-->", f"the specification of {operation.name}", template), drawing)


def make_drawings(operation: Operation) -> tuple[Drawing, ...]:
    """Every drawing of an operation's page: windows on one axis, a window on two, groups in each reading."""
    return (
        draw_windows(operation),
        draw_plane(operation),
        *(draw_groups(operation, reading) for reading in operation.readings),
    )


def _roles(call: NumberedCall) -> Roles:
    reading = call.reading()
    assert reading is not None, "the small problem fits a reading"
    return assign_roles(call.operation, reading)


def draw_windows(operation: Operation) -> Drawing:
    """One axis: a row for each position of the plain tensor, with the positions that its window touches."""
    call = small_call(operation, 1)
    roles = _roles(call)
    values = call.axis_values()[0]
    windowed, plain = values[str(roles.windowed.spatial)], values[str(roles.plain.spatial)]
    begin, end, stride, dilation, taps = (values[symbol] for symbol in ("pb", "pe", "s", "d", "K"))
    columns = begin + windowed + end
    top = _MARGIN + 2 * _LINE

    def x(position: int) -> int:
        return _LEFT + (position + begin) * _CELL

    right = x(windowed + end) + 18
    cells = [
        Cell(x(position), top, _CELL, "data" if 0 <= position < windowed else "padding",
             str(position + 1) if 0 <= position < windowed else "")
        for position in range(-begin, windowed + end)
    ]  # fmt: skip
    labels = [
        Label(x(0) + windowed * _CELL // 2, _MARGIN + 10, roles.windowed.name, kind="name"),
        *(Label(x(position) + _CELL // 2, top - 6, str(position)) for position in range(windowed)),
        Label(_LEFT - 10, top + _CELL // 2 + 4, "values", "end"),
        Label(right + _CELL, _MARGIN + 10, roles.plain.name, "end", "name"),
    ]
    for count, start, text in ((begin, -begin, "pb"), (end, windowed, "pe")):
        if count:
            labels.append(Label(x(start) + count * _CELL // 2, top - 6, f"{text} = {count}"))
    marks: list[Tap] = []
    measures: list[Measure] = []
    first_row = top + _CELL + 22
    pitch = _CELL + 14
    for output in range(plain):
        y = first_row + output * pitch
        index = roles.plain.spatial
        labels.append(Label(_LEFT - 10, y + _CELL // 2 + 4, f"{str(index).lower()} = {output}", "end"))
        cells.append(Cell(right, y, _CELL, "output", str(PLAIN_VALUES[output])))
        for tap in range(taps):
            position = output * stride + tap * dilation - begin
            marks.append(Tap(x(position) + _CELL // 2, y + _CELL // 2, 11, 0 <= position < windowed, f"k{tap}"))
    if dilation > 1 and taps > 1:
        left, y = x(-begin) + _CELL // 2, first_row - 6
        measures.append(Measure(left, left + dilation * _CELL, y, f"d = {dilation}", y - 4))
    if plain > 1:
        left, y = x(-begin) + _CELL // 2, first_row + pitch + _CELL // 2
        measures.append(Measure(left, left + stride * _CELL - 13, y, f"s = {stride}", y - 6))
    tracks = [Box(x(-begin), first_row + output * pitch, columns * _CELL, _CELL, "track") for output in range(plain)]
    numbers = f"stride {stride}, dilation {dilation}, padding {begin} in front and {end} behind"
    return Drawing(
        id=f"{operation.name}-windows",
        title=f"Windows over {roles.windowed.name}",
        description=(
            f"{roles.windowed.name} has {windowed} positions, {roles.plain.name} has {plain}; {numbers}. Each row is "
            f"one position of {roles.plain.name}; a filled circle is a kernel tap over a position of "
            f"{roles.windowed.name}, a hollow one is a tap over padding, whose term does not take part."
        ),
        width=right + _CELL + _MARGIN,
        height=first_row + (plain - 1) * pitch + _CELL + _MARGIN,
        cells=tuple(cells),
        taps=tuple(marks),
        boxes=tuple(tracks),
        measures=tuple(measures),
        labels=tuple(labels),
    )


def draw_plane(operation: Operation) -> Drawing:
    """Two axes: the padded windowed tensor with one window and the next, and the plain tensor beside it."""
    call = small_call(operation, 2)
    roles = _roles(call)
    values = call.axis_values()[0]
    windowed, plain = values[str(roles.windowed.spatial)], values[str(roles.plain.spatial)]
    begin, end, stride, dilation, taps = (values[symbol] for symbol in ("pb", "pe", "s", "d", "K"))
    size, left, top = _SMALL_CELL, _MARGIN, _MARGIN + _LINE + 6
    span = begin + windowed + end
    row, column = 0, min(1, plain - 1)
    cells = [
        Cell(left + (w + begin) * size, top + (h + begin) * size, size,
             "data" if 0 <= h < windowed and 0 <= w < windowed else "padding")
        for h in range(-begin, windowed + end)
        for w in range(-begin, windowed + end)
    ]  # fmt: skip
    right = left + span * size + 40
    cells += [
        Cell(right + w * size, top + (h + begin) * size, size, "chosen" if (h, w) == (row, column) else "output")
        for h in range(plain)
        for w in range(plain)
    ]
    marks = []
    for kh in range(taps):
        for kw in range(taps):
            h, w = row * stride + kh * dilation - begin, column * stride + kw * dilation - begin
            inside = 0 <= h < windowed and 0 <= w < windowed
            marks.append(Tap(left + (w + begin) * size + size // 2, top + (h + begin) * size + size // 2, 6, inside))
    extent = ((taps - 1) * dilation + 1) * size
    window = Box(left + column * stride * size, top + row * stride * size, extent, extent, "window")
    following = Box(window.x + stride * size, window.y, extent, extent, "next")
    boxes = [window] if column + 1 >= plain else [following, window]
    below = top + span * size + 8
    measures = (Measure(window.x, window.x + extent, below, f"eff = {extent // size}", below + 15),)
    letters = str(roles.plain.spatial).lower()
    return Drawing(
        id=f"{operation.name}-plane",
        title=f"One window over {roles.windowed.name}",
        description=(
            f"{roles.windowed.name} is {windowed} by {windowed} with padding {begin} in front and {end} behind; "
            f"{roles.plain.name} is {plain} by {plain}. The {taps} by {taps} taps of the window that belongs to "
            f"position ({row}, {column}) are {dilation} apart; the next window is {stride} further and is dashed. "
            f"Hollow taps lie in the padding."
        ),
        width=right + max(plain * size, 74) + _MARGIN,
        height=below + 24,
        cells=tuple(cells),
        taps=tuple(marks),
        boxes=tuple(boxes),
        measures=measures,
        labels=(
            Label(left + span * size // 2, _MARGIN + 10, roles.windowed.name, kind="name"),
            Label(right + plain * size // 2, top + begin * size - 8, roles.plain.name, kind="name"),
            Label(
                right + plain * size // 2,
                top + (begin + plain) * size + 16,
                f"{letters} = ({row}, {column})",
            ),
        ),
    )


def draw_groups(operation: Operation, reading: Reading) -> Drawing:
    """Which channels meet, and how the weights of a reading store just those pairs."""
    groups = CHANNELS["groups"]
    axes = {axis.partition("/")[0]: bool(axis.partition("/")[2]) for axis in reading.sum.gradient.values()}
    rows, columns = CHANNELS["IC"], CHANNELS["OC"]
    stored_rows, stored_columns = rows // (groups if axes["IC"] else 1), columns // (groups if axes["OC"] else 1)
    size, left, top = _SMALL_CELL, _MARGIN + 22, _MARGIN + 2 * _LINE + 4
    kinds = ("first", "second")

    def group(row: int, column: int) -> int | None:
        own = row // (rows // groups)
        return own if own == column // (columns // groups) else None

    cells = []
    for row in range(rows):
        for column in range(columns):
            own = group(row, column)
            kind = "empty" if own is None else kinds[own % 2]
            cells.append(Cell(left + column * size, top + row * size, size, kind))
    right = left + columns * size + 80
    for row in range(stored_rows):
        for column in range(stored_columns):
            own = column // (columns // groups) if axes["IC"] else row // (rows // groups)
            cells.append(Cell(right + column * size, top + row * size, size, kinds[own % 2]))
    row_text = "IC / groups" if axes["IC"] else "IC"
    column_text = "OC / groups" if axes["OC"] else "OC"
    middle = left + columns * size // 2
    stored_middle = right + stored_columns * size // 2
    return Drawing(
        id=f"{operation.name}-groups-{reading.id}",
        title="Groups in the weights",
        description=(
            f"{rows} input channels in rows and {columns} output channels in columns, in {groups} groups: a channel "
            f"meets only those of its own group, shown as two tinted blocks. The weights store the blocks "
            f"{'side by side' if axes['IC'] else 'one below the other'}: {stored_rows} by {stored_columns}, "
            f"{row_text} by {column_text}."
        ),
        width=max(right + stored_columns * size, stored_middle + 36) + _MARGIN,
        height=top + rows * size + _MARGIN,
        cells=tuple(cells),
        labels=(
            Label(middle, _MARGIN + 10, "channels that meet", kind="name"),
            Label(middle, top - 6, f"OC = {columns}"),
            Label(left - 8, top + rows * size // 2 + 4, "IC", "end"),
            Label(stored_middle, _MARGIN + 10, "stored", kind="name"),
            Label(stored_middle, top - 6, f"{column_text} = {stored_columns}"),
            Label(right - 8, top + stored_rows * size // 2 + 4, row_text, "end"),
        ),
    )
