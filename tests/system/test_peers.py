"""Ranks that come up in any order know each other before their deployment is ready."""

import subprocess
import sys
from pathlib import Path


def test_ranks_that_come_up_at_once_reach_each_other(repository: Path, held_rounds: int) -> None:
    """In a process of its own, which forks before it has threads."""
    command = [sys.executable, "-m", "tests.support.forked", str(held_rounds)]
    limit = 60 + 60 * held_rounds
    ran = subprocess.run(command, cwd=repository, capture_output=True, text=True, timeout=limit, check=False)
    assert ran.returncode == 0, ran.stdout + ran.stderr
