# SPDX-License-Identifier: Apache-2.0
"""The four errors of this package. Each message names what is wrong, its value, and what was expected."""

from __future__ import annotations


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
