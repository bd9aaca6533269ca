"""Two workers that send a value to and fro by flags: each adds one to what it got. On GPUs, and on CPUs the twin."""

from __future__ import annotations

import torch

from tests.support.device_memory import SharedMemory
from walkgraph.engine.capture import Capturer
from walkgraph.layers.peer import FLAG_BYTES, Halt, PeerBuffer, send, wait
from walkgraph.memory.cuda import CudaMemory

WORDS = 1 << 18


class Player:
    def __init__(self, device: str, words: int = WORDS) -> None:
        self.device = torch.device(device)
        self._words = words
        self._memory = CudaMemory(self.device) if self.device.type == "cuda" else SharedMemory()
        self._own = PeerBuffer(self._memory, FLAG_BYTES + 4 * words)
        self._theirs: PeerBuffer | None = None
        self.halt = Halt(self.device)

    def index(self) -> int:
        return self.device.index or 0

    def told(self) -> tuple[bytes, int]:
        return self._own.handle, self._own.raw.nbytes

    def meet(self, handle: bytes, nbytes: int) -> None:
        self._theirs = PeerBuffer(self._memory, nbytes, handle)

    def leave(self) -> None:
        if self._theirs is not None:
            self._theirs.close()

    def part(self) -> None:
        self._own.close()

    def prepare(self, first: bool, captured: bool) -> None:
        """Make a turn; nobody has begun to play."""
        if self._theirs is None:
            raise RuntimeError("`meet` comes first")
        inbox, there = (one.tensor(FLAG_BYTES, (self._words,), torch.float32) for one in (self._own, self._theirs))
        flag, flag_there = self._own.flag(0), self._theirs.flag(0)
        count = torch.zeros(1, dtype=torch.int64, device=self.device)
        value = torch.zeros_like(inbox)

        def turn() -> None:
            count.add_(1)
            if not first:
                wait(flag, count, self.halt)
            torch.add(inbox, 1, out=value)
            send(value, there, flag_there, count, self.halt)
            if first:
                wait(flag, count, self.halt)

        self._inbox, self._first = inbox, first
        self.halt.set()
        self._turn = Capturer(self.device, enabled=captured)(turn, "a turn")
        self._settle()
        self.halt.clear()
        count.zero_()
        if first:
            inbox.zero_()
        self._settle()

    def launch(self, rounds: int) -> None:
        for _ in range(rounds):
            self._turn()
        if self.device.type == "cuda":
            self._end = torch.cuda.Event()
            self._end.record()

    def over(self) -> bool:
        return self._end.query()

    def finish(self) -> float:
        """What was got last, the same in every word."""
        self._settle()
        low, high = self._inbox.min().item(), self._inbox.max().item()
        if low != high:
            raise ValueError(f"what was got is of several turns: {low} to {high}")
        return high

    def play(self, rounds: int) -> float:
        self.launch(rounds)
        return self.finish()

    def given_up(self) -> bool:
        return bool(self.halt.given_up.item())

    def _settle(self) -> None:
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)
