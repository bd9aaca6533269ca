"""The peers of a rank: which starts of them are known, and which of those are connected."""

import struct
from collections import deque
from collections.abc import Mapping

from walkgraph.ids import Rank
from walkgraph.wire import messages as m

SENDER = struct.Struct("<II")
"""Rank and start of who sent a frame to a peer."""
STRANGERS = 1024
"""Messages kept of starts that the conductor has not named yet; it will, for it starts no run before."""


class Peers:
    def __init__(self, rank: Rank) -> None:
        self.known: dict[Rank, m.Peer] = {}
        self.strangers: deque[tuple[bytes, m.BetweenWorkers]] = deque(maxlen=STRANGERS)
        self.stale = 0
        """Messages from starts of a rank that are no longer."""
        self._rank = rank
        self._latest: dict[Rank, int] = {}
        """Rank that is gone -> its last start."""
        self._connected: dict[Rank, int] = {}
        """Peers that have answered a greeting, with their starts."""

    def replaced(self, peers: Mapping[Rank, m.Peer]) -> list[Rank]:
        """Those that are no longer, or were started anew."""
        return [rank for rank, peer in self.known.items() if peer != peers.get(rank)]

    def gone(self, rank: Rank) -> bool:
        """It was known, and may be so again."""
        return rank in self._latest

    def remove(self, rank: Rank) -> None:
        self._latest[rank] = self.known.pop(rank).start
        self._connected.pop(rank, None)

    def greeted(self, rank: Rank) -> m.Connected:
        """A peer has answered; what the conductor is told."""
        self._connected[rank] = self.known[rank].start
        return m.Connected(rank=self._rank, peers=dict(self._connected))

    def sender(self, frame: bytes) -> Rank | None:
        """The peer that a frame comes from; None where its start isn't the one that is known."""
        if len(frame) != SENDER.size:
            return None
        rank, start = SENDER.unpack(frame)
        peer = self.known.get(Rank(rank))
        return Rank(rank) if peer is not None and peer.start == start else None

    def keep(self, sender: bytes, message: m.BetweenWorkers) -> None:
        """Of a start that is over, or not named yet."""
        rank, start = SENDER.unpack(sender) if len(sender) == SENDER.size else (0, 0)
        peer = self.known.get(Rank(rank))
        if start > (peer.start if peer else self._latest.get(Rank(rank), 0)):
            self.strangers.append((sender, message))
        else:
            self.stale += 1
