# SPDX-License-Identifier: Apache-2.0
"""The exported documentation holds everything that the specifications say, and its files are sound."""

from __future__ import annotations

import html
import posixpath
import re
import xml.etree.ElementTree as ET
from collections.abc import Iterable
from html.parser import HTMLParser
from pathlib import Path, PurePosixPath

import pytest

from codegen.documentation.call import WrongExampleError, small_call
from codegen.documentation.drawing import draw_windows, make_drawings
from codegen.documentation.pages import plan_documentation
from codegen.documentation.text import plain_text, typeset_formula
from codegen.outputs import Copy, Output
from codegen.plan import plan_outputs
from codegen.render import render_plan
from specs import Operation, load_operation, load_operations
from specs.loader import OPERATIONS

ALL = load_operations()


def render(outputs: Iterable[Output | Copy]) -> dict[PurePosixPath, str]:
    rendered = render_plan(outputs)
    return {path: data.decode("utf-8") for path, data in rendered.items() if path.suffix != ".png"}


RENDERED = render(plan_outputs(ALL))
DOCS = {path: text for path, text in RENDERED.items() if path.parts[0] == "docs"}
HTML_PAGES = sorted(path for path in DOCS if path.suffix == ".html")
MARKDOWN_PAGES = sorted(path for path in DOCS if path.suffix == ".md")
DRAWINGS = sorted(path for path in DOCS if path.suffix == ".svg")
VOID = {"meta", "link", "br", "wbr", "img", "hr", "input"}
FORMATS = ("md", "html")


