"""Tests in several processes end as they do in one, and those of a group in the same."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

TESTS = """
import os, signal
import pytest

def note(what):
    with open(os.environ["NOTES"], "a") as file:
        file.write(f"{what} {os.getpid()}\\n")

@pytest.fixture(scope="session")
def started():
    note("up")
    yield
    note("down")

@pytest.mark.parametrize("number", range(40))
@pytest.mark.group("{name}")
def test_good(number, started, tmp_path):
    print("said")
    note("{name}")

@pytest.mark.group("{name}")
def test_bad():
    print("what {name} printed")
    assert "{name}" == "right"

@pytest.mark.group("{name}")
def test_skipped():
    pytest.skip("not here")

@pytest.mark.group("{name}")
def test_killed():
    if "{name}" == os.environ.get("KILLED"):
        os.kill(os.getpid(), signal.SIGKILL)

@pytest.mark.group("{name}")
def test_after():
    note("after-{name}")
"""
GROUPS = ("one", "two", "three", "four", "five")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in GROUPS:
        (tmp_path / f"test_{name}.py").write_text(TESTS.replace("{name}", name))
    (tmp_path / "pytest.ini").write_text("[pytest]\nmarkers =\n    group(name): of one process\n")
    return tmp_path


def run(folder: Path, *words: str, killed: str = "") -> tuple[int, str, list[tuple[str, str]]]:
    """The status, what was printed, and the notes, with the processes that made them."""
    notes = folder / "notes"
    notes.write_text("")
    environment = {**os.environ, "NOTES": str(notes), "KILLED": killed, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-m", "pytest", "-q", "-p", "tests.support.beside", "-p", "no:cacheprovider", *words]
    ran = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    lines = [line.split() for line in notes.read_text().splitlines()]
    return ran.returncode, ran.stdout, [(name, pid) for name, pid in lines]


def test_several_processes_end_as_one_does(folder: Path) -> None:
    alone, beside = run(folder), run(folder, "--processes", "3")
    for status, printed, notes in (alone, beside):
        assert status == 1
        assert "5 failed, 210 passed, 5 skipped" in printed
        assert all(f"what {name} printed" in printed for name in GROUPS)
        assert sorted(name for name, _ in notes if name in GROUPS) == sorted(GROUPS * 40)
        assert [name for name, _ in notes].count("up") == [name for name, _ in notes].count("down")
    assert len({pid for _, pid in alone[2]}) == 1
    for name in GROUPS:
        assert len({pid for told, pid in beside[2] if told == name}) == 1


def test_a_process_that_dies_fails_its_test_alone(folder: Path) -> None:
    status, printed, notes = run(folder, "--processes", "2", "-rs", killed="two")
    assert status == 1
    assert "6 failed, 209 passed, 5 skipped" in printed
    assert "its process ended: -9" in printed
    assert all(f"SKIPPED [1] test_{name}.py" in printed for name in GROUPS)
    assert sorted(name for name, _ in notes if name.startswith("after")) == sorted(f"after-{name}" for name in GROUPS)


def test_the_first_failure_ends_all_of_them_if_so_asked(folder: Path) -> None:
    status, printed, notes = run(folder, "--processes", "2", "-x")
    assert status == 1
    assert "1 failed" in printed or "2 failed" in printed
    assert len([name for name, _ in notes if name.startswith("after")]) < len(GROUPS)
    assert [name for name, _ in notes].count("up") == [name for name, _ in notes].count("down")
