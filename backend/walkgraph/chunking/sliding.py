"""A window of `window` items that advances by `stride`; shorter at the start with a smaller `first`, or if the stream
ends before the window is full. The last one ends with the stream."""

from dataclasses import dataclass

from walkgraph.chunking import base
from walkgraph.errors import InvalidInput


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy(base.Policy):
    window: int
    stride: int

    def __post_init__(self) -> None:
        base.Policy.__post_init__(self)
        if self.stride > self.window:
            raise InvalidInput(f"`stride` {self.stride} is over `window` {self.window}: items between would be lost")

    @property
    def kept(self) -> int:
        return self.window

    @property
    def step(self) -> int:
        return self.stride

    @property
    def _opening(self) -> int:
        return self.window

    def _start(self, taken: int, stop: int) -> int:
        return max(0, stop - self.window)
