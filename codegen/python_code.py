# SPDX-License-Identifier: Apache-2.0
"""Python expressions laid out over lines, so that generated modules read as if written by hand."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence

WIDTH = 118


def layout_call(function: str, arguments: Sequence[str], indent: int) -> str:
    """A call on one line when it fits, else with one argument on a line; without indentation in front.

    Args:
        function: what is called.
        arguments: each as it is written; those with several lines are laid out already, for `indent + 4`.
        indent: columns that stand in front of the call.
    """
    line = f"{function}({', '.join(arguments)})"
    if "\n" not in line and indent + len(line) + 1 <= WIDTH:
        return line
    inner = " " * (indent + 4)
    return "\n".join([f"{function}(", *(f"{inner}{argument}," for argument in arguments), f"{' ' * indent})"])


def layout_tuple(rows: Sequence[str], indent: int) -> str:
    """A tuple with one entry on a line."""
    inner = " " * (indent + 4)
    return "\n".join(["(", *(f"{inner}{row}," for row in rows), f"{' ' * indent})"])


def layout_text(name: str, text: str, indent: int) -> str:
    """A keyword argument that is a string literal, in pieces where one line cannot hold it."""
    if indent + len(name) + len(quote(text)) + 2 <= WIDTH:
        return f"{name}={quote(text)}"
    # Pieces end at blanks only: a blank is what each but the last gets back.
    pieces = textwrap.wrap(text, WIDTH - indent - 8, break_long_words=False, break_on_hyphens=False)
    rows = [*(f"{piece} " for piece in pieces[:-1]), pieces[-1]]
    inner = " " * (indent + 4)
    return "\n".join([f"{name}=(", *(f"{inner}{quote(row)}" for row in rows), f"{' ' * indent})"])


def quote(text: str) -> str:
    """A string literal in double quotes."""
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n") + '"'


def escape_docstring(text: str) -> str:
    """Text as it is written between triple double quotes, so that Python reads the same text back.

    Args:
        text: without a double quote at its end, which would be read as the first of the closing ones.
    """
    return text.replace("\\", "\\\\").replace('"""', '\\"\\"\\"')


def quote_tuple(words: Sequence[str]) -> str:
    """A tuple of string literals on one line."""
    return f"({', '.join(map(quote, words))}{',' if len(words) == 1 else ''})"
