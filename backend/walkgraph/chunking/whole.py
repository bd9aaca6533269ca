"""The whole stream as one chunk, once it has ended."""

from dataclasses import dataclass

from walkgraph.chunking import base


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy(base.Policy):
    def items(self, chunks: int) -> int | None:
        return None

    @property
    def kept(self) -> int:
        return 0

    @property
    def step(self) -> int:
        return 1

    def _full(self, previous: base.ChunkSpec | None) -> int | None:
        return None

    def _start(self, taken: int, stop: int) -> int:
        return 0
