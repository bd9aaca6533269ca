"""Opens a group in the form for its devices."""

import logging
from pathlib import Path

import torch

from walkgraph.collectives.base import WHOLE, Shard
from walkgraph.collectives.host import PATIENCE, REGION_BYTES, HostShard

_log = logging.getLogger(__name__)


def join(
    at: Path,
    index: int,
    count: int,
    device: torch.device,
    *,
    nbytes: int = REGION_BYTES,
    patience: float = PATIENCE,
) -> Shard:
    """Join the group at `at`, a path in a folder of this user alone that no other group has had; waits for all shards.
    `nbytes`: memory that each shard of a host's group shares; `patience`: seconds to wait for another shard. Raises
    ShardLost."""
    if count == 1:
        return WHOLE
    if device.type == "cuda":
        # It takes a second to import.
        from walkgraph.collectives.distributed import DistributedShard
        from walkgraph.collectives.peers import MOST_SHARDS, PeerShard
        from walkgraph.memory.cuda import CudaMemory

        group = DistributedShard(at, index, count, device=device, patience=patience)
        if count > MOST_SHARDS or not group.all(_reachable(device)):
            return group
        peers = PeerShard(group, CudaMemory(device), patience=patience)
        if group.all(peers.agrees()):
            return peers
        _log.warning("sums through the GPUs' memory are not those of NCCL on this host; NCCL is used alone")
        peers.leave()
        return group
    return HostShard(at, index, count, nbytes=nbytes, patience=patience)


def _reachable(device: torch.device) -> bool:
    """True if this GPU reaches the memory of the group's others: of all that this process sees."""
    others = (other for other in range(torch.cuda.device_count()) if other != device.index)
    return all(torch.cuda.can_device_access_peer(device, other) for other in others)
