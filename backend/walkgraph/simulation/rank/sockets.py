"""Simulated ZeroMQ sockets: the methods that the product uses, over the simulated network."""

from collections import deque
from collections.abc import Callable
from functools import partial

import zmq

from walkgraph.simulation.network import Endpoint, Frames
from walkgraph.simulation.simulator import Action, Simulator

CONNECT_SECONDS = 0.01
"""Longest time to connect; until then a socket takes no messages."""
FULL = 0.01
"""Share of sends that find a full socket."""
FULL_SECONDS = 0.02
"""Longest time that it stays full."""

_AGAIN = zmq.Again()
"""Created once, since creating it takes longer than everything else in a simulated socket."""


def address_of(process: Endpoint) -> str:
    return f"{process.rank}.{process.start}"


class SimulatedSocket:
    def __init__(self, simulator: Simulator, leave: Callable[[Frames], bool], wake: Action) -> None:
        """`leave` sends frames; it returns False if the target process is gone. `wake` is called when a socket that
        refused a message takes messages again."""
        self.inbox: deque[Frames] = deque()
        """Messages that have arrived and were not read."""
        self._simulator, self._leave, self._wake = simulator, leave, wake
        self._opens = 0.0
        """Time until which it takes no messages."""

    def connecting(self) -> None:
        """Refuses messages until the connection is established."""
        self._refuse_for(CONNECT_SECONDS)

    def send(self, frame: bytes, flags: int = 0) -> None:
        self.send_multipart([frame], flags)

    def send_multipart(self, frames: Frames, flags: int = 0) -> None:
        chance = self._simulator.chance
        if self._opens <= self._simulator.now and chance.random() < FULL:
            self._simulator.counts["full sockets"] += 1
            self._refuse_for(FULL_SECONDS)
        if self._opens > self._simulator.now or not self._leave(frames):
            raise _AGAIN.with_traceback(None)

    def recv_multipart(self, flags: int = 0) -> Frames:
        if not self.inbox:
            raise _AGAIN.with_traceback(None)
        return self.inbox.popleft()

    def getsockopt(self, option: int) -> int:
        """No option is set: nobody is asked for keys."""
        return 0

    def close(self, linger: int = 0) -> None:
        self._leave = _nowhere

    def _refuse_for(self, seconds: float) -> None:
        self._opens = self._simulator.now + seconds * self._simulator.chance.random()
        self._simulator.blocked += 1
        self._simulator.at(self._opens, self._open)

    def _open(self) -> None:
        self._simulator.blocked -= 1
        self._wake()


class SimulatedConnection(SimulatedSocket):
    """A PUSH socket that a context creates."""

    def __init__(self, simulator: Simulator, post: Callable[[Endpoint, Frames], bool], wake: Action) -> None:
        super().__init__(simulator, _nowhere, wake)
        self._post = post

    def setsockopt(self, option: int, value: int) -> None: ...

    def connect(self, address: str) -> None:
        rank, _, start = address.partition(".")
        peer = Endpoint(int(rank), int(start))
        self._leave = partial(self._post, peer)
        self.connecting()


class SimulatedContext:
    def __init__(self, simulator: Simulator, post: Callable[[Endpoint, Frames], bool], wake: Action) -> None:
        self._made = simulator, post, wake

    def socket(self, kind: int) -> SimulatedConnection:
        return SimulatedConnection(*self._made)


def _nowhere(frames: Frames) -> bool:
    return False
