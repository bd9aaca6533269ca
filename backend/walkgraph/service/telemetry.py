"""Telemetry from the deployments: one socket that all of them push to, one task that hands what comes to the sinks."""

import asyncio
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Protocol

import msgspec
import structlog
import zmq
import zmq.asyncio

from walkgraph.service.hub import Hub
from walkgraph.telemetry import events
from walkgraph.wire import sockets

SOCKET = "telemetry"
FRAME_BYTES = 96 * 1024
"""Of a packet, as it came, that becomes one frame; a larger one becomes several, for a reader's buffer to hold some."""
TURN_PACKETS = 16
"""Taken one after the other before others have their turn."""

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
        self._context: zmq.asyncio.Context | None = None
        self._task: asyncio.Task[None] | None = None

    def start(self, resolve: Resolve, sinks: Iterable[Sink]) -> None:
        self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._context = zmq.asyncio.Context()
        socket = self._context.socket(zmq.PULL)
        sockets.configure(socket)
        socket.bind(self.address)
        self._task = asyncio.create_task(self._collect(socket, resolve, tuple(sinks)), name="telemetry")

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        if self._context is not None:
            self._context.destroy(linger=0)

    async def _collect(self, socket: zmq.asyncio.Socket, resolve: Resolve, sinks: tuple[Sink, ...]) -> None:
        taken = 0
        while True:
            frame = b"".join(await socket.recv_multipart())
            taken += 1
            if taken % TURN_PACKETS == 0:
                # What is there already comes without a pause: requests would wait for as long as packets come.
                await asyncio.sleep(0)
            try:
                packet = events.decode(frame)
            except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
                self.rejected += 1
                continue
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
