"""Workers that are no processes of this host: what starts them is asked to end them, and tells that they have."""

import signal
from collections.abc import Iterator
from pathlib import Path

from walkgraph.conductor.events import Died, Spawned
from walkgraph.conductor.processes import Processes
from walkgraph.ids import Rank
from walkgraph.wire.processes import forks

RANK = Rank(3)


class FarForks:
    """Tells what the test says, and notes what is asked."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, Rank, int]] = []
        self.telling: list[forks.FromForkServer] = []
        self.lost = False

    def ask(self, directory: Path, rank: Rank, start: int) -> None:
        self.asked.append(("fork", rank, start))

    def kill(self, rank: Rank, start: int) -> None:
        self.asked.append(("kill", rank, start))

    def told(self) -> Iterator[tuple[forks.FromForkServer, int | None]]:
        while self.telling:
            yield self.telling.pop(0), None
        if self.lost:
            raise ConnectionResetError

    def files(self) -> tuple[int, ...]:
        return ()


def running(tmp_path: Path) -> tuple[FarForks, Processes]:
    server = FarForks()
    processes = Processes(tmp_path, server)
    processes.spawn(RANK, 1)
    server.telling.append(forks.Forked(RANK, 1, 77))
    assert list(processes.events()) == [Spawned(RANK, 1, 77)]
    assert list(processes.files()) == []
    return server, processes


def test_the_end_of_one_is_asked_for_and_told(tmp_path: Path) -> None:
    server, processes = running(tmp_path)
    processes.kill(RANK)
    assert server.asked[-1] == ("kill", RANK, 1)
    assert list(processes.events()) == [], "it has not ended yet"
    server.telling.append(forks.Exited(RANK, 1, -signal.SIGKILL))
    assert list(processes.events()) == [Died(RANK, 1, -signal.SIGKILL)]
    assert processes.alive == {}


def test_they_end_with_the_connection(tmp_path: Path) -> None:
    server, processes = running(tmp_path)
    server.lost = True
    assert list(processes.events()) == [Died(RANK, 1, None)]


def test_one_that_is_not_wanted_any_more_is_ended_once_it_is_there(tmp_path: Path) -> None:
    server = FarForks()
    processes = Processes(tmp_path, server)
    processes.spawn(RANK, 1)
    processes.kill(RANK)
    assert list(processes.events()) == [Died(RANK, 1, -signal.SIGKILL)]
    processes.spawn(RANK, 2)
    server.telling += [forks.Forked(RANK, 1, 77), forks.Exited(RANK, 1, -9), forks.Forked(RANK, 2, 78)]
    assert list(processes.events()) == [Spawned(RANK, 2, 78)]
    assert server.asked == [("fork", RANK, 1), ("fork", RANK, 2), ("kill", RANK, 1)]


def test_one_that_can_not_be_started_has_died(tmp_path: Path) -> None:
    server = FarForks()
    processes = Processes(tmp_path, server)
    processes.spawn(RANK, 1)
    server.telling.append(forks.Forked(RANK, 1, 0, 113))
    assert list(processes.events()) == [Died(RANK, 1, 113)]


def test_the_reason_why_it_can_not_be_started_is_passed_on(tmp_path: Path) -> None:
    server = FarForks()
    processes = Processes(tmp_path, server)
    processes.spawn(RANK, 1)
    server.telling.append(forks.Forked(RANK, 1, 0, 113, "start the head"))
    assert list(processes.events()) == [Died(RANK, 1, 113, "start the head")]
