# SPDX-License-Identifier: Apache-2.0
"""Compiles the generated C through cffi the first time it is needed, and loads it; later from the cache on disk.

cffi writes the C of a Python extension module (out-of-line API mode, so the C compiler checks each declaration against
the generated C), and one call of the compiler makes a shared object of it. What is loaded stays for the whole process.
"""

from __future__ import annotations

import contextlib
import functools
import io
import itertools
import math
import os
import platform
import shlex
import struct
import sys
import sysconfig
import threading
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from importlib.machinery import ExtensionFileLoader
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

import _cffi_backend  # type: ignore[import-not-found, import-untyped, unused-ignore]

from convgrad.cache import VARIABLE, Recipe, obtain
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
from convgrad.errors import CompileError
from convgrad.kernel import Kernel
from convgrad.kernel_table import KERNELS

KERNEL_FOLDER = Path(__file__).resolve().parent / "kernels"
RUNTIME = "wgrad_runtime"

_PROTOTYPE = """\
typedef struct wgrad_geometry wgrad_geometry;
void {symbol}(const wgrad_geometry *geometry, const void *plain, const void *windowed, void *out, void *scratch,
              int64_t first, int64_t last);
"""


@dataclass(frozen=True, slots=True)
class BuildStep:
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


@dataclass(frozen=True, slots=True)
class _Unit:
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
    cache, and ValueError for an unknown instruction set.
    """
    address = _addresses.get((kernel.symbol, isa))
    if address is None:
        module, _ = _load_kernel(kernel, isa, announce=True)
        address = _addresses[kernel.symbol, isa] = _address(kernel, module)
    return address


def build_all(
    kernels: Iterable[Kernel] = KERNELS,
    progress: Callable[[BuildStep], None] | None = None,
    *,
    isa: str = "base",
    jobs: int | None = None,
) -> None:
    """Compile the runtime and the kernels ahead, and load them; what the cache holds is not compiled again.

    `progress` is called in this thread after each of them. `jobs` compilers run at a time (None: one for each CPU that
    this process may use, at most 4). At the first failure raises what `load_kernel` raises.
    """
    wanted = tuple(kernels)
    start = time.perf_counter()
    _, compiled = _load(_runtime_unit(), _accept, announce=False)
    if progress is not None:
        progress(BuildStep(RUNTIME, 1, 1 + len(wanted), compiled, time.perf_counter() - start))

    def build(kernel: Kernel) -> tuple[bool, float]:
        start = time.perf_counter()
        _, compiled = _load_kernel(kernel, isa, announce=False)
        return compiled, time.perf_counter() - start

    cpus = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    with ThreadPoolExecutor(jobs or min(4, cpus)) as executor:
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
    headers = [_read(KERNEL_FOLDER / name) for name in ("wgrad_geometry.h", "wgrad_runtime.h")]
    # cffi reads plain declarations: no preprocessor lines.
    lines = [line for header in headers for line in header.splitlines() if not line.lstrip().startswith("#")]
    return _Unit(RUNTIME, "\n".join(lines), "base", THREAD_FLAGS)


def _accept(module: Any) -> None:
    """Accept a new runtime: that it could be imported is enough. (Kernels have a self-test.)"""


def _load_kernel(kernel: Kernel, isa: str, *, announce: bool) -> tuple[Any, bool]:
    if isa not in ISA_FLAGS:
        raise ValueError(f"isa={isa!r} is not an instruction set of this package: expected one of {sorted(ISA_FLAGS)}")
    runtime, _ = _load(_runtime_unit(), _accept, announce=announce)
    unit = _Unit(kernel.symbol, _PROTOTYPE.format(symbol=kernel.symbol), isa)
    return _load(unit, lambda module: _check_sums(kernel, _address(kernel, module), runtime.ffi), announce=announce)


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
    """Read what the unit is made from: its C file, and every header, for any of them may be included."""
    paths = [KERNEL_FOLDER / f"{unit.name}.c", *sorted(KERNEL_FOLDER.glob("*.h"))]
    sources = [(path.name, _read(path)) for path in paths]
    libc = os.confstr("CS_GNU_LIBC_VERSION") if "CS_GNU_LIBC_VERSION" in getattr(os, "confstr_names", {}) else None
    return Recipe(
        module=unit.module,
        sources=(*sources, ("declarations", unit.declarations)),
        arguments=(*FLAGS, *unit.flags, *ISA_FLAGS[unit.isa], *python_include_arguments()),
        isa=unit.isa,
        abi=(
            str(sysconfig.get_config_var("SOABI") or sys.implementation.cache_tag),
            f"{sys.platform} {platform.machine()}",
            libc or "",
            f"cffi {_cffi_backend.__version__}",  # it writes the rest of the C
        ),
    )


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
    builder.set_source(unit.module, f'#include "{unit.name}.c"', compiler_verbose=0)
    emitted = io.StringIO()
    builder.emit_c_code(emitted)
    (folder / SOURCE).write_text(emitted.getvalue(), "utf-8")
    return compile_shared_object(compiler, recipe.arguments, folder)


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


# The self-test of a new kernel: small integers, whose sums are exact in every element type, so one wrong bit shows.

_AXES = (  # output, input, kernel, stride, dilation, pad: padded at both ends, or with input that no tap reaches
    (2, 3, 2, 2, 1, 1),
    (4, 5, 3, 1, 2, 2),
    (5, 11, 3, 2, 1, 1),
)
_FUNCTION = "void (*)(const wgrad_geometry *, const void *, const void *, void *, void *, int64_t, int64_t)"
_UNUSED_AXIS = (1, 1, 1, 1, 1, 0)
_BATCH = 2
_CHANNELS = (2, 3, 2)
"""Groups, then plain and windowed channels in one group: all different from 1, and no whole tile."""
_SCRATCH_BYTES = 4 << 20
"""More than any strategy asks for at this size."""
_GUARD_BYTES = 256


class _Tensor:
    """An input of the self-test: `pattern` over and over, as values and as the bytes that the kernel reads."""

    def __init__(self, kernel: Kernel, channels: int, extents: tuple[int, ...], pattern: tuple[int, ...]) -> None:
        self.channels, self.extents, self.channels_last = channels, extents, kernel.data_format == "NXC"
        self.values = list(itertools.islice(itertools.cycle(pattern), _BATCH * channels * math.prod(extents)))
        self.bytes = b"".join(_encode(kernel, value) for value in self.values)

    def at(self, n: int, channel: int, position: tuple[int, ...]) -> int:
        """Return the value there, 0 outside."""
        if not all(0 <= x < extent for x, extent in zip(position, self.extents, strict=True)):
            return 0
        depth, height, width = position
        x = (depth * self.extents[1] + height) * self.extents[2] + width
        if self.channels_last:
            return self.values[(n * math.prod(self.extents) + x) * self.channels + channel]
        return self.values[(n * self.channels + channel) * math.prod(self.extents) + x]


def _encode(kernel: Kernel, value: int) -> bytes:
    """Return a small integer as one element of the kernel's type, in the machine's byte order."""
    if kernel.dtype == "f16":
        return struct.pack("=e", value)
    if kernel.dtype == "f32":
        return struct.pack("=f", value)
    return struct.pack("=H", struct.unpack("=I", struct.pack("=f", value))[0] >> 16)


def _check_sums(kernel: Kernel, address: int, ffi: Any) -> None:
    """Call the kernel, item by item, on a tiny geometry. Raise CompileError unless every bit is right, every element is
    written, and nothing beside them is."""
    groups, plain_channels, windowed_channels = _CHANNELS
    outputs, inputs, taps, strides, dilations, pads = zip(
        *(_UNUSED_AXIS,) * (3 - kernel.rank), *_AXES[3 - kernel.rank :], strict=True
    )
    plain = _Tensor(kernel, groups * plain_channels, outputs, (1, -2, 1, 2, -1, 1, -1))
    windowed = _Tensor(kernel, groups * windowed_channels, inputs, (2, -1, 1, 1, -1))

    def exact(tap: tuple[int, ...], w: int, g: int, p: int) -> int:
        total = 0
        for n, output in itertools.product(range(_BATCH), itertools.product(*map(range, outputs))):
            axes = zip(output, strides, tap, dilations, pads, strict=True)
            position = tuple(o * stride + k * dilation - pad for o, stride, k, dilation, pad in axes)
            total += plain.at(n, g * plain_channels + p, output) * windowed.at(n, g * windowed_channels + w, position)
        return total

    # Stored as [taps][windowed channel][group][plain channel]: no framework's layout, for all strides have to work.
    order = (itertools.product(*map(range, taps)), range(windowed_channels), range(groups), range(plain_channels))
    expected = [_encode(kernel, exact(*index)) for index in itertools.product(*order)]
    row = groups * plain_channels * windowed_channels
    geometry = {
        "N": _BATCH, "G": groups, "P": plain_channels, "W": windowed_channels,
        "O": outputs, "I": inputs, "K": taps, "stride": strides, "dilation": dilations, "pad": pads,
        "out_group": plain_channels, "out_plain": 1, "out_windowed": groups * plain_channels,
        "out_tap": (taps[1] * taps[2] * row, taps[2] * row, row), "out_f32": 0, "accumulate": 0,
    }  # fmt: skip

    size = len(expected[0])
    guard, unwritten = b"\xff" * _GUARD_BYTES, b"\xff" * size  # a NaN in every element type
    memory = ffi.new("char[]", guard + unwritten * len(expected) + guard)
    scratch = ffi.new("char[]", _SCRATCH_BYTES + 64)
    aligned = scratch + -int(ffi.cast("uintptr_t", scratch)) % 64
    operands = ffi.new("wgrad_geometry *", geometry), ffi.new("char[]", plain.bytes), ffi.new("char[]", windowed.bytes)
    function = ffi.cast(_FUNCTION, address)
    for item in range(len(expected)):  # how many items there are is the plan's business: go on until all is written
        function(*operands, memory + _GUARD_BYTES, aligned, item, item + 1)
        found = bytes(ffi.buffer(memory, 2 * _GUARD_BYTES + size * len(expected)))
        elements = [found[at : at + size] for at in range(_GUARD_BYTES, len(found) - _GUARD_BYTES, size)]
        if unwritten not in elements:
            break
    wrong = sum(a != b for a, b in zip(elements, expected, strict=True))
    if wrong or found[:_GUARD_BYTES] != guard or found[-_GUARD_BYTES:] != guard:
        raise CompileError(
            f"{kernel.symbol} was compiled, but fails its self-test: {wrong} of {len(expected)} gradient elements are "
            f"wrong{'' if wrong else ', and memory beside them was written'}. It is not used. The compiler is to "
            f"blame, or its flags: set CONVGRAD_CC to another."
        )
