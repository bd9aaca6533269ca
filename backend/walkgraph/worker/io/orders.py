"""The messages of a rank's conductor, and the end of their connection: between hosts, it takes messages with it."""

from collections.abc import Iterator

import zmq

from walkgraph.wire import codec, sockets
from walkgraph.wire import messages as m


class Orders(sockets.Reader[m.ToWorker]):
    def __init__(self, conductor: sockets.Socket) -> None:
        super().__init__(conductor, codec.to_worker)
        self.cut = sockets.partings(conductor)
        """Tells that a conductor on another host is lost; to be polled with the socket. None: it is on this one."""

    def messages(self) -> Iterator[m.ToWorker]:
        """Those that have come, and `Stop` once the conductor is lost."""
        for _, message in self.drain():
            yield message
        if self.cut is not None and sockets.drop(self.cut):
            yield m.Stop()

    def wait(self) -> None:
        """Wait for one of them, and for nothing else."""
        poller = zmq.Poller()
        for socket in (self.socket, self.cut):
            if socket is not None:
                poller.register(socket, zmq.POLLIN)
        poller.poll()
