"""Attention in a window, chunk by chunk, against one masked attention of the whole."""

from __future__ import annotations

from itertools import pairwise

import pytest
import torch
from torch import Tensor

from walkgraph.layers.attention.dense_attention import dense_attention
from walkgraph.layers.attention.sliding_window import WindowAttend

LENGTH, WINDOW, HEADS, GROUPS, DIM = 19, 5, 4, 2, 8


@pytest.mark.parametrize("cuts", [(), (1,), (2, 3, 11), tuple(range(1, LENGTH))])
def test_chunks_attend_what_the_whole_does(cuts: tuple[int, ...]) -> None:
    torch.manual_seed(3)
    q, k, v = (torch.randn(1, 2, LENGTH, heads, DIM) for heads in (HEADS, GROUPS, GROUPS))
    at = torch.arange(LENGTH)
    mask = (at <= at[:, None]) & (at > at[:, None] - WINDOW)
    past, parts = torch.zeros(1, 2, 2, WINDOW - 1, GROUPS, DIM), list[Tensor]()
    for start, stop in pairwise((0, *cuts, LENGTH)):
        attend = WindowAttend(past, torch.tensor([start]), stop - start)
        layers = [attend(layer, *(one[0, layer, start:stop] for one in (q, k, v))) for layer in range(2)]
        past = attend.after
        parts.append(torch.stack(layers))
    for layer in range(2):
        wanted = dense_attention(q[:, layer], k[:, layer], v[:, layer], mask)[0]
        torch.testing.assert_close(torch.cat(parts, 1)[layer], wanted)
    assert torch.equal(past[0, :, 0], k[0, :, -(WINDOW - 1) :])
    assert torch.equal(past[0, :, 1], v[0, :, -(WINDOW - 1) :])


def test_streams_at_different_positions_do_not_see_what_was_before_them() -> None:
    torch.manual_seed(4)
    past = torch.randn(2, 1, 2, WINDOW - 1, GROUPS, DIM)
    q, k, v = (torch.randn(2 * 3, heads, DIM) for heads in (HEADS, GROUPS, GROUPS))
    both = WindowAttend(past, torch.tensor([0, 40]), 3)(0, q, k, v)
    alone = WindowAttend(torch.zeros(1, *past.shape[1:]), torch.tensor([0]), 3)(0, q[:3], k[:3], v[:3])
    torch.testing.assert_close(both[:3], alone)
    late = WindowAttend(past[1:], torch.tensor([40]), 3)(0, q[3:], k[3:], v[3:])
    torch.testing.assert_close(both[3:], late)
