# SPDX-License-Identifier: Apache-2.0
"""Plan to file contents, in memory: the Jinja environment and the tidy pass. Nothing here touches generated/."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from pathlib import PurePosixPath

import jinja2

from codegen.outputs import TEMPLATES, Copy, Output

_BLANK_LINES = re.compile(r"\n{4,}")


def make_environment() -> jinja2.Environment:
    """An environment in which an undefined name is an error and HTML is escaped."""
    return jinja2.Environment(
        loader=jinja2.FileSystemLoader(TEMPLATES),
        undefined=jinja2.StrictUndefined,
        autoescape=jinja2.select_autoescape(["html", "html.j2", "svg.j2"], default_for_string=False, default=False),
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )


def render_plan(
    outputs: Iterable[Output | Copy], report: Callable[[PurePosixPath], object] = lambda path: None
) -> dict[PurePosixPath, bytes]:
    """The content of every planned file, by its path below generated/.

    Args:
        outputs: the plan.
        report: called with the path of each file once it is rendered.
    """
    environment = make_environment()
    rendered = {}
    for output in outputs:
        rendered[output.path] = render_output(environment, output)
        report(output.path)
    return rendered


def render_output(environment: jinja2.Environment, output: Output | Copy) -> bytes:
    """The content of one planned file."""
    if isinstance(output, Copy):
        return output.source.read_bytes()
    text = environment.get_template(output.template).render(context=output.context)
    return tidy(text).encode()


def tidy(text: str) -> str:
    """No trailing blanks, at most two blank lines in a row, one newline at the end."""
    lines = [line.rstrip() for line in text.splitlines()]
    return _BLANK_LINES.sub("\n\n\n", "\n".join(lines)).strip("\n") + "\n"
