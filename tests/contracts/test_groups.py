"""The groups of tests that share a process name files that are there, and each file once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.conftest import GROUPS


def faults(groups: Mapping[str, str], tests: Path) -> list[str]:
    files = Counter((group.partition("/")[0], stem) for group, stems in groups.items() for stem in stems.split())
    twice = [f"{folder}: test_{stem}.py is in two groups" for (folder, stem), times in files.items() if times > 1]
    gone = [
        f"{folder}: no test_{stem}.py" for folder, stem in files if not any((tests / folder).rglob(f"test_{stem}.py"))
    ]
    return twice + gone


def test_every_group_names_files_that_are_there(repository: Path) -> None:
    assert faults(GROUPS, repository / "tests") == []


def test_a_file_that_is_gone_or_in_two_groups_is_seen(tmp_path: Path) -> None:
    (tmp_path / "system").mkdir()
    (tmp_path / "system" / "test_a.py").touch()
    planted = {"system/one": "a b", "system/two": "a"}
    assert faults(planted, tmp_path) == ["system: test_a.py is in two groups", "system: no test_b.py"]


def test_processes_keep_groups_together(request: pytest.FixtureRequest) -> None:
    """pytest-xdist sends tests to one process by the group that it has appended to their ids."""
    if not request.config.getoption("loadgroup", default=False):
        pytest.skip("the tests run in one process, or without groups")
    assert request.node.nodeid.endswith("@contracts/test_groups.py")
