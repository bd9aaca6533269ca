"""The N-th send, receive, allocation, open or launch fails: every N of the starter's request, of a streamed one, and of
those with loops of steps, nested loops, choices and called tasks."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.safety.plugin import Figure, Scale


@pytest.mark.safety("R15")
@pytest.mark.timeout(0)
@pytest.mark.parametrize(
    ("case", "size", "sample"),
    [
        ("shapes", 3, 4),
        ("streams", 5, 8),
        ("passes", 2, 2),
        ("rambling", 2, 2),
        ("search", 2, 2),
        ("choices", 2, 2),
        ("calls", 2, 2),
    ],
)
def test_whatever_fails_a_request_ends_right_or_typed_and_nothing_leaks(
    case: str, size: int, sample: int, scale: Scale, figure: Figure, repository: Path
) -> None:
    words = ["-m", "tests.support.failing", case, str(size), str(scale(sample, 0))]
    command, longest = [sys.executable, *words], scale(600, 14_400)
    ran = subprocess.run(command, cwd=repository, capture_output=True, text=True, timeout=longest, check=False)
    assert ran.returncode == 0, ran.stderr[-3000:]
    golden, *rounds = [json.loads(line) for line in ran.stdout.splitlines()]
    assert golden["wrong"] == []
    assert [one for one in rounds if one["wrong"]] == []
    came = [one for one in rounds if one["failed"]]
    assert len(came) > len(rounds) / 2
    figure(f"{case}: faults that came to pass", len(came), at_least=100)
    figure(f"{case}: requests that ended right in spite of them", count(came, "right"))
    figure(f"{case}: with a typed error", len(came) - count(came, "right"))
    figure(f"{case}: wrong, or something left", 0, at_most=0)


def count(rounds: list[dict[str, Any]], end: str) -> int:
    return sum(one["end"] == end for one in rounds)
