"""The parts of a tensor that the shards of a tensor-parallel group have."""

import math
from collections.abc import Callable
from dataclasses import dataclass

from walkgraph.checkpoints.files import Shape


@dataclass(frozen=True)
class Cut:
    """One of `parts` equal parts of a tensor along one dimension; what the last ones lack is filled up with zeros."""

    dim: int
    size: int
    """Size of the whole tensor along `dim`."""
    part: int
    parts: int

    @property
    def length(self) -> int:
        return math.ceil(self.size / self.parts)

    @property
    def start(self) -> int:
        return min(self.size, self.part * self.length)

    @property
    def stop(self) -> int:
        return min(self.size, self.start + self.length)

    def whole(self, shape: Shape) -> Shape:
        """The shape of the tensor that a part of this shape is of."""
        return (*shape[: self.dim], self.size, *shape[self.dim + 1 :])

    def of(self, shape: Shape) -> Shape:
        """The shape of the part of a tensor of this shape."""
        return (*shape[: self.dim], self.length, *shape[self.dim + 1 :])


Cuts = Callable[[str], Cut | None]
"""Takes a tensor's name in the network; None for one that every shard has whole."""
