"""A captured prefix gives the same results as a plain one, on a CPU, where a capture is just run again."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest
import torch
from torch import Tensor

from walkgraph.abi.states import CacheShape, CausalRows
from walkgraph.engine.kv.allocator import PAGE, pages_for
from walkgraph.engine.kv.pool import Pool
from walkgraph.layers.attention.dense_attention import dense_attention
from walkgraph.layers.attention.packed_blocks import PackedBlocks
from walkgraph.models.pi05.model import Pi05
from walkgraph.models.pi05.operators import random_pi05
from walkgraph.models.pi05.prefix import MOST, Prefixes, PrefixRows
from walkgraph.models.pi05.presets import PI05

CPU = torch.device("cpu")
CONFIG = PI05["pi05-tiny"]
CLOSE = {"rtol": 1e-4, "atol": 1e-5}


def run_again(work: Callable[[], None], what: str) -> Callable[[], None]:
    return work


@pytest.fixture(scope="module")
def model() -> Pi05:
    return random_pi05(CONFIG, 3, device=CPU, dtype=torch.float32)


def drawn(seed: int, *size: int) -> Tensor:
    return torch.randn(size, generator=torch.Generator().manual_seed(seed))


def pool_and_rows(counts: Sequence[int]) -> tuple[Pool, CausalRows]:
    shape = CacheShape(layers=CONFIG.layers, kv_heads=1, head_dim=CONFIG.head_dim, dtype=torch.float32)
    pool = Pool(shape, sum(map(pages_for, counts)), CPU)
    first, slots = 1, list[Tensor]()
    for count in counts:
        slots.append(torch.arange(first * PAGE, first * PAGE + count))
        first += pages_for(count)
    rows = CausalRows(pool.k, pool.v, torch.cat(slots), pool.spare * PAGE, counts, [0] * len(counts), [])
    return pool, rows


@pytest.mark.parametrize("counts", [(5,), (128,), (40, 3, 90), (1, 1), (700, 700, 650), (2,) * (MOST + 1)])
def test_prefixes_of_any_lengths_share_a_graph(model: Pi05, counts: tuple[int, ...]) -> None:
    captured = Prefixes(PrefixRows(model), run_again)
    pool, to = pool_and_rows(counts)
    # Another one before it leaves nothing behind.
    for seed in (1, 2):
        x = drawn(seed, sum(counts), CONFIG.prefix.width)
        assert captured.read(x.clone(), to)
        slots = to.slots.split(counts)
        for mine, places in zip(x.split(counts), slots, strict=True):
            wanted = model.read(mine[None]).kv
            for layer, (k, v) in enumerate(wanted):
                torch.testing.assert_close(pool.k[layer][places], k[0], **CLOSE)
                torch.testing.assert_close(pool.v[layer][places], v[0], **CLOSE)
    kept = torch.ones(len(pool.k[0]), dtype=torch.bool)
    kept[to.slots] = False
    kept[to.spare :] = False
    assert not pool.k[0][kept].any()


def test_what_no_graph_is_made_for_is_left_to_others(model: Pi05) -> None:
    x = drawn(1, 4, CONFIG.prefix.width)
    _, to = pool_and_rows((4,))
    assert not Prefixes(PrefixRows(model), None).read(x, to)
    assert not Prefixes(PrefixRows(model), run_again).read(x, None)


@pytest.mark.parametrize("groups", [1, 2])
def test_blocks_see_themselves_alone(groups: int) -> None:
    counts, width = (3, 0, 5, 1), 8
    q, k, v = drawn(1, 11, 4, width), drawn(2, 11, groups, width), drawn(3, 11, groups, width)
    bounds = torch.tensor([0, 3, 3, 8, 9, 9], dtype=torch.int32)
    found = PackedBlocks(bounds, 11, 4)(q, k, v)
    first = 0
    for count in counts:
        mine = slice(first, first + count)
        if count:
            wanted = dense_attention(q[None, mine], k[None, mine], v[None, mine])[0]
            torch.testing.assert_close(found[mine], wanted, **CLOSE)
        first += count
