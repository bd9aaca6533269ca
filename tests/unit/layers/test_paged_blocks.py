"""Blocks appended to a paged cache and attended: the plain forms against dense attention over each sequence's own
tokens, in order."""

from __future__ import annotations

from typing import NamedTuple

import pytest
import torch
from torch import Tensor

from walkgraph.abi.step import PagedRows
from walkgraph.layers.attention.dense_attention import dense_attention
from walkgraph.layers.attention.paged_blocks import paged_block_attention, place_block, plain_attention
from walkgraph.layers.invariance import batch_invariant

torch.set_num_threads(1)
PAGE = 16


class Case(NamedTuple):
    qkv: Tensor
    cos: Tensor
    sin: Tensor
    k: Tensor
    v: Tensor
    rows: PagedRows


def case(lengths: list[int], batch: list[int], tokens: int, heads: int, groups: int, width: int = 8) -> Case:
    """A table of `lengths` with pages in random order; what no sequence holds is no number."""
    torch.manual_seed(sum(lengths) + heads)
    most = (max(lengths) + tokens) // PAGE + 2
    pages = (torch.randperm(len(lengths) * most) + 1).view(len(lengths), most).int()
    k, v = (torch.full(((len(lengths) * most + 1) * PAGE, groups, width), torch.nan) for _ in range(2))
    for row, length in enumerate(lengths):
        slots = slots_of(pages, row, length)
        k[slots], v[slots] = torch.randn(length, groups, width), torch.randn(length, groups, width)
    rows = PagedRows(torch.tensor(batch).int(), pages, torch.tensor(lengths).int(), torch.zeros(len(lengths)).int())
    angles = torch.randn(2, len(batch), tokens, width)
    qkv = torch.randn(len(batch) * tokens, (heads + 2 * groups) * width)
    return Case(qkv, angles[0].cos(), angles[1].sin(), k, v, rows)


def slots_of(pages: Tensor, row: int, count: int) -> list[int]:
    return [int(pages[row, t // PAGE]) * PAGE + t % PAGE for t in range(count)]


def turned(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """x `[n, H, D]`, pair by pair."""
    y = x.clone()
    for i in range(0, x.shape[-1], 2):
        y[..., i] = x[..., i] * cos[:, None, i] - x[..., i + 1] * sin[:, None, i]
        y[..., i + 1] = x[..., i + 1] * cos[:, None, i + 1] + x[..., i] * sin[:, None, i + 1]
    return y


@pytest.mark.parametrize("lengths", [[0, 0], [5, 40], [33, 33]])
@pytest.mark.parametrize(("heads", "groups"), [(3, 3), (4, 2)])
def test_blocks_are_placed_and_see_their_context_and_themselves(lengths: list[int], heads: int, groups: int) -> None:
    tokens, batch = 7, [1, 0]
    given = case(lengths, batch, tokens, heads, groups)
    before = given.k.clone()
    q = place_block(given.qkv, given.cos, given.sin, given.k, given.v, given.rows, tokens)
    out = paged_block_attention(q, given.k, given.v, given.rows, tokens)
    assert q.shape == out.shape == (len(batch) * tokens, heads, given.k.shape[2])
    written = 0
    for b, row in enumerate(batch):
        own = given.qkv[b * tokens : (b + 1) * tokens].view(tokens, -1, given.k.shape[2])
        wanted_q, wanted_k = (
            turned(part, given.cos[b], given.sin[b]) for part in own[:, :-groups].split([heads, groups], 1)
        )
        slots = slots_of(given.rows.pages, row, lengths[row] + tokens)
        torch.testing.assert_close(q[b * tokens : (b + 1) * tokens], wanted_q)
        torch.testing.assert_close(given.k[slots[lengths[row] :]], wanted_k)
        torch.testing.assert_close(given.v[slots[lengths[row] :]], own[:, -groups:])
        alone = dense_attention(wanted_q[None], given.k[slots][None], given.v[slots][None])[0]
        torch.testing.assert_close(out[b * tokens : (b + 1) * tokens], alone)
        written += tokens
    changed = (given.k != before) & ~(given.k.isnan() & before.isnan())
    assert int(changed.any(-1).any(-1).sum()) == written


def test_sines_of_all_sequences_may_be_one() -> None:
    given, tokens = case([3, 20], [0, 1], 5, 2, 2), 5
    cos, sin = given.cos[:1].expand(2, -1, -1), given.sin[:1].expand(2, -1, -1)
    spread = place_block(given.qkv, cos, sin, given.k, given.v, given.rows, tokens)
    assert torch.equal(spread, place_block(given.qkv, cos.clone(), sin.clone(), given.k, given.v, given.rows, tokens))


def test_a_sequence_gets_the_numbers_that_it_gets_alone() -> None:
    given, tokens = case([3, 90, 41], [0, 1, 2], 6, 2, 2), 6
    q = place_block(given.qkv, given.cos, given.sin, given.k, given.v, given.rows, tokens)
    with batch_invariant():
        out = paged_block_attention(q, given.k, given.v, given.rows, tokens)
    for b, part in enumerate(q.split(tokens)):
        alone = plain_attention(part, given.k, given.v, given.rows, tokens, of=(b, b + 1))
        assert torch.equal(out[b * tokens : (b + 1) * tokens], alone)
