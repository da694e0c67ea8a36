# SPDX-License-Identifier: Apache-2.0
"""When kernels with compile-time sizes are made: the mode of this process. specialise.py says what the words mean."""

from __future__ import annotations

import os
from typing import Final, Literal, cast, get_args

from convgrad.errors import SpecError

Mode = Literal["auto", "wait", "never"]
VARIABLE: Final = "CONVGRAD_SPECIALIZE"

_mode: Mode | None = None


def set_specialize(mode: Mode) -> None:
    """Choose when specialised kernels are made, for all calls of this process from now on.

    Raises SpecError if `mode` is none of "auto", "wait" and "never".
    """
    global _mode
    _mode = _check_mode(mode, "mode")


def get_specialize() -> Mode:
    """Return "auto", "wait" or "never": what set_specialize was given, else CONVGRAD_SPECIALIZE, else "auto".

    Raises SpecError if CONVGRAD_SPECIALIZE decides it and is none of the three.
    """
    global _mode
    if _mode is None:
        _mode = _check_mode(os.environ.get(VARIABLE, "").strip() or "auto", VARIABLE)
    return _mode


def _check_mode(mode: object, name: str) -> Mode:
    if mode not in get_args(Mode):
        raise SpecError(f'{name}={mode!r}: expected "auto", "wait" or "never"')
    return cast(Mode, mode)
