"""Attention of blocks over a paged cache in CUDA C++ on Hopper against its naive twin in float32."""

from __future__ import annotations

from typing import NamedTuple

import pytest
import torch
from torch import Tensor

from walkgraph.layers.attention.paged_blocks import plain_attention
from walkgraph.memory.cuda_source import is_available

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(
        not torch.cuda.is_available() or torch.cuda.get_device_capability() != (9, 0), reason="needs Hopper"
    ),
    pytest.mark.skipif(not is_available(), reason="needs cuda-bindings"),
]

DEVICE = torch.device("cuda")


class Rows(NamedTuple):
    rows: Tensor
    pages: Tensor
    lengths: Tensor


class Case(NamedTuple):
    q: Tensor
    k: Tensor
    v: Tensor
    rows: Rows

    def twin(self, tokens: int) -> Tensor:
        return plain_attention(self.q.float(), self.k.float(), self.v.float(), self.rows, tokens)


def case(lengths: list[int], tokens: int, heads: int, groups: int, *, longest: int | None = None) -> Case:
    """Pages in random order; slots past the end hold NaN."""
    torch.manual_seed(len(lengths) + tokens)
    batch, most = len(lengths), longest or max(lengths)
    reach = -(-(most + tokens) // 16) + 1
    count = batch * reach + 3
    k, v = (torch.full((count * 16, groups, 64), torch.nan, device=DEVICE).bfloat16() for _ in range(2))
    pages = torch.randperm(count, device=DEVICE)[: batch * reach].view(batch, reach).int()
    order = torch.randperm(batch, device=DEVICE).int()
    table = torch.zeros(batch, dtype=torch.int32, device=DEVICE)
    for length, row in zip(lengths, order.tolist(), strict=True):
        table[row] = length
        at = torch.arange((longest or length) + tokens, device=DEVICE)
        slots = pages[row].long()[at // 16] * 16 + at % 16
        k[slots], v[slots] = (torch.randn(len(at), groups, 64, device=DEVICE).bfloat16() for _ in range(2))
    q = (2 * torch.randn(batch * tokens, heads, 64, device=DEVICE)).bfloat16()
    return Case(q, k, v, Rows(order, pages, table))


def near(found: Tensor, wanted: Tensor) -> bool:
    return float((found.float() - wanted).norm() / wanted.norm()) < 3e-3


CUTS = [(1, 1, 1), (3, 1, 1), (6, 1, 1), (2, 4, 2), (1, 2, 2), (2, 3, 3)]
"""Parts of the keys, pieces of the queries, teams."""


@pytest.mark.parametrize(("split", "pieces", "teams"), CUTS)
@pytest.mark.parametrize(("tokens", "heads", "groups"), [(258, 4, 4), (256, 4, 2), (200, 3, 1), (264, 2, 2)])
def test_it_attends_as_its_twin_does(split: int, pieces: int, teams: int, tokens: int, heads: int, groups: int) -> None:
    from walkgraph.layers.kernels.block_attention import Cut, launch

    given, cut = case([0, 1, 15, 16, 17, 255, 2064, 3999], tokens, heads, groups), Cut(tokens, split, pieces, teams)
    if cut.tiles * teams > 4:
        pytest.skip("a block has at most four warpgroups")
    found = launch(given.q, given.k, given.v, given.rows, tokens, cut)
    assert near(found, given.twin(tokens))
    again = launch(given.q, given.k, given.v, given.rows, tokens, cut)
    assert torch.equal(found, again)


@pytest.mark.parametrize("length", [0, 600, 5000])
def test_launches_that_overlap_give_equal_bits(length: int) -> None:
    from walkgraph.layers.kernels.paged_blocks import attend

    given = case([length], 258, 16, 16, longest=5000)
    alone = attend(given.q, given.k, given.v, given.rows, 258, 16)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        found = [attend(given.q, given.k, given.v, given.rows, 258, 16) for _ in range(24)]
    for _ in range(20):
        for one in found:
            one.zero_()
        graph.replay()
        assert all(torch.equal(one, alone) for one in found)


def test_a_captured_launch_serves_every_length() -> None:
    from walkgraph.layers.kernels.paged_blocks import attend

    given = case([7740], 258, 16, 16, longest=7740)
    attend(given.q, given.k, given.v, given.rows, 258, 16)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        found = attend(given.q, given.k, given.v, given.rows, 258, 16)
    for length in (0, 1, 258, 300, 4128, 7740):
        given.rows.lengths.fill_(length)
        graph.replay()
        assert near(found, given.twin(258))


def test_large_scores_keep_their_maximum() -> None:
    from walkgraph.layers.kernels.block_attention import Cut, launch

    given = case([1000, 3000], 258, 2, 2)
    loud = Case(given.q * 20, given.k, given.v, given.rows)
    found = launch(loud.q, loud.k, loud.v, loud.rows, 258, Cut(258, 2))
    assert near(found, loud.twin(258))


def test_other_shapes_keep_their_launch() -> None:
    from walkgraph.layers.kernels.block_attention import cut_for

    given = case([3000], 258, 16, 16)
    assert cut_for(given.q, given.k, given.v, given.rows, 258, 16) is not None
    assert cut_for(given.q.half(), given.k.half(), given.v.half(), given.rows, 258, 16) is None
    assert cut_for(given.q, given.k, given.v, given.rows, 258, 32) is None
    longer = case([3000], 300, 16, 16)
    assert cut_for(longer.q, longer.k, longer.v, longer.rows, 300, 16) is None
