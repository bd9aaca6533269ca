"""Ranks that start in any order reach each other before their deployment is ready; a lost message ends its run.

The deployments are those of `tests.support.forked`, in a process of its own, which forks before it has threads.
"""

import subprocess
import sys
from pathlib import Path

import pytest


def forked(repository: Path, what: str, seconds: float) -> None:
    command = [sys.executable, "-m", "tests.support.forked", what]
    ran = subprocess.run(command, cwd=repository, capture_output=True, text=True, timeout=seconds, check=False)
    assert ran.returncode == 0, ran.stdout + ran.stderr


@pytest.mark.safety("R19")
def test_ranks_that_come_up_at_once_reach_each_other(repository: Path, held_rounds: int) -> None:
    forked(repository, str(held_rounds), 60 + 100 * held_rounds)


def test_a_run_that_waits_for_what_was_lost_ends_and_no_other_does(repository: Path) -> None:
    forked(repository, "stalled", 300)
