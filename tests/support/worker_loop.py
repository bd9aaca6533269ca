"""A rank's loop between real sockets and fakes of core and engine, driven turn by turn by a test."""

import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec
import pytest
import torch
import zmq

from tests.unit.transports.test_conformance import ROOM
from walkgraph.abi.calls import Call, StateKey
from walkgraph.engine.engine import Done
from walkgraph.engine.gauges import Gauges
from walkgraph.engine.kv.allocator import PageFault
from walkgraph.engine.kv.departure import Departure, LeavingPart
from walkgraph.engine.kv.swap import Swapped
from walkgraph.engine.pacing.playback import Playbacks
from walkgraph.errors import InvalidInput
from walkgraph.ids import Rank, RunId
from walkgraph.placement.tables import Itinerary
from walkgraph.telemetry.emit import Emitter, Off
from walkgraph.wire import codec, sockets
from walkgraph.wire import messages as m
from walkgraph.wire.standing import Standing
from walkgraph.worker.events import (
    Command,
    Event,
)
from walkgraph.worker.io.carrier import Carrier
from walkgraph.worker.io.links import Links
from walkgraph.worker.io.peers import on_this_host
from walkgraph.worker.loop import WorkerLoop

ITINERARY = Itinerary(steps=(), outputs=(), ranks=(), streams=())
R = RunId("r")


class FakeCore:
    """Answers with what the test has laid out for the next events."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self.answers: deque[list[Command]] = deque()
        self.sent = 0
        self.runs: tuple[str, ...] = ()

    def handle(self, event: Event) -> list[Command]:
        self.events.append(event)
        return self.answers.popleft() if self.answers else []

    def standing(self, run: str) -> Standing | None:
        return Standing(run=RunId(run), busy=False, sent=self.sent, received=0) if run in self.runs else None


class FakeStates:
    """States, and the copies of them that go out and come in."""

    def __init__(self, log: list[Any]) -> None:
        self.kept: dict[StateKey, Mapping[str, Any]] = {}
        self.log, self.lost_page = log, False

    def glance(self, key: StateKey) -> Any:
        return self.kept.get(key)

    def drop(self, keys: Iterable[StateKey]) -> None:
        self.log.append(("drop_states", tuple(keys)))

    def audit(self) -> None:
        self.log.append("audit")
        if self.lost_page:
            raise PageFault("page 3 is lost")

    def fork(self, source: StateKey, target: StateKey, width: int | None = None) -> None:
        self.log.append(("fork", source, target, width))

    def export(self, key: StateKey) -> Mapping[str, Any]:
        return self.kept[key]

    def departure(self, key: StateKey) -> Departure:
        return Departure(key)

    def part(self, departure: Departure, *, last: bool) -> LeavingPart | None:
        return LeavingPart(self.kept[departure.key], last=True) if last else None

    def take_part(self, arriving: StateKey, target: StateKey, value: Mapping[str, Any]) -> int:
        if "big" in value:
            raise torch.OutOfMemoryError("no room")
        self.kept[arriving] = value
        return len(value)

    def import_state(self, key: StateKey, value: Mapping[str, Any], arriving: StateKey | None = None) -> None:
        if not value:
            raise InvalidInput("nothing to import")
        if "big" in value:
            raise torch.OutOfMemoryError("no room")
        self.kept[key] = value


class FakeEngine:
    """Stands for its collaborators, too, but for what keeps states."""

    def __init__(self) -> None:
        self.calls: list[Call] = []
        self.log: list[Any] = []
        self.admitted: dict[str, Mapping[str, Any]] = {}
        self.salts: dict[str, str] = {}
        self.states = self.transfers = FakeStates(self.log)
        self.pools = self.limits = self.loops = self.swap = self.holds = self
        self.swapped: list[Swapped] = []
        self.playbacks = Playbacks(time.monotonic)

    @property
    def idle(self) -> bool:
        return not self.calls and not self.swapped

    @property
    def resting(self) -> bool:
        return self.idle

    @property
    def wakes(self) -> None: ...

    def time_steps(self, *, on: bool) -> None: ...

    def positions(self) -> dict[Any, int]:
        return {}

    def suspend(self, run: str) -> None:
        self.swapped.append(Swapped(run, out=True))

    def resume(self, run: str) -> None:
        self.swapped.append(Swapped(run, out=False))

    def hold_loops(self, run: str) -> None:
        self.log.append(("hold", run))

    def release_loops(self, run: str) -> None:
        self.log.append(("release", run))

    def admit(self, run: str, params: Mapping[str, Any], salt: str = "") -> None:
        self.admitted[run] = params
        self.salts[run] = salt

    def add(self, call: Call) -> None:
        self.calls.append(call)

    def step(self) -> list[Done | Swapped]:
        calls, self.calls = self.calls, []
        swapped, self.swapped = self.swapped, []
        done = [Done(call, {"out": call.inputs["in"]}, None, 0.1, 0.2, len(calls)) for call in calls]
        return [*done, *swapped]

    def drop(self, run: str) -> None:
        self.log.append(("drop", run))

    def pages(self) -> tuple[int, int]:
        return 3, 4

    def gauges(self) -> Gauges:
        return Gauges(*[0] * (len(Gauges._fields) - len(Gauges._field_defaults)))


class Worker:
    """One rank with its loop, driven turn by turn."""

    def __init__(
        self,
        context: sockets.Context,
        folder: Path,
        rank: int,
        arena: int = ROOM,
        start: int = 1,
        emitter: Emitter | None = None,
    ) -> None:
        self.rank = Rank(rank)
        self.core, self.engine, self.arena = FakeCore(), FakeEngine(), Carrier(self.rank, {"shm": arena})
        self.address = sockets.address(folder, f"rank{rank}.{start}")
        self.identity = f"{rank}.{start}".encode()
        inbox = sockets.pull(context, self.address)
        conductor = sockets.dealer(context, sockets.address(folder, "workers"), self.identity)
        self.links = Links(self.rank, start, conductor, inbox, on_this_host(context), self.arena)
        self.loop = WorkerLoop(self.rank, self.core, self.engine, self.links, emitter or Off())
        self.peer = self.arena.peer(self.address, start)

    def turn(self) -> None:
        # A turn waits for a message: these tests send it one first.
        self.loop.turn()

    def close(self) -> None:
        self.links.close()
        self.links.inbox.close()
        self.links.conductor.socket.close()


class Desk:
    """The conductor's end."""

    def __init__(self, context: sockets.Context, folder: Path) -> None:
        self.socket = sockets.router(context, sockets.address(folder, "workers"))
        self.socket.setsockopt(zmq.RCVTIMEO, 5000)
        self._heard: deque[m.FromWorker] = deque()

    def say(self, worker: Worker, *messages: m.ToWorker) -> None:
        for message in messages:
            self.socket.send_multipart([worker.identity, codec.encode(message)])

    def hear(self) -> m.FromWorker:
        while not self._heard:
            self._heard.extend(codec.from_worker.decode_all(self.socket.recv_multipart()[-1]))
        return self._heard.popleft()


