"""FlashInfer behind `attend`, against the reference over the same sequences in float32."""

from __future__ import annotations

import importlib.util
import random
from collections.abc import Sequence

import pytest
import torch
from torch import Tensor

from walkgraph.abi.calls import StateKey
from walkgraph.abi.states import CacheShape, Segment
from walkgraph.engine.kv.allocator import PAGE
from walkgraph.engine.kv.attention_backends import AttentionBackends
from walkgraph.engine.kv.flashinfer_attention import FlashInferAttention
from walkgraph.engine.kv.paged_attention import PagedAttention
from walkgraph.engine.kv.pool import KVPools, Pool
from walkgraph.engine.kv.states import StateTable

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU"),
    pytest.mark.skipif(importlib.util.find_spec("flashinfer") is None, reason="no FlashInfer"),
]

LAYERS, D = 2, 128
Wanted = Sequence[tuple[str, int, str]]
"""Run, new rows and mode of each segment."""


class Pair:
    """The same sequences in bfloat16, which FlashInfer serves, and in float32, which the reference serves."""

    def __init__(self, heads: int, groups: int, pages: int = 600) -> None:
        self.heads, self.groups = heads, groups
        self.generator = torch.Generator("cuda").manual_seed(heads)
        cuda = torch.device("cuda")

        def states(dtype: torch.dtype) -> StateTable:
            shape = CacheShape(layers=LAYERS, kv_heads=groups, head_dim=D, dtype=dtype)
            return StateTable(KVPools({"kv": Pool(shape, pages, cuda)}), AttentionBackends())

        self.fast, self.exact = states(torch.bfloat16), states(torch.float32)

    def forward(self, wanted: Wanted) -> None:
        """One forward of both; the outputs must agree."""
        batch = self.batch(wanted)
        self.agree(self.run(self.fast, *batch), self.run(self.exact, *batch))

    def batch(self, wanted: Wanted) -> tuple[list[Segment], list[Tensor]]:
        """Segments whose rows interleave, and a query, key and value for every layer."""
        total = sum(n for _, n, _ in wanted)
        parts = torch.randperm(total, generator=self.generator, device="cuda").split([n for _, n, _ in wanted])
        segments = [
            Segment(StateKey(run, "kv"), rows, mode)  # type: ignore[arg-type]
            for (run, _, mode), rows in zip(wanted, parts, strict=True)
        ]
        sizes = (self.heads, self.groups, self.groups) * LAYERS
        return segments, [torch.randn(total, n, D, device="cuda", generator=self.generator).bfloat16() for n in sizes]

    def run(self, states: StateTable, segments: list[Segment], numbers: list[Tensor]) -> list[Tensor]:
        transaction = states.transaction()
        attend = transaction.attend(segments)
        assert isinstance(attend, FlashInferAttention if states is self.fast else PagedAttention)
        dtype = states.pools.by_state["kv"].shape.dtype
        out = [attend(i, *(t.to(dtype) for t in numbers[3 * i : 3 * i + 3])) for i in range(LAYERS)]
        transaction.commit(attend)
        transaction.settle()
        return out

    def agree(self, fast: list[Tensor], exact: list[Tensor]) -> None:
        for mine, reference in zip(fast, exact, strict=True):
            torch.testing.assert_close(mine.float(), reference, atol=0.02, rtol=0.02)

    def fork(self, source: str, target: str) -> None:
        for states in (self.fast, self.exact):
            states.fork(StateKey(source, "kv"), StateKey(target, "kv"))


@pytest.fixture(params=[(24, 8), (28, 4), (8, 8)], ids=["3 to 1", "7 to 1", "1 to 1"])
def pair(request: pytest.FixtureRequest) -> Pair:
    return Pair(*request.param)


def test_prefill_and_then_decode(pair: Pair) -> None:
    pair.forward([("a", 300, "causal"), ("b", PAGE, "causal"), ("c", 1, "causal")])
    for _ in range(PAGE + 2):
        pair.forward([("c", 1, "causal"), ("a", 1, "causal"), ("b", 1, "causal")])


def test_a_prompt_in_parts(pair: Pair) -> None:
    for rows in (PAGE, PAGE - 1, 2, 130):
        pair.forward([("a", rows, "causal")])
    pair.forward([("a", 33, "causal"), ("b", 400, "causal")])


def test_blocks_see_the_past_and_themselves(pair: Pair) -> None:
    pair.forward([("a", 20, "causal"), ("b", 70, "block")])
    pair.forward([("a", 258, "block"), ("b", 258, "block")])


@pytest.mark.parametrize("mode", ["block", "causal"])
@pytest.mark.parametrize("sizes", [(100, 30), (258, 30), (1, 600)], ids=str)
def test_a_network_may_place_rows_itself(pair: Pair, sizes: tuple[int, int], mode: str) -> None:
    """Few, whose keys are read by pages, and many, whose keys are copied side by side."""
    pair.forward([("a", 20, "causal"), ("b", 70, "block")])
    _, numbers = pair.batch([("a", sizes[0], mode), ("b", sizes[1], mode)])
    parts = torch.arange(sum(sizes), device="cuda").split(sizes)
    segments = [
        Segment(StateKey(run, "kv"), rows, mode)  # type: ignore[arg-type]
        for run, rows in zip("ab", parts, strict=True)
    ]
    transaction = pair.fast.transaction()
    attend = transaction.attend(segments)
    placed, out = attend.placed(), []
    for layer in range(LAYERS):
        q, k, v = numbers[3 * layer : 3 * layer + 3]
        placed.k[layer][placed.slots], placed.v[layer][placed.slots] = k, v
        out.append(placed(layer, q))
    transaction.commit(attend)
    transaction.settle()
    pair.agree(out, pair.run(pair.exact, segments, numbers))
    pair.forward([("a", 1, "causal"), ("b", 1, "causal")])


def test_decode_beside_prefill_and_blocks(pair: Pair) -> None:
    pair.forward([("a", 50, "causal")])
    pair.forward([("a", 1, "causal"), ("b", 40, "causal"), ("c", 40, "block")])
    pair.forward([("a", 1, "causal"), ("c", 40, "block")])


def test_forks_read_shared_pages_and_write_their_own(pair: Pair) -> None:
    pair.forward([("a", 40, "causal")])
    pair.fork("a", "b")
    pair.forward([("a", 1, "causal"), ("b", 1, "causal")])
    pair.forward([("a", 9, "causal"), ("b", 3, "causal")])
    pair.forward([("a", 1, "causal"), ("b", 1, "causal")])


def test_many_forwards_without_waiting_for_the_device(pair: Pair) -> None:
    """Plans are made while earlier ones are still being read: more forwards than there are wrappers."""
    chance = random.Random(0)
    batches = [
        pair.batch([(run, chance.choice((1, 1, 5, 40)), "causal") for run in chance.sample("abcdefgh", 4)])
        for _ in range(40)
    ]
    fast = [pair.run(pair.fast, *batch) for batch in batches]
    exact = [pair.run(pair.exact, *batch) for batch in batches]
    for mine, reference in zip(fast, exact, strict=True):
        pair.agree(mine, reference)


def test_rows_that_are_not_kept_take_the_reference() -> None:
    pair = Pair(24, 8)
    pair.forward([("a", 40, "causal")])
    scratch = Segment(StateKey("a", "kv"), torch.arange(3, device="cuda"), "block", keep=False)
    assert isinstance(pair.fast.transaction().attend([scratch]), PagedAttention)
