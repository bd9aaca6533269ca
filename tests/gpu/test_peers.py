"""Sums and concatenations through peers' memory, in graphs and outside, are the naive ones; between processes with a
GPU each."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from tests.support.shards import in_processes
from walkgraph.collectives.base import added_up, side_by_side
from walkgraph.collectives.joining import join

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
    """What differs from the naive collectives."""
    device = torch.device("cuda", index)
    torch.cuda.set_device(device)
    shard = join(Path(at), index, count, device)
    found: list[str] = [] if type(shard).__name__ == "PeerShard" else [type(shard).__name__]
    for dtype in DTYPES:
        for shape in SHAPES:
            x = torch.empty(shape, dtype=dtype, device=device)
            x.copy_(part(index, shape, dtype, 0))
            shard.sum(x), shard.gather(x), shard.gather(x, 0)
            torch.cuda.synchronize()
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                total, beside, below = shard.sum(x), shard.gather(x), shard.gather(x, 0)
                again = shard.sum(total)
            for seed in range(ROUNDS):
                parts = [part(one, shape, dtype, seed).to(device) for one in range(count)]
                x.copy_(parts[index])
                graph.replay()
                torch.cuda.synchronize()
                naive = added_up(parts)
                if not torch.equal(total, naive) or not torch.equal(again, added_up([naive] * count)):
                    found.append(f"sum {shape} {dtype} {seed}")
                gathered = [side_by_side(torch.stack(parts), dim) for dim in (-1, 0)]
                if not torch.equal(beside, gathered[0]) or not torch.equal(below, gathered[1]):
                    found.append(f"gather {shape} {dtype} {seed}")
    shard.close()
    return found


def test_collectives_of_peers_are_the_naive_ones(tmp_path: Path) -> None:
    count = torch.cuda.device_count()
    assert in_processes(count, wrong, str(tmp_path / "group")) == [[]] * count