Trio = tuple[Desk, Worker, Worker]


@pytest.fixture
def trio(tmp_path: Path) -> Iterator[Trio]:
    context: sockets.Context = zmq.Context()
    desk = Desk(context, tmp_path)
    one, two = Worker(context, tmp_path, 0), Worker(context, tmp_path, 1, arena=1 << 16)
    for worker in (one, two):
        announce(desk, worker)
        worker.links.set_peers({one.rank: one.peer, two.rank: two.peer})
    meet(desk, one, two)
    yield desk, one, two
    for worker in (one, two):
        worker.close()
    context.destroy(linger=0)


def announce(desk: Desk, worker: Worker) -> None:
    """So that the router knows it."""
    worker.links.conductor.send(m.Pong(rank=worker.rank, number=0, at=0.0))
    worker.links.conductor.flush()
    while worker.links.conductor.blocked:
        worker.links.conductor.flush()
    desk.hear()


def meet(desk: Desk, *workers: Worker) -> None:
    """Until each was answered by the present starts of all others."""
    connected: dict[Rank, dict[Rank, int]] = {}
    starts = {worker.rank: worker.peer.start for worker in workers}
    while connected != {rank: {r: s for r, s in starts.items() if r != rank} for rank in starts}:
        for worker in workers:
            assert not list(worker.links.arrivals())
            worker.links.flush()
            worker.links.conductor.flush()
        while desk.socket.poll(1):
            said = desk.hear()
            assert isinstance(said, m.Connected)
            connected[said.rank] = said.peers


@pytest.fixture
def outside() -> Iterator[sockets.Context]:
    """A context of whoever else reaches the directory."""
    context: sockets.Context = zmq.Context()
    yield context
    context.destroy(linger=0)


def call(value: Any = 1) -> Call:
    return Call(
        run=R, node="n", walk="w", step=0, use=2, iteration=(3,), inputs={"in": value}, params={}, states={}, seed=0
    )


def deliver(key: int = 0) -> m.Deliver:
    return m.Deliver(run=R, step=0, edge=0, key=(key,), value=m.Absent())


def start(worker: Worker, desk: Desk, answer: list[Command]) -> None:
    worker.core.answers.append(answer)
    desk.say(worker, m.Start(run=R, itinerary=ITINERARY, params={"a": 1}, inputs={"x": m.Small(value=5)}))


def until(desk: Desk, worker: Worker, holds: Callable[[], bool]) -> None:
    """Turn until something holds; each turn has a ping to wake for."""
    for number in range(1000):
        if holds():
            return
        desk.say(worker, m.Ping(number=number))
        worker.turn()
    raise AssertionError("it never holds")


def turned(desk: Desk, worker: Worker) -> bool:
    desk.say(worker, m.Ping(number=0))
    worker.turn()
    return True


def restarted(peer: m.Peer) -> m.Peer:
    return msgspec.structs.replace(peer, start=peer.start + 1)


def sender_of(rank: int, start: int) -> bytes:
    return rank.to_bytes(4, "little") + start.to_bytes(4, "little")
