"""The peers of a rank: which starts of them are known, and which are connected."""

import struct
from collections import deque
from collections.abc import Callable, Mapping

from walkgraph.ids import Rank
from walkgraph.wire import messages as m
from walkgraph.wire import sockets

Connect = Callable[[Rank, m.Peer], sockets.Socket]
"""Makes a socket whose messages go to a peer's inbox."""
SENDER = struct.Struct("<II")
"""Header of a frame to a peer: rank and start of the sender."""
STRANGERS = 1024
"""The most messages kept from starts that the conductor has not named yet. It names them before it starts a run
there."""


def on_this_host(context: sockets.Context) -> Connect:
    return lambda rank, peer: sockets.push(context, peer.address)


class Peers:
    def __init__(self, rank: Rank) -> None:
        self.known: dict[Rank, m.Peer] = {}
        self.strangers: deque[tuple[bytes, m.BetweenWorkers]] = deque(maxlen=STRANGERS)
        self.stale = 0
        """The number of messages from starts of a rank that have ended."""
        self._rank = rank
        self._latest: dict[Rank, int] = {}
        """Rank that has died -> its last start."""
        self._connected: dict[Rank, int] = {}
        """Peers that have answered a greeting -> their starts."""

    def replaced(self, peers: Mapping[Rank, m.Peer]) -> list[Rank]:
        """Known peers that have died or were restarted."""
        return [rank for rank, peer in self.known.items() if peer != peers.get(rank)]

    def gone(self, rank: Rank) -> bool:
        """True if the rank was known and has died; it may come back."""
        return rank in self._latest

    def remove(self, rank: Rank) -> None:
        self._latest[rank] = self.known.pop(rank).start
        self._connected.pop(rank, None)

    def greeted(self, rank: Rank) -> m.Connected:
        """Note that a peer has answered; returns the report to the conductor."""
        self._connected[rank] = self.known[rank].start
        return m.Connected(rank=self._rank, peers=dict(self._connected))

    def sender(self, frame: bytes) -> Rank | None:
        """The peer that sent a frame; None if its start is not the known one."""
        if len(frame) != SENDER.size:
            return None
        rank, start = SENDER.unpack(frame)
        peer = self.known.get(Rank(rank))
        return Rank(rank) if peer is not None and peer.start == start else None

    def keep(self, sender: bytes, message: m.BetweenWorkers) -> None:
        """Keep a message from a start that is not named yet; drop one from a start that has ended."""
        rank, start = SENDER.unpack(sender) if len(sender) == SENDER.size else (0, 0)
        peer = self.known.get(Rank(rank))
        if start > (peer.start if peer else self._latest.get(Rank(rank), 0)):
            self.strangers.append((sender, message))
        else:
            self.stale += 1
