"""The forwards that FlashInfer serves, and their layout arrays, without a GPU."""

import pytest
import torch

from walkgraph.abi.calls import StateKey
from walkgraph.abi.states import CacheShape, Segment
from walkgraph.engine.kv.allocator import PAGE
from walkgraph.engine.kv.attention_backends import AttentionBackends
from walkgraph.engine.kv.flashinfer_attention import PlacedBlocks, blocks_of, layouts, unfit
from walkgraph.engine.kv.paged_attention import PagedAttention, PlacedSegment
from walkgraph.engine.kv.pool import KVPools, Pool
from walkgraph.engine.kv.states import StateTable

SHAPE = CacheShape(layers=1, kv_heads=2, head_dim=128, dtype=torch.bfloat16)


def entry(rows: list[int], pages: list[int], length: int, mode: str = "causal", keep: bool = True) -> PlacedSegment:
    segment = Segment(StateKey("r", "kv"), torch.tensor(rows), mode, keep)  # type: ignore[arg-type]
    return PlacedSegment(
        segment, len(rows), pages, length, 0, torch.zeros(len(rows), dtype=torch.int64) if keep else None
    )


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("width", [64, 128, 256])
def test_kept_rows_of_half_precision_are_served(dtype: torch.dtype, width: int) -> None:
    shape = CacheShape(layers=1, kv_heads=2, head_dim=width, dtype=dtype)
    assert unfit(shape, [entry([0], [1], 3), entry([1, 2], [2], 0, "block")], available=True) is None


@pytest.mark.parametrize(
    ("shape", "keep", "available", "why"),
    [
        (SHAPE, True, False, "not installed"),
        (SHAPE, False, True, "not kept"),
        (CacheShape(layers=1, kv_heads=2, head_dim=96, dtype=torch.bfloat16), True, True, "heads of 96"),
        (CacheShape(layers=1, kv_heads=2, head_dim=128, dtype=torch.float32), True, True, "float32"),
    ],
)
def test_what_stays_with_torch_has_a_reason(shape: CacheShape, keep: bool, available: bool, why: str) -> None:
    found = unfit(shape, [entry([0], [1], 3), entry([1], [2], 3, keep=keep)], available)
    assert found is not None
    assert why in found


def test_cpus_take_the_reference() -> None:
    states = StateTable(KVPools({"kv": Pool(SHAPE, 4, torch.device("cpu"))}), AttentionBackends())
    attend = states.transaction().attend([Segment(StateKey("r", "kv"), torch.arange(2), "causal")])
    assert isinstance(attend, PagedAttention)


def test_single_tokens_alone_are_decoded() -> None:
    (only,) = layouts([entry([1], [7], PAGE - 1), entry([0], [3, 5], PAGE, "block")])
    assert only.kind == "decode"
    assert only.rows.tolist() == [1, 0]
    assert only.starts.tolist() == [0, 1, 3]
    assert only.pages.tolist() == [7, 3, 5]
    assert only.last.tolist() == [PAGE, 1]
    assert only.lengths.tolist() == [PAGE, PAGE + 1]


def test_reserved_pages_behind_the_new_rows_are_left_out() -> None:
    (only,) = layouts([entry([0, 1, 2], [4, 6, 8, 9], PAGE - 1)])
    assert only.kind == "causal"
    assert only.queries.tolist() == [0, 3]
    assert only.pages.tolist() == [4, 6]
    assert only.last.tolist() == [2]


def test_causal_and_block_are_groups_and_a_single_token_joins_the_first() -> None:
    causal, block = layouts([entry([4], [1], 2, "block"), entry([0, 3], [2], 0, "block"), entry([1, 2], [3], 5)])
    assert (causal.kind, block.kind) == ("causal", "block")
    assert causal.rows.tolist() == [4, 1, 2]
    assert causal.queries.tolist() == [0, 1, 3]
    assert causal.lengths.tolist() == [3, 7]
    assert block.rows.tolist() == [0, 3]
    (alone,) = layouts([entry([2], [1], 2), entry([0, 1], [2], 0, "block")])
    assert alone.kind == "block"
    assert alone.rows.tolist() == [2, 0, 1]


def test_blocks_alike_are_attended_as_steps_attend_theirs() -> None:
    shape = CacheShape(layers=2, kv_heads=2, head_dim=8, dtype=torch.float32)
    states = StateTable(KVPools({"kv": Pool(shape, 24, torch.device("cpu"))}), AttentionBackends())
    dice = torch.Generator().manual_seed(0)
    runs = [StateKey("a", "kv"), StateKey("b", "kv")]

    def drawn(rows: int, heads: int) -> torch.Tensor:
        return torch.randn(rows, heads, 8, generator=dice)

    for new, of in ((21, runs[:1]), (19, runs)):
        transaction = states.transaction()
        rows = torch.arange(new * len(of)).split(new)
        attend = transaction.attend([Segment(key, mine, "block") for key, mine in zip(of, rows, strict=True)])
        assert isinstance(attend, PagedAttention)
        (group,) = layouts(attend.segments)
        assert blocks_of(group, attend.segments)
        plain = attend.placed()
        blocks = PlacedBlocks(states.pools.by_state["kv"], attend.segments, plain.slots)
        for layer in range(2):
            q, k, v = drawn(new * len(of), 4), drawn(new * len(of), 2), drawn(new * len(of), 2)
            blocks.k[layer][blocks.slots], blocks.v[layer][blocks.slots] = k, v
            torch.testing.assert_close(blocks(layer, q), plain(layer, q), rtol=1e-5, atol=1e-5)
        transaction.commit(attend)
        states.confirm(transaction.settle())


@pytest.mark.parametrize(
    ("rows", "alike"), [(([0, 1], [2, 3]), True), (([0, 1], [2, 3, 4]), False), ((list(range(513)),), False)]
)
def test_blocks_of_several_sizes_and_large_ones_are_flashinfers(rows: tuple[list[int], ...], alike: bool) -> None:
    entries = [entry(mine, list(range(64)), 3, "block") for mine in rows]
    (group,) = layouts(entries)
    assert blocks_of(group, entries) is alike
    (causal,) = layouts([entry([0, 1], [3], 0)])
    assert not blocks_of(causal, [entry([0, 1], [3], 0)])
