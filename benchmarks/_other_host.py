"""A process that stands for another host: tensors of its own, which are read over a network."""

import importlib
import resource
from typing import Any

import numpy as np
import torch

from walkgraph.ids import Rank, RunId
from walkgraph.transports.nixl import Transport
from walkgraph.wire import codec
from walkgraph.wire import messages as m

HERE, THERE = Rank(0), Rank(1)


class BareAgent:
    """A NIXL agent with some registered memory, as the library is called without any of our code."""

    def __init__(self, name: str, nbytes: int) -> None:
        self.nixl: Any = importlib.import_module("nixl_cu13._bindings")
        config = self.nixl.nixlAgentConfig()
        config.useProgThread, config.pthrDelay = True, 1_000_000
        self.agent: Any = self.nixl.nixlAgent(name, config)
        self.backend = self.agent.createBackend("UCX", {})
        self.memory = np.ones(nbytes, np.uint8)
        where = [(self.memory.ctypes.data, nbytes, 0, "")]
        self.agent.registerMem(self.nixl.nixlRegDList(self.nixl.DRAM_SEG, where), [self.backend])

    def request(self, peer: str, address: int, nbytes: int) -> Any:
        """A read of the peer's memory, made once and posted often."""
        here, there = (
            self.nixl.nixlXferDList(self.nixl.DRAM_SEG, [(at, nbytes, 0)]) for at in (self.memory.ctypes.data, address)
        )
        return self.agent.createXferReq(self.nixl.NIXL_READ, here, there, peer, b"", [self.backend])


class Sender:
    def __init__(self, room: int, pipe: Any) -> None:
        self.transport, self.bare, self._pipe = Transport(THERE, room), BareAgent("bare sender", room), pipe

    def handles(self) -> tuple[bytes, bytes, int]:
        """Those of the transport and of the bare agent, with the address of the latter's memory."""
        return self.transport.handle(), self.bare.agent.getLocalMD(), self.bare.memory.ctypes.data

    def send(self, nbytes: int, window: int, count: int) -> float:
        """Send tensors, at most `window` at a time that aren't freed."""
        value, out = torch.ones(nbytes, dtype=torch.uint8), 0
        while count or out:
            while count and out < window and (ticket := self.transport.put(value, HERE)) is not None:
                message = m.Deliver(run=RunId(""), step=0, edge=0, key=(), value=ticket)
                self._pipe.send_bytes(codec.encode(message))
                count, out = count - 1, out + 1
            freed: Any = codec.between_workers.decode(self._pipe.recv_bytes())
            self.transport.free(freed.ticket, HERE)
            out -= 1
        return cpu()


def cpu() -> float:
    """Seconds of the processor that this process has used."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def serve(room: int, pipe: Any) -> None:
    # As ranks that share the processors do.
    torch.set_num_threads(1)
    sender = Sender(room, pipe)
    pipe.send(sender.handles())
    while (order := pipe.recv()) is not None:
        pipe.send(sender.send(*order))
