"""A group of processes with a GPU each, by torch's collectives: NCCL, whose calls CUDA graphs capture."""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path

import torch
from torch import Tensor
from torch import distributed as dist

from walkgraph.collectives.base import ShardLost, added_up, side_by_side

GATHERED_BYTES = 1 << 20
"""Larger parts are summed by the library, which moves each number twice whatever the number of shards, in an order that
depends on the tensor's size. Smaller ones, which every step has, are gathered and summed in the order of shards: a
row's numbers don't depend on the rows beside it."""


class DistributedShard:
    """A process is in one such group at most. Once a shard is lost, NCCL ends the processes of the others that wait for
    it longer than their patience."""

    def __init__(self, at: Path, index: int, count: int, *, device: torch.device, patience: float) -> None:
        """Join the group at `at`, a path of which there is no other at a time. Waits for all shards. `patience`:
        seconds to wait for another shard. Raises ShardLost."""
        self.index, self.count, self._device = index, count, device
        on_gpu, timeout = device.type == "cuda", timedelta(seconds=patience)
        store = dist.FileStore(str(at), count)
        store.set_timeout(timeout)
        with _told():
            dist.init_process_group(
                "nccl" if on_gpu else "gloo",
                store=store,
                rank=index,
                world_size=count,
                timeout=timeout,
                device_id=device if on_gpu else None,
            )

    def sum(self, x: Tensor) -> Tensor:
        if x.nbytes <= GATHERED_BYTES:
            return added_up(self._parts(x).unbind())
        total = x.contiguous().clone()
        with _told():
            dist.all_reduce(total)
        return total

    def gather(self, x: Tensor, dim: int = -1) -> Tensor:
        return side_by_side(self._parts(x), dim)

    def all(self, here: bool) -> bool:
        """True if it is true on every shard."""
        told = torch.tensor([int(here)], device=self._device)
        with _told():
            dist.all_reduce(told, dist.ReduceOp.MIN)
        return bool(told.item())

    def close(self) -> None:
        dist.destroy_process_group()

    def _parts(self, x: Tensor) -> Tensor:
        """`[count, *shape]`"""
        parts = x.new_empty(self.count * x.numel())
        with _told():
            dist.all_gather_into_tensor(parts, x.contiguous().view(-1))
        return parts.view(self.count, *x.shape)


@contextmanager
def _told() -> Iterator[None]:
    """Raise errors of the library, which have no class of their own, as ours."""
    try:
        yield
    except RuntimeError as error:
        raise ShardLost("a shard of a group was lost or did not come; the group has to start again") from error
