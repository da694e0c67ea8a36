# SPDX-License-Identifier: Apache-2.0
"""Memory between pages that may not be touched."""

from __future__ import annotations

import ctypes
import mmap

import numpy as np

from reference.kernel_runs import Floats


def _load_libc() -> ctypes.CDLL:
    libc = ctypes.CDLL(None, use_errno=True)
    libc.mmap.restype = ctypes.c_void_p
    libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long]
    libc.mprotect.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
    return libc


LIBC = _load_libc()
UNTOUCHED = np.float32(np.nan).view(np.uint32)
"""What every word holds before anything is written."""


class GuardedMemory:
    """Room for one array at a time, between pages that end the process when they are touched.

    The array touches the guard behind it (if its alignment lets it), or the one in front. The rest of its pages, less
    than one page, is full of NaN: what is read there shows in the results, what is written there in `strays`.
    """

    def __init__(self, size: int) -> None:
        self.size = -(-size // mmap.PAGESIZE) * mmap.PAGESIZE
        flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
        base = LIBC.mmap(None, self.size + 2 * mmap.PAGESIZE, 0, flags, -1, 0)
        assert base not in (None, ctypes.c_void_p(-1).value)
        self._start = base + mmap.PAGESIZE
        self._open = 0
        self._words = np.empty(0, np.uint32)
        self._used = slice(0)

    def place(self, elements: int, at_end: bool, alignment: int = 4) -> Floats:
        """An array of NaN, in the memory that the last one had."""
        needed = max(1, -(-4 * elements // mmap.PAGESIZE)) * mmap.PAGESIZE
        assert needed <= self.size
        if needed != self._open:
            self._protect(self._open, 0)
            self._protect(needed, mmap.PROT_READ | mmap.PROT_WRITE)
            self._open = needed
            self._words = np.ctypeslib.as_array((ctypes.c_uint32 * (needed // 4)).from_address(self._start))
        self._words[:] = UNTOUCHED
        first = (needed - 4 * elements) // alignment * alignment // 4 if at_end else 0
        self._used = slice(first, first + elements)
        return self._words[self._used].view(np.float32)

    def strays(self) -> int:
        """Words beside the array that were written."""
        beside = (self._words[: self._used.start], self._words[self._used.stop :])
        return sum(int(np.count_nonzero(part != UNTOUCHED)) for part in beside)

    def _protect(self, size: int, access: int) -> None:
        assert size == 0 or LIBC.mprotect(self._start, size, access) == 0
