# SPDX-License-Identifier: Apache-2.0
"""The four errors of this package. Each message names what is wrong, its value, and what was expected."""

from __future__ import annotations

import re
import reprlib
from typing import Any


class SpecError(ValueError):
    """An attribute, a shape or a layout breaks a rule of the operation's specification.

    The message names the attribute or tensor, its value, what the specification expects, and, where a formula
    decides, the formula with its numbers.
    """


class DTypeError(TypeError):
    """A tensor has an element type or a byte order that the operation does not take.

    Nothing is converted silently: the message names the call that does the conversion.
    """


class CompileError(RuntimeError):
    """A kernel could not be compiled, stored or loaded.

    The message holds the command, how it ended and the end of what it printed, or names the environment variable
    (CONVGRAD_CC, CC, CONVGRAD_CACHE_DIR) or the package that mends it.
    """


class CacheSecurityError(CompileError):
    """Somebody else could have written to the cache of compiled kernels, so nothing in it is loaded.

    Raised for a folder or a file that has a foreign owner, is writable by group or world, or is a symbolic link. The
    message names the command that mends it, and CONVGRAD_CACHE_DIR as the way around.
    """


class _Quotation(reprlib.Repr):
    """repr() cut to a readable length without making the whole text first."""

    def __init__(self) -> None:
        super().__init__()
        self.maxlevel = 3
        self.maxlist = self.maxtuple = 8
        self.maxstring = self.maxother = 100

    def repr_int(self, x: int, level: int) -> str:
        # int refuses to print thousands of digits (sys.set_int_max_str_digits).
        return repr(x) if x.bit_length() <= 256 else f"an integer of {x.bit_length()} bits"

    def repr_ndarray(self, x: Any, level: int) -> str:
        return repr(x) if x.size <= 16 else f"an array of shape {x.shape}"

    def repr_instance(self, x: Any, level: int) -> str:
        if isinstance(x, (str, bytes, bytearray)):
            x = x[: self.maxother]
        try:
            text = repr(x)
        except Exception:  # an object's own repr may raise anything, and must not hide what is wrong with the object
            return f"<{type(x).__name__}>"
        half = self.maxother // 2 - 2
        return text if len(text) <= self.maxother else f"{text[:half]}...{text[-half:]}"


def quote_value(value: object) -> str:
    """A value as messages show it: its repr on one line, cut to a readable length, whatever the value is."""
    try:
        return re.sub(r"\s*\n\s*", " ", _Quotation().repr(value))
    except Exception:  # a class that borrows the name of a container, without its methods
        return f"<{type(value).__name__}>"
