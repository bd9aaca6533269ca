"""The plain one-token attention over a paged cache, against dense attention over each row's own tokens."""

from typing import NamedTuple

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from walkgraph.abi.step import PagedRows
from walkgraph.layers.attention.dense_attention import dense_attention
from walkgraph.layers.attention.paged_rows import StepArguments
from walkgraph.layers.attention.step_attention import (
    MOST_NUMBERS,
    in_parts,
    parted_rows,
    plain,
    step_attention,
    supported,
)
from walkgraph.layers.rope import NeoxRope, rotate

torch.set_num_threads(1)
PAGE = 16


class Case(NamedTuple):
    qkv: Tensor
    k: Tensor
    v: Tensor
    rows: PagedRows
    frequencies: Tensor


def case(lengths: list[int], batch: list[int], heads: int, groups: int, width: int) -> Case:
    """A table of `lengths` (the last one is the pad row's) with pages in random order, in a pool of noise."""
    torch.manual_seed(sum(lengths) + heads)
    most = max(lengths) // PAGE + 2
    pages = (torch.randperm(len(lengths) * most) + 1).view(len(lengths), most)
    slots = (len(lengths) * most + 1) * PAGE
    counts = torch.tensor(lengths)
    rows = PagedRows(torch.tensor(batch).int(), pages.int(), counts.int(), (counts * 3 + 1).int())
    return Case(
        torch.randn(len(batch), (heads + 2 * groups) * width),
        torch.randn(slots, groups, width),
        torch.randn(slots, groups, width),
        rows,
        1 / 10000.0 ** (torch.arange(0, width, 2) / width),
    )


