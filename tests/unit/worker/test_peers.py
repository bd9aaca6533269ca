"""Ranks and their peers: they greet each other, messages to unknown peers wait, and probes report both."""

from __future__ import annotations

import contextlib
import errno
import os
import random
import time
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path

import pytest
import torch
import zmq
from msgspec.structs import replace

from tests.support.deployment import plan_named
from tests.support.worker_loop import (
    Desk,
    R,
    Trio,
    Worker,
    announce,
    deliver,
    meet,
    outside,
    restarted,
    sender_of,
    start,
    trio,
    turned,
    until,
)
from walkgraph.conductor.events import Died, Spawn, ToRank
from walkgraph.conductor.ranks import Ranks
from walkgraph.ids import Rank, RunId
from walkgraph.telemetry import events as t
from walkgraph.telemetry.emit import Buffered
from walkgraph.wire import codec, sockets
from walkgraph.wire import messages as m
from walkgraph.wire.spanning import RunRests
from walkgraph.wire.spec import Limits
from walkgraph.wire.standing import Held, Probe, Probed, Standing
from walkgraph.worker import serve
from walkgraph.worker.events import ABSENT, Arrived, Command, Release, Send
from walkgraph.worker.io import pending

__all__ = ["outside", "trio"]

_, PLAN = plan_named("synthetic_loops")


@pytest.fixture
def strangers(tmp_path: Path) -> Iterator[tuple[Desk, Worker, Worker, list[t.Any]]]:
    """Nobody has named them to each other; with what the first one tells."""
    told: list[t.Any] = []

    def take(frame: bytes) -> bool:
        told.extend(t.decode(frame).events)
        return True

    context: sockets.Context = zmq.Context()
    folder = tmp_path / "s"
    folder.mkdir()
    desk = Desk(context, folder)
    one = Worker(context, folder, 0, emitter=Buffered("d", "rank 0.1", "full", take))
    two = Worker(context, folder, 1)
    for worker in (one, two):
        announce(desk, worker)
    yield desk, one, two, told
    for worker in (one, two):
        worker.close()
    context.destroy(linger=0)


Strangers = tuple[Desk, Worker, Worker, list[t.Any]]


def peers(*workers: Worker) -> dict[Rank, m.Peer]:
    return {worker.rank: worker.peer for worker in workers}


# ── what is for a peer that isn't known ────────────────────────────────────────────────────────


def test_what_is_for_a_peer_that_is_not_known_waits_for_it_and_is_told_as_sent_then(strangers: Strangers) -> None:
    desk, one, two, told = strangers
    sends: list[Command] = [Send(two.rank, deliver(i), torch.arange(4096), "shm", "w") for i in range(3)]
    start(one, desk, [*sends, Send(two.rank, deliver(3), "text", "inline", "w")])
    until(desk, one, lambda: len(one.links.held.of(R)) == 4)
    assert one.links.held.of(R)[0] == Held(to=two.rank, edge="edge 0")
    assert not [event for event in told if isinstance(event, t.Transfer)]
    for worker in (one, two):
        desk.say(worker, m.Peers(peers=peers(one, two)))
    until(desk, two, lambda: turned(desk, one) and len(two.core.events) == 4)
    arrived = [event.message for event in two.core.events if isinstance(event, Arrived)]
    assert [message.key for message in arrived] == [(i,) for i in range(4)]  # type: ignore[union-attr]
    until(desk, one, lambda: len([event for event in told if isinstance(event, t.Transfer)]) == 3)
    assert one.links.held.of(R) == ()


def test_what_is_held_for_a_run_is_dropped_at_its_end(strangers: Strangers) -> None:
    desk, one, two, _ = strangers
    start(one, desk, [Send(two.rank, deliver(), 1)])
    until(desk, one, lambda: bool(one.links.held.of(R)))
    one.core.answers.append([Release(R)])
    desk.say(one, m.Cancel(run=R))
    until(desk, one, lambda: not one.links.held.of(R))


def test_too_much_for_an_unknown_peer_fails_its_run(strangers: Strangers, monkeypatch: pytest.MonkeyPatch) -> None:
    desk, one, two, _ = strangers
    monkeypatch.setattr(pending, "MESSAGES", 2)
    start(one, desk, [Send(two.rank, deliver(i), 1) for i in range(3)])
    one.turn()
    said = desk.hear()
    assert isinstance(said, m.RankFailed)
    assert (said.run, said.error.code) == (R, "stalled")
    assert "rank 1" in said.error.message


def test_what_is_for_a_peer_that_is_gone_is_dropped(trio: Trio) -> None:
    desk, one, two = trio
    one.links.set_peers(peers(one))
    start(one, desk, [Send(two.rank, deliver(), torch.zeros(4096))])
    until(desk, one, lambda: bool(one.core.events))
    assert one.links.held.of(R) == ()


