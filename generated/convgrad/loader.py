# SPDX-License-Identifier: Apache-2.0
"""Compiles the generated C through cffi the first time it is needed, and loads it; later from the cache on disk.

cffi writes the C of a Python extension module (out-of-line API mode, so the C compiler checks each declaration against
the generated C), and one call of the compiler makes a shared object of it. What is loaded stays for the whole process.

A kernel with its sizes as constants is a plain shared object of the same C file: no Python in it, and it can be closed.
"""

from __future__ import annotations

import contextlib
import functools
import io
import os
import platform
import re
import shlex
import sys
import threading
import time
from collections.abc import Callable, Iterable
from importlib.machinery import EXTENSION_SUFFIXES, ExtensionFileLoader
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any, NamedTuple

import _cffi_backend  # type: ignore[import-not-found, import-untyped, unused-ignore]

from convgrad.cache import VARIABLE, Recipe, look_up, obtain
from convgrad.compiler import (
    FLAGS,
    ISA_FLAGS,
    SOURCE,
    THREAD_FLAGS,
    Compiler,
    compile_shared_object,
    find_compiler,
    python_include_arguments,
    require_python_headers,
)
from convgrad.cpus import usable_cpus
from convgrad.errors import CompileError
from convgrad.eviction import SIZED
from convgrad.isa import detect_isa
from convgrad.kernel import Kernel
from convgrad.kernel_table import KERNELS
from convgrad.planner import Schedule, kernel_isa
from convgrad.shared_object import LOADER_DECLARATIONS, LOADER_HEADER, SharedObject

KERNEL_FOLDER = Path(__file__).resolve().parent / "kernels"
RUNTIME = "wgrad_runtime"

_PROTOTYPE = """\
typedef struct wgrad_geometry wgrad_geometry;
void {symbol}(const wgrad_geometry *geometry, const void *plain, const void *windowed, void *out, void *scratch,
              int64_t first, int64_t last);
"""


class BuildStep(NamedTuple):
    """What `build_all` has just finished.

    name      "wgrad_runtime" or a kernel's symbol
    position  how many are finished, this one included
    total     how many there are
    compiled  False if it was in the cache or loaded already
    seconds   what it took
    """

    name: str
    position: int
    total: int
    compiled: bool
    seconds: float


class _Unit(NamedTuple):
    """One shared object to be: `name`.c with its declarations, for one instruction set."""

    name: str
    declarations: str
    isa: str
    flags: tuple[str, ...] = ()

    @property
    def module(self) -> str:
        return f"_{self.name}_{self.isa}"


_modules: dict[_Unit, Any] = {}
_addresses: dict[tuple[str, str], int] = {}
_locks: dict[_Unit, threading.Lock] = {}  # one for each, so that several can be compiled at a time
_kept: dict[Recipe, SharedObject] = {}
_terminal = threading.Lock()


def load_runtime() -> tuple[Any, Any]:
    """Return (ffi, lib) of the runtime: the types of wgrad_geometry.h, the functions of wgrad_runtime.h.

    Thread-safe. Compiled at its first use, then kept. Raises CompileError if it can be neither found nor built, and
    CacheSecurityError if others could have written to the cache.
    """
    module, _ = _load(_runtime_unit(), _accept, announce=True)
    return module.ffi, module.lib


def load_kernel(kernel: Kernel, isa: str = "base") -> int:
    """Return the address of the kernel's function, compiled for the instruction set `isa` (a row of ISA_FLAGS).

    Thread-safe. Compiled at its first use, then kept; before a new one is published it has to pass an exact self-test.
    Raises CompileError if it can be neither found nor built, CacheSecurityError if others could have written to the
    cache, and ValueError for an unknown instruction set or a symbol that the kernel's fields do not spell.
    """
    address = _addresses.get((kernel.symbol, isa))
    if address is None:
        module, _ = _load_kernel(kernel, isa, announce=True)
        address = _addresses[kernel.symbol, isa] = _address(kernel, module)
    return address


def runtime_recipe() -> Recipe:
    """What the compiled runtime is made from: the cache is asked with it."""
    return _recipe(_runtime_unit())


def kernel_recipe(kernel: Kernel, isa: str) -> Recipe:
    """What the compiled module of a kernel for any size is made from, for the instruction set `isa`."""
    return _recipe(_kernel_unit(kernel, isa))


