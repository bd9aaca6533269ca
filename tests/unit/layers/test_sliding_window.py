"""Attention in a window, chunk by chunk, against one masked attention of the whole."""

from __future__ import annotations

from itertools import pairwise

import pytest
import torch
from torch import Tensor

from walkgraph.layers.attention.dense_attention import dense_attention
from walkgraph.layers.attention.sliding_window import WindowAttend
from walkgraph.layers.rope import NeoxRope, rotate

LENGTH, WINDOW, HEADS, GROUPS, DIM = 19, 5, 4, 2, 8


ROPE = NeoxRope(DIM, 100.0)


def rows(*parts: Tensor) -> Tensor:
    """`[n, heads, DIM]` each -> `[n, all of them]`."""
    return torch.cat([part.flatten(1) for part in parts], 1)


@pytest.mark.parametrize("cuts", [(), (1,), (2, 3, 11), tuple(range(1, LENGTH))])
def test_chunks_attend_what_the_whole_does(cuts: tuple[int, ...]) -> None:
    torch.manual_seed(3)
    q, k, v = (torch.randn(2, LENGTH, heads, DIM) for heads in (HEADS, GROUPS, GROUPS))
    at = torch.arange(LENGTH)
    mask = (at <= at[:, None]) & (at > at[:, None] - WINDOW)
    past, parts = torch.zeros(1, 2, 2, WINDOW - 1, GROUPS, DIM), list[Tensor]()
    for start, stop in pairwise((0, *cuts, LENGTH)):
        attend = WindowAttend(past, torch.tensor([0]), torch.tensor([start]), stop - start, ROPE)
        layers = [attend(layer, rows(*(one[layer, start:stop] for one in (q, k, v))), HEADS) for layer in range(2)]
        parts.append(torch.stack(layers))
    turned = [torch.stack([rotate(layer, ROPE(at)) for layer in one]) for one in (q, k)]
    for layer in range(2):
        wanted = dense_attention(turned[0][layer, None], turned[1][layer, None], v[layer, None], mask)[0]
        torch.testing.assert_close(torch.cat(parts, 1)[layer], wanted.flatten(1))
    torch.testing.assert_close(past[0, :, 0], turned[1][:, -(WINDOW - 1) :])
    assert torch.equal(past[0, :, 1], v[:, -(WINDOW - 1) :])


def test_streams_at_different_positions_do_not_see_what_was_before_them() -> None:
    torch.manual_seed(4)
    past = torch.randn(2, 1, 2, WINDOW - 1, GROUPS, DIM)
    qkv = torch.randn(2 * 3, (HEADS + 2 * GROUPS) * DIM)
    past[0] = torch.nan
    table = torch.cat([past[1:], torch.zeros_like(past[:1]), past[:1]])
    both = WindowAttend(table, torch.tensor([2, 0]), torch.tensor([0, 40]), 3, ROPE)(0, qkv, HEADS)
    fresh = torch.zeros(1, *past.shape[1:])
    alone = WindowAttend(fresh, torch.tensor([0]), torch.tensor([0]), 3, ROPE)(0, qkv[:3], HEADS)
    torch.testing.assert_close(both[:3], alone)
    late = WindowAttend(past[1:], torch.tensor([0]), torch.tensor([40]), 3, ROPE)(0, qkv[3:], HEADS)
    torch.testing.assert_close(both[3:], late)
    torch.testing.assert_close(table, torch.cat([past[1:], torch.zeros_like(fresh), fresh]), msg="each in its row")
