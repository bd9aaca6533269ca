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

_OTHERS = dict.fromkeys(("passes", "rambling", "search", "choices", "calls"), (2, 2))
CASES = {"shapes": (3, 2), "streams": (5, 4), **_OTHERS}
"""Case -> its size, and how many faults are drawn at the short scale."""


@pytest.fixture(scope="module")
def told(request: pytest.FixtureRequest, scale: Scale, repository: Path) -> dict[str, list[dict[str, Any]]]:
    """The lines of each case whose test is run. One process plays all of them: its imports take longer than a round."""
    tests = [one for one in request.session.items if isinstance(one, pytest.Function) and one.module is request.module]
    words = [f"{case}:{size}:{scale(sample, 0)}" for case, (size, sample) in CASES.items() if asked(case, tests)]
    command, longest = [sys.executable, "-m", "tests.support.failing", *words], scale(600, 14_400) * len(words)
    ran = subprocess.run(command, cwd=repository, capture_output=True, text=True, timeout=longest, check=False)
    assert ran.returncode == 0, ran.stderr[-3000:]
    lines = [json.loads(line) for line in ran.stdout.splitlines()]
    return {case: [line for line in lines if line["case"] == case] for case in CASES}


def asked(case: str, tests: list[pytest.Function]) -> bool:
    return any(one.callspec.params.get("case") == case for one in tests if hasattr(one, "callspec"))


@pytest.mark.safety("R15")
@pytest.mark.timeout(0)
@pytest.mark.parametrize("case", CASES)
def test_whatever_fails_a_request_ends_right_or_typed_and_nothing_leaks(
    case: str, told: dict[str, list[dict[str, Any]]], figure: Figure
) -> None:
    golden, *rounds = told[case]
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
