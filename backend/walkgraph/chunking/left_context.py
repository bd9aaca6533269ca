"""Chunks of `chunk` new items after up to `context` items that were delivered before."""

from dataclasses import dataclass

from walkgraph.chunking import base


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy(base.Policy):
    chunk: int
    context: int

    @property
    def kept(self) -> int:
        return self.context

    @property
    def step(self) -> int:
        return self.chunk

    def _start(self, taken: int, stop: int) -> int:
        return max(0, taken - self.context)
