"""Telemetry from the deployments: one socket that all of them push to, and sinks that what comes is handed to."""

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Protocol

import msgspec
import structlog
import zmq

from walkgraph.service.observe.hub import Hub
from walkgraph.telemetry import events
from walkgraph.wire import sockets
from walkgraph.wire.looped import Looped

SOCKET = "telemetry"
FRAME_BYTES = 96 * 1024
"""Of a packet, as it came, that becomes one frame; a larger one becomes several, for a reader's buffer to hold some."""

_log = structlog.get_logger("walkgraph.telemetry")

Resolve = Callable[[str], tuple[str, str] | None]
"""What a packet calls its deployment -> (the deployment, what tells its sources from those of its other versions); None
where nobody should see it."""


class Sink(Protocol):
    """Where packets go. What it does is done on the event loop, and short."""

    def take(self, packet: events.Packet, deployment: str, version: str, nbytes: int) -> None:
        """`nbytes`: of the packet, as it came."""
        ...


class ToHub:
    """Publishes each packet as a frame of type `events`, or several."""

    def __init__(self, hub: Hub) -> None:
        self._hub = hub

    def take(self, packet: events.Packet, deployment: str, version: str, nbytes: int) -> None:
        if not self._hub.wanted(deployment):
            return
        source = f"{packet.source} {version}".rstrip()
        first = packet.first
        for part in _parts(packet.events, -(-nbytes // FRAME_BYTES)):
            frame = {"source": source, "first": first, "dropped": packet.dropped, "wall": packet.wall, "events": part}
            self._hub.publish(deployment, {"type": "events", **frame})
            first += len(part)


class Collector:
    """Hands each packet to the sinks; what is no packet is counted and dropped."""

    def __init__(self, directory: Path) -> None:
        """`directory`: where the socket lies; a short path. Raises InvalidInput for one that is too long."""
        self.address = sockets.address(directory, SOCKET)
        self.rejected = 0
        """Frames that were no packets, and packets that a sink could not take."""
        self._directory = directory
        self._context: sockets.Context | None = None
        self._looped: Looped | None = None

    def start(self, resolve: Resolve, sinks: Iterable[Sink]) -> None:
        self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._context, all_ = zmq.Context(), tuple(sinks)
        socket = sockets.pull(self._context, self.address)
        self._looped = Looped(socket, lambda frames: self._collect(b"".join(frames), resolve, all_))

    async def close(self) -> None:
        if self._looped is not None:
            self._looped.close()
        if self._context is not None:
            self._context.destroy(linger=0)

    def _collect(self, frame: bytes, resolve: Resolve, sinks: tuple[Sink, ...]) -> None:
        try:
            packet = events.decode(frame)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            self.rejected += 1
            return
        found = resolve(packet.deployment)
        if found is not None:
            self._hand_over(packet, *found, len(frame), sinks)

    def _hand_over(
        self, packet: events.Packet, deployment: str, version: str, nbytes: int, sinks: tuple[Sink, ...]
    ) -> None:
        for sink in sinks:
            try:
                sink.take(packet, deployment, version, nbytes)
            except (ArithmeticError, LookupError, TypeError, ValueError) as error:
                # One that a process can't have meant (columns of unequal length) must not end the telemetry of others.
                self.rejected += 1
                if self.rejected == 1:
                    _log.error("packet not taken", sink=type(sink).__name__, exc_info=error)


def _parts(told: tuple[events.Any, ...], count: int) -> Iterator[tuple[events.Any, ...]]:
    size = max(1, -(-len(told) // count))
    for at in range(0, len(told), size):
        yield told[at : at + size]
