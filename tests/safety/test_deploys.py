"""Deployments that are made and removed by many at once."""

from __future__ import annotations

import contextlib
import random
import re
import threading
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.safety.conftest import DEPLOYED
from tests.safety.plugin import Figure, Scale
from tests.support.deployment import shared_memory
from tests.support.serving import Service, children, wait_gone
from walkgraph.client import ProblemError

THREADS = 32
NAMES = tuple(f"storm_{number}" for number in range(8))
DOCUMENTED = {404, 409, 422, 503}
"""There is none; it is there, or is being removed; there is no memory for it; the service can't now."""


@dataclass(frozen=True)
class Done:
    """An operation that was acknowledged."""

    name: str
    deployed: bool
    began: float
    ended: float


class Storm:
    def __init__(self, found: Service, operations: int) -> None:
        self.done: list[Done] = []
        self.refused: Counter[int] = Counter()
        self.faults: list[BaseException] = []
        self._found, self._operations = found, operations

    def run(self) -> None:
        threads = [threading.Thread(target=self._thread, args=(number,)) for number in range(THREADS)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    def _thread(self, number: int) -> None:
        chance = random.Random(number)
        try:
            with self._found.client() as client:
                for _ in range(self._operations):
                    name, began, deploy = chance.choice(NAMES), time.monotonic(), chance.random() < 0.5
                    try:
                        client.deploy("synthetic_loops", name=name) if deploy else client.undeploy(name)
                    except ProblemError as error:
                        self.refused[error.status] += 1
                    else:
                        self.done.append(Done(name, deploy, began, time.monotonic()))
        except BaseException as error:  # noqa: BLE001 (the test tells it)
            self.faults.append(error)

    def may_be(self, name: str, *, deployed: bool) -> bool:
        """True if an operation without a successor left it in this state."""
        done = [one for one in self.done if one.name == name]
        last = max((one.began for one in done), default=0.0)
        return any(one.deployed == deployed for one in done if one.ended >= last) if done else not deployed


@pytest.mark.safety("R10")
def test_the_last_operation_wins_and_nothing_is_left(running: Service, scale: Scale, figure: Figure) -> None:
    assert running.process is not None
    family, shm = children(running.process.pid), shared_memory()
    files = Path(f"/proc/{running.process.pid}/fd")
    before, folders = kinds(files), len(list((running.home / "d").iterdir()))
    storm = Storm(running, scale(2, 256))
    began = time.monotonic()
    storm.run()
    assert storm.faults == []
    assert set(storm.refused) <= DOCUMENTED
    with running.client() as client:
        there = {row["id"] for row in client.deployments()}
        for name in NAMES:
            assert storm.may_be(name, deployed=name in there), name
        assert set(DEPLOYED) <= there
        for name in there - set(DEPLOYED):
            client.undeploy(name)
        assert {row["id"] for row in client.deployments()} == set(DEPLOYED)
        for name in DEPLOYED:
            assert client.run(name, "spin" if name == "synthetic_loops" else "write", {"params": {"times": 3}})
    figure("operations", THREADS * scale(2, 256))
    figure("acknowledged", len(storm.done))
    figure("a second", THREADS * scale(2, 256) / (time.monotonic() - began))
    wait_gone(children(running.process.pid) - family, 60)
    assert children(running.process.pid) == family
    assert shared_memory() == shm
    assert len(list((running.home / "d").iterdir())) == folders
    more = settled(files, before)
    print("more open files than before:", more)
    figure("open files more than before", more.total(), at_most=0)


def kinds(files: Path) -> Counter[str]:
    """Count the open files by kind: a path, `socket`, `pipe`, `anon_inode:[eventfd]` and so on."""
    found: Counter[str] = Counter()
    for file in files.iterdir():
        with contextlib.suppress(FileNotFoundError):
            found[re.sub(r":\[\d+\]$", "", str(file.readlink()))] += 1
    return found


def settled(files: Path, before: Counter[str]) -> Counter[str]:
    """Those opened since, once there are none, or after a while."""
    for _ in range(200):
        if not (more := kinds(files) - before):
            break
        time.sleep(0.05)
    return more