def naive(case: Case, b: int, heads: int, norms: tuple[Tensor, Tensor] | None = None) -> tuple[Tensor, Tensor, Tensor]:
    """-> out `[H * D]` and the new key and value `[G, D]` of batch row b, from a copy of its tokens in order."""
    groups, width = case.k.shape[1:]
    row = int(case.rows.rows[b])
    length = int(case.rows.lengths[row])
    q, k, v = case.qkv[b : b + 1].view(1, -1, width).split((heads, groups, groups), 1)
    if norms is not None:
        q, k = F.rms_norm(q, (width,), norms[0], 1e-6), F.rms_norm(k, (width,), norms[1], 1e-6)
    rotation = NeoxRope(width, 10000.0)(case.rows.positions[row : row + 1])
    q, k = rotate(q, rotation), rotate(k, rotation)
    slots = [int(case.rows.pages[row, t // PAGE]) * PAGE + t % PAGE for t in range(length)]
    keys, values = torch.cat([case.k[slots], k]), torch.cat([case.v[slots], v])
    return dense_attention(q[None], keys[None], values[None]).flatten(), k[0], v[0]


@pytest.mark.parametrize(("heads", "groups", "width"), [(6, 2, 8), (4, 4, 16), (5, 1, 8)])
@pytest.mark.parametrize("norm", [False, True])
def test_ragged_rows_equal_dense_attention_of_each_alone(heads: int, groups: int, width: int, norm: bool) -> None:
    """Lengths around page boundaries, an empty row, rows out of order, rows of the table left out."""
    it = case([0, 1, 15, 16, 17, 33, 47, 3], [4, 0, 3, 1, 2, 6], heads, groups, width)
    norms = (torch.rand(width) + 0.5, torch.rand(width) + 0.5) if norm else None
    wanted = [naive(it, b, heads, norms) for b in range(6)]
    before = it.k.clone(), it.v.clone()
    q_norm, k_norm = norms or (None, None)
    out = step_attention(it.qkv, it.k, it.v, it.rows, it.frequencies, heads, q_norm=q_norm, k_norm=k_norm)
    torch.testing.assert_close(out, torch.stack([w[0] for w in wanted]))
    written: list[int] = []
    for b, (_, k, v) in enumerate(wanted):
        row = int(it.rows.rows[b])
        length = int(it.rows.lengths[row])
        written.append(int(it.rows.pages[row, length // PAGE]) * PAGE + length % PAGE)
        torch.testing.assert_close(it.k[written[-1]], k)
        torch.testing.assert_close(it.v[written[-1]], v)
    others = torch.ones(it.k.shape[0], dtype=torch.bool)
    others[written] = False
    assert torch.equal(it.k[others], before[0][others])
    assert torch.equal(it.v[others], before[1][others])


@pytest.mark.parametrize("count", [1, 2, 4, 5])
def test_a_batch_in_parts_equals_the_whole_batch(count: int) -> None:
    it = case([0, 1, 15, 16, 17, 33, 47, 3], [4, 0, 3, 1, 2, 6], 6, 2, 8)
    step = StepArguments(it.qkv, it.k, it.v, it.rows, it.frequencies, 6)
    other = step._replace(slot_k=it.k.clone(), slot_v=it.v.clone())
    torch.testing.assert_close(in_parts(step, count), plain(other))
    assert torch.equal(step.slot_k, other.slot_k)
    assert torch.equal(step.slot_v, other.slot_v)


def test_long_page_tables_are_read_by_few_rows_at_once() -> None:
    """A tiny model whose heads no kernel serves, with room for 65,536 tokens in each row."""
    pages = torch.zeros(33, 4096, dtype=torch.int32)
    rows = PagedRows(torch.arange(32), pages, torch.zeros(33), torch.zeros(33))
    step = StepArguments(torch.zeros(32, 128), torch.zeros(16, 2, 16), torch.zeros(16, 2, 16), rows, torch.ones(8), 4)
    assert parted_rows(step) * 65536 * 4 * 16 <= MOST_NUMBERS
    assert parted_rows(step) == 4
    assert parted_rows(step, most=1) == 1


def test_padding_rows_change_nothing_for_the_others() -> None:
    it = case([20, 5, 0], [1, 0], 4, 2, 8)
    alone = step_attention(it.qkv, it.k.clone(), it.v.clone(), it.rows, it.frequencies, 4)
    padded = it.rows._replace(rows=torch.tensor([1, 0, 2, 2]).int())
    qkv = torch.cat([it.qkv, torch.randn(2, it.qkv.shape[1])])
    out = step_attention(qkv, it.k, it.v, padded, it.frequencies, 4)
    torch.testing.assert_close(out[:2], alone)
    assert out.isfinite().all()


def test_steps_one_after_the_other_equal_one_causal_pass() -> None:
    """Each step attends what the steps before it left in the pages."""
    heads, groups, width, steps = 4, 2, 8, 19
    it = case([0, 0], [0], heads, groups, width)
    pages = torch.tensor([[3, 1], [4, 4]]).int()
    new = torch.randn(steps, (heads + 2 * groups) * width)
    k, v = torch.zeros(80, groups, width), torch.zeros(80, groups, width)
    got: list[Tensor] = []
    for i in range(steps):
        counts = torch.tensor([i, 0]).int()
        got.append(
            step_attention(new[i : i + 1], k, v, PagedRows(it.rows.rows, pages, counts, counts), it.frequencies, heads)
        )
    q, keys, values = new.view(steps, -1, width).split((heads, groups, groups), 1)
    rotation = NeoxRope(width, 10000.0)(torch.arange(steps))
    mask = torch.ones(steps, steps, dtype=torch.bool).tril()
    dense = dense_attention(rotate(q, rotation)[None], rotate(keys, rotation)[None], values[None], mask)
    torch.testing.assert_close(torch.cat(got), dense[0].flatten(1))


def test_half_precision_caches_keep_their_dtype() -> None:
    it = case([18, 2], [0], 4, 2, 8)
    half = Case(it.qkv.bfloat16(), it.k.bfloat16(), it.v.bfloat16(), it.rows, it.frequencies)
    whole = Case(half.qkv.float(), half.k.float(), half.v.float(), it.rows, it.frequencies)
    wanted = naive(whole, 0, 4)[0]
    out = step_attention(half.qkv, half.k, half.v, half.rows, half.frequencies, 4)
    assert out.dtype == torch.bfloat16
    torch.testing.assert_close(out[0].float(), wanted, atol=0.02, rtol=0.02)


def test_what_the_kernel_has_a_form_for() -> None:
    pool = torch.zeros(16, 8, 128, dtype=torch.bfloat16)
    assert supported(torch.bfloat16, pool, 24)
    assert not supported(torch.float16, pool, 24)
    assert not supported(torch.bfloat16, pool, 25)
    assert not supported(torch.bfloat16, pool, 8 * 17)
    assert not supported(torch.bfloat16, pool[:, :, :96], 24)
    assert not supported(torch.float32, pool.float(), 24)
