"""Telemetry from the deployments: one socket that all of them push to, one task that hands what comes to the hub."""

import asyncio
from collections.abc import Callable
from pathlib import Path

import msgspec
import zmq
import zmq.asyncio

from walkgraph.service.hub import Hub
from walkgraph.telemetry import events
from walkgraph.wire import sockets

SOCKET = "telemetry"


Resolve = Callable[[str], tuple[str, str] | None]
"""What a packet calls its deployment -> (the deployment, what tells its sources from those of its other versions); None
where nobody should see it."""


class Collector:
    """Publishes each packet as one frame of type `events`; what is no packet is counted and dropped."""

    def __init__(self, directory: Path) -> None:
        """`directory`: where the socket lies; a short path. Raises InvalidInput for one that is too long."""
        self.address = sockets.address(directory, SOCKET)
        self.rejected = 0
        self._directory = directory
        self._context: zmq.asyncio.Context | None = None
        self._task: asyncio.Task[None] | None = None

    def start(self, hub: Hub, resolve: Resolve) -> None:
        self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._context = zmq.asyncio.Context()
        socket = self._context.socket(zmq.PULL)
        sockets.configure(socket)
        socket.bind(self.address)
        self._task = asyncio.create_task(self._collect(socket, hub, resolve), name="telemetry")

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        if self._context is not None:
            self._context.destroy(linger=0)

    async def _collect(self, socket: zmq.asyncio.Socket, hub: Hub, resolve: Resolve) -> None:
        while True:
            frames = await socket.recv_multipart()
            try:
                packet = events.decode(b"".join(frames))
            except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
                self.rejected += 1
                continue
            found = resolve(packet.deployment)
            if found is not None:
                deployment, version = found
                fields = msgspec.to_builtins(packet) | {"source": f"{packet.source} {version}".rstrip()}
                del fields["deployment"]
                hub.publish(deployment, {"type": "events", **fields})
