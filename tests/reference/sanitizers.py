# SPDX-License-Identifier: Apache-2.0
"""What sanitizers are called on the command line of a compiler, and whether they work on this machine."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from convgrad.compiler import Compiler

SANITIZERS: dict[str, tuple[str, ...]] = {
    "plain": (),
    "thread": ("-fsanitize=thread",),
    "address,undefined": ("-fsanitize=address,undefined", "-fno-sanitize-recover=all"),
}


def require_sanitizer(compiler: Compiler, sanitizer: str, folder: Path) -> list[str]:
    """Skip unless an empty program can be built and run with it. Return what its command has to begin with."""
    if sanitizer == "plain":
        return []
    source, program = folder / "empty.c", folder / "empty"
    source.write_text("int main(void) { return 0; }\n", "utf-8")
    built = _run([*compiler.argv, *SANITIZERS[sanitizer], "-pthread", str(source), "-o", str(program)])
    if built.returncode != 0:
        reason = next(iter(built.stderr.splitlines()), "no reason given")
        pytest.skip(f"{compiler.summary} cannot build with -fsanitize={sanitizer}: {reason}")
    # Older sanitizers cannot place their shadow memory where addresses are randomised by many bits.
    prefixes = [[], ["setarch", "-R"]] if shutil.which("setarch") else [[]]
    for prefix in prefixes:
        if _run([*prefix, str(program)]).returncode == 0:
            return prefix
    pytest.skip(f"what {compiler.summary} builds with -fsanitize={sanitizer} does not run on this machine")


def _run(command: list[str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
