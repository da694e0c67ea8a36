# SPDX-License-Identifier: Apache-2.0
"""`python -m convgrad doctor`: what this machine offers, what is compiled, and why something is off.

It only looks: nothing is compiled or mended, and the folder that it makes to see whether it can is gone at once.
"""

from __future__ import annotations

import os
import platform
import pwd
import stat
import sys
import sysconfig
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from rich.table import Table
from rich.text import Text

from convgrad import loader
from convgrad.cache import VARIABLE, Cache, cache_directory
from convgrad.commands.console import make_console, print_json
from convgrad.compiler import find_compiler, require_python_headers
from convgrad.cpus import usable_cpus
from convgrad.errors import CompileError, SpecError
from convgrad.isa import detect_isa
from convgrad.kernel_table import KERNELS
from convgrad.planner import kernel_isa
from convgrad.processor import read_processor
from convgrad.threads import get_num_threads

VARIABLES = (
    "CONVGRAD_CACHE_DIR", "CONVGRAD_CC", "CC", "CONVGRAD_MAX_ISA", "CONVGRAD_SPECIALIZE", "CONVGRAD_NUM_THREADS",
    "OMP_NUM_THREADS", "CONVGRAD_LIBDNNL",
)  # fmt: skip
REQUIRED_PACKAGES = ("cffi", "filelock", "ml-dtypes", "numpy", "platformdirs", "rich", "typer")
OPTIONAL_PACKAGES = {
    "matplotlib": "pictures of the demo and the benchmark",
    "scikit-image": "the demo's photograph",
    "threadpoolctl": "limits on threads",
    "torch": "tensors in, tensors out",
    "ziglang": "a C compiler where there is none",
}
_INSTRUCTION_SETS = (
    "avx", "f16c", "fma", "avx2", "avx512f", "avx512bw", "avx512vl", "avx512_vnni", "avx512_bf16", "avx512_fp16",
    "amx_tile", "amx_bf16", "asimd", "asimdhp", "bf16", "sve", "sve2",
)  # fmt: skip
"""As Linux spells them, those that matter to these sums."""


@dataclass(slots=True)
class Report:
    """What was found.

    sections  JSON-ready facts, by section
    lines     the same for people: (section, text)
    problems  what keeps the package from working as it should, each with what mends it
    notes     what is worth knowing, but does no harm
    """

    sections: dict[str, Any] = field(default_factory=dict)
    lines: list[tuple[str, str]] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def run_doctor(*, as_json: bool) -> bool:
    """Look at everything and print it. Return whether there is no problem."""
    report = examine()
    if as_json:
        print_json({"ok": not report.problems, **report.sections, "problems": report.problems, "notes": report.notes})
    else:
        _print_report(report)
    return not report.problems


def examine() -> Report:
    """Look at everything; nothing that is wrong stops it."""
    report = Report()
    cached = find_cached()
    complete = all(cached.values())
    _examine_python(report)
    _examine_cpu(report)
    _examine_compiler(report, needed=not complete)
    _examine_headers(report, needed=not complete)
    _examine_cache(report, needed=not complete)
    _examine_kernels(report, cached)
    _examine_threads(report)
    _examine_packages(report)
    _examine_environment(report)
    return report


def find_cached() -> dict[str, bool]:
    """Return, for the runtime and each kernel, whether the cache has a valid compiled module of the present sources.

    One that any compiler made counts where there is no compiler. A cache that cannot be used holds nothing.
    """
    try:
        compiler = find_compiler()
    except CompileError:
        compiler = None
    names = (loader.RUNTIME, *(kernel.symbol for kernel in KERNELS))
    found: dict[str, bool] = dict.fromkeys(names, False)
    try:
        cache = Cache(cache_directory())
        if not os.path.lexists(cache.folder):
            return found  # check() would make it
        cache.check()
        # Only the runtime can tell which instruction set kernels are compiled for; without it none of them was.
        if cache.find(loader.runtime_recipe(), compiler) is None:
            return found
        found[loader.RUNTIME] = True
        best = detect_isa()
        for kernel in KERNELS:
            recipe = loader.kernel_recipe(kernel, kernel_isa(kernel.dtype, best))
            found[kernel.symbol] = cache.find(recipe, compiler) is not None
    except (CompileError, SpecError, OSError):
        pass
    return found


