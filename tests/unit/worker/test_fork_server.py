"""The process that workers are forked from, and the pipe that ends them."""

from __future__ import annotations

import os
import random
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from tests.support.fork_server import shared_forks
from tests.support.yardstick import patience
from walkgraph.conductor.events import Died, Spawned
from walkgraph.conductor.processes import ForkLink, Processes
from walkgraph.ids import Rank
from walkgraph.wire.processes import forks

WAITING = """
import sys, signal
from walkgraph.wire.processes.common import die_at_end_of
die_at_end_of(int(sys.argv[1]))
print("bound", flush=True)
while True:
    signal.pause()
"""


def waiting(pipe: int) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", WAITING, str(pipe)]
    return subprocess.Popen(command, pass_fds=(pipe,), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def test_all_processes_that_are_bound_to_a_pipe_die_with_its_other_end() -> None:
    ours, held = os.pipe()
    bound = [waiting(ours) for _ in range(3)]
    for one in bound:
        assert one.stdout is not None
        assert one.stdout.readline() == "bound\n"
    os.close(held)
    for one in bound:
        with one:
            assert one.wait(patience(5)) == -signal.SIGKILL
    os.close(ours)


def test_a_process_is_not_bound_to_a_pipe_whose_other_end_is_gone() -> None:
    ours, held = os.pipe()
    os.close(held)
    with waiting(ours) as late:
        _, said = late.communicate(timeout=patience(30))
    os.close(ours)
    assert late.returncode == 1
    assert "the parent is gone" in said


@pytest.fixture
def connection() -> Iterator[socket.socket]:
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as made:
        made.connect(str(shared_forks().socket))
        made.settimeout(patience(60))
        yield made


def test_a_worker_writes_to_the_given_file_and_its_end_is_told(connection: socket.socket, tmp_path: Path) -> None:
    ours, held = os.pipe()
    with (tmp_path / "log").open("wb") as log:
        # There is no spec in this folder.
        forks.send(connection, forks.Fork(str(tmp_path), 3, 7), ours, log.fileno())
    born = forks.receive_answer(connection)
    assert born is not None
    message, files = born
    assert isinstance(message, forks.Forked)
    assert (message.rank, message.start, message.error, len(files)) == (3, 7, 0, 1)
    ended = forks.receive_answer(connection)
    assert ended == (forks.Exited(3, 7, 1), [])
    assert select.select(files, [], [], 0)[0] == files
    assert "can't be read; deploy again" in (tmp_path / "log").read_text()
    for file in (*files, ours, held):
        os.close(file)


@pytest.mark.safety("S7")
def test_a_conductor_that_sends_something_else_is_dropped_and_others_are_served(tmp_path: Path) -> None:
    chance = random.Random(5)
    pickled = b"cposix\nsystem\n(S'touch " + str(tmp_path / "executed").encode() + b"'\ntR."
    for number in range(50):
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as made:
            made.connect(str(shared_forks().socket))
            made.settimeout(patience(60))
            made.send(pickled if number % 2 else chance.randbytes(1 + chance.randrange(200)))
            assert made.recv(1) == b""
    # One that comes without its files is of no use either.
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as made:
        made.connect(str(shared_forks().socket))
        made.settimeout(patience(60))
        forks.send(made, forks.Fork(str(tmp_path), 0, 1))
        assert made.recv(1) == b""
    assert not (tmp_path / "executed").exists()
    with closing(ForkLink(shared_forks().socket)) as link:
        assert [type(one) for one in ended(Processes(tmp_path, link), Rank(0))] == [Spawned, Died]


def ended(processes: Processes, rank: Rank, start: int = 1) -> list[Spawned | Died]:
    """The events of a worker that can't load."""
    processes.spawn(rank, start)
    events: list[Spawned | Died] = []
    while rank in processes.alive:
        select.select(list(processes.files()), [], [], patience(60))
        events += processes.events()
    return events


def test_a_worker_that_is_not_wanted_any_more_dies_as_soon_as_it_is_there(tmp_path: Path) -> None:
    with closing(ForkLink(shared_forks().socket)) as link:
        processes = Processes(tmp_path, link)
        processes.spawn(Rank(0), 1)
        processes.kill(Rank(0))
        assert processes.has_events
        assert list(processes.events()) == [Died(Rank(0), 1, -signal.SIGKILL)]
        # The next start of the rank isn't taken for it.
        assert [type(one) for one in ended(processes, Rank(0), start=2)] == [Spawned, Died]
        processes.end()


def test_without_a_server_no_worker_can_be_asked_for(tmp_path: Path) -> None:
    with closing(ForkLink(tmp_path / "forks")) as link:
        processes = Processes(tmp_path, link)
        with pytest.raises(FileNotFoundError):
            processes.spawn(Rank(0), 1)
        assert processes.alive == {}
