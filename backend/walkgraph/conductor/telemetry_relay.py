"""Passes the telemetry of ranks on other hosts on to the service."""

import zmq

from walkgraph.wire import sockets


class TelemetryRelay:
    """Packets that the service takes too late are lost, as from ranks beside it; packets have numbers that tell it."""

    def __init__(self, source: sockets.Socket, service: sockets.Socket) -> None:
        """`source`: it listens to the ranks."""
        self._source, self._offer = source, sockets.offer(service)
        self._refusals = sockets.refusals(source)
        self.files = tuple(one for one in (source, self._refusals) if one is not None)
        """Can be read when there is something to do."""
        self.rejected = 0
        """Peers that were refused."""

    def pass_on(self) -> None:
        """Pass on what has come, at most one queue of it."""
        if self._refusals is not None:
            self.rejected += sockets.drop(self._refusals)
        for _ in range(sockets.MAX_FEED):
            try:
                frame = self._source.recv(zmq.NOBLOCK)
            except zmq.Again:
                return
            self._offer(frame)