def test_what_was_under_way_to_a_peer_that_is_started_anew_is_swept(trio: Trio) -> None:
    desk, one, two = trio
    large = torch.zeros(20_000, dtype=torch.uint8)
    start(two, desk, [Send(one.rank, deliver(i), large, "shm") for i in range(9)])
    two.turn()
    assert two.arena.out == 3
    two.links.set_peers({one.rank: restarted(one.peer), two.rank: two.peer})
    assert two.arena.out == 0
    assert not two.links.sends(R)


def test_a_start_is_heard_once_it_is_named_and_an_older_one_no_more(trio: Trio, outside: sockets.Context) -> None:
    desk, one, two = trio
    sender = sockets.push(outside, one.address)
    sender.send_multipart([sender_of(1, 2), codec.encode(deliver(2))])
    until(desk, one, lambda: len(one.links.peers.strangers) == 1)
    assert not one.core.events
    one.links.set_peers({one.rank: one.peer, two.rank: restarted(two.peer)})
    until(desk, one, lambda: one.core.events == [Arrived(deliver(2), ABSENT)])
    sender.send_multipart([sender_of(1, 1), codec.encode(deliver(3))])
    until(desk, one, lambda: one.links.peers.stale == 1)
    sender.close()
    assert one.core.events == [Arrived(deliver(2), ABSENT)]


# ── probes ─────────────────────────────────────────────────────────────────────────────────────


def probed(desk: Desk, worker: Worker) -> Probed:
    desk.say(worker, Probe(number=3, runs=(R, RunId("other"))))
    while True:
        worker.turn()
        # What was sent may take a moment to arrive, and an idle worker's next turn waits long.
        while desk._heard or desk.socket.poll(1000):
            if isinstance(said := desk.hear(), Probed):
                return said


def test_a_probe_is_answered_for_the_runs_that_are_known(trio: Trio) -> None:
    desk, one, _ = trio
    assert probed(desk, one) == Probed(rank=one.rank, number=3, runs=())
    one.core.runs = (R,)
    assert probed(desk, one).runs == (Standing(run=R, busy=False, sent=0, received=0),)
    desk.say(one, m.Suspend(run=R))
    assert probed(desk, one).runs[0].busy, "it is suspended"


def test_what_waits_for_room_is_under_way(trio: Trio) -> None:
    desk, _, two = trio
    two.core.runs, two.core.sent = (R,), 9
    third = torch.zeros(20_000, dtype=torch.uint8)
    start(two, desk, [Send(Rank(0), deliver(i), third, "shm") for i in range(9)])
    assert probed(desk, two).runs == (Standing(run=R, busy=True, sent=9, received=0),)


def test_what_is_held_was_not_sent(strangers: Strangers) -> None:
    desk, one, two, _ = strangers
    one.core.runs, one.core.sent = (R,), 9
    start(one, desk, [Send(two.rank, deliver(i), 1) for i in range(2)])
    one.links.urge(two.rank, RunRests(run=R))
    until(desk, one, lambda: len(one.links.held.of(R)) == 2)
    (found,) = probed(desk, one).runs
    assert (found.busy, found.sent, len(found.held)) == (False, 7, 2)


# ── the order to load, and what comes with it ──────────────────────────────────────────────────


def test_what_comes_in_one_frame_with_the_order_to_load_is_obeyed(strangers: Strangers) -> None:
    desk, one, two, _ = strangers
    messages = [m.Load(plan=PLAN, peers=peers(one)), m.Peers(peers=peers(one, two)), m.Ping(number=7)]
    _, frame = codec.together([codec.encode(message) for message in messages])
    desk.socket.send_multipart([one.identity, frame])
    order = serve._load_order(one.links)
    plan, known = order.plan, order.peers
    assert (plan, set(known)) == (PLAN, {one.rank})
    one.links.set_peers(known)
    one.turn()  # it waits for no further message
    pong = desk.hear()
    assert isinstance(pong, m.Pong)
    assert pong.number == 7
    two.links.set_peers(peers(one, two))
    meet(desk, one, two)


def test_a_peer_that_is_started_anew_is_greeted_anew(trio: Trio, tmp_path: Path) -> None:
    desk, one, two = trio
    again = Worker(two.links.inbox.context, tmp_path, 1, start=2)
    announce(desk, again)
    again.links.set_peers(peers(one, again))
    one.links.set_peers(peers(one, again))
    meet(desk, one, again)
    again.close()


