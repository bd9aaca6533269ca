"""Sums and concatenations through peers' memory, in graphs and outside, are the naive ones; between processes with a
GPU each."""

from __future__ import annotations

from itertools import product
from pathlib import Path

import pytest
import torch

from tests.support.shards import in_processes
from walkgraph.collectives.base import Shard, added_up, side_by_side
from walkgraph.collectives.joining import join
from walkgraph.collectives.peers import PART_BYTES, PeerShard

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two NVIDIA GPUs"),
]
SHAPES = [(1, 4), (1, 3072), (16, 3072), (33, 2048), (7, 130), (64, 4096), (128, 4096), (256, 4096)]
DTYPES = [torch.float32, torch.bfloat16]
ROUNDS = 5


def part(shard: int, shape: tuple[int, ...], dtype: torch.dtype, seed: int) -> torch.Tensor:
    drawn = torch.randn(shape, generator=torch.Generator().manual_seed(seed * 16 + shard))
    return drawn.to(dtype)


def wrong(index: int, count: int, at: str) -> list[str]:
    """The differences from the naive collectives."""
    torch.cuda.set_device(index)
    shard = join(Path(at), index, count, torch.device("cuda", index))
    found: list[str] = [] if isinstance(shard, PeerShard) else [type(shard).__name__]
    for dtype, shape in product(DTYPES, SHAPES):
        # Graphs with the library's collectives are gone when the group is closed.
        found += differences(shard, shape, dtype)
    shard.close()
    return found


def differences(shard: Shard, shape: tuple[int, ...], dtype: torch.dtype) -> list[str]:
    found, device = list[str](), torch.device("cuda", shard.index)
    x = part(shard.index, shape, dtype, 0).to(device)
    for once in (shard.sum, shard.gather):
        once(x)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        total, beside, below = shard.sum(x), shard.gather(x), shard.gather(x, 0)
        again = shard.sum(total)
    for seed in range(ROUNDS):
        parts = [part(one, shape, dtype, seed).to(device) for one in range(shard.count)]
        x.copy_(parts[shard.index])
        graph.replay()
        torch.cuda.synchronize()
        naive, stacked = added_up(parts), torch.stack(parts)
        wanted = naive, added_up([naive] * shard.count), side_by_side(stacked, -1), side_by_side(stacked, 0)
        names = "sum", "sum of sums", "gather", "gather of rows"
        for name, mine, right in zip(names, (total, again, beside, below), wanted, strict=True):
            # The library sums large parts in an order of its own.
            close = torch.allclose(mine, right, rtol=1e-2) if x.nbytes > PART_BYTES else torch.equal(mine, right)
            if not close:
                found.append(f"{name} {shape} {dtype} {seed}")
    return found


def test_collectives_of_peers_are_the_naive_ones(tmp_path: Path) -> None:
    count = torch.cuda.device_count()
    assert in_processes(count, wrong, str(tmp_path / "group")) == [[]] * count
