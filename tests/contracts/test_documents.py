"""The files that README and CONTRIBUTING name exist."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

DOCUMENTS = ("README.md", "CONTRIBUTING.md", "ARCHITECTURE.md")
SIZES = {"README.md": 9_000, "CONTRIBUTING.md": 8_000, "ARCHITECTURE.md": 10_000}
"""Bytes at most."""
EXAMPLES = {
    "x.py", "x.json", "operators_x.py", "v0002_x.py", "X.tsx", "XForm.tsx", "XNode.tsx", "NAME.py", "test_<module>.py",
    "*.txt", "x.md", "x.ipynb", "mailroom.py",
}  # fmt: skip
"""File names that stand for one still to be written; their folder must be there."""


def test_every_path_in_the_documentation_leads_somewhere(repository: Path) -> None:
    """Links there are checked when it is built."""
    pages = [path for path in (repository / "docs").rglob("*.md") if "_build" not in path.parts]
    assert len(pages) > 30
    found = {path.name: dead_ends(repository, paths_of(path.read_text())) for path in pages}
    assert {name: ways for name, ways in found.items() if ways} == {}


def paths_of(text: str) -> str:
    """A page without its links."""
    return re.sub(r"\]\([^)]*\)", "]", text)


@pytest.mark.parametrize("name", DOCUMENTS)
def test_the_pages_at_the_top_keep_their_sizes(repository: Path, name: str) -> None:
    text = (repository / name).read_text()
    assert len(text.encode()) <= SIZES[name]
    assert [line for line in text.splitlines() if len(line) > 120 and not line.startswith("|")] == []


@pytest.mark.parametrize("name", DOCUMENTS)
def test_every_link_and_path_leads_somewhere(repository: Path, name: str) -> None:
    assert dead_ends(repository, (repository / name).read_text()) == []


def test_a_planted_dead_end_is_found(tmp_path: Path) -> None:
    (tmp_path / "backend").mkdir()
    text = "[a](GONE.md) `backend/x.py` `backend/gone.py` `tests/x.py` [b](backend) `/v1/tasks`"
    assert dead_ends(tmp_path, text) == ["GONE.md", "backend/gone.py", "tests/x.py"]


def test_every_verb_of_dev_is_explained(repository: Path) -> None:
    tree = ast.parse((repository / "dev").read_text())
    [verbs] = [
        [element.id for element in node.value.elts if isinstance(element, ast.Name)]
        for node in tree.body
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Tuple)
        if [target.id for target in node.targets if isinstance(target, ast.Name)] == ["VERBS"]
    ]
    explained = set(re.findall(r"^\| `\./dev (\w+)", (repository / "CONTRIBUTING.md").read_text(), re.MULTILINE))
    assert explained == set(verbs)


def test_every_benchmark_is_explained(repository: Path) -> None:
    assert unexplained(repository) == []


def test_a_planted_benchmark_without_a_row_is_found(tmp_path: Path) -> None:
    (tmp_path / "benchmarks").mkdir()
    for name in ("told", "untold", "_shared"):
        (tmp_path / "benchmarks" / f"{name}.py").touch()
    (tmp_path / "benchmarks" / "README.md").write_text("`untold` is no row\n| `told` | x |\n")
    assert unexplained(tmp_path) == ["untold"]


def unexplained(root: Path) -> list[str]:
    """Return the benchmarks that no row of their README begins with."""
    rows = re.findall(r"^\| (`.*?) \|", (root / "benchmarks" / "README.md").read_text(), re.MULTILINE)
    told = {name for row in rows for name in re.findall(r"`(\w+)`", row)}
    return sorted({path.stem for path in (root / "benchmarks").glob("[!_]*.py")} - told)


def dead_ends(root: Path, text: str) -> list[str]:
    """Return the relative links, and the paths in backticks that start at a folder of ours, that lead nowhere."""
    links = [link for link in re.findall(r"\]\(([^)#\s]+)", text) if "://" not in link]
    own = "backend|editor|graphs|placements|tests|benchmarks|docs"
    paths = re.findall(rf"`((?:{own})/[^`\s]*)`", text)
    return [name for name in [*links, *paths] if not leads_somewhere(root, name)]


def leads_somewhere(root: Path, name: str) -> bool:
    path = Path(name)
    if path.name in EXAMPLES:
        path = path.parent
    if "<" in path.name:
        path = path.parent
    return (root / path).exists()