def _examine_python(report: Report) -> None:
    folder = loader.KERNEL_FOLDER.parent
    own = _find_version("convgrad")
    report.sections["convgrad"] = {"version": own, "folder": str(folder)}
    report.lines.append(("convgrad", f"{own or 'not installed, imported'} from {folder}"))
    implementation = f"{platform.python_implementation()} {platform.python_version()}"
    report.sections["python"] = {"version": implementation, "executable": sys.executable}
    report.lines.append(("Python", f"{implementation}, {sys.executable}"))


def _examine_cpu(report: Report) -> None:
    model, flags = read_processor()
    usable = usable_cpus()
    present = [name for name in _INSTRUCTION_SETS if name in flags]
    report.sections["cpu"] = {
        "model": model,
        "architecture": platform.machine(),
        "cpus": os.cpu_count(),
        "usable_cpus": usable,
        "instruction_sets": present,
    }
    report.lines.append(("CPU", f"{model}, {platform.machine()}, {usable} of {os.cpu_count()} CPUs usable"))
    report.lines.append(("", " ".join(present) or "no instruction sets known"))
    if platform.machine() not in ("x86_64", "aarch64") or sys.platform != "linux":
        report.notes.append(f"{sys.platform} on {platform.machine()} is untested: Linux on x86_64 or aarch64 is not")


def _examine_compiler(report: Report, *, needed: bool) -> None:
    try:
        compiler = find_compiler()
    except CompileError as error:
        report.sections["compiler"] = None
        report.lines.append(("compiler", "none"))
        _complain(report, str(error), problem=needed, otherwise="all kernels are compiled already")
        return
    first_line = compiler.version.splitlines()[0]
    report.sections["compiler"] = {
        "command": list(compiler.argv),
        "path": compiler.path,
        "version": first_line,
        "origin": compiler.origin,
    }
    report.lines.append(("compiler", f"{compiler.summary}, from {compiler.origin}"))


def _examine_headers(report: Report, *, needed: bool) -> None:
    folder = sysconfig.get_path("include")
    try:
        require_python_headers()
    except CompileError as error:
        report.sections["headers"] = None
        report.lines.append(("headers", "none"))
        _complain(report, str(error), problem=needed, otherwise="all kernels are compiled already")
    else:
        report.sections["headers"] = folder
        report.lines.append(("headers", folder))


def _examine_cache(report: Report, *, needed: bool) -> None:
    facts: dict[str, Any] = {"folder": None, "exists": False}
    report.sections["cache"] = facts
    try:
        folder = cache_directory()
    except CompileError as error:
        report.lines.append(("cache", "none"))
        report.problems.append(str(error))
        return
    facts["folder"] = str(folder)
    if not os.path.lexists(folder):
        report.lines.append(("cache", f"{folder}, made at the first use"))
        parent = next(parent for parent in folder.parents if os.path.lexists(parent))
        if (trouble := _try_to_write(parent)) is not None:
            report.problems.append(f"cannot make the cache {folder}: {trouble}; set {VARIABLE} to a folder of your own")
        return
    status = os.lstat(folder)
    facts |= {"exists": True, "owner": _name_user(status.st_uid), "mode": f"{stat.S_IMODE(status.st_mode):04o}"}
    report.lines.append(("cache", f"{folder}, owner {facts['owner']}, mode {facts['mode']}"))
    try:
        Cache(folder).check()
    except CompileError as error:
        report.problems.append(str(error))
        return
    except OSError as error:
        report.problems.append(f"the cache {folder} cannot be used: {error}; set {VARIABLE} to a folder of your own")
        return
    trouble = _try_to_write(folder)
    facts["writable"] = trouble is None
    facts["entries"], facts["bytes"] = _measure(folder)
    report.lines.append(("", f"{facts['entries']} entries, {facts['bytes'] / 2**20:.1f} MiB"))
    if trouble is not None:
        reason = f"the cache {folder} keeps nothing new: {trouble}; set {VARIABLE} to a folder of your own"
        _complain(report, reason, problem=needed, otherwise="all kernels are in it already")


