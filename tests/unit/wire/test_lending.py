"""Lent files come back once nobody looks at them, and are filled again; what is looked at never changes."""

from __future__ import annotations

import fcntl
import os
import random
import socket
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import pytest

from walkgraph.conductor.client import open_files
from walkgraph.ids import RunId
from walkgraph.wire import messages as m
from walkgraph.wire.processes import lending, posting
from walkgraph.wire.processes.lending import LentFiles
from walkgraph.wire.processes.posting import MAP_BYTES, POST_BYTES, Lost, PostOffice, PostSender

RUN = RunId("r")


class Way(NamedTuple):
    sender: PostSender
    office: PostOffice
    lent: LentFiles

    def post(self, data: bytes, *, tensor: bool = True) -> m.Posted:
        found = self.sender.post(RUN, data, m.TensorHeader(dtype="uint8", shape=(len(data),)) if tensor else None)
        assert found is not None
        return found

    def take(self, told: m.Posted) -> Any:
        value: Any = self.office.opened(told)
        return value.data

    def files(self) -> set[int]:
        """The files of the sender, by their numbers in the kernel."""
        return {os.fstat(one.descriptor).st_ino for one in (*self.lent._free, *self.lent._lent.values())}


MOST = 100


@pytest.fixture
def way(tmp_path: Path) -> Iterator[Way]:
    lent, office = LentFiles(MOST), PostOffice(tmp_path / posting.SERVICE)
    sender = PostSender(tmp_path / posting.SERVICE, "0.1", lent)
    yield Way(sender, office, lent)
    sender.close()
    office.close()


@pytest.mark.parametrize("seed", range(5))
def test_what_is_looked_at_is_what_was_sent_however_long(way: Way, seed: int) -> None:
    drawn = random.Random(seed)
    held: list[tuple[bytes, Any]] = []
    files: set[int] = set()
    count = 120
    for _ in range(count):
        data = drawn.randbytes(drawn.choice((POST_BYTES, MAP_BYTES, MAP_BYTES + 1000, 3 * MAP_BYTES)))
        told = way.post(data, tensor=drawn.random() < 0.8)
        files |= way.files()
        held.append((data, way.take(told)))
        while held and drawn.random() < 0.45:
            held.pop(drawn.randrange(len(held)))
        way.office.forget(RUN)
        assert all(bytes(view) == sent for sent, view in held)
    assert len(files) < count / 2, "most were filled again"


def test_a_file_comes_back_with_the_last_view_and_media_at_once(way: Way) -> None:
    view = way.take(way.post(bytes(MAP_BYTES)))
    part = view[:16]
    del view
    way.office.forget(RUN)
    (file,) = way.files()
    other = way.take(way.post(os.urandom(MAP_BYTES)))
    assert len(way.files()) == 2, "a part of the first is still looked at"
    assert bytes(part) == bytes(16)
    del part, other
    way.office.forget(RUN)
    way.take(way.post(os.urandom(MAP_BYTES), tensor=False))
    way.office.forget(RUN)
    assert file in way.files()
    assert len(way.files()) == 2
    way.take(way.post(os.urandom(MAP_BYTES), tensor=False))
    assert len(way.files()) == 2


def test_the_files_of_dropped_values_come_back_with_their_run(way: Way) -> None:
    for _ in range(3):
        way.post(bytes(POST_BYTES))
    way.office.forget(RUN)
    way.post(bytes(POST_BYTES))
    assert (len(way.lent._lent), len(way.lent._free)) == (1, 2)


def test_memory_is_kept_for_as_long_as_there_is_work(way: Way) -> None:
    data = os.urandom(MAP_BYTES)
    view = way.take(way.post(data))
    files = open_files()
    way.sender.rest()
    assert open_files() == files - 1
    assert bytes(view) == data, "the memory is the receiver's now"
    again = way.take(way.post(bytes(MAP_BYTES)))
    del view
    way.office.forget(RUN)
    way.post(bytes(MAP_BYTES))
    assert len(way.files()) == 2, "what was forgotten doesn't come back"
    assert bytes(again) == bytes(MAP_BYTES)


def test_lent_and_free_files_are_bounded(way: Way, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lending, "MOST_FREE_BYTES", 2 * MAP_BYTES)
    views = [way.take(way.post(bytes([number]) * MAP_BYTES)) for number in range(MOST + 2)]
    assert len(way.files()) == MOST, "the others are given for good"
    assert [view[0] for view in views] == list(range(MOST + 2))
    views.clear()
    way.office.forget(RUN)
    way.post(bytes(POST_BYTES))
    assert sum(one.nbytes for one in way.lent._free) == 2 * MAP_BYTES


def test_numbers_wait_until_the_sender_s_socket_has_room() -> None:
    office_end, sender_end = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with office_end, sender_end:
        office_end.setblocking(False)
        sender_end.setblocking(False)
        connection = posting._Connection(office_end)
        told = deque(range(300_000))
        connection.unused.extend(told)
        connection.tell()
        assert connection.unused, "the socket is full"
        heard: list[int] = []
        while connection.unused or len(heard) < len(told):
            heard += [number for (number,) in posting._NUMBER.iter_unpack(sender_end.recv(1 << 16))]
            connection.tell()
        assert heard == list(told)
    connection.unused.append(1)
    connection.tell()
    assert not connection.unused, "a sender that is gone is told nothing"


@pytest.mark.parametrize(("seals", "size"), [(0, POST_BYTES), (lending.SIZED, POST_BYTES - 1)])
def test_a_lent_file_that_could_become_too_short_is_refused(way: Way, tmp_path: Path, seals: int, size: int) -> None:
    file = os.memfd_create("lent", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    os.ftruncate(file, size)
    fcntl.fcntl(file, fcntl.F_ADD_SEALS, seals)
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as raw:
        raw.connect(str(tmp_path / posting.SERVICE))
        letter = posting.Letter(run=RUN, sender="evil", number=1, lent=True)
        socket.send_fds(raw, [msgspec.msgpack.encode(letter)], [file])
        os.close(file)
        with pytest.raises(Lost):
            way.take(m.Posted(sender="evil", number=1, nbytes=POST_BYTES))
