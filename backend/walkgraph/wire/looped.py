"""A ZeroMQ socket on an asyncio event loop: messages are delivered in the loop iteration in which they arrive.

The library's own asyncio sockets create a future for every message and poll the socket several times for it.
"""

import asyncio
from collections import deque
from collections.abc import Callable

import zmq

from walkgraph.wire.sockets import MAX_QUEUED, Socket

TURN = 4
"""Frames taken in a row before other callbacks run; each may hold hundreds of messages."""


class Looped:
    """Must be created, used and closed on its loop's thread."""

    def __init__(self, socket: Socket, take: Callable[[list[bytes]], None]) -> None:
        """`take` gets the frames of each message, one message at a time, in their order."""
        self._socket, self._take = socket, take
        self._loop = asyncio.get_running_loop()
        self._outbox: deque[bytes] = deque()
        self._descriptor = int(socket.getsockopt(zmq.FD))
        self._asked: asyncio.Handle | None = None
        self._loop.add_reader(self._descriptor, self._look)
        # No event is signalled for messages that came earlier.
        self._ask()

    @property
    def waiting(self) -> int:
        """Messages that the socket has not accepted yet."""
        return len(self._outbox)

    def send(self, frame: bytes) -> bool:
        """Send without waiting; False if too many messages are queued already."""
        if len(self._outbox) >= MAX_QUEUED:
            return False
        self._outbox.append(frame)
        self._write()
        self._go_on()
        return True

    def close(self) -> None:
        """Read what is left in the socket, and close it."""
        self._loop.remove_reader(self._descriptor)
        if self._asked is not None:
            self._asked.cancel()
        while self._read():
            pass
        self._socket.close(linger=0)

    def _look(self) -> None:
        self._asked = None
        try:
            for _ in range(TURN):
                if not self._read():
                    break
        finally:
            self._write()
            self._go_on()

    def _go_on(self) -> None:
        """Look again if there is more to do. Checking a socket consumes its signal, be it for a message that has come
        or for a peer that takes what was refused a moment ago: there will be no other."""
        there = int(self._socket.getsockopt(zmq.EVENTS))
        if there & zmq.POLLIN or (self._outbox and there & zmq.POLLOUT):
            self._ask()

    def _ask(self) -> None:
        if self._asked is None:
            self._asked = self._loop.call_soon(self._look)

    def _read(self) -> bool:
        try:
            frames = self._socket.recv_multipart(zmq.NOBLOCK)
        except zmq.Again:
            return False
        self._take(frames)
        return True

    def _write(self) -> None:
        while self._outbox:
            try:
                self._socket.send(self._outbox[0], zmq.NOBLOCK)
            except zmq.Again:
                return
            self._outbox.popleft()