def load_module(name: str) -> tuple[Any, Any]:
    """Return (ffi, lib) of kernels/<name>.c, with what its header <name>.h declares. It is no kernel: nothing tests it.

    Thread-safe. Compiled at its first use, then kept. Raises CompileError if it can be neither found nor built, and
    CacheSecurityError if others could have written to the cache.
    """
    module, _ = _load(_Unit(name, _read_declarations(f"{name}.h"), "base"), _accept, announce=True)
    return module.ffi, module.lib


def open_specialised(schedule: Schedule, stop: threading.Event | None = None) -> SharedObject:
    """Open the schedule's kernel with `schedule.sizes` as constants, from the cache or compiled now.

    Every schedule with the same kernel, instruction set and sizes may be run with it. It closes when nobody holds the
    answer any more. Before a new one is published it has to give the bits of the kernel for any size. When `stop` is
    set, by another thread, the compiler is killed.

    Raises CompileError if it can be neither found nor built, CacheSecurityError if others could have written to the
    cache, and ValueError if a size is not a definition of C.
    """
    runtime = load_runtime()
    recipe = _specialised_recipe(schedule)

    def produce(compiler: Compiler, folder: Path) -> Path:
        from convgrad.self_test import check_fixed_sizes, plan_trial  # only what compiles needs it

        for name, text in recipe.sources:
            (folder / name).write_text(text, "utf-8")
        (folder / SOURCE).write_text(f'#include "{schedule.kernel.file}"\n', "utf-8")
        path = compile_shared_object(compiler, recipe.arguments, folder, stop)
        new = SharedObject(path, schedule.kernel.symbol, runtime)
        if (trial := plan_trial(schedule)) is not None:
            any_size = load_kernel(trial[1].kernel, trial[1].isa)
            check_fixed_sizes(trial, (new.address, any_size), runtime)
        return path

    for attempt in range(3):
        path = obtain(recipe, find_compiler, produce)
        try:
            return SharedObject(path, schedule.kernel.symbol, runtime)
        except CompileError:
            if attempt == 2 or path.exists():
                raise  # else another process has just evicted it
    raise AssertionError


def find_specialised(schedule: Schedule) -> SharedObject | None:
    """Open the schedule's kernel with `schedule.sizes` as constants if the cache has it; nothing is compiled."""
    path = look_up(_specialised_recipe(schedule), find_compiler)
    try:
        return SharedObject(path, schedule.kernel.symbol, load_runtime()) if path is not None else None
    except CompileError:
        return None


def load_specialised(schedule: Schedule) -> int:
    """Return the address of what `open_specialised` opens, which is then kept for the whole process."""
    recipe = _specialised_recipe(schedule)
    if recipe not in _kept:
        _kept[recipe] = open_specialised(schedule)
    return _kept[recipe].address


def build_all(
    kernels: Iterable[Kernel] = KERNELS,
    progress: Callable[[BuildStep], None] | None = None,
    *,
    isa: str | None = None,
    jobs: int | None = None,
) -> None:
    """Compile the runtime and the kernels ahead, and load them; what the cache holds is not compiled again.

    Each kernel is compiled for what plans use on a processor whose best instruction set is `isa` (None: this one's).
    `progress` is called in this thread after each of them. `jobs` compilers run at a time (None: one for each CPU that
    this process may use, at most 4). At the first failure raises what `load_kernel` raises.
    """
    from concurrent.futures import ThreadPoolExecutor, as_completed  # logging with them: 8 ms that no call waits for

    wanted = tuple(kernels)
    start = time.perf_counter()
    _, compiled = _load(_runtime_unit(), _accept, announce=False)
    if progress is not None:
        progress(BuildStep(RUNTIME, 1, 1 + len(wanted), compiled, time.perf_counter() - start))
    best = detect_isa() if isa is None else isa

    def build(kernel: Kernel) -> tuple[bool, float]:
        start = time.perf_counter()
        _, compiled = _load_kernel(kernel, kernel_isa(kernel.dtype, best), announce=False)
        return compiled, time.perf_counter() - start

    with ThreadPoolExecutor(jobs or min(4, usable_cpus())) as executor:
        pending = {executor.submit(build, kernel): kernel for kernel in wanted}
        try:
            for position, future in enumerate(as_completed(pending), start=2):
                compiled, seconds = future.result()
                if progress is not None:
                    progress(BuildStep(pending[future].symbol, position, 1 + len(wanted), compiled, seconds))
        except BaseException:
            executor.shutdown(cancel_futures=True)
            raise


