"""On a GPU: rooms within a captured graph, against every sequence alone in float32."""

from __future__ import annotations

import importlib.util
import random
from collections.abc import Callable, Sequence

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from walkgraph.abi.states import CacheShape
from walkgraph.engine.device.capture import Capturer
from walkgraph.engine.kv import flashinfer_dense
from walkgraph.engine.kv.allocator import PAGE, pages_for
from walkgraph.engine.kv.dense_context import ContextSequence, DenseContext, capacity_for
from walkgraph.engine.kv.pool import Pool

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU"),
]

LAYERS, D = 2, 128
CUDA = torch.device("cuda")


class World:
    """Sequences with scattered pages, and what a captured step over a room gives for each row."""

    def __init__(self, lengths: Sequence[int], heads: int = 28, groups: int = 4, dtype: torch.dtype = torch.bfloat16):
        self.generator = torch.Generator(CUDA).manual_seed(len(lengths))
        self.heads, self.groups, self.dtype = heads, groups, dtype
        shape = CacheShape(layers=LAYERS, kv_heads=groups, head_dim=D, dtype=dtype)
        self.pool = Pool(shape, sum(pages_for(n) for n in lengths), CUDA)
        pages = iter((torch.randperm(self.pool.pages.total) + 1).tolist())
        self.held = [
            ContextSequence([next(pages) for _ in range(pages_for(n))], n, i + n, i) for i, n in enumerate(lengths)
        ]
        for cache in (*self.pool.k, *self.pool.v):
            cache.normal_(generator=self.generator)

    def room(self, batch: int, tokens: int, capacity: int) -> Stage:
        return Stage(self, DenseContext(self.pool, batch, tokens, capacity))

    def context(self, layer: int, row: ContextSequence | None) -> tuple[Tensor, Tensor]:
        slots = [row.pages[i // PAGE] * PAGE + i % PAGE for i in range(row.length)] if row else []
        index = torch.tensor(slots, dtype=torch.int64, device=CUDA)
        return self.pool.k[layer][index], self.pool.v[layer][index]


class Stage:
    """A room, and a step of all layers over it on tensors that stay."""

    def __init__(self, world: World, room: DenseContext) -> None:
        self.world, self.room = world, room
        rows = room.batch * room.tokens
        sizes = (world.heads, world.groups, world.groups)
        self.numbers = [[torch.zeros(rows, n, D, dtype=world.dtype, device=CUDA) for n in sizes] for _ in range(LAYERS)]
        self.out = [torch.zeros_like(q) for q, _, _ in self.numbers]
        self.positions = torch.zeros_like(room.positions)

    def work(self) -> None:
        room = self.room
        self.positions.copy_(room.positions)
        for layer, (q, k, v) in enumerate(self.numbers):
            room.k[layer].index_copy_(0, room.slots, k)
            room.v[layer].index_copy_(0, room.slots, v)
            self.out[layer].copy_(room(layer, q))

    def draw(self) -> None:
        for tensor in (tensor for layer in self.numbers for tensor in layer):
            tensor.normal_(generator=self.world.generator)

    def step(self, replay: Callable[[], None], rows: Sequence[ContextSequence]) -> None:
        self.draw()
        replay()
        self.check(rows)

    def check(self, rows: Sequence[ContextSequence], broken: int = -1) -> None:
        n = self.room.tokens
        padded = [*rows, *[None] * (self.room.batch - len(rows))]
        assert self.positions.tolist() == [row.position if row else 0 for row in padded]
        for layer, (q, k, v) in enumerate(self.numbers):
            for i, row in enumerate(padded):
                own = slice(i * n, (i + 1) * n)
                past_k, past_v = self.world.context(layer, row)
                keys, values = torch.cat([past_k, k[own]]), torch.cat([past_v, v[own]])
                if i != broken:
                    torch.testing.assert_close(
                        self.out[layer][own].float(), alone(q[own], keys, values), atol=0.02, rtol=0.02
                    )


def alone(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    q, k, v = (tensor.float().transpose(0, 1)[None] for tensor in (q, k, v))
    with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):
        return F.scaled_dot_product_attention(q, k, v, enable_gqa=True)[0].transpose(0, 1)


@pytest.fixture
def captures() -> bool:
    if importlib.util.find_spec("flashinfer") is None or torch.cuda.get_device_capability()[0] != 9:
        pytest.skip("no kernel that a graph can hold")
    return True


@pytest.mark.parametrize(("heads", "groups"), [(28, 4), (8, 8)])
@pytest.mark.parametrize("tokens", [1, 50, 130, 258])
def test_a_graph_serves_whatever_lies_in_the_room(captures: bool, heads: int, groups: int, tokens: int) -> None:
    chance = random.Random(tokens)
    world = World([0, 1, 32, 190, 192, 700, 1300], heads, groups)
    stage = world.room(3, tokens, capacity_for([1300, 700, 192], 3, tokens))
    assert stage.room.captures is captures
    replay = Capturer(CUDA)(stage.work, "a step")
    assert replay != stage.work
    stage.step(replay, [])
    for _ in range(8):
        rows = chance.sample(world.held, chance.randint(0, 3))
        stage.room.place(rows)
        for _ in range(2):
            stage.step(replay, rows)


def test_placements_do_not_wait_for_each_other(captures: bool) -> None:
    """Plans are made while steps before them are still to run."""
    assert captures
    world = World([40 * i for i in range(12)])
    stage = world.room(2, 258, 4000)
    replay = Capturer(CUDA)(stage.work, "a step")
    stage.draw()
    found: list[list[Tensor]] = []
    chosen = [random.Random(i).sample(world.held, 2) for i in range(30)]
    for rows in chosen:
        stage.room.place(rows)
        replay()
        found.append([out.clone() for out in (*stage.out, stage.positions)])
    for rows, (*outs, positions) in zip(chosen, found, strict=True):
        stage.out, stage.positions = outs, positions
        stage.check(rows)


def test_a_broken_run_breaks_no_other(captures: bool) -> None:
    """Row 1 has no context, so that its block is the next thing behind row 0's."""
    assert captures
    world = World([100, 0, 5])
    stage = world.room(3, 130, 1000)
    stage.room.place(world.held)
    replay = Capturer(CUDA)(stage.work, "a step")
    stage.draw()
    for tensors in stage.numbers:
        for tensor in tensors:
            tensor[130:260] = torch.nan
    replay()
    stage.check(world.held, broken=1)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_without_that_kernel_rows_are_attended_one_by_one(dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flashinfer_dense, "installed", lambda: False)
    world = World([0, 33, 500], dtype=dtype)
    stage = world.room(4, 130, 1200)
    assert not stage.room.captures
    for rows in (world.held, world.held[1:], []):
        stage.room.place(rows)
        stage.step(stage.work, rows)
