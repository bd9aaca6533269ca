"""A process is killed before any statement: while tables are made and migrated, and while documents are written."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.safety.plugin import Figure, Scale
from tests.support.databases import PostgreSQL

STATEMENTS = 400
"""More than there are."""


def survived(repository: Path, every: int, urls: Sequence[str]) -> int:
    """Kills, after each of which all that was acknowledged was there, and nothing by halves."""
    command = [sys.executable, "-m", "tests.support.killed_store", str(every), *urls]
    ran = subprocess.run(command, cwd=repository, capture_output=True, text=True, timeout=3600, check=False)
    assert ran.returncode == 0, ran.stderr[-3000:]
    *kills, last = [json.loads(line) for line in ran.stdout.splitlines()]
    for kill in kills:
        assert kill["found"] is not None, ("it can't be opened again", kill, ran.stderr[-3000:])
        assert set(kill["acknowledged"]) <= set(kill["found"]), kill
        # One transaction that was under way may have been written and not told of.
        assert len(kill["found"]) <= len(kill["acknowledged"]) + 1, kill
    assert last["statements"] > 30
    return len(kills)


@pytest.mark.safety("R14")
@pytest.mark.timeout(0)
def test_sqlite_killed_at_any_statement(repository: Path, tmp_path: Path, scale: Scale, figure: Figure) -> None:
    kills = survived(repository, scale(19, 1), [f"sqlite:///{tmp_path}/{{}}.db"])
    figure("kills at a statement, SQLite", kills)


@pytest.mark.safety("R14")
@pytest.mark.timeout(0)
def test_postgresql_killed_at_any_statement(repository: Path, scale: Scale, figure: Figure) -> None:
    every = scale(29, 1)
    # Not in pytest's own folders: started by root, the server is another user's, and its socket's path is short.
    with tempfile.TemporaryDirectory(prefix="pg") as folder:
        server = PostgreSQL(Path(folder))
        server.start()
        try:
            kills = survived(repository, every, [server.make() for _ in range(STATEMENTS // every)])
        finally:
            server.kill()
    figure("kills at a statement, PostgreSQL", kills)
