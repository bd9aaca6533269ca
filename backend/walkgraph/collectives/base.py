"""A shard of a group: a process that computes a network together with the others, with a part of its weights or for a
part of its rows.

Layers see only `Shard`; the forms that join processes have one file each.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from walkgraph.errors import GroupBroken


class ShardLost(GroupBroken):
    """A shard of the group is gone or doesn't answer. The group can't go on; it is opened again with new processes."""


class OutOfStep(GroupBroken):
    """Two shards of a group made different calls."""


class Shard(Protocol):
    """This process's place in its group. All shards make the same calls in the same order, with tensors of the same
    shape and type, one at a time."""

    @property
    def index(self) -> int:
        """Number of the shard, from 0. The first one serves, and the others repeat what it does."""
        ...

    @property
    def count(self) -> int:
        """Shards of the group."""
        ...

    def sum(self, x: Tensor) -> Tensor:
        """The sum of the shards' `x`, in their order: the same bits on every shard. Numbers of 16 bits are summed in
        float32. Raises ShardLost, OutOfStep."""
        ...

    def gather(self, x: Tensor, dim: int = -1) -> Tensor:
        """The shards' `x`, in their order, one behind the other in a dimension: `[..., n]` -> `[..., n * count]` in the
        last one. Raises ShardLost, OutOfStep."""
        ...

    def close(self) -> None:
        """Leave the group. The others' next calls raise ShardLost."""
        ...


@dataclass(frozen=True)
class _Whole:
    """A group of one."""

    index: int = 0
    count: int = 1

    def sum(self, x: Tensor) -> Tensor:
        return x

    def gather(self, x: Tensor, dim: int = -1) -> Tensor:
        return x

    def close(self) -> None:
        pass


WHOLE: Shard = _Whole()
"""The shard of a network that isn't divided."""


def added_up(parts: Sequence[Tensor]) -> Tensor:
    """The sum of the parts, in their order, as `Shard.sum` defines it."""
    total = parts[0].float() if parts[0].dtype in (torch.bfloat16, torch.float16) else parts[0].clone()
    for part in parts[1:]:
        total += part
    return total.to(parts[0].dtype)


def side_by_side(parts: Tensor, dim: int) -> Tensor:
    """parts `[count, ...]`, one of each shard -> their concatenation, as `Shard.gather` defines it."""
    at = dim % (parts.dim() - 1)
    return parts.movedim(0, at).flatten(at, at + 1)