def _try_to_write(folder: Path) -> OSError | None:
    """Return why no folder can be made in this one (None: it can)."""
    # Permissions do not tell: not for root, and not on a full or a special file system.
    try:
        with tempfile.TemporaryDirectory(prefix=".convgrad-doctor-", dir=folder):
            return None
    except OSError as error:
        return error


def _measure(folder: Path) -> tuple[int, int]:
    """Return how many entries the cache has, and the bytes of all its files."""
    entries = folder / "entries"
    count = len(os.listdir(entries)) if entries.is_dir() else 0
    size = 0
    for place, _, files in os.walk(folder):
        for name in files:
            try:
                size += os.lstat(os.path.join(place, name)).st_size
            except FileNotFoundError:
                continue  # another process has just finished with it
    return count, size


def _examine_kernels(report: Report, cached: dict[str, bool]) -> None:
    missing = [name for name, there in cached.items() if not there]
    report.sections["kernels"] = {
        "total": len(cached),
        "cached": [name for name, there in cached.items() if there],
        "missing": missing,
    }
    count = len(cached) - len(missing)
    report.lines.append(("kernels", f"{count} of {len(cached)} modules compiled"))
    rows: dict[tuple[int, str, str], list[str]] = {}
    for kernel in KERNELS:
        if cached[kernel.symbol]:
            rows.setdefault((kernel.rank, kernel.data_format, kernel.strategy), []).append(kernel.dtype)
    for (rank, data_format, strategy), dtypes in rows.items():
        report.lines.append(("", f"{rank}d {data_format} {strategy}: {' '.join(dtypes)}"))
    if missing:
        report.notes.append(
            f"{len(missing)} modules are compiled when they are first needed; `python -m convgrad build` does it ahead"
        )


def _examine_threads(report: Report) -> None:
    try:
        threads = get_num_threads()
    except (ValueError, RuntimeError) as error:
        report.sections["threads"] = None
        report.lines.append(("threads", "unknown"))
        report.problems.append(str(error))
    else:
        report.sections["threads"] = threads
        report.lines.append(("threads", str(threads)))


def _examine_packages(report: Report) -> None:
    versions = {name: _find_version(name) for name in (*REQUIRED_PACKAGES, *OPTIONAL_PACKAGES)}
    report.sections["packages"] = versions
    report.lines.append(("packages", ", ".join(f"{name} {versions[name] or '?'}" for name in REQUIRED_PACKAGES)))
    for name, use in OPTIONAL_PACKAGES.items():
        report.lines.append(("", f"{name} {versions[name] or 'not installed'} (optional: {use})"))


def _examine_environment(report: Report) -> None:
    chosen = {name: os.environ[name] for name in VARIABLES if name in os.environ}
    report.sections["environment"] = chosen
    texts = [f"{name}={value}" for name, value in chosen.items()] or ["none of its variables is set"]
    report.lines.extend(("environment" if place == 0 else "", text) for place, text in enumerate(texts))


def _complain(report: Report, reason: str, *, problem: bool, otherwise: str) -> None:
    if problem:
        report.problems.append(reason)
    else:
        report.notes.append(f"{reason}\nThat does no harm now: {otherwise}.")


def _find_version(distribution: str) -> str | None:
    try:
        return version(distribution)
    except PackageNotFoundError:
        return None


def _name_user(number: int) -> str:
    try:
        return pwd.getpwuid(number).pw_name
    except KeyError:
        return str(number)


def _print_report(report: Report) -> None:
    console = make_console()
    grid = Table.grid(padding=(0, 2, 0, 0))
    grid.add_column(style="bold", no_wrap=True)
    grid.add_column(overflow="fold")
    for section, text in report.lines:
        grid.add_row(section, text)
    console.print(grid)
    _print_remarks("note", "yellow", report.notes)
    _print_remarks("problem", "bold red", report.problems)
    count = len(report.problems)
    verdict = Text(f"problems: {count}", "bold red") if count else Text("no problems found", "green")
    console.print()
    console.print(verdict)


def _print_remarks(kind: str, style: str, remarks: Sequence[str]) -> None:
    console = make_console()
    for remark in remarks:
        console.print()
        # Not wrapped: what mends it is there to be copied.
        console.print(Text.assemble((f"{kind}: ", style), remark), soft_wrap=True)
