"""Sizes of files and functions."""

from __future__ import annotations

from pathlib import Path

from tests.contracts import gate

FOLDERS = ("backend/walkgraph", "editor/walkgraph_editor", "benchmarks", "tests")
FRONTEND = "editor/frontend/src"
FILE_LINES = 500
FUNCTION_LINES = 60

LONG_FUNCTIONS: dict[str, int] = {}
"""Functions over the budget, with their lines. This list only shrinks: a function that grew, and one that is no
longer too long, both fail."""


def test_no_file_is_longer_than_its_budget(repository: Path) -> None:
    assert too_long(repository, *FOLDERS) == {}


def test_no_source_of_the_frontend_is_longer_than_its_budget(repository: Path) -> None:
    paths = [path for path in (repository / FRONTEND).rglob("*.ts*") if ".generated." not in path.name]
    assert len(paths) > 50
    assert {str(path): count(path) for path in paths if count(path) > FILE_LINES} == {}


def test_a_planted_long_file_is_found(tmp_path: Path) -> None:
    (tmp_path / "backend").mkdir()
    (tmp_path / "backend" / "long.py").write_text("x = 1\n" * (FILE_LINES + 1))
    (tmp_path / "backend" / "just.py").write_text("x = 1\n" * FILE_LINES)
    assert too_long(tmp_path, "backend") == {"backend/long.py": FILE_LINES + 1}


def test_no_function_is_longer_than_its_budget(repository: Path) -> None:
    assert long_functions(repository, "backend/walkgraph", "editor/walkgraph_editor") == LONG_FUNCTIONS


def test_a_planted_long_function_is_found(tmp_path: Path) -> None:
    (tmp_path / "backend").mkdir()
    body = "        x = 1\n" * FUNCTION_LINES
    (tmp_path / "backend" / "long.py").write_text(f"class A:\n    def f(self):\n{body}")
    assert long_functions(tmp_path, "backend") == {"backend/long.py::A.f": FUNCTION_LINES + 1}


def too_long(root: Path, *folders: str) -> dict[str, int]:
    lines = {str(path.relative_to(root)): count(path) for path in gate.python_files(root, *folders)}
    return {name: number for name, number in lines.items() if number > FILE_LINES}


def long_functions(root: Path, *folders: str) -> dict[str, int]:
    found: dict[str, int] = {}
    for path in gate.python_files(root, *folders):
        found |= gate.long_functions(str(path.relative_to(root)), path.read_text(), FUNCTION_LINES)
    return found


def count(path: Path) -> int:
    return len(path.read_text().splitlines())
