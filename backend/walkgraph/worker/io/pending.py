"""Holds messages for peers that are not known yet: in order, within bounds, until the peer is known or the run ends."""

from collections import defaultdict
from typing import Any

from walkgraph.errors import ErrorInfo, RunFailed, WalkgraphError
from walkgraph.ids import Rank
from walkgraph.telemetry.places import Places
from walkgraph.wire import messages as m
from walkgraph.wire.standing import Held
from walkgraph.worker.io import values
from walkgraph.worker.io.outbox import OutgoingMessage

MESSAGES = 1024
BYTES = 64 * 1024 * 1024
"""The most bytes of all held values."""


class HeldMessages:
    def __init__(self, rank: Rank, places: Places) -> None:
        """`places`: names of the plan's edges."""
        self.failed: list[tuple[Any, WalkgraphError]] = []
        """Messages beyond the bounds."""
        self._rank, self._places = rank, places
        self._waiting: dict[Rank, list[tuple[OutgoingMessage, str]]] = defaultdict(list)
        """Messages by peer, each with the name of its Walk."""
        self._count = self._bytes = 0

    def __len__(self) -> int:
        return self._count

    def keep(self, rank: Rank, waiting: OutgoingMessage, walk: str = "") -> None:
        size = values.size(waiting.value)
        if self._count >= MESSAGES or self._bytes + size > BYTES:
            self.failed.append((waiting.message, self._refused(rank, waiting.message, walk)))
            return
        self._count += 1
        self._bytes += size
        self._waiting[rank].append((waiting, walk))

    def take(self, rank: Rank) -> list[OutgoingMessage]:
        """Remove and return the messages for a peer that has become known."""
        taken = [waiting for waiting, _ in self._waiting.pop(rank, ())]
        self._give_back(taken)
        return taken

    def forget(self, run: str) -> None:
        for rank, waiting in self._waiting.items():
            self._give_back([one for one, _ in waiting if _run(one) == run])
            self._waiting[rank] = [(one, walk) for one, walk in waiting if _run(one) != run]

    def of(self, run: str) -> tuple[Held, ...]:
        """The held messages of a run, except those about loops that span devices: a run with such a loop is active."""
        return tuple(
            Held(to=rank, edge=self._edge(one.message, walk))
            for rank, waiting in self._waiting.items()
            for one, walk in waiting
            if _run(one) == run and not isinstance(one.message, m.BetweenParts)
        )

    def _give_back(self, waiting: list[OutgoingMessage]) -> None:
        self._count -= len(waiting)
        self._bytes -= sum(values.size(one.value) for one in waiting)

    def _edge(self, message: Any, walk: str) -> str:
        match message:
            case m.Deliver(edge=edge):
                return self._places.hop(walk, edge, stream=False)
            case m.StatePart():
                return self._places.hop(walk, 0, stream=False)
            case m.StreamItem(stream=stream) | m.StreamDone(stream=stream) | m.Credit(stream=stream):
                return self._places.hop(walk, stream, stream=True)
            case _:
                return ""

    def _refused(self, rank: Rank, message: Any, walk: str) -> RunFailed:
        edge = self._edge(message, walk)
        what = f"`{edge}`" if edge else "a message"
        said = (
            f"rank {self._rank} can't send {what} to rank {rank}: it isn't connected yet, and too many messages "
            "wait already; try again, and report this with the deployment's log"
        )
        return RunFailed(ErrorInfo(code="stalled", message=said, walk=walk or None, rank=self._rank))


def _run(waiting: OutgoingMessage) -> str:
    return getattr(waiting.message, "run", "")
