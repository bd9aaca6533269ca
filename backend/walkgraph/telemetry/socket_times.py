"""Times at which the service read a request and sent its answer, on the host's monotonic clock.

A request may start several runs, which share its `SocketTimes`; each run has `ServiceTimes` of its own.
"""

from collections.abc import MutableMapping
from typing import Any

from walkgraph.telemetry.trace import Served

_KEY = "socket_times"


class SocketTimes:
    """The times of one request on its socket."""

    __slots__ = ("first_sent", "last_sent", "read", "received", "sending")

    def __init__(self, received: float) -> None:
        self.received = received
        """The time at which the head of the request came, or its message on a WebSocket."""
        self.read = received
        """The time at which all of its bytes were there."""
        self.first_sent: float | None = None
        self.last_sent: float | None = None
        """The time at which the latest bytes of its answer had been handed to the socket."""
        self.sending = 0.0
        """Seconds in which bytes of its answer were handed to the socket."""

    def sent(self, began: float, done: float) -> None:
        """Note bytes that were handed to the socket between these times."""
        self.last_sent = done
        self.sending += done - began
        if self.first_sent is None:
            self.first_sent = began


class ServiceTimes:
    """The times of one run in the service."""

    __slots__ = ("_sent_before", "answering", "ended", "socket", "submitted")

    def __init__(self, submitted: float) -> None:
        self.submitted = submitted
        """The time at which its request was decoded, checked and sent to the conductor."""
        self.ended: float | None = None
        """The time at which the service heard of its end."""
        self.answering: float | None = None
        """The time at which an answer first went on with it."""
        self.socket: SocketTimes | None = None
        """None for a run that no client's request started, and where requests are read by others."""
        self._sent_before = 0.0

    def end(self, now: float) -> None:
        self.ended = now
        self._sent_before = self.socket.sending if self.socket else 0.0

    def answer(self, now: float) -> None:
        """Note that an answer goes on, maybe with the run's end."""
        if self.answering is None and self.ended is not None:
            self.answering = now

    def told(self, began: float) -> Served:
        """The times so far, in microseconds from the beginning of the run's trace."""

        def us(at: float | None) -> int | None:
            return None if at is None else round((at - began) * 1e6)

        socket, submitted = self.socket, round((self.submitted - began) * 1e6)
        if socket is None:
            return Served(submitted=submitted, ended=us(self.ended))
        return Served(
            received=us(socket.received),
            read=us(socket.read),
            submitted=submitted,
            ended=us(self.ended),
            # Its request may have been answered before its end, and others may follow it much later.
            answering=us(self.answering) if (socket.last_sent or 0.0) > (self.answering or 0.0) else None,
            first_sent=us(socket.first_sent),
            last_sent=us(socket.last_sent),
            sending=0 if self.ended is None else round((socket.sending - self._sent_before) * 1e6),
        )


def begin(scope: MutableMapping[str, Any], now: float) -> SocketTimes:
    """Start the times of a request, which the connection's scope keeps until its next one."""
    found = scope.setdefault("state", {})[_KEY] = SocketTimes(now)
    return found


def of(scope: MutableMapping[str, Any]) -> SocketTimes | None:
    """The times of the connection's latest request."""
    return scope.get("state", {}).get(_KEY)
