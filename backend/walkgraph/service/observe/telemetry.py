"""Receives the deployments' telemetry on one socket and hands it to sinks."""

import time
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
"""A larger packet is split into several frames, so that a reader's buffer holds at least some of it."""

_log = structlog.get_logger("walkgraph.telemetry")

Resolve = Callable[[str], tuple[str, str] | None]
"""A packet's label -> (deployment, version); None if the packet should be dropped."""


class Sink(Protocol):
    """Takes packets. It runs on the event loop and must be fast."""

    def take(self, packet: events.Packet, deployment: str, version: str, nbytes: int) -> None:
        """`nbytes`: encoded size of the packet."""
        ...


class ToHub:
    """Publishes each packet as one or more frames of type `events`."""

    def __init__(self, hub: Hub) -> None:
        self._hub = hub

    def take(self, packet: events.Packet, deployment: str, version: str, nbytes: int) -> None:
        if not self._hub.wanted(deployment):
            return
        source = f"{packet.source} {version}".rstrip()
        first = packet.first
        for part in _parts(packet.events, -(-nbytes // FRAME_BYTES)):
            frame = {"source": source, "first": first, "dropped": packet.dropped, "wall": packet.wall, "events": part}
            self._hub.publish(deployment, {"type": "events", **frame, "clock": packet.clock})
            first += len(part)


class Collector:
    """Hands each packet to the sinks. Counts and drops malformed ones."""

    def __init__(self, directory: Path) -> None:
        """`directory`: the socket's folder. Raises InvalidInput if its path is too long."""
        self.address = sockets.address(directory, SOCKET)
        self.rejected = 0
        """Malformed packets, and packets that a sink could not take."""
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
            sockets.end(self._context)

    def _collect(self, frame: bytes, resolve: Resolve, sinks: tuple[Sink, ...]) -> None:
        try:
            packet = events.decode(frame)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            self.rejected += 1
            return
        found = resolve(packet.deployment)
        if found is not None:
            self._hand_over(_dated(packet), *found, len(frame), sinks)

    def _hand_over(
        self, packet: events.Packet, deployment: str, version: str, nbytes: int, sinks: tuple[Sink, ...]
    ) -> None:
        for sink in sinks:
            try:
                sink.take(packet, deployment, version, nbytes)
            except (ArithmeticError, LookupError, TypeError, ValueError) as error:
                # A broken packet, as with columns of unequal length, must not end the telemetry of others.
                self.rejected += 1
                if self.rejected == 1:
                    _log.error("packet not taken", sink=type(sink).__name__, exc_info=error)


def _dated(packet: events.Packet) -> events.Packet:
    """A packet dated by this host's calendar: that of another host may be seconds off."""
    if packet.clock is None:
        return packet
    return msgspec.structs.replace(packet, wall=time.time() - time.monotonic())


def _parts(told: tuple[events.Any, ...], count: int) -> Iterator[tuple[events.Any, ...]]:
    size = max(1, -(-len(told) // count))
    for at in range(0, len(told), size):
        yield told[at : at + size]
