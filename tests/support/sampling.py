"""What the processes of a service hold, second by second, and whether it grows."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from statistics import median
from typing import NamedTuple

from tests.support.deployment import shared_memory
from tests.support.serving import children

_PAGE = 4096
_MOST = 300
"""Samples of which all pairs are compared."""


class Held(NamedTuple):
    """By one process, or by all of a service."""

    at: float
    """Seconds since the sampling began."""
    memory: float
    """Megabytes, resident."""
    files: int
    threads: int


@dataclass
class Samples:
    service: list[Held]
    family: list[Held]
    """The service and all that it has started."""
    shared: list[int]
    """Segments in `/dev/shm`."""


def of_process(pid: int, at: float) -> Held | None:
    """None where it is gone."""
    try:
        memory = int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * _PAGE / 1e6
        return Held(at, memory, _entries(pid, "fd"), _entries(pid, "task"))
    except (FileNotFoundError, ProcessLookupError):
        return None


def _entries(pid: int, folder: str) -> int:
    return sum(1 for _ in Path(f"/proc/{pid}/{folder}").iterdir())


@contextmanager
def sampled(pid: int, pause: float = 1.0) -> Iterator[Samples]:
    """From now on, in a thread, until the end of the block."""
    samples, over, began = Samples([], [], []), threading.Event(), time.monotonic()

    def sample() -> None:
        while not over.wait(pause):
            at = time.monotonic() - began
            found = [held for one in (pid, *children(pid)) if (held := of_process(one, at)) is not None]
            if not found:
                continue
            samples.service.append(found[0])
            memory, files, threads = (sum(column) for column in list(zip(*found, strict=True))[1:])
            samples.family.append(Held(at, memory, files, threads))
            samples.shared.append(len(shared_memory()))

    thread = threading.Thread(target=sample)
    thread.start()
    try:
        yield samples
    finally:
        over.set()
        thread.join()


def growth(held: list[Held], warm: float = 0.4) -> float:
    """Megabytes an hour after the first `warm` share: the median of the slopes between all samples, of which a few that
    stand out change little."""
    after = held[int(len(held) * warm) :]
    thin = after[:: max(1, len(after) // _MOST)]
    slopes = [(b.memory - a.memory) / (b.at - a.at) for a, b in combinations(thin, 2)]
    return 3600 * median(slopes) if slopes else 0.0


def more(counts: list[int]) -> int:
    """How many more there are at most in the last quarter than there were in the second one: what comes and goes with
    a restart does so in both."""
    quarter = len(counts) // 4
    with contextlib.suppress(ValueError):
        return max(counts[-quarter:]) - max(counts[quarter : 2 * quarter])
    return 0
