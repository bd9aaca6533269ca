"""Samples the resources of a service's processes every second, and checks whether they grow."""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import combinations, pairwise
from pathlib import Path
from statistics import median
from typing import NamedTuple

from tests.support.deployment import shared_memory
from tests.support.serving import children

_MOST = 300
"""Samples of which all pairs are compared."""
_HEAP = 1 << 26
"""Bytes of address space that glibc reserves for the heap of a thread, at a multiple of as many."""


class Held(NamedTuple):
    """By one process, or by all of a service."""

    at: float
    """Seconds since the sampling began."""
    memory: float
    """Megabytes, resident, without the pages of files: the kernel takes those back and reads them again as it likes."""
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
        status = dict(line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines())
        memory = sum(1024 * int(status.get(kind, "0").split()[0]) for kind in ("RssAnon", "RssShmem")) / 1e6
        return Held(at, memory, _entries(pid, "fd"), _entries(pid, "task"))
    except (FileNotFoundError, ProcessLookupError):
        return None


def processor_seconds(pid: int) -> float:
    """Processor time that a process has used so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def thread_heaps(pid: int) -> int:
    """How many heaps a process has besides that of its first thread: a used and an unused part, one after the other."""
    mapped = [line.split(maxsplit=5)[:2] for line in Path(f"/proc/{pid}/maps").read_text().splitlines()]
    parts = [(*(int(end, 16) for end in span.split("-")), may) for span, may in mapped]
    return sum(
        (used, unused) == ("rw-p", "---p") and middle == follows and start % _HEAP == 0 and end - start == _HEAP
        for (start, middle, used), (follows, end, unused) in pairwise(parts)
    )


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