class Reader(HTMLParser):
    """Checks nesting, and collects ids, links, text and text by element."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.open: list[str] = []
        self.problems: list[str] = []
        self.ids: list[str] = []
        self.links: list[str] = []
        self.labels: list[str] = []
        self.words: list[str] = []
        self.headings: list[str] = []
        self.feed(text)
        self.close()
        self.problems += [f"<{tag}> is never closed" for tag in self.open]

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._note(attrs)
        if tag in VOID:
            return
        if tag in {"p", "h1", "h2", "h3", "ul", "table", "pre", "div", "figure"} and "p" in self.open:
            self.problems.append(f"<{tag}> inside <p>, line {self.getpos()[0]}")
        if re.fullmatch(r"h[1-6]", tag):
            self.headings.append(tag)
        self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._note(attrs)

    def handle_endtag(self, tag: str) -> None:
        if not self.open or self.open[-1] != tag:
            self.problems.append(f"</{tag}> closes {self.open[-1:]}, line {self.getpos()[0]}")
        else:
            self.open.pop()

    def handle_data(self, data: str) -> None:
        self.words.append(data)

    def _note(self, attrs: list[tuple[str, str | None]]) -> None:
        names = dict(attrs)
        if (identifier := names.get("id")) is not None:
            self.ids.append(identifier)
        for name in ("href", "src"):
            if (link := names.get(name)) is not None:
                self.links.append(link)
        self.labels += (names.get("aria-labelledby") or "").split()

    @property
    def text(self) -> str:
        return " ".join("".join(self.words).split())


READERS = {path: Reader(DOCS[path]) for path in HTML_PAGES}


def page_text(operation: Operation, ending: str) -> str:
    """What a reader sees, on one line and without the marks of the format."""
    path = PurePosixPath(f"docs/{operation.name}.{ending}")
    if ending == "html":
        return READERS[path].text
    return html.unescape(" ".join(re.sub(r"\\([*|])", r"\1", DOCS[path]).replace("`", "").split()))


def shown(sentence: str) -> str:
    """A sentence as pages show it."""
    return " ".join(sentence.split()).replace(" * ", " · ")


@pytest.fixture(params=[(row, ending) for row in ALL for ending in FORMATS], ids=lambda row: f"{row[0].name}.{row[1]}")
def page(request: pytest.FixtureRequest) -> tuple[Operation, str]:
    operation, ending = request.param
    return operation, page_text(operation, ending)


def test_every_operation_has_its_files() -> None:
    for operation in ALL:
        assert {PurePosixPath(f"docs/{operation.name}.{ending}") for ending in FORMATS} <= DOCS.keys()
        for drawing in make_drawings(operation):
            assert PurePosixPath(f"docs/drawings/{drawing.id}.svg") in DOCS
    assert {
        PurePosixPath("docs/index.md"),
        PurePosixPath("docs/index.html"),
        PurePosixPath("docs/style.css"),
    } <= DOCS.keys()


def test_page_holds_every_attribute(page: tuple[Operation, str]) -> None:
    operation, text = page
    for attribute in operation.attributes:
        assert shown(attribute.sentence) in text, attribute.name
        for word in (
            attribute.name,
            *attribute.words,
            *([str(attribute.default)] if attribute.default is not None else []),
        ):
            assert word in text, f"{attribute.name}: {word}"
        if attribute.ignored_when is not None:
            when = attribute.ignored_when
            assert f"required while {when.attribute} is {when.unless}; ignored otherwise" in text


def test_page_holds_every_tensor_with_its_index(page: tuple[Operation, str]) -> None:
    operation, text = page
    assert f"The documents count from {operation.index_base};" in text
    for kind, tensors in (("input", operation.inputs), ("output", operation.outputs)):
        for tensor in tensors:
            assert shown(tensor.sentence) in text
            assert re.search(rf"\b{tensor.name}\b[ |]+{kind} {tensor.index}\b", text), tensor.name


def test_page_holds_every_rule_definition_and_padding(page: tuple[Operation, str]) -> None:
    operation, text = page
    for rule in operation.rules:
        assert rule.id in text
        assert shown(rule.sentence) in text
    assert shown(operation.padding.sentence) in text
    for definition in operation.definitions:
        assert definition.sentence in text
    markdown = page_text(operation, "md")
    for formula in (
        *(rule.formula for rule in operation.rules),
        *(row.formula for row in operation.definitions),
        operation.padding.same_total,
    ):
        assert plain_text(typeset_formula(formula)) in markdown, formula


def test_page_holds_every_reading_and_layout(page: tuple[Operation, str]) -> None:
    operation, text = page
    for reading in operation.readings:
        assert shown(reading.sentence) in text
        for name, axes in reading.layouts.items():
            order = ", ".join("K…" if axis == "X" else axis.replace("/", " / ") for axis in axes)
            assert f"{name} is ({order})" in text, name


def test_page_holds_every_decision(page: tuple[Operation, str]) -> None:
    operation, text = page
    for decision in operation.decisions:
        assert shown(decision.question) in text, decision.number
        assert shown(decision.answer) in text, decision.number
    extensions = sum(decision.extension for decision in operation.decisions)
    assert DOCS[PurePosixPath(f"docs/{operation.name}.html")].count('class="tag extension"') == extensions > 0
    assert DOCS[PurePosixPath(f"docs/{operation.name}.md")].count(" *Extension.*") == extensions


def test_page_holds_every_type_example_and_source(page: tuple[Operation, str]) -> None:
    operation, text = page
    for variable in operation.type_variables:
        for name in variable.types:
            assert re.search(rf"\b{name}\b", text), name
    for example in operation.examples:
        assert example.title in text
        for name, value in example.attributes.items():
            assert f"{name}={value!r}".replace("'", '"') in text
        for shape in example.shapes.values():
            assert str(shape) in text
    for source in operation.sources:
        assert f"{source.id} {source.title}" in text.replace("**", "")
    for part in (operation.summary, operation.description):
        assert shown(part) in text


def test_page_compares_the_generations(page: tuple[Operation, str]) -> None:
    operation, text = page
    if operation.counterpart is None:
        assert "Compared with" not in text and "The other generation" not in text
        return
    other = next(row for row in ALL if row.name == operation.counterpart)
    assert f"Compared with {other.versioned_name}" in re.sub(r"\[(.*?)\]\(.*?\)", r"\1", text)
    part = text[text.index("Compared with") :]
    part = part[: part.index("Examples")]
    for here, there in zip(
        (*operation.data_inputs, *operation.outputs), (*other.data_inputs, *other.outputs), strict=True
    ):
        assert re.search(rf"\b{here.name}\b[ |]+{there.name}\b", part)
    assert "index of the first input" in part
    differs = [reading.sum.gradient for reading in operation.readings] != [row.sum.gradient for row in other.readings]
    assert ("channel axis of the weights that groups divide" in part.split("The same in both")[0]) == differs


@pytest.mark.parametrize("path", HTML_PAGES, ids=str)
def test_html_is_well_formed(path: PurePosixPath) -> None:
    reader = READERS[path]
    assert DOCS[path].startswith("<!doctype html>\n<!-- SPDX-License-Identifier: Apache-2.0\n")
    assert not reader.problems
    assert len(set(reader.ids)) == len(reader.ids), "two elements share an id"
    assert set(reader.labels) <= set(reader.ids)
    assert reader.headings[0] == "h1" and reader.headings.count("h1") == 1
    assert all(
        int(after[1]) <= int(before[1]) + 1 for before, after in zip(reader.headings, reader.headings[1:], strict=False)
    )
    assert "<script" not in DOCS[path] and "http://" not in DOCS[path].replace("http://www.w3.org/2000/svg", "")


@pytest.mark.parametrize("path", HTML_PAGES, ids=str)
def test_html_links_resolve(path: PurePosixPath) -> None:
    assert READERS[path].links
    for link in READERS[path].links:
        check_link(path, link, {other: set(reader.ids) for other, reader in READERS.items()})


@pytest.mark.parametrize("path", MARKDOWN_PAGES, ids=str)
def test_markdown_links_resolve(path: PurePosixPath) -> None:
    anchors = {other: set(re.findall(r'<a id="([^"]+)"></a>', DOCS[other])) for other in MARKDOWN_PAGES}
    prose = re.sub(r"^ *```.*?^ *```$", "", DOCS[path], flags=re.DOTALL | re.MULTILINE)
    links = re.findall(r"\]\(([^)]+)\)", prose)
    assert links
    for link in links:
        check_link(path, link, anchors)


def check_link(path: PurePosixPath, link: str, anchors: dict[PurePosixPath, set[str]]) -> None:
    file, _, anchor = link.partition("#")
    target = PurePosixPath(posixpath.normpath(path.parent / file)) if file else path
    assert target in RENDERED, f"{path}: {link} leads nowhere"
    if anchor:
        assert anchor in anchors[target], f"{path}: {link} names no anchor"


@pytest.mark.parametrize("path", DRAWINGS, ids=str)
def test_drawings_are_svg(path: PurePosixPath) -> None:
    root = ET.fromstring(DOCS[path])
    space = "{http://www.w3.org/2000/svg}"
    assert root.tag == f"{space}svg"
    _, _, width, height = map(int, root.attrib["viewBox"].split())
    assert all((element := root.find(f"{space}{tag}")) is not None and element.text for tag in ("title", "desc"))
    for element in root.iter():
        for horizontal, vertical in (("x", "y"), ("cx", "cy")):
            if horizontal in element.attrib:
                assert 0 <= int(element.attrib[horizontal]) <= width
                assert 0 <= int(element.attrib[vertical]) <= height


@pytest.mark.parametrize("operation", ALL, ids=lambda row: row.name)
def test_drawing_shows_the_numbers_of_the_example(operation: Operation) -> None:
    drawing, values = draw_windows(operation), small_call(operation, 1).axis_values()[0]
    inside = [tap.inside for tap in drawing.taps]
    positions = [o * values["s"] + k * values["d"] - values["pb"] for o in range(3) for k in range(values["K"])]
    windowed = max(values["I"], values["O"])
    assert inside == [0 <= position < windowed for position in positions]
    assert False in inside and True in inside, "the picture shows padding at work"
    assert sum(cell.kind == "padding" for cell in drawing.cells) == values["pb"] + values["pe"]
    pitch = {right.x - left.x for left, right in zip(drawing.taps, drawing.taps[1:], strict=False) if left.y == right.y}
    assert pitch == {28 * values["d"]}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("[64, 64, 3, 3]", "[64, 32, 3, 3]"), "weights_shape = (64, 32, 3, 3), which no reading fits"),
        (
            ("[64, 64, 3, 3]", "[64, 64, 5, 5]"),
            "breaks the rule output_size: O == (I + pb + pe - eff) // s + 1 (axis 0)",
        ),
        ((", weights_shape = [64, 64, 3, 3]", ""), "has no weights_shape"),
    ],
)
def test_a_wrong_example_is_refused(tmp_path: Path, change: tuple[str, str], message: str) -> None:
    text = (OPERATIONS / "convolution_backward_weights.toml").read_text(encoding="utf-8")
    file = tmp_path / "wrong.toml"
    file.write_text(text.replace(*change), encoding="utf-8")
    with pytest.raises(WrongExampleError) as caught:
        plan_documentation([load_operation(file)])
    start = "ConvolutionBackwardWeights: example 'A 3x3 layer of a residual network, channels in front' "
    assert str(caught.value).startswith(start)
    assert str(caught.value).endswith(message)


def test_index_lists_every_operation() -> None:
    for ending in FORMATS:
        text = DOCS[PurePosixPath(f"docs/index.{ending}")]
        for operation in ALL:
            assert f"{operation.name}.{ending}" in text
            assert f"../schema/{operation.name}.attributes.schema.json" in text
            assert all(tensor.name in text for tensor in (*operation.inputs, *operation.outputs))


def test_styles_adapt_and_balance() -> None:
    style = DOCS[PurePosixPath("docs/style.css")]
    assert style.count("{") == style.count("}")
    for query in ("prefers-color-scheme: dark", "@media print", "max-width: 44rem"):
        assert query in style
    for path in HTML_PAGES:
        used = {name for names in re.findall(r'class="([^"]+)"', DOCS[path]) for name in names.split()}
        unstyled = {name for name in used if not re.search(rf"\.{re.escape(name)}\b", style)}
        assert not unstyled, path


def test_text_is_the_same_every_time_and_escaped() -> None:
    assert render(plan_documentation(list(ALL))) == DOCS
    for path in HTML_PAGES:
        assert not re.search(r"&(?!amp;|lt;|gt;|#34;|#39;)", DOCS[path])


def test_a_made_up_operation_gets_its_pages(tmp_path: Path) -> None:
    text = (OPERATIONS / "convolution_backward_weights.toml").read_text(encoding="utf-8")
    text = re.sub(r"^counterpart = .*\n", "", text, flags=re.MULTILINE)
    text = text.replace('"ConvolutionBackwardWeights"', '"PatchGradient"').replace(
        'forward = "Convolution"', 'forward = "Patch"'
    )
    text = re.sub(r"\bsrc\b", "patches", re.sub(r"\bdiff_dst\b", "errors", text))
    text = text.replace("Are empty tensors allowed?", 'Is 1 < 2 & 2 > 1 | \\"x\\" <b>bold</b>?')
    file = tmp_path / "patch.toml"
    file.write_text(text, encoding="utf-8")
    operation = load_operation(file)
    rendered = render(plan_outputs([operation]))
    names = {str(path) for path in rendered}
    assert {
        "docs/PatchGradient.md",
        "docs/PatchGradient.html",
        "docs/index.md",
        "docs/drawings/PatchGradient-windows.svg",
    } <= names
    page = rendered[PurePosixPath("docs/PatchGradient.html")]
    reader = Reader(page)
    assert not reader.problems
    assert 'Is 1 < 2 & 2 > 1 | "x" <b>bold</b>?' in reader.text
    assert "<b>bold" not in page
    markdown = rendered[PurePosixPath("docs/PatchGradient.md")]
    assert "convgrad.PatchGradient(" in markdown and "patches has shape" in markdown
    assert 'Is 1 &lt; 2 & 2 > 1 \\| "x" &lt;b>bold&lt;/b>?' in markdown
    assert "The other generation" not in reader.text + markdown
    assert "PatchGradient" in rendered[PurePosixPath("docs/index.html")]


def test_an_operation_without_automatic_padding_gets_its_page(tmp_path: Path) -> None:
    text = (OPERATIONS / "conv_transpose_backward_weights.toml").read_text(encoding="utf-8")
    sections = re.split(r"\n(?=\[\[)", text)
    dropped = ('role = "auto_pad"', 'role = "output_padding"', 'title = "Output padding')
    kept = [row for row in sections if not any(text in row for text in dropped)]
    text = "\n".join(kept).replace('ignored_when = { attribute = "auto_pad", unless = "none" }\n', "")
    text = text.replace(" + op", "")
    text = re.sub(r"^remedy = .*$", "", text, flags=re.MULTILINE)
    file = tmp_path / "plain.toml"
    file.write_text(text, encoding="utf-8")
    operation = load_operation(file)
    outputs = plan_documentation([operation])
    markdown = render(outputs)[PurePosixPath(f"docs/{operation.name}.md")]
    assert "Automatic padding" not in markdown
    assert "| `op` |" not in markdown


@pytest.mark.parametrize(
    ("formula", "text"),
    [
        ("(I + pb + pe - eff) // s + 1", "⌊(I + pb + pe ~ eff) / s⌋ + 1"),
        ("I - (pb - pe)", "I ~ (pb ~ pe)"),
        ("I - pb - pe", "I ~ pb ~ pe"),
        ("I * (K % s)", "I · (K mod s)"),
        ("I % s == 0", "I mod s = 0"),
        ("max(0, eff - (s if I % s == 0 else I % s))", "max(0, eff ~ (s if I mod s = 0, else I mod s))"),
        ("-I + 2 * (K - 1)", "~I + 2 · (K ~ 1)"),
        ("I // (s * d)", "⌊I / (s · d)⌋"),
        ("O >= 1", "O ≥ 1"),
    ],
)
def test_formulas_keep_their_meaning(formula: str, text: str) -> None:
    assert plain_text(typeset_formula(formula)).replace("\N{MINUS SIGN}", "~") == text
