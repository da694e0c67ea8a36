# SPDX-License-Identifier: Apache-2.0
"""Instruction sets as a table: one row here and one C header each. A row is chosen when the program runs."""

from __future__ import annotations

import functools
import os
import platform
from typing import NamedTuple

from convgrad.errors import CompileError, SpecError

VARIABLE = "CONVGRAD_MAX_ISA"


class Isa(NamedTuple):
    """What the planner and the compiler have to know of an instruction set.

    name       the word for it, also in CONVGRAD_MAX_ISA and in what wgrad_cpu_isa returns
    flags      what the compiler gets
    header     the C header of its primitives
    lanes      floats in a vector
    registers  vector registers
    """

    name: str
    flags: tuple[str, ...]
    header: str
    lanes: int
    registers: int

    @property
    def arguments(self) -> tuple[str, ...]:
        """The flags, and the choice of the header."""
        return self.flags if self.name == "base" else (*self.flags, f'-DWGRAD_ISA_HEADER="{self.header}"')


_X86_64 = (
    Isa("base", ("-march=x86-64-v2",), "isa_base.h", 4, 16),
    Isa("avx2", ("-march=x86-64-v3",), "isa_avx2.h", 8, 16),
    Isa("avx512", ("-march=x86-64-v4",), "isa_avx512.h", 16, 32),
)
_AARCH64 = (
    Isa("base", (), "isa_base.h", 4, 16),
    Isa("neon", (), "isa_neon.h", 4, 32),
)
_OTHERS = (Isa("base", (), "isa_base.h", 4, 16),)

ARCHITECTURES = {"x86_64": _X86_64, "AMD64": _X86_64, "aarch64": _AARCH64, "arm64": _AARCH64}
"""The rows of each architecture by what platform.machine() calls it, the least first."""
NAMES = tuple(dict.fromkeys(row.name for rows in (*ARCHITECTURES.values(), _OTHERS) for row in rows))
"""Every word that is an instruction set on some machine."""

ISAS: dict[str, Isa] = {row.name: row for row in ARCHITECTURES.get(platform.machine(), _OTHERS)}
"""The rows of this machine's architecture, the least first. What its processor lacks is in here too."""


def list_isas() -> tuple[str, ...]:
    """The rows that this processor can run, the least first.

    Raises:
        CompileError: it cannot even run the first.
    """
    rows = tuple(ISAS)
    return rows[: rows.index(_processor_isa()) + 1]


def detect_isa() -> str:
    """The row to compute with: the best that this processor runs, lowered by CONVGRAD_MAX_ISA.

    Raises:
        SpecError: CONVGRAD_MAX_ISA holds a word that is no instruction set of this architecture.
        CompileError: the processor cannot even run the first row.
    """
    available = list_isas()
    limit = os.environ.get(VARIABLE, "").strip()
    if not limit:
        return available[-1]
    if limit not in ISAS:
        raise SpecError(
            f"{VARIABLE} = {limit!r} is not an instruction set of this machine ({platform.machine()}): "
            f"expected one of {', '.join(ISAS)}"
        )
    return limit if limit in available else available[-1]


@functools.cache
def _processor_isa() -> str:
    from convgrad.loader import load_runtime  # which needs this module's table

    ffi, lib = load_runtime()
    name = ffi.string(lib.wgrad_cpu_isa()).decode()
    if name not in ISAS:
        raise CompileError(
            "this processor is too old: kernels are compiled for x86-64-v2 (SSE4.2 and POPCNT) at least, which it lacks"
        )
    return str(name)
