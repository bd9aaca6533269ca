"""Chunks of `size` new items, without overlap."""

from dataclasses import dataclass

from walkgraph.chunking import base


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy(base.Policy):
    size: int

    @property
    def kept(self) -> int:
        return 0

    @property
    def step(self) -> int:
        return self.size

    def _start(self, taken: int, stop: int) -> int:
        return taken
