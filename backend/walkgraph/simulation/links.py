"""A simulated rank's connections to its peers: who is known, what waits, what lies in its arena.

Which start of a peer is known, and what is kept for one that isn't, are decided by the real `Peers` and `HeldMessages`.
"""

from collections import deque
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, cast

from walkgraph.errors import ErrorInfo
from walkgraph.ids import Rank
from walkgraph.placement.tables import IN_MESSAGE
from walkgraph.simulation.network import Packet, Process
from walkgraph.telemetry.places import Places
from walkgraph.wire import messages as m
from walkgraph.worker.events import ABSENT, Arrived, Send
from walkgraph.worker.io.outbox import OutgoingMessage
from walkgraph.worker.io.peers import SENDER, Peers
from walkgraph.worker.io.pending import HeldMessages

ARENA = 1
"""Values that a rank may have on their way to its peers."""

Post = Callable[[Process, Packet], None]


class Sender(NamedTuple):
    """A packet with the start that has sent it, as frames name it."""

    frame: bytes
    packet: Packet


class SimulatedArena:
    """Room for values on their way: tickets that peers have not freed."""

    def __init__(self) -> None:
        self._out: dict[int, Rank] = {}
        self._number = 0

    def put(self, to: Rank) -> int | None:
        if len(self._out) >= ARENA:
            return None
        self._number += 1
        self._out[self._number] = to
        return self._number

    def free(self, ticket: int, by: Rank) -> None:
        if self._out.get(ticket) == by:
            del self._out[ticket]

    def sweep(self, rank: Rank) -> None:
        self._out = {ticket: to for ticket, to in self._out.items() if to != rank}

    def __len__(self) -> int:
        return len(self._out)


class SimulatedLinks:
    def __init__(self, here: Process, post: Post, report: Callable[[m.FromWorker, Any], None]) -> None:
        self.peers = Peers(Rank(here.rank))
        self.held = HeldMessages(Rank(here.rank), Places())
        self.arena = SimulatedArena()
        self._here, self._post, self._report = here, post, report
        self._inbox: deque[Sender] = deque()
        self._waiting: dict[Rank, deque[OutgoingMessage]] = {}
        """Of peers that are known: what waits for room in the arena."""

    # ── peers ──

    def set_peers(self, peers: dict[Rank, m.Peer]) -> None:
        for rank in self.peers.replaced(peers):
            self.peers.remove(rank)
            self.arena.sweep(rank)
            self._waiting.pop(rank, None)
        for rank, peer in peers.items():
            if rank == self._here.rank or rank in self.peers.known:
                continue
            self.peers.known[rank] = peer
            self._waiting[rank] = deque()
            self._leave(rank, Packet(m.Greet()))
            for one in self.held.take(rank):
                self._queue(rank, one)

    # ── out ──

    def send(self, send: Send) -> None:
        outgoing = OutgoingMessage(send.message, send.value, send.transport != IN_MESSAGE)
        if send.rank in self.peers.known:
            self._queue(send.rank, outgoing)
        elif not self.peers.gone(send.rank):
            self.held.keep(send.rank, outgoing, send.walk)

    def flush(self) -> None:
        for rank, waiting in self._waiting.items():
            while waiting:
                ticket = self.arena.put(rank) if _takes_room(waiting[0]) else None
                if ticket is None and _takes_room(waiting[0]):
                    break
                one = waiting.popleft()
                self._leave(rank, Packet(one.message, one.value, ticket))

    def sends(self, run: str) -> bool:
        """Something of a run waits for a peer that is known."""
        return any(_run(one) == run for waiting in self._waiting.values() for one in waiting)

    def forget(self, run: str) -> None:
        self.held.forget(run)
        for rank, waiting in self._waiting.items():
            self._waiting[rank] = deque(one for one in waiting if _run(one) != run)

    # ── in ──

    def receive(self, source: Process, packet: Packet) -> None:
        self._inbox.append(Sender(SENDER.pack(source.rank, source.start), packet))

    def arrivals(self) -> Iterator[Arrived]:
        strangers = self.peers.strangers
        before = [strangers.popleft() for _ in range(len(strangers))]
        coming = [Sender(frame, cast("Packet", message)) for frame, message in before]
        while self._inbox:
            coming.append(self._inbox.popleft())
        for frame, packet in coming:
            rank = self.peers.sender(frame)
            if rank is None:
                self.peers.keep(frame, cast("Any", packet))
                continue
            match packet.message:
                case m.Freed(ticket=ticket):
                    self.arena.free(ticket, rank)
                case m.Greet():
                    self._leave(rank, Packet(m.Greeted()))
                case m.Greeted():
                    self._report(self.peers.greeted(rank), ABSENT)
                case message:
                    yield Arrived(message, packet.value)
                    if packet.ticket is not None:
                        self.free(rank, packet.ticket)

    def free(self, rank: Rank, ticket: int) -> None:
        """A value was copied: its sender has its room back, whatever waits for this rank's own."""
        self._leave(rank, Packet(m.Freed(ticket=ticket)))

    def failures(self) -> Iterator[tuple[str, ErrorInfo]]:
        for message, error in self.held.failed:
            yield str(getattr(message, "run", "")), error.info()
        self.held.failed.clear()

    @property
    def waiting(self) -> bool:
        """Whether something has come that was not read."""
        return bool(self._inbox)

    def left(self) -> list[str]:
        """What is kept though nothing runs."""
        found = [f"{len(one)} messages for rank {rank}" for rank, one in self._waiting.items() if one]
        found += [f"{len(self.held)} messages held for peers"] if len(self.held) else []
        found += [f"{len(self.arena)} values in the arena"] if len(self.arena) else []
        return found

    def _queue(self, rank: Rank, one: OutgoingMessage) -> None:
        self._waiting[rank].append(one)

    def _leave(self, rank: Rank, packet: Packet) -> None:
        self._post(Process(rank, self.peers.known[rank].start), packet)


def _takes_room(one: OutgoingMessage) -> bool:
    return one.shared and one.value is not ABSENT


def _run(one: OutgoingMessage) -> str:
    return getattr(one.message, "run", "")
