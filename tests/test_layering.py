# SPDX-License-Identifier: Apache-2.0
"""The arrows of the house run one way: specs -> codegen -> generated, and never back."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
GENERATED = ROOT / "generated" / "convgrad"

RUN_TIME = {"cffi", "_cffi_backend", "numpy", "ml_dtypes", "platformdirs", "filelock", "typer", "rich"}
"""What the generated package may import beside the standard library."""

OPTIONAL = {
    "threadpoolctl": {"threads.py"},
    "matplotlib": {"figure.py"},
    "skimage": {"demo.py"},
    "torch": {"torch_peer.py"},
}
"""Extras, with the modules that may import them (inside functions)."""


def imports_of(path: Path) -> set[str]:
    names = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: imports are absolute"
            names.add((node.module or "").split(".")[0])
    return names - set(sys.stdlib_module_names)


def modules(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*.py") if "__pycache__" not in path.parts)


def test_the_package_imports_neither_specs_nor_generator() -> None:
    checked = 0
    for path in modules(GENERATED):
        foreign = imports_of(path) - RUN_TIME - {"convgrad"}
        allowed = {name for name, files in OPTIONAL.items() if path.name in files}
        assert foreign <= allowed, f"{path.name} imports {foreign - allowed}"
        checked += 1
    assert checked >= 15


def test_specs_import_nothing_of_ours() -> None:
    for path in modules(ROOT / "specs"):
        assert imports_of(path) <= {"specs", "pydantic"}, path


def test_the_generator_imports_specs_and_little_else() -> None:
    for path in modules(ROOT / "codegen"):
        assert imports_of(path) <= {"codegen", "specs", "jinja2", "typer", "rich"}, path


@pytest.mark.parametrize("path", modules(GENERATED), ids=lambda path: path.name)
def test_no_pickle_no_network_no_shell(path: Path) -> None:
    names = {
        alias.name
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Import)
        for alias in node.names
    }
    assert not names & {"pickle", "marshal", "shelve", "socket", "urllib", "http", "ssl"}
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Call):
            assert not any(word.arg == "shell" for word in node.keywords), f"{path.name}: a shell"
            name = ast.unparse(node.func)
            assert name not in ("os.system", "os.popen", "eval", "exec"), f"{path.name}: {name}"


def test_importing_the_package_loads_no_heavy_extras() -> None:
    code = (
        "import sys, convgrad; "
        "heavy = 'jinja2 pydantic typer rich torch matplotlib skimage setuptools distutils'.split(); "
        "print([name for name in heavy if name in sys.modules])"
    )
    result = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT / "generated", capture_output=True, text=True, check=True
    )
    assert result.stdout.strip() == "[]"


def test_every_source_file_names_its_licence() -> None:
    tracked = subprocess.run(
        ["git", "ls-files", "-co", "--exclude-standard"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    if tracked.returncode != 0:
        pytest.skip("no git checkout here")
    checked = 0
    for name in tracked.stdout.splitlines():
        path = ROOT / name
        if (
            path.suffix in (".py", ".c", ".h", ".toml", ".html", ".css", ".md")
            and path.is_file()
            and name != "README.md"
        ):
            assert "SPDX-License-Identifier: Apache-2.0" in path.read_text()[:400], name
            checked += 1
    assert checked >= 60
