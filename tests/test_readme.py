# SPDX-License-Identifier: Apache-2.0
"""What the README names exists: files, variables, commands, options, links. What it shows runs."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
from functools import cache
from pathlib import Path

import pytest

from specs import load_operations

ROOT = Path(__file__).resolve().parents[1]
TEXT = (ROOT / "README.md").read_text(encoding="utf-8")
SECTIONS = dict(re.findall(r"^## ([^\n]+)\n(.*?)(?=^## |\Z)", TEXT, re.DOTALL | re.MULTILINE))

# Also without backticks, as in the diagram; `<name>` stands for anything.
PATHS = sorted(set(re.findall(r"(?<![\w./-])(?:\.ci|codegen|generated|specs|templates|tests)/[\w./*<>-]*[\w/>]", TEXT)))
FILES = sorted(set(re.findall(r"`([\w<>.-]+\.(?:c|h|j2|md|png|py|toml))`", TEXT)))
WRITTEN = {"convgrad-demo.png"}  # by what the README runs
NAMED = sorted(set(re.findall(r"`([A-Z][A-Z_]+)`\s+in\s+`([\w./]+)`", TEXT)))
VARIABLES = sorted(set(re.findall(r"CONVGRAD_\w+", TEXT)))
LINKS = sorted(set(re.findall(r"\]\(([^)\s]+)\)", TEXT)))


def commands() -> list[tuple[str, str, tuple[str, ...]]]:
    """(module, command, options) of all that is named: in a span or line of its own, or in a list that such a span
    begins: `python -m codegen generate [--check]`, `list`, `docs`.
    """
    found: dict[tuple[str, str], set[str]] = {}
    for module, command, rest in re.findall(r"python -m (codegen|convgrad) (\w+)([^`\n]*)", TEXT):
        found.setdefault((module, command), set()).update(re.findall(r"--[\w-]+", rest))
    for module, others in re.findall(r"`python -m (codegen|convgrad) \w[^`]*`((?:,\s+`\w+`)+)", TEXT):
        for command in re.findall(r"`(\w+)`", others):
            found.setdefault((module, command), set())
    return [(*key, tuple(sorted(options))) for key, options in sorted(found.items())]


def fenced_block(section: str, language: str) -> str:
    match = re.search(rf"^```{language}\n(.*?)^```$", SECTIONS[section], re.DOTALL | re.MULTILINE)
    assert match is not None, f"## {section}: no ```{language}"
    return match[1]


@cache
def program_texts() -> dict[Path, str]:
    """What runs: the package's files that are copied as they are, the generator and the tests, but for this file."""
    folders = ("codegen", "templates/runtime", "tests")
    paths = (path for folder in folders for path in (ROOT / folder).rglob("*") if path.suffix in (".py", ".c"))
    return {path: path.read_text(encoding="utf-8") for path in paths if path != Path(__file__).resolve()}


def is_read(variable: str, text: str) -> bool:
    """Whether a program asks the environment for a variable: by its name, by a constant, or in a loop over names."""
    ask = r"(?:environ\.get\(|environ\[|getenv\()\s*"
    if re.search(rf'{ask}"{variable}"', text):
        return True
    constants = re.findall(rf'^(\w+)[^=\n]* = "{variable}"', text, re.MULTILINE)
    constants += re.findall(rf'{ask}\w+\) for (\w+) in \([^)]*"{variable}"', text)
    return any(re.search(rf"{ask}{re.escape(name)}\b", text) for name in constants)


def test_the_readme_is_read() -> None:
    """Every list that the tests below walk through holds something."""
    assert len(PATHS) >= 25 and len(FILES) >= 2 and len(NAMED) >= 3 and len(VARIABLES) >= 6 and len(LINKS) >= 2
    assert len(commands()) >= 7
    assert {"--check", "--out", "--op"} <= {option for _, _, options in commands() for option in options}


@pytest.mark.parametrize("path", PATHS)
def test_paths_exist(path: str) -> None:
    pattern = re.sub(r"<\w+>", "*", path)
    assert list(ROOT.glob(pattern.rstrip("/"))), f"{path} does not exist"
    if path.endswith("/"):
        assert (ROOT / path).is_dir()