@functools.cache
def _runtime_unit() -> _Unit:
    declarations = _read_declarations("wgrad_geometry.h", "wgrad_runtime.h")
    return _Unit(RUNTIME, f"{declarations}\n{LOADER_DECLARATIONS}", "base", THREAD_FLAGS)


def _kernel_unit(kernel: Kernel, isa: str) -> _Unit:
    return _Unit(kernel.symbol, _PROTOTYPE.format(symbol=kernel.symbol), isa)


def _read_declarations(*headers: str) -> str:
    """Read headers for cffi, which takes plain declarations: no preprocessor lines."""
    lines = (line for name in headers for line in _read(KERNEL_FOLDER / name).splitlines())
    return "\n".join(line for line in lines if not line.lstrip().startswith("#"))


def _accept(module: Any) -> None:
    """Accept a new module that is no kernel: that it could be imported is enough. (Kernels have a self-test.)"""


def _load_kernel(kernel: Kernel, isa: str, *, announce: bool) -> tuple[Any, bool]:
    _check_kernel(kernel)
    _check_isa(isa)
    runtime, _ = _load(_runtime_unit(), _accept, announce=announce)
    unit = _kernel_unit(kernel, isa)

    def check(module: Any) -> None:
        from convgrad.self_test import check_any_size  # only what compiles needs it

        check_any_size(kernel, isa, _address(kernel, module), runtime.ffi)

    return _load(unit, check, announce=announce)


def _address(kernel: Kernel, module: Any) -> int:
    return int(module.ffi.cast("uintptr_t", module.ffi.addressof(module.lib, kernel.symbol)))


def _load(unit: _Unit, check: Callable[[Any], None], *, announce: bool) -> tuple[Any, bool]:
    """Return the unit's module, and whether it was compiled just now; a new one is published if `check` accepts it."""
    if (module := _modules.get(unit)) is not None:
        return module, False
    with _locks.setdefault(unit, threading.Lock()):
        if (module := _modules.get(unit)) is not None:
            return module, False
        compiled = False
        recipe = _recipe(unit)

        def produce(compiler: Compiler, folder: Path) -> Path:
            nonlocal compiled
            compiled = True
            complete = _announce(unit.name) if announce else lambda: None
            try:
                path = _compile(unit, recipe, compiler, folder)
                check(_import(unit, path))
            finally:
                complete()
            return path

        module = _modules[unit] = _import(unit, obtain(recipe, find_compiler, produce))
        return module, compiled


def _recipe(unit: _Unit) -> Recipe:
    return Recipe(
        module=unit.module,
        sources=(*_read_sources(KERNEL_FOLDER, unit.name), ("declarations", unit.declarations)),
        arguments=(*FLAGS, *unit.flags, *ISA_FLAGS[unit.isa]),
        isa=unit.isa,
        abi=(
            f"{EXTENSION_SUFFIXES[0]} {sys.version} {sys.base_exec_prefix}",  # stands for the headers of Python
            *_system_abi(),
            f"cffi {_cffi_backend.__version__}",  # it writes the rest of the C
        ),
    )


_DEFINITION = re.compile(r"[A-Z][A-Z0-9_]*", re.ASCII)
_STRATEGY = re.compile(r"[a-z][a-z0-9_]*", re.ASCII)


def _specialised_recipe(schedule: Schedule) -> Recipe:
    kernel, isa, sizes = schedule.kernel, schedule.isa, schedule.sizes
    if not sizes or not all(_DEFINITION.fullmatch(name) and type(size) is int for name, size in sizes.items()):
        raise ValueError(f"sizes={sizes!r}: expected names and integers, which become definitions in C")
    _check_kernel(kernel)
    _check_isa(isa)
    definitions = (f"-D{name}={size}" for name, size in sorted(sizes.items()))
    return Recipe(
        module=f"{kernel.symbol}_{isa}{SIZED}",
        sources=_read_sources(KERNEL_FOLDER, kernel.symbol),
        arguments=(*FLAGS, *ISA_FLAGS[isa], *definitions),
        isa=isa,
        abi=_system_abi(),
    )


