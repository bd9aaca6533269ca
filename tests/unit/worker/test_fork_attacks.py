"""Attacks on the process that workers are forked from: signals, no more files, and conductors that don't read."""

from __future__ import annotations

import errno
import os
import resource
import select
import signal
import socket
from collections.abc import Generator, Iterator
from contextlib import ExitStack, closing, contextmanager
from itertools import count, islice
from pathlib import Path

import pytest

from tests.support.fork_server import SharedForkServer
from tests.support.yardstick import patience
from walkgraph.conductor.events import Died, Spawned
from walkgraph.conductor.processes import ForkLink, Processes
from walkgraph.ids import Rank
from walkgraph.wire.processes import forks
from walkgraph.worker.fork_server import ForkServer

IDLE = 40
"""Connections that ask for nothing."""


@contextmanager
def own_server() -> Generator[SharedForkServer]:
    made = SharedForkServer()
    try:
        yield made
    finally:
        made.process.kill()
        made.process.wait()
        made.close()


@pytest.fixture(scope="module")
def server() -> Iterator[SharedForkServer]:
    with own_server() as made:
        yield made


def connected(server: SharedForkServer) -> socket.socket:
    made = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    made.connect(str(server.socket))
    made.settimeout(patience(60))
    return made


def answer(connection: socket.socket) -> forks.FromForkServer:
    heard = forks.receive_answer(connection)
    assert heard is not None
    message, files = heard
    for file in files:
        os.close(file)
    return message


def asked(connection: socket.socket, folder: Path, start: int) -> forks.FromForkServer:
    """The answer to one who asks for a worker that can't load."""
    ours, held = os.pipe()
    with (folder / "log").open("wb") as log:
        forks.send(connection, forks.Fork(str(folder), 0, start), ours, log.fileno())
    found = answer(connection)
    if isinstance(found, forks.Forked) and found.pid:
        assert answer(connection) == forks.Exited(0, start, 1)
    os.close(ours)
    os.close(held)
    return found


def limit_for(pid: int, files: int) -> int:
    """The limit under which a process may open so many more files: it bounds their numbers, and some below are free."""
    taken = {int(path.name) for path in Path(f"/proc/{pid}/fd").iterdir()}
    return next(islice((number for number in count() if number not in taken), files, None))


def served(server: SharedForkServer, folder: Path, start: int) -> bool:
    with connected(server) as connection:
        found = asked(connection, folder, start)
    return isinstance(found, forks.Forked) and found.pid > 0


@pytest.mark.safety("R19")
def test_a_server_without_files_says_so_and_goes_on(server: SharedForkServer, tmp_path: Path) -> None:
    assert served(server, tmp_path, 1)
    with connected(server) as connection:
        assert isinstance(asked(connection, tmp_path, 2), forks.Forked)
        before = resource.prlimit(server.pid, resource.RLIMIT_NOFILE)
        # The two files of the message fit, and that of the child doesn't.
        resource.prlimit(server.pid, resource.RLIMIT_NOFILE, (limit_for(server.pid, 2), before[1]))
        assert asked(connection, tmp_path, 3) == forks.Forked(0, 3, 0, errno.EMFILE)
        resource.prlimit(server.pid, resource.RLIMIT_NOFILE, before)
        found = asked(connection, tmp_path, 4)
        assert isinstance(found, forks.Forked)
        assert found.pid
    assert server.process.poll() is None


@pytest.mark.safety("R19")
def test_connections_without_end_keep_nobody_out_for_good(server: SharedForkServer, tmp_path: Path) -> None:
    assert served(server, tmp_path, 5)
    before = resource.prlimit(server.pid, resource.RLIMIT_NOFILE)
    with ExitStack() as idle:
        resource.prlimit(server.pid, resource.RLIMIT_NOFILE, (limit_for(server.pid, 4), before[1]))
        for _ in range(IDLE):
            idle.enter_context(connected(server))
        with connected(server) as late:
            idle.close()  # those that were accepted make room
            found = asked(late, tmp_path, 6)
            assert isinstance(found, forks.Forked)
    resource.prlimit(server.pid, resource.RLIMIT_NOFILE, before)
    assert served(server, tmp_path, 7)
    assert server.process.poll() is None


@pytest.mark.safety("R15")
def test_a_server_that_is_killed_while_it_is_asked_ends_what_waits_for_it(tmp_path: Path) -> None:
    with own_server() as own, closing(ForkLink(own.socket)) as link:
        processes = Processes(tmp_path, link)
        processes.spawn(Rank(0), 1)
        while processes.alive:  # until this one has died, the server may not have accepted the connection
            select.select(list(processes.files()), [], [], patience(60))
            list(processes.events())
        os.kill(own.pid, signal.SIGSTOP)
        for rank in range(3):
            processes.spawn(Rank(rank), 2)  # waits for nobody
        os.kill(own.pid, signal.SIGKILL)
        own.process.wait()
        found: list[Spawned | Died] = []
        while processes.alive:
            select.select(list(processes.files()), [], [], patience(60))
            found += processes.events()
        assert {(one.rank, type(one)) for one in found} == {(Rank(rank), Died) for rank in range(3)}


@pytest.mark.safety("R15")
def test_a_conductor_that_does_not_read_is_dropped_and_its_neighbour_is_not(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener, ExitStack() as ends:
        listener.bind(str(tmp_path / "forks"))
        listener.listen()
        made = ForkServer(listener)
        deaf, other = (ends.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)) for _ in range(2))
        for one in (deaf, other):
            one.connect(str(tmp_path / "forks"))
            made._accept()
        to_deaf, to_other = made._connections.values()
        told = 0
        while made._tell(to_deaf, forks.Exited(0, told, 1)):
            told += 1
        assert told > 10
        assert to_deaf.fileno() == -1
        assert made._tell(to_other, forks.Exited(1, 1, 1))
        assert answer(other) == forks.Exited(1, 1, 1)
        to_other.close()
