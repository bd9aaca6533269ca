"""Rooms of dense keys against every sequence alone."""

from __future__ import annotations

import os
import random
from collections.abc import Sequence
from pathlib import Path

import pytest
import torch
from torch import Tensor

from walkgraph.abi.states import CacheShape
from walkgraph.engine.kv.allocator import PAGE, PageFault, pages_for
from walkgraph.engine.kv.dense_context import GAP, ContextSequence, DenseContext, capacity_for, dense_context_bytes
from walkgraph.engine.kv.pool import Pool
from walkgraph.layers.attention.dense_attention import dense_attention

LAYERS, H, G, D = 2, 4, 2, 8
SHAPE = CacheShape(layers=LAYERS, kv_heads=G, head_dim=D, dtype=torch.float32)
STATM = Path("/proc/self/statm")


def resident() -> int:
    """Bytes of this process that are in memory."""
    return int(STATM.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


class World:
    """A pool of sequences with scattered pages, and what is known of each."""

    def __init__(self, lengths: Sequence[int], seed: int = 0) -> None:
        self.generator = torch.Generator().manual_seed(seed)
        self.pool = Pool(SHAPE, sum(pages_for(n) for n in lengths), torch.device("cpu"))
        order = torch.randperm(self.pool.pages.total, generator=self.generator) + 1
        parts = order.split([pages_for(n) for n in lengths])
        self.held = [
            ContextSequence(pages.tolist(), n, 10 * i + n, i)
            for i, (n, pages) in enumerate(zip(lengths, parts, strict=True))
        ]
        for cache in (*self.pool.k, *self.pool.v):
            cache.copy_(self.randn(*cache.shape))

    def randn(self, *size: int) -> Tensor:
        return torch.randn(size, generator=self.generator)

    def context(self, layer: int, row: ContextSequence | None) -> tuple[Tensor, Tensor]:
        if row is None:
            return torch.empty(0, G, D), torch.empty(0, G, D)
        slots = [row.pages[i // PAGE] * PAGE + i % PAGE for i in range(row.length)]
        return self.pool.k[layer][slots], self.pool.v[layer][slots]

    def step(self, room: DenseContext, rows: Sequence[ContextSequence]) -> None:
        """One step over the room, every layer; each row must be as if alone."""
        n = room.tokens
        padded = [*rows, *[None] * (room.batch - len(rows))]
        assert room.positions.tolist() == [row.position if row else 0 for row in padded]
        for layer in range(LAYERS):
            q, k, v = (self.randn(room.batch * n, heads, D) for heads in (H, G, G))
            room.k[layer][room.slots], room.v[layer][room.slots] = k, v
            out = room(layer, q)
            for i, row in enumerate(padded):
                own = slice(i * n, (i + 1) * n)
                past_k, past_v = self.context(layer, row)
                keys, values = torch.cat([past_k, k[own]]), torch.cat([past_v, v[own]])
                alone = dense_attention(q[own][None], keys[None], values[None])[0]
                torch.testing.assert_close(out[own], alone)


def test_rows_see_their_context_and_their_block() -> None:
    world = World([0, 1, PAGE, 37, 5])
    room = DenseContext(world.pool, 5, 7, capacity_for([row.length for row in world.held], 5, 7))
    room.place(world.held)
    for _ in range(2):
        world.step(room, world.held)


@pytest.mark.parametrize("seed", range(6))
def test_rows_change_between_steps(seed: int) -> None:
    chance = random.Random(seed)
    world = World([0, 3, 16, 20, 33, 64, 65], seed)
    room = DenseContext(world.pool, 3, 5, 3 * (65 + 5))
    at = {id(tensor): tensor.data_ptr() for tensor in (room.slots, room.positions, *room.k, *room.v)}
    for _ in range(10):
        rows = chance.sample(world.held, chance.randint(0, 3))
        room.place(rows)
        world.step(room, rows)
    assert {id(tensor): tensor.data_ptr() for tensor in (room.slots, room.positions, *room.k, *room.v)} == at


def test_a_new_room_steps_rows_of_padding() -> None:
    world = World([4])
    world.step(DenseContext(world.pool, 2, 3, 20), [])


@pytest.mark.skipif(not STATM.exists(), reason="only Linux tells how much memory is resident")
def test_a_new_room_on_a_cpu_takes_only_the_memory_that_is_written() -> None:
    world = World([4])
    capacity = capacity_for([4096] * 64, 64, 3)
    whole = dense_context_bytes(SHAPE, 64, 3, capacity)
    before = resident()
    room = DenseContext(world.pool, 64, 3, capacity)
    assert resident() - before < whole / 8
    room.place(world.held)
    world.step(room, world.held)


def test_rows_may_share_a_context() -> None:
    world = World([21, 40])
    twin = world.held[0]._replace(position=5)
    room = DenseContext(world.pool, 3, 4, 200)
    room.place([world.held[0], twin, world.held[1]])
    world.step(room, [world.held[0], twin, world.held[1]])


def test_contexts_that_stay_are_not_read_again() -> None:
    world = World([21, 40, 21])
    a, b, c = world.held
    room = DenseContext(world.pool, 3, 4, 200)
    room.place([a, b])
    for cache in (*world.pool.k, *world.pool.v):
        cache[torch.tensor([page * PAGE + i for page in a.pages for i in range(PAGE)])] = torch.inf
    room.place([a, b, c])
    room.place([a, c])
    assert all(cache.isfinite().all() for cache in (*room.k, *room.v))
    room.place([c, a])
    assert not room.k[0].isfinite().all(), "a context that moved is read from its pages"


def test_what_a_content_becomes_is_read() -> None:
    world = World([21])
    (held,) = world.held
    room = DenseContext(world.pool, 1, 4, 60)
    room.place([held])
    for cache in (*world.pool.k, *world.pool.v):
        cache.mul_(2)
    changed = held._replace(content="changed")
    room.place([changed])
    world.step(room, [changed])


def test_nothing_of_other_runs_lies_behind_a_block() -> None:
    """Neither of the rows before nor of one whose numbers are broken: a kernel may read a tile past the end."""
    world = World([3, 50, 7])
    room = DenseContext(world.pool, 2, 4, 110)
    room.place([world.held[1], world.held[1]])
    for v in room.v:
        v.fill_(torch.nan)
    room.place([world.held[0], world.held[2]])
    for row, stop in enumerate((3 + 4, 3 + 4 + GAP + 7 + 4)):
        assert int(room.slots[4 * row + 3]) == stop - 1
        for v in room.v:
            assert not v[stop : stop + GAP].any()


def test_what_does_not_fit_is_refused() -> None:
    world = World([30, 30, 30])
    room = DenseContext(world.pool, 2, 5, 70)
    assert room.fits(world.held[:2])
    assert not room.fits(world.held)
    assert not room.fits([world.held[0]._replace(length=61)])
    with pytest.raises(PageFault, match="fit a dense context of 2 rows and 70 tokens"):
        room.place(world.held)


def test_few_capacities_hold_all_lengths() -> None:
    chance = random.Random(0)
    batches = [[chance.randint(0, 20000) for _ in range(chance.randint(1, 3))] for _ in range(300)]
    sizes = [capacity_for(lengths, 3, 4098) for lengths in batches]
    assert all(size >= sum(lengths) + 3 * 4098 for size, lengths in zip(sizes, batches, strict=True))
    assert len(set(sizes)) <= 7
    assert capacity_for([0, 0], 2, 10) == 2 * (128 + 10)
    assert capacity_for([32, 13000, 13000], 3, 4098) == 3 * (9216 + 4098)


def test_bytes_are_told() -> None:
    world = World([10])
    room = DenseContext(world.pool, 3, 5, 100)
    held = sum(cache.numel() * cache.itemsize for cache in (*room.k, *room.v, room.slots, room.positions))
    assert held <= dense_context_bytes(SHAPE, 3, 5, 100) <= held + (9 << 20)
