"""Another process with a GPU: a transport that reads, driven through a pipe."""

from __future__ import annotations

from collections.abc import Callable
from multiprocessing import get_context
from typing import Any

import torch

from walkgraph import errors
from walkgraph.ids import Rank
from walkgraph.memory import device as device_memory
from walkgraph.transports import base, cuda_ipc

_RAISED = {
    kind.__name__: kind
    for kind in (
        base.BadTicket,
        base.SenderLost,
        base.TooLarge,
        errors.InvalidInput,
        device_memory.Unavailable,
        errors.WalkgraphError,
    )
}


class Peer:
    """`make(device)` in a new process; `call` asks a method of what it made."""

    def __init__(self, make: Callable[[str], Any], device: str) -> None:
        context = get_context("spawn")
        self._pipe, there = context.Pipe()
        self.process = context.Process(target=_serve, args=(make, device, there), daemon=True)
        self.process.start()

    def call(self, name: str, *arguments: Any) -> Any:
        self.tell(name, *arguments)
        return self.heard()

    def tell(self, name: str, *arguments: Any) -> None:
        """Without waiting for what `heard` gives."""
        self._pipe.send((name, arguments))

    def heard(self) -> Any:
        if not self._pipe.poll(60):
            raise TimeoutError("the other process doesn't answer")
        kind, value = self._pipe.recv()
        if kind is not None:
            found = _RAISED.get(kind, RuntimeError)
            raise found() if found is base.SenderLost else found(value)
        return value

    def end(self) -> None:
        self.process.kill()
        self.process.join()


def _serve(make: Callable[[str], Any], device: str, pipe: Any) -> None:
    torch.cuda.set_device(device)
    made = make(device)
    while True:
        try:
            name, arguments = pipe.recv()
        except EOFError:
            return
        try:
            answer = (None, getattr(made, name)(*arguments))
        except Exception as raised:  # noqa: BLE001 (told to the other side, which raises it)
            answer = (type(raised).__name__, str(raised))
        pipe.send(answer)


class Reader:
    """A transport that reads; tensors are told as (dtype, shape, bytes)."""

    def __init__(self, device: str) -> None:
        from walkgraph.memory.cuda import CudaMemory

        self._memory = CudaMemory(torch.device(device))
        self._transport: cuda_ipc.Transport | None = None

    def fresh(self, rank: int) -> None:
        if self._transport is not None:
            self._transport.close()
        self._transport = cuda_ipc.Transport(Rank(rank), 0, self._memory)

    def get(self, ticket: Any) -> tuple[str, tuple[int, ...], bytes]:
        tensor = self._asked.get(ticket).contiguous()
        raw = tensor.view(-1).view(torch.uint8).cpu().numpy().tobytes() if tensor.numel() else b""
        return str(tensor.dtype).removeprefix("torch."), tuple(tensor.shape), raw

    def total(self, ticket: Any) -> float:
        """The sum of a tensor, computed by work that is launched directly behind the copy."""
        return float(self._asked.get(ticket).double().sum())

    def taken(self, ticket: Any) -> bool:
        torch.cuda.synchronize()
        return self._asked.taken(ticket)

    def check_after(self) -> float | None:
        return self._asked.check_after

    def connect(self, rank: int, handle: bytes) -> None:
        self._asked.connect(Rank(rank), handle)

    def disconnect(self, rank: int) -> None:
        self._asked.disconnect(Rank(rank))

    @property
    def _asked(self) -> cuda_ipc.Transport:
        if self._transport is None:
            raise RuntimeError("`fresh` comes first")
        return self._transport
