"""Groups of one host: the same bits on every shard, and typed errors where a shard is missing or makes other calls."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import reduce
from pathlib import Path

import pytest
import torch
from torch import Tensor

from tests.support.shards import in_threads
from walkgraph.collectives.base import WHOLE, OutOfStep, Shard, ShardLost
from walkgraph.collectives.host import HostShard
from walkgraph.collectives.joining import join
from walkgraph.transports.base import ALIGN

SMALL = ALIGN + 2 * 256
"""A region that takes 256 bytes at a time."""
DTYPES = (torch.float32, torch.bfloat16, torch.float16, torch.int64)
SHAPES = ((3, 5), (0, 4), (7,), (2, 3, 11), (40, 30))


def part(index: int, shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
    numbers = torch.randn(shape, generator=torch.Generator().manual_seed(index)) * 100
    return numbers.to(dtype)


def naive_sum(parts: list[Tensor]) -> Tensor:
    wide = torch.int64 if parts[0].dtype == torch.int64 else torch.float32
    return reduce(torch.add, (one.to(wide) for one in parts)).to(parts[0].dtype)


@pytest.mark.parametrize("count", [2, 3, 4])
@pytest.mark.parametrize("dtype", DTYPES)
def test_sums_and_concatenations_are_the_naive_ones_on_every_shard(
    tmp_path: Path, count: int, dtype: torch.dtype
) -> None:
    def work(shard: Shard) -> list[Tensor]:
        own = [part(shard.index, shape, dtype) for shape in SHAPES]
        return [found for x in own for found in (shard.sum(x), shard.gather(x), shard.gather(x, 0))]

    every = in_threads(tmp_path / "group", count, work, nbytes=SMALL)
    for at, shape in enumerate(SHAPES):
        parts = [part(index, shape, dtype) for index in range(count)]
        for found in every:
            assert torch.equal(found[3 * at], naive_sum(parts)), (shape, "summed")
            assert torch.equal(found[3 * at + 1], torch.cat(parts, -1)), (shape, "gathered")
            assert torch.equal(found[3 * at + 2], torch.cat(parts, 0)), (shape, "gathered, first dimension")


def test_a_transposed_part_is_read_as_it_is_seen(tmp_path: Path) -> None:
    x = torch.arange(12).view(3, 4)
    for found in in_threads(tmp_path / "group", 2, lambda shard: shard.sum(x.mT)):
        assert torch.equal(found, 2 * x.mT)


def test_a_group_of_one_returns_what_it_gets(tmp_path: Path) -> None:
    x, shard = torch.ones(3), join(tmp_path / "group", 0, 1, torch.device("cpu"))
    assert shard is WHOLE
    assert shard.sum(x) is shard.gather(x) is x
    shard.close()


def test_results_are_the_callers_own(tmp_path: Path) -> None:
    def work(shard: Shard) -> tuple[Tensor, Tensor]:
        x = torch.full((4,), float(shard.index))
        first = shard.sum(x)
        x += 10
        return first, shard.sum(x)

    for first, second in in_threads(tmp_path / "group", 2, work):
        assert (first.tolist(), second.tolist()) == ([1.0] * 4, [21.0] * 4)


Calls = tuple[Callable[[Shard], Tensor], Callable[[Shard], Tensor]]


@pytest.mark.parametrize(
    "calls",
    [
        (lambda shard: shard.sum(torch.ones(2)), lambda shard: shard.gather(torch.ones(2))),
        (lambda shard: shard.sum(torch.ones(2)), lambda shard: shard.sum(torch.ones(3))),
        (lambda shard: shard.sum(torch.ones(2)), lambda shard: shard.sum(torch.ones(1, dtype=torch.int64))),
    ],
)
def test_different_calls_are_refused_on_both_sides(tmp_path: Path, calls: Calls) -> None:
    def work(shard: Shard) -> None:
        with pytest.raises(OutOfStep, match="different calls"):
            calls[shard.index](shard)
        with pytest.raises(ShardLost, match="has left its group"):
            shard.sum(torch.ones(2))

    in_threads(tmp_path / "group", 2, work)


def test_a_shard_that_leaves_ends_the_others_wait(tmp_path: Path) -> None:
    def work(shard: Shard) -> None:
        shard.sum(torch.ones(1))
        if shard.index == 1:
            shard.close()
            return
        with pytest.raises(ShardLost, match=r"shard [012] of a group was lost"):
            shard.sum(torch.ones(1))

    in_threads(tmp_path / "group", 3, work)


def test_a_shard_that_does_not_come_is_not_waited_for_without_end(tmp_path: Path) -> None:
    with pytest.raises(ShardLost, match=r"did not answer within 0\.01 s"):
        HostShard(tmp_path / "group", 0, 2, patience=0.01)


def test_regions_of_other_sizes_are_refused(tmp_path: Path) -> None:
    def work(index: int) -> None:
        with pytest.raises(OutOfStep, match="bytes to share"):
            HostShard(tmp_path / "group", index, 2, nbytes=SMALL * (1 + index))

    with ThreadPoolExecutor(2) as pool:
        list(pool.map(work, range(2)))


def test_nothing_is_left_of_a_groups_pipes(tmp_path: Path) -> None:
    in_threads(tmp_path / "group", 3, lambda shard: shard.sum(torch.ones(1)))
    assert list(tmp_path.iterdir()) == []