@functools.lru_cache(maxsize=256)
def _read_sources(folder: Path, name: str) -> tuple[tuple[str, str], ...]:
    """Read what is compiled: the C file of this name, and every header, for any of them may be included."""
    return tuple((path.name, _read(path)) for path in (folder / f"{name}.c", *sorted(folder.glob("*.h"))))


@functools.cache
def _system_abi() -> tuple[str, str]:
    libc = os.confstr("CS_GNU_LIBC_VERSION") if "CS_GNU_LIBC_VERSION" in getattr(os, "confstr_names", {}) else None
    return f"{sys.platform} {platform.machine()}", libc or ""


def _check_kernel(kernel: Kernel) -> None:
    """Symbols end up in C source, in file names and in compiler arguments: nothing but their grammar gets through."""
    expected = f"wgrad_{kernel.rank}d_{kernel.data_format.lower()}_{kernel.dtype}_{kernel.strategy}"
    known = kernel.rank in (1, 2, 3) and kernel.data_format in ("NCX", "NXC") and kernel.dtype in ("f32", "bf16", "f16")
    if not known or _STRATEGY.fullmatch(kernel.strategy) is None or kernel.symbol != expected:
        raise ValueError(f"not a kernel: symbol={kernel.symbol!r}, but its fields spell {expected!r}")


def _check_isa(isa: str) -> None:
    if isa not in ISA_FLAGS:
        raise ValueError(f"isa={isa!r} is not an instruction set of this package: expected one of {sorted(ISA_FLAGS)}")


def _read(path: Path) -> str:
    try:
        return path.read_text("utf-8")
    except OSError as error:
        raise CompileError(f"{path} is part of this package, but cannot be read: {error}") from error


def _compile(unit: _Unit, recipe: Recipe, compiler: Compiler, folder: Path) -> Path:
    """Compile exactly the texts that the recipe's hash was taken from: they are written into `folder` for that."""
    from cffi import FFI  # type: ignore[import-untyped, unused-ignore]  # its parser is slow to import

    require_python_headers()
    for name, text in recipe.sources:
        (folder / name).write_text(text, "utf-8")
    builder = FFI()
    builder.cdef(unit.declarations)
    builder.set_source(unit.module, f'#include "{unit.name}.c"\n#include <{LOADER_HEADER}>', compiler_verbose=0)
    emitted = io.StringIO()
    builder.emit_c_code(emitted)
    (folder / SOURCE).write_text(emitted.getvalue(), "utf-8")
    return compile_shared_object(compiler, (*recipe.arguments, *python_include_arguments()), folder)


def _import(unit: _Unit, path: Path) -> Any:
    # Not entered in sys.modules: it is found by its path alone.
    loader = ExtensionFileLoader(unit.module, str(path))
    spec = spec_from_file_location(unit.module, path, loader=loader)
    assert spec is not None
    try:
        module = module_from_spec(spec)
        loader.exec_module(module)
    except ImportError as error:
        raise CompileError(
            f"{path} cannot be loaded: {error}. Remove it ('rm -r -- {shlex.quote(str(path.parent))}'), or set "
            f"{VARIABLE} to a folder from which programs may be loaded."
        ) from error
    return module


def _announce(name: str) -> Callable[[], None]:
    """Say on a terminal why this takes a moment. Return what completes the line."""
    # With several at a time only the first says so: their lines would mix.
    if sys.stderr is None or not sys.stderr.isatty() or not _terminal.acquire(blocking=False):
        return lambda: None
    start = time.perf_counter()

    def complete() -> None:
        _say(f" {time.perf_counter() - start:.1f} s\n")
        _terminal.release()

    _say(f"convgrad: compiling {name} (first use; cached afterwards) ...")
    return complete


def _say(text: str) -> None:
    with contextlib.suppress(OSError, ValueError):  # a terminal that has gone away is no reason to fail
        sys.stderr.write(text)
        sys.stderr.flush()


def _reset_after_fork() -> None:
    global _terminal
    _locks.clear()  # other threads may have held them in the parent
    _terminal = threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_reset_after_fork)
