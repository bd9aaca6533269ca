"""The records of a rank's first shard come to the others as they are, and in this order alone."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest
import torch
import zmq

from walkgraph.engine.device.marks import Mark
from walkgraph.errors import GroupBroken
from walkgraph.ids import Rank, RunId
from walkgraph.wire import codec, sockets
from walkgraph.wire import messages as m
from walkgraph.wire.processes.posting import POST_BYTES, PostSender, WorkerPost, rank_office
from walkgraph.worker.io import values
from walkgraph.worker.io.carrier import Carrier
from walkgraph.worker.io.peers import on_this_host
from walkgraph.worker.shards.broadcast import Broadcast, Receiver, ShardsApart, address
from walkgraph.worker.shards.shard_links import FirstLinks
from walkgraph.worker.shards.shared_outside import RepeatedOutside, ToldOutside


@contextmanager
def streams(folder: Path, count: int = 1) -> Iterator[tuple[Broadcast, list[Receiver]]]:
    paths = [address(folder, Rank(rank), 7) for rank in range(1, count + 1)]
    readers = [Receiver(path) for path in paths]
    writer = Broadcast(paths)
    for reader in readers:
        reader.accept()
    try:
        yield writer, readers
    finally:
        for end in (writer, *readers):
            end.close()


class FakeMark:
    def __init__(self, *reached: bool) -> None:
        self._reached, self.waited = list(reached), 0

    def query(self) -> bool:
        return self._reached.pop(0)

    def synchronize(self) -> None:
        self.waited += 1

    def wait(self) -> None: ...


def test_every_shard_gets_all_records(tmp_path: Path) -> None:
    data = torch.arange(5000, dtype=torch.float32).numpy().tobytes()
    value = m.InlineTensor(dtype="float32", shape=(5000,), data=data)
    came = m.StreamItem(run=RunId("a"), step=1, stream=0, index=3, value=value)
    with streams(tmp_path, 2) as (writer, readers):
        writer.messages([m.Cancel(run=RunId("a")), m.Ping(number=1)])
        writer.arrivals([came])
        writer.time(1.25)
        writer.messages([])
        for reader in readers:
            assert reader.messages() == [m.Cancel(run=RunId("a")), m.Ping(number=1)]
            assert reader.arrivals() == [came]
            assert reader.time() == 1.25
            assert reader.messages() == []


def test_another_record_than_the_one_asked_for_ends_the_group(tmp_path: Path) -> None:
    with streams(tmp_path) as (writer, [reader]):
        writer.time(1.0)
        with pytest.raises(ShardsApart, match="told `t` where `m` was due"):
            reader.messages()


def test_the_end_of_either_shard_is_seen(tmp_path: Path) -> None:
    with streams(tmp_path) as (writer, [reader]):
        writer.close()
        with pytest.raises(ShardsApart, match="has ended"):
            reader.time()
    with streams(tmp_path) as (writer, [reader]):
        reader.close()
        with pytest.raises(ShardsApart, match="has ended"):
            writer.time(1.0)
    with pytest.raises(ShardsApart, match="has ended"):
        Broadcast([tmp_path / "nobody"])


def test_no_handler_of_errors_of_runs_takes_a_broken_group() -> None:
    assert not issubclass(GroupBroken, Exception)
    assert issubclass(ShardsApart, GroupBroken)


def test_answers_about_the_device_are_those_of_the_first_shard(tmp_path: Path) -> None:
    readings = iter((5.0, 6.5))
    with streams(tmp_path) as (writer, [reader]):
        first, other = ToldOutside(writer, lambda: next(readings)), RepeatedOutside(reader, lambda: 0.0)
        mine, theirs = FakeMark(False, True), FakeMark()
        asked: list[Mark] = [first.mark(mine), other.mark(theirs)]
        assert first.time() == other.time() == 5.0
        assert [one.query() for one in asked] == [False, False]
        assert theirs.waited == 0
        assert [one.query() for one in asked] == [True, True]
        assert theirs.waited == 1, "what was reached there is reached here"
        assert first.span(1.0, 2.0) == other.span(9.0, 9.5) == (1.0, 2.0)
        assert first.time() == other.time() == 6.5


def test_times_here_are_known_by_those_of_the_first_shard(tmp_path: Path) -> None:
    here = iter((105.0, 106.5, 108.0))
    with streams(tmp_path) as (writer, [reader]):
        other = RepeatedOutside(reader, lambda: next(here))
        for now in (5.0, 6.0):
            writer.time(now)
            other.time()
        # A CPU's launch is timed by readings, a GPU's by its own device.
        writer.span(5.0, 6.0)
        other.span(5.0, 6.0)
        writer.span(5.25, 5.75)
        other.span(5.0, 105.75)
        assert other.here(5.0, 6.0) == (105.0, 106.5)
        assert other.here(5.25, 5.75) == (105.0, 105.75)
        assert other.here(6.0, 6.0) == (106.5, 106.5), "a call that was never launched"
        writer.time(7.0)
        assert other.time() == 7.0


def test_a_listener_is_gone_with_its_shard(tmp_path: Path) -> None:
    path = address(tmp_path, Rank(1), 1)
    with closing(Receiver(path)):
        assert path.exists()
    assert not path.exists()


def test_posted_values_are_told_with_their_bytes(tmp_path: Path) -> None:
    """Their files come to the first shard alone."""
    data = torch.arange(POST_BYTES // 4, dtype=torch.float32)
    run, rank = RunId("a"), Rank(0)
    context: sockets.Context = zmq.Context()
    desk = sockets.router(context, sockets.address(tmp_path, "workers"))
    dealer = sockets.dealer(context, sockets.address(tmp_path, "workers"), b"0.1")
    inbox = sockets.pull(context, sockets.address(tmp_path, "rank0"))
    post, sender = WorkerPost(tmp_path, rank, 1), PostSender(tmp_path / rank_office(rank), "service")
    links = FirstLinks(rank, 1, dealer, inbox, on_this_host(context), Carrier(rank, {"shm": 1 << 16}), post=post)
    try:
        with streams(tmp_path) as (writer, [reader]):
            links.tell(writer)
            dealer.send(codec.encode(m.Pong(rank=rank, number=0, at=0.0)))
            desk.recv_multipart()
            value = sender.moved(run, values.pack(data))
            piece = m.TaskPiece(run=run, rank=rank, step=0, use=0, iteration=(), output="x", value=value)
            assert isinstance(value, m.Posted)
            desk.send_multipart([b"0.1", codec.encode(piece)])
            dealer.poll()
            [mine], [told] = links.messages(), reader.messages()
            for one in (mine, told):
                assert isinstance(one, m.TaskPiece)
                assert torch.equal(values.unpack(one.value), data)
    finally:
        links.close()
        sender.close()
        context.destroy(linger=0)
