"""A worker's messages to its conductor: gathered while it works, and sent together before it waits or computes.

The queue is bounded by the number of admitted runs.
"""

from collections import deque
from typing import Any

import msgspec
import zmq

from walkgraph.errors import WalkgraphError
from walkgraph.wire import codec, sockets
from walkgraph.wire import messages as m
from walkgraph.wire.processes.posting import PostSender
from walkgraph.worker.events import ABSENT
from walkgraph.worker.io import values


class Reports:
    def __init__(self, socket: sockets.Socket, sender: PostSender | None = None) -> None:
        """`sender`: posts large values for the service; without it they go inside their messages."""
        self.socket, self._sender = socket, sender
        self.blocked = False
        """True if the socket takes no more for now."""
        self.failed: list[tuple[m.FromWorker, WalkgraphError]] = []
        """Messages whose value can't be sent."""
        self._waiting: deque[bytes] = deque()

    def send(self, message: m.FromWorker, value: Any = ABSENT) -> None:
        """Queue a message for the next `flush`. Its value goes inside it, because conductor and service take part in no
        transport; large values for the service are posted."""
        try:
            if value is not ABSENT:
                message = msgspec.structs.replace(message, value=values.pack(value, post=self._post_of(message)))
            self._waiting.append(encoded(message))
        except WalkgraphError as error:
            self.failed.append((message, error))

    def flush(self) -> None:
        self.blocked = False
        while self._waiting:
            count, frame = codec.together(self._waiting)
            try:
                self.socket.send(frame, zmq.NOBLOCK)
            except zmq.Again:
                self.blocked = True
                return
            for _ in range(count):
                self._waiting.popleft()

    def _post_of(self, message: m.FromWorker) -> values.Post | None:
        """The way for the bytes of a message's value: those of outputs and of calls of tasks go to the service."""
        sender = self._sender
        if sender is None or not isinstance(message, m.Emit | m.CallTask):
            return None
        return lambda data, header: sender.post(message.run, data, header)


def encoded(message: m.Message) -> bytes:
    """Encode a message. Raises WalkgraphError if it is too large."""
    frame = codec.encode(message)
    if len(frame) > codec.MAX_BYTES:
        raise WalkgraphError(f"a value takes {len(frame)} bytes, over the limit of {codec.MAX_BYTES} for a message")
    return frame
