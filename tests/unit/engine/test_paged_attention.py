"""Paged against contiguous: every sequence alone, its keys and values in one tensor."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field

import pytest
import torch
from torch import Tensor

from walkgraph.abi.calls import StateKey
from walkgraph.abi.states import CacheShape, Segment
from walkgraph.engine.kv.allocator import PageFault
from walkgraph.engine.kv.attention_backends import AttentionBackends
from walkgraph.engine.kv.paged_attention import PaddedContexts
from walkgraph.engine.kv.pool import KVPools, Pool
from walkgraph.engine.kv.states import StateTable
from walkgraph.engine.kv.transfer import StateTransfer
from walkgraph.layers.attention.dense_attention import causal_mask, dense_attention

LAYERS, H, G, D = 2, 4, 2, 8
SHAPE = CacheShape(layers=LAYERS, kv_heads=G, head_dim=D, dtype=torch.float32)


@dataclass
class Alone:
    """The naive twin of one sequence."""

    k: list[Tensor] = field(default_factory=lambda: [torch.empty(0, G, D)] * LAYERS)
    v: list[Tensor] = field(default_factory=lambda: [torch.empty(0, G, D)] * LAYERS)

    def attend(self, layer: int, q: Tensor, k: Tensor, v: Tensor, mode: str, *, keep: bool) -> Tensor:
        past = self.k[layer].shape[0]
        keys, values = torch.cat([self.k[layer], k]), torch.cat([self.v[layer], v])
        mask = causal_mask(q.shape[0], past)[:, None] if mode == "causal" else None
        out = dense_attention(q[None], keys[None], values[None], mask)[0]
        if keep:
            self.k[layer], self.v[layer] = keys, values
        return out

    def fork(self) -> Alone:
        return Alone(list(self.k), list(self.v))


def table(pages: int = 400) -> StateTable:
    return StateTable(KVPools({"kv": Pool(SHAPE, pages, torch.device("cpu"))}), AttentionBackends())


def segments_of(
    wanted: Sequence[tuple[StateKey, int, str, bool]], generator: torch.Generator | None = None
) -> list[Segment]:
    """Rows of the segments interleave in a random order, as split batches do."""
    total = sum(n for _, n, _, _ in wanted)
    rows = torch.randperm(total, generator=generator) if generator else torch.arange(total)
    parts = rows.split([n for _, n, _, _ in wanted])
    return [
        Segment(state=key, rows=mine, mode=mode, keep=keep, advance=n if mode == "causal" else 1)  # type: ignore[arg-type]
        for (key, n, mode, keep), mine in zip(wanted, parts, strict=True)
    ]


def forward(states: StateTable, segments: Sequence[Segment], numbers: Sequence[tuple[Tensor, ...]]) -> list[Tensor]:
    transaction = states.transaction()
    attend = transaction.attend(segments)
    out = [attend(layer, *qkv) for layer, qkv in enumerate(numbers)]
    transaction.commit(attend)
    transaction.settle()
    return out


def qkv(rows: int, generator: torch.Generator) -> list[tuple[Tensor, ...]]:
    return [tuple(torch.randn(rows, n, D, generator=generator) for n in (H, G, G)) for _ in range(LAYERS)]


@pytest.mark.parametrize("seed", range(12))
def test_ragged_batches_with_forks_and_scratch_are_as_if_alone(seed: int) -> None:
    chance, generator = random.Random(seed), torch.Generator().manual_seed(seed)
    states, twins = table(), {StateKey(f"r{i}", "kv"): Alone() for i in range(4)}
    for _ in range(12):
        if chance.random() < 0.4:
            source, target = chance.sample(list(twins), 2)
            states.fork(source, target)
            twins[target] = twins[source].fork()
        chosen = chance.sample(list(twins), chance.randint(1, len(twins)))
        most = chance.choice([1, 4, 20, 70])
        wanted = [
            (key, chance.randint(1, most), chance.choice(["causal", "block"]), chance.random() < 0.6) for key in chosen
        ]
        segments = segments_of(wanted, generator)
        numbers = qkv(sum(n for _, n, _, _ in wanted), generator)
        got = forward(states, segments, numbers)
        for segment in segments:
            for layer, (q, k, v) in enumerate(numbers):
                own = (t[segment.rows] for t in (q, k, v))
                want = twins[segment.state].attend(layer, *own, segment.mode, keep=segment.keep)
                torch.testing.assert_close(got[layer][segment.rows], want, rtol=1e-5, atol=1e-5)
        states.audit()
    for key in twins:
        states.drop_run(key.run)
    pool = states.pools.by_state["kv"]
    assert pool.pages.free == pool.pages.total


@pytest.mark.parametrize("modes", [("block", "block"), ("causal", "causal"), ("causal", "block")])
def test_what_is_kept_is_what_was_appended(modes: tuple[str, str]) -> None:
    generator, states = torch.Generator().manual_seed(0), table()
    keys = [StateKey(run, "kv") for run in "ab"]
    wanted = [(key, n, mode, True) for key, n, mode in zip(keys, (21, 5), modes, strict=True)]
    segments, numbers = segments_of(wanted, generator), qkv(26, generator)
    forward(states, segments, numbers)
    for segment in segments:
        kept = StateTransfer(states).export(segment.state)["kv.0"]
        for layer, (_, k, v) in enumerate(numbers):
            assert torch.equal(kept[0, layer], k[segment.rows])
            assert torch.equal(kept[1, layer], v[segment.rows])


def test_an_unchanged_context_is_gathered_once(monkeypatch: pytest.MonkeyPatch) -> None:
    generator, states = torch.Generator().manual_seed(1), table()
    key, twin = StateKey("a", "kv"), Alone()
    pool, reads = states.pools.by_state["kv"], []
    first = segments_of([(key, 20, "causal", True)])
    numbers = qkv(20, generator)
    forward(states, first, numbers)
    for layer, one in enumerate(numbers):
        twin.attend(layer, *one, "causal", keep=True)
    scratch = segments_of([(key, 6, "block", False)])
    for step in range(4):
        if step == 2:  # an append between two scratch blocks must be seen by the later one
            one = qkv(3, generator)
            forward(states, segments_of([(key, 3, "causal", True)]), one)
            for layer, each in enumerate(one):
                twin.attend(layer, *each, "causal", keep=True)
        numbers = qkv(6, generator)
        transaction = states.transaction()
        attend = transaction.attend(scratch)
        reads.append(attend._groups[0])
        for layer, one in enumerate(numbers):
            want = twin.attend(layer, *one, "block", keep=False)
            torch.testing.assert_close(attend(layer, *one), want, rtol=1e-5, atol=1e-5)
        transaction.settle()
    assert reads[0] is reads[1]
    assert reads[2] is reads[3]
    assert reads[1] is not reads[2]
    assert pool.pages.free == pool.pages.total - 2


def test_kept_contexts_stay_within_their_budget() -> None:
    generator = torch.Generator().manual_seed(2)
    one_group = 2 * LAYERS * (16 + 2) * G * D * 4
    contexts = PaddedContexts(budget=2 * one_group)
    states = StateTable(KVPools({"kv": Pool(SHAPE, 64, torch.device("cpu"))}), AttentionBackends(contexts))
    for run in range(5):
        key = StateKey(str(run), "kv")
        forward(states, segments_of([(key, 16, "causal", True)]), qkv(16, generator))
        forward(states, segments_of([(key, 2, "block", False)]), qkv(2, generator))
    assert len(contexts._groups) == 2
    assert contexts._used == sum(group.bytes for group in contexts._groups.values()) == 2 * one_group
    contexts.clear()
    assert (len(contexts._groups), contexts._used) == (0, 0)


def test_numbers_of_another_run_never_leak_through_padding() -> None:
    """A failed run may leave NaN in pages that are freed, and in its own rows of a shared batch."""
    generator, states = torch.Generator().manual_seed(3), table(pages=4)
    bad, good, longer = (StateKey(run, "kv") for run in ("bad", "good", "longer"))
    poison = [tuple(torch.full_like(t, float("nan")) for t in one) for one in qkv(60, generator)]
    forward(states, segments_of([(bad, 60, "block", True)]), poison)
    states.drop_run("bad")
    forward(states, segments_of([(good, 5, "causal", True), (longer, 40, "causal", True)]), qkv(45, generator))
    for n in (3, 9):
        wanted = [(bad, 9, "block", False), (good, n, "causal", False), (longer, 2, "block", False)]
        segments, numbers = segments_of(wanted, generator), qkv(11 + n, generator)
        for one in numbers:
            for t in one:
                t[segments[0].rows] = float("nan")
        for out in forward(states, segments, numbers):
            assert out[torch.cat([segments[1].rows, segments[2].rows])].isfinite().all()


def test_one_forward_appends_to_a_sequence_once_and_to_one_shape() -> None:
    key = StateKey("a", "kv")
    states = table()
    with pytest.raises(PageFault, match="once"):
        states.transaction().attend(segments_of([(key, 1, "causal", True), (key, 2, "causal", True)]))
    with pytest.raises(PageFault, match="`other`"):
        states.transaction().attend(segments_of([(StateKey("a", "other"), 1, "causal", True)]))
    transaction = states.transaction()
    with pytest.raises(PageFault, match="attend"):
        transaction.commit(lambda layer, q, k, v: q)


def test_half_precision_caches_answer_in_the_rows_type() -> None:
    generator = torch.Generator().manual_seed(4)
    shape = CacheShape(layers=1, kv_heads=G, head_dim=D, dtype=torch.bfloat16)
    states = StateTable(KVPools({"kv": Pool(shape, 8, torch.device("cpu"))}), AttentionBackends())
    numbers = qkv(7, generator)[:1]
    [out] = forward(states, segments_of([(StateKey("a", "kv"), 7, "block", True)]), numbers)
    assert out.dtype == torch.float32
    torch.testing.assert_close(out, Alone().attend(0, *numbers[0], "block", keep=False), rtol=0.05, atol=0.05)
