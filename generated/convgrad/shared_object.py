# SPDX-License-Identifier: Apache-2.0
"""Plain shared objects with one function: opened, called by address, and closed when nobody uses them any more."""

from __future__ import annotations

import os
import weakref
from pathlib import Path
from typing import Any

from convgrad.errors import CompileError

LOADER_HEADER = "dlfcn.h"
LOADER_DECLARATIONS = """\
#define RTLD_NOW ...
#define RTLD_LOCAL ...
void *dlopen(const char *filename, int flags);
void *dlsym(void *handle, const char *symbol);
int dlclose(void *handle);
char *dlerror(void);
"""
"""The system's loader, for the module of the runtime. (cffi's own dlopen wants its parser of C: 40 ms to import.)"""


class SharedObject:
    """An open shared object and the address of its one function.

    It is closed when the last reference to this goes away, and not before: who calls the function holds one.

    Attributes:
        path: the file, which may have been deleted since.
        address: that of the function.
        last_call: when it was last taken for a call, `time.monotonic()`.
    """

    __slots__ = ("__weakref__", "address", "last_call", "path")

    def __init__(self, path: Path, symbol: str, runtime: tuple[Any, Any]) -> None:
        """Open it. `runtime` is (ffi, lib) with LOADER_DECLARATIONS. Raises CompileError if it cannot be loaded."""
        ffi, lib = runtime
        self.path = path
        self.last_call = 0.0
        handle = lib.dlopen(os.fsencode(path), lib.RTLD_NOW | lib.RTLD_LOCAL)
        if not handle:
            raise CompileError(f"{path} cannot be loaded: {_last_error(ffi, lib)}")
        weakref.finalize(self, lib.dlclose, handle).atexit = False  # then threads may still be in it
        function = lib.dlsym(handle, symbol.encode())
        if not function:
            raise CompileError(f"{path} has no function {symbol}: {_last_error(ffi, lib)}")
        self.address = int(ffi.cast("uintptr_t", function))


def _last_error(ffi: Any, lib: Any) -> str:
    text = lib.dlerror()
    return str(ffi.string(text).decode(errors="replace")) if text else "no reason given"
