"""Limits in seconds that hold on any machine: they grow with how slow this one is at the moment."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

_WORK = json.dumps([{"name": f"n{index}", "values": list(range(20))} for index in range(400)])
_REFERENCE = 0.0028
"""Seconds that `_work` takes on the idle machine on which the limits were set."""
ATTEMPTS = 5

Clock = Callable[[], float]
T = TypeVar("T")


def slowness(clock: Clock = time.perf_counter) -> float:
    """How much longer a fixed piece of work takes here and now than on the reference machine; 1 at least."""
    return max(1.0, min(_seconds(_work, clock) for _ in range(3)) / _REFERENCE)


def patience(seconds: float) -> float:
    """A limit on what processes do in so many seconds on an idle machine, with what a busy one needs on top."""
    busy = os.getloadavg()[0] / len(os.sched_getaffinity(0))
    return seconds * max(1.0, 2.0 * busy) * slowness()


def fastest(work: Callable[[], object], limit: float, clock: Clock = time.perf_counter) -> float:
    """Seconds of the quickest of a few attempts, on the reference machine; stops at the first one within `limit`.

    A collection of garbage, or another process, may fall into any single one.
    """
    best = float("inf")
    for _ in range(ATTEMPTS):
        best = min(best, _seconds(work, clock) / slowness(clock))
        if best < limit:
            break
    return best


async def fastest_answer(
    ask: Callable[[], Awaitable[T]], limit: float, clock: Clock = time.perf_counter
) -> tuple[T, float]:
    """As `fastest`, of something awaited; with its last answer."""
    best = float("inf")
    for _ in range(ATTEMPTS):
        began = clock()
        answer = await ask()
        took = clock() - began
        best = min(best, took if took < limit else took / slowness(clock))
        if best < limit:
            break
    return answer, best


def _seconds(work: Callable[[], object], clock: Clock) -> float:
    began = clock()
    work()
    return clock() - began


def _work() -> int:
    value = json.loads(_WORK)
    return sum(len(json.dumps(entry)) + len(entry["name"].split("n")) for entry in value)