def test_a_peer_that_could_not_be_reached_is_tried_again(
    trio: Trio, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    desk, one, two = trio
    again = Worker(two.links.inbox.context, tmp_path, 1, start=2)
    announce(desk, again)
    again.links.set_peers(peers(one, again))
    with monkeypatch.context() as full:
        full.setattr(os, "open", refused)
        one.links.set_peers(peers(one, again))
    assert again.rank not in one.links.peers.known
    one.links.reach_again()
    meet(desk, one, again)
    again.close()


def refused(*_: object) -> int:
    raise OSError(errno.EMFILE, "too many open files")


class Deployment:
    """Three ranks with real sockets, around the conductor's own core of their lives. Who does something next, and how
    much of what waits travels together, is drawn."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.chance, self.now = random.Random(seed), 0.0
        self.context: sockets.Context = zmq.Context()
        self.folder, self.desk = folder, Desk(self.context, folder)
        self.plan = replace(PLAN, ranks=tuple(replace(PLAN.ranks[0], rank=Rank(rank)) for rank in range(3)))
        self.ranks = Ranks(self.plan, Limits(step_deadline=1e9, load_deadline=1e9, restarts=10))
        self.workers: dict[Rank, Worker] = {}
        self.waiting: dict[Rank, list[bytes]] = {}
        """The conductor's messages for them."""
        self.loaded: set[bytes] = set()
        self.perform(self.ranks.begin(self.now))

    def perform(self, commands: Iterable[object]) -> None:
        for command in commands:
            match command:
                case Spawn(rank=rank, start=start):
                    worker = Worker(self.context, self.folder, rank, start=start)
                    self.workers[rank], self.waiting[rank] = worker, []
                    self.ranks.spawned(rank, start, 1000 + start, self.now)
                    worker.links.conductor.send(m.Hello(rank=rank, peer=worker.peer))
                case ToRank(rank=rank, message=message):
                    self.waiting[rank].append(codec.encode(message))
                case _:
                    raise AssertionError(command)

    def hear(self) -> None:
        while self.desk.socket.poll(0):
            identity, frame = self.desk.socket.recv_multipart()
            rank, start = (int(part) for part in identity.split(b"."))
            for message in codec.from_worker.decode_all(frame):
                if self.ranks.current(Rank(rank), start):
                    self.perform(self.ranks.heard(Rank(rank), message, self.now))
        if self.ranks.settled:
            for worker in self.workers.values():
                known = {rank: peer.start for rank, peer in worker.links.peers.known.items()}
                assert known == {o.rank: o.peer.start for o in self.workers.values() if o is not worker}

    def say(self, rank: Rank) -> None:
        waiting = self.waiting[rank]
        with contextlib.suppress(zmq.ZMQError):  # it is not known yet
            while waiting:
                count, frame = codec.together(waiting[: self.chance.randint(1, len(waiting))])
                self.desk.socket.send_multipart([self.workers[rank].identity, frame], zmq.NOBLOCK)
                del waiting[:count]

    def act(self, rank: Rank) -> None:
        worker = self.workers[rank]
        links = worker.links
        if worker.identity in self.loaded:
            for _, message in links.from_conductor.drain():
                worker.loop._obey(message)
            for arrival in links.arrivals():
                worker.loop._handle(arrival)  # type: ignore[arg-type]
        elif links.conductor.socket.poll(0):
            known = serve._load_order(links).peers
            links.set_peers(known)
            links.conductor.send(m.Ready(rank=rank, seconds=0.0))
            self.loaded.add(worker.identity)
        links.flush()
        links.conductor.flush()

    def kill(self, rank: Rank) -> None:
        worker = self.workers.pop(rank)
        self.waiting.pop(rank)
        worker.close()
        assert self.ranks.died(Died(rank, worker.peer.start, -9), self.now) is not None
        self.now += 10
        self.perform(self.ranks.tick(self.now))

    def step(self) -> None:
        rank = self.chance.choice(list(self.workers))
        self.chance.choice([self.hear, partial(self.say, rank), partial(self.act, rank), partial(self.act, rank)])()

    def until(self, holds: Callable[[], bool]) -> None:
        end = time.monotonic() + 300
        while not holds():
            assert time.monotonic() < end, self.ranks.status()
            self.step()

    def close(self) -> None:
        for worker in self.workers.values():
            worker.close()
        self.context.destroy(linger=0)


@pytest.fixture
def deployment(tmp_path: Path, seed: int) -> Iterator[Deployment]:
    made = Deployment(tmp_path, seed)
    yield made
    made.close()


@pytest.mark.parametrize("seed", range(12))
def test_ranks_that_are_ready_reach_each_other_however_they_came_to_it(deployment: Deployment, seed: int) -> None:
    for _ in range(seed % 4):
        for _ in range(deployment.chance.randrange(60)):
            deployment.step()
        deployment.kill(deployment.chance.choice(list(deployment.workers)))
    deployment.until(lambda: deployment.ranks.settled)
    workers = deployment.workers.values()
    ways = [(one, other) for one in workers for other in workers if one is not other]
    for one, other in ways:
        one.links.send(Send(other.rank, deliver(one.rank)))
    deployment.until(lambda: sum(len(worker.core.events) for worker in workers) == len(ways))