@pytest.mark.parametrize("name", FILES)
def test_files_named_without_their_folder_exist(name: str) -> None:
    if name in WRITTEN:
        assert name in (ROOT / "templates/runtime/convgrad/__main__.py").read_text(encoding="utf-8")
        return
    pattern = re.sub(r"<\w+>", "*", name)
    folders = ("codegen", "specs", "templates", "tests")
    assert any(path for folder in folders for path in (ROOT / folder).rglob(pattern)), f"{name} is nowhere"


@pytest.mark.parametrize(("name", "path"), NAMED)
def test_tables_are_where_recipes_say(name: str, path: str) -> None:
    assert re.search(rf"^{name}\b.* = ", (ROOT / path).read_text(encoding="utf-8"), re.MULTILINE)


@pytest.mark.parametrize("variable", VARIABLES)
def test_variables_are_read(variable: str) -> None:
    assert any(is_read(variable, text) for text in program_texts().values()), f"nothing reads {variable}"


def test_a_variable_that_is_only_set_does_not_count_as_read() -> None:
    assert is_read("A_B", 'os.environ.get("A_B")') and is_read("A_B", 'NAME: Final = "A_B"\nos.environ[NAME]')
    assert is_read("A_B", '(os.environ.get(name) for name in ("C", "A_B"))')
    assert not is_read("A_B", 'monkeypatch.setenv("A_B", "1")\nNAME = "A_B"')


@pytest.mark.parametrize(("module", "command", "options"), commands(), ids=str)
def test_commands_and_options_exist(module: str, command: str, options: tuple[str, ...]) -> None:
    environment = {**os.environ, "NO_COLOR": "1", "TERM": "dumb", "COLUMNS": "160"}
    environment["PYTHONPATH"] = os.pathsep.join([str(ROOT), str(ROOT / "generated")])
    result = subprocess.run(
        [sys.executable, "-m", module, command, "--help"],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        encoding="utf-8",
        timeout=60,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    for option in options:
        assert re.search(rf"(?<![\w-]){option}(?![\w-])", result.stdout), f"{module} {command} has no {option}"


def test_the_example_runs_as_it_stands(tmp_path: Path) -> None:
    program = fenced_block("Use it", "python") + "\nprint(diff_weights.shape, diff_weights.dtype)\n"
    result = subprocess.run(
        [sys.executable, "-W", "error", "-c", program],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT / "generated")},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    assert result.stdout == "(128, 64, 3, 3) float32\n"


@pytest.mark.parametrize(
    ("section", "last"),
    [("Run it", ".venv/bin/python -m convgrad demo"), ("Test it", ".venv/bin/python -m pytest -n auto")],
)
def test_the_blocks_that_are_run_as_they_stand(section: str, last: str) -> None:
    """`.ci/run` takes both blocks by their headings."""
    lines = fenced_block(section, "sh").splitlines()
    assert lines[0] == "python3 -m venv .venv" and lines[-1] == last
    (extras,) = re.findall(r"pip install --quiet -e '\.\[([\w,]+)\]'", "\n".join(lines))
    known = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert set(extras.split(",")) <= set(known)
    assert f'readme_block "{section}"' in (ROOT / ".ci" / "run").read_text()


@pytest.mark.parametrize("link", LINKS)
def test_links_lead_somewhere(link: str) -> None:
    path, _, anchor = link.partition("#")
    if path.startswith("https://"):
        return
    target = ROOT / path if path else ROOT / "README.md"
    assert target.exists(), f"{link}: no such file"
    if anchor:
        text = target.read_text(encoding="utf-8")
        headings = {
            re.sub(r"[^\w -]", "", row).strip().lower().replace(" ", "-")
            for row in re.findall(r"^#+ (.+)$", text, re.MULTILINE)
        }
        assert anchor in headings or f'id="{anchor}"' in text, f"{link}: no such heading"


def test_every_operation_of_the_table_is_specified() -> None:
    rows = re.findall(r"^\| `([\w-]+)` \| (.+?) \|", TEXT.split("\n## ")[0], re.MULTILINE)
    specified = {
        operation.versioned_name: [tensor.name for tensor in operation.data_inputs] for operation in load_operations()
    }
    assert len(rows) >= 4
    for name, inputs in rows:
        assert re.findall(r"\w+", inputs) == specified[name]
