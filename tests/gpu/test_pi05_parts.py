"""On a GPU, in bfloat16: robots that share a launch get the same results as alone, for each part of pi0.5.

Where robots that act at once act otherwise than alone (`test_pi05`), these tell which part of it differs.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

import pytest
import torch
from torch import Tensor

from tests.gpu.test_pi05 import WIDE, distance
from walkgraph.abi.states import CacheShape, CausalRows
from walkgraph.engine.device.capture import Capturer
from walkgraph.engine.kv.allocator import PAGE, pages_for
from walkgraph.engine.kv.dense_context import ContextSequence, DenseContext, capacity_for
from walkgraph.engine.kv.pool import Pool
from walkgraph.layers.flow.flow_head import FlowInterval
from walkgraph.models.pi05.expert import ExpertRows
from walkgraph.models.pi05.model import Pi05
from walkgraph.models.pi05.operators import random_pi05
from walkgraph.models.pi05.prefix import Prefixes, PrefixRows

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU"),
]
DEVICE = torch.device("cuda")
ROUNDED = 0.02
"""Relative distance: products of other sizes are summed in other orders, and rounded to bfloat16."""


@cache
def model(dtype: torch.dtype = torch.bfloat16) -> Pi05:
    return random_pi05(WIDE, 3, device=DEVICE, dtype=dtype)


def drawn(seed: int, *size: int) -> Tensor:
    return torch.randn(size, generator=torch.Generator().manual_seed(seed)).to(DEVICE)


def held(counts: Sequence[int], dtype: torch.dtype) -> tuple[Pool, list[ContextSequence]]:
    """A pool of noise, and sequences in it."""
    shape = CacheShape(layers=WIDE.layers, kv_heads=WIDE.kv_heads, head_dim=WIDE.head_dim, dtype=dtype)
    pool, first, found = Pool(shape, sum(map(pages_for, counts)), DEVICE), 1, list[ContextSequence]()
    for number, cache_ in enumerate((*pool.k, *pool.v)):
        cache_.copy_(drawn(number, *cache_.shape))
    for number, count in enumerate(counts):
        found.append(ContextSequence(range(first, first + pages_for(count)), count, count, number))
        first += pages_for(count)
    return pool, found


@pytest.mark.parametrize("count", [2, 8, 12])
def test_pictures_seen_at_once_are_as_alone(count: int) -> None:
    pixels = drawn(1, count, 3, WIDE.picture, WIDE.picture).clamp(-1, 1)
    with torch.inference_mode():
        together = model().see(pixels)
        off = [distance(together[at], model().see(pixels[at : at + 1])[0]) for at in range(count)]
    assert max(off) < ROUNDED, off


@pytest.mark.parametrize("counts", [(70, 70, 70), (86, 102, 118, 86, 102, 118), (5, 300, 40)])
def test_prefixes_read_at_once_are_as_alone(counts: tuple[int, ...]) -> None:
    """Keys and values of every layer and run, beside the plain network in float32."""
    pool, rows = held(counts, torch.bfloat16)
    slots = [torch.arange(row.pages[0] * PAGE, row.pages[0] * PAGE + row.length, device=DEVICE) for row in rows]
    to = CausalRows(pool.k, pool.v, torch.cat(slots), pool.spare * PAGE, counts, [0] * len(counts), [])
    x = drawn(2, sum(counts), WIDE.prefix.width)
    with torch.inference_mode():
        assert Prefixes(PrefixRows(model()), Capturer(DEVICE)).read(x.bfloat16(), to)
        wanted = [model(torch.float32).read(mine[None]).kv for mine in x.split(counts)]
    off = {
        f"{name} of layer {layer}, run {run}": distance(cache_[layer][places], kv[layer][which][0])
        for run, (places, kv) in enumerate(zip(slots, wanted, strict=True))
        for layer in range(WIDE.layers)
        for which, (name, cache_) in enumerate((("keys", pool.k), ("values", pool.v)))
    }
    assert max(off.values()) < 2 * ROUNDED, off


@pytest.mark.parametrize("tokens", [15, 50])
@pytest.mark.parametrize("counts", [(70, 86), (118, 86, 102), (86, 102, 118, 86, 102, 118)])
def test_flow_steps_at_once_are_as_alone(counts: tuple[int, ...], tokens: int) -> None:
    """Rows after contexts of other lengths, at other times, in a batch that others pad."""
    pool, rows = held(counts, torch.bfloat16)
    batch, expert = 1 << (len(counts) - 1).bit_length(), ExpertRows(model())
    # Columns of one table, as numbers that differ by iteration are given.
    times = torch.rand(batch, 3, generator=torch.Generator().manual_seed(5)).to(DEVICE)
    actions = drawn(6, batch, tokens, WIDE.action_width)
    with torch.inference_mode():
        table = expert.tables(times[:, 1])

        def moved(mine: slice, some: Sequence[ContextSequence], size: int) -> Tensor:
            room = DenseContext(pool, size, tokens, capacity_for([row.length for row in some], size, tokens))
            room.place(some)
            return (
                expert.step(actions[mine], table[mine], FlowInterval(*times[mine, 1:].unbind(1)), room) - actions[mine]
            )

        together = moved(slice(None), rows, batch)
        off = [distance(together[at], moved(slice(at, at + 1), [row], 1)[0]) for at, row in enumerate(rows)]
    assert max(off) < ROUNDED, off
