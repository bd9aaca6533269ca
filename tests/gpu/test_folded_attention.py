"""Attention of runs whose heads share their keys, in CUDA C++ on Hopper, against its naive twin in float32."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate, pairwise
from typing import NamedTuple

import pytest
import torch
from torch import Tensor

from walkgraph.layers.attention.packed_blocks import PackedBlocks
from walkgraph.layers.invariance import batch_invariant
from walkgraph.memory.cuda_source import is_available

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(
        not torch.cuda.is_available() or torch.cuda.get_device_capability() != (9, 0), reason="needs Hopper"
    ),
    pytest.mark.skipif(not is_available(), reason="needs cuda-bindings"),
]

DEVICE, DIM, PAGE, RUNS = torch.device("cuda"), 256, 16, 16
CLOSE = 2.5e-3
"""What rounding the weights and the result gives."""


class Case(NamedTuple):
    q: Tensor
    k: Tensor
    v: Tensor
    slots: Tensor
    lengths: Sequence[int]

    @property
    def bounds(self) -> Tensor:
        ends = [0, *accumulate(self.lengths)]
        return torch.tensor([*ends, *[ends[-1]] * (RUNS + 1 - len(ends))], dtype=torch.int32, device=DEVICE)

    def twin(self) -> Tensor:
        parts = self.slots[: sum(self.lengths)].split(list(self.lengths))
        places = [slice(*pair) for pair in pairwise([0, *accumulate(self.lengths)])]
        return torch.cat([plain(self.q[at], self.k[of], self.v[of]) for at, of in zip(places, parts, strict=True)])


def plain(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """q `[n, H, D]`, k and v `[m, 1, D]` -> `[n, H, D]`, in float32."""
    scores = torch.einsum("rhd,kd->rhk", q.double(), k[:, 0].double()) * DIM**-0.5
    return (scores.softmax(-1) @ v[:, 0].double()).float()


def case(lengths: Sequence[int], heads: int = 8, *, spare: int = 0, loud: float = 2.0) -> Case:
    """Pages in random order. Slots past a run's end hold NaN, as do `spare` rows of queries."""
    torch.manual_seed(sum(lengths) + len(lengths))
    pages = [-(-length // PAGE) for length in lengths]
    order = torch.randperm(sum(pages) + 2, device=DEVICE)
    k, v = (torch.full((len(order) * PAGE, 1, DIM), torch.nan, device=DEVICE).bfloat16() for _ in range(2))
    each = [torch.arange(length, device=DEVICE) for length in lengths]
    firsts = [0, *accumulate(pages)]
    slots = torch.cat([order[first + at // PAGE] * PAGE + at % PAGE for first, at in zip(firsts, each, strict=False)])
    k[slots], v[slots] = (torch.randn(len(slots), 1, DIM, device=DEVICE).bfloat16() for _ in range(2))
    q = (loud * torch.randn(len(slots) + spare, heads, DIM, device=DEVICE)).bfloat16()
    q[len(slots) :] = torch.nan
    return Case(q, k, v, torch.cat((slots, order[-1:].expand(spare) * PAGE)), lengths)


def apart(found: Tensor, wanted: Tensor) -> float:
    return float((found.float() - wanted).norm() / wanted.norm())


LENGTHS = [
    *((1,), (15,), (16,), (17,), (63, 64, 65), (128,), (129, 1, 2), (968,), (967, 969), (2048,), (1,) * RUNS),
    *((128,) * RUNS, (17, 1, 300, 5, 64), (0, 40, 0, 0, 700), (968,) * 4),
]


@pytest.mark.parametrize("lengths", LENGTHS, ids=lambda lengths: "-".join(map(str, lengths))[:20])
@pytest.mark.parametrize(("heads", "spare"), [(8, 0), (8, 61), (4, 3)])
def test_it_attends_as_its_twin_does(lengths: tuple[int, ...], heads: int, spare: int) -> None:
    from walkgraph.layers.kernels.folded_attention import attend_pages, fits

    given = case(lengths, heads, spare=spare)
    assert fits(given.q, given.k, given.v, RUNS)
    found = attend_pages(given.q, given.k, given.v, given.bounds, given.slots)[: sum(lengths)]
    assert apart(found, given.twin()) < CLOSE
    again = attend_pages(given.q, given.k, given.v, given.bounds, given.slots)[: sum(lengths)]
    assert torch.equal(found, again)


def test_a_captured_launch_serves_runs_of_any_lengths() -> None:
    most = case((968, 1080))
    blocks = PackedBlocks(bounds := most.bounds.clone(), len(most.q), 8)
    blocks.paged(most.q, most.k, most.v, most.slots)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        found = [blocks.paged(most.q, most.k, most.v, most.slots) for _ in range(8)]
    for lengths in ((968, 1080), (968, 1), (500,), (16,) * 16, (968,)):
        given = most._replace(lengths=lengths)
        bounds.copy_(given.bounds)
        for one in found:
            one.zero_()
        graph.replay()
        rows = sum(lengths)
        assert apart(found[0][:rows], given.twin()) < CLOSE
        assert all(torch.equal(one[:rows], found[0][:rows]) for one in found)
        assert not any(one[rows:].any() for one in found)


def test_runs_do_not_see_their_neighbours() -> None:
    together = case((300, 968, 40))
    found = PackedBlocks(together.bounds, 1308, 8).paged(together.q, together.k, together.v, together.slots)
    rows = slice(300, 1268)
    alone = together._replace(q=together.q[rows].contiguous(), slots=together.slots[rows].contiguous(), lengths=(968,))
    mine = PackedBlocks(alone.bounds, 968, 8).paged(alone.q, alone.k, alone.v, alone.slots)
    assert torch.equal(found[rows], mine)


@pytest.mark.parametrize("loud", [0.1, 2.0, 40.0])
@pytest.mark.parametrize("scale", [1e-12, 1.0, 1e12])
def test_values_of_any_size_are_no_further_from_their_twin_than_the_librarys(loud: float, scale: float) -> None:
    given = case((968,), loud=loud)
    given.v.mul_(scale)
    blocks = PackedBlocks(given.bounds, 968, 8)
    library = blocks(given.q, given.k[given.slots], given.v[given.slots])
    found = blocks.paged(given.q, given.k, given.v, given.slots)
    assert not torch.equal(found, library)
    assert apart(found, given.twin()) <= 1.01 * apart(library, given.twin())


def test_other_caches_are_gathered() -> None:
    given = case((40, 3))
    k, v = (part.nan_to_num().half() for part in (given.k, given.v))
    found = PackedBlocks(given.bounds, 43, 8).paged(given.q.half(), k, v, given.slots)
    assert apart(found, given.twin()) < CLOSE


@pytest.mark.parametrize("split", [2, 3, 4, 8])
@pytest.mark.parametrize("keys", [1, 50, 64, 178, 1018, 1500])
def test_spans_of_dense_keys(split: int, keys: int) -> None:
    from walkgraph.layers.kernels.folded_attention import attend_spans

    torch.manual_seed(keys)
    batch, tokens, step = 3, 50, keys + 20
    k, v = (torch.randn(batch * step, 1, DIM, device=DEVICE).bfloat16() for _ in range(2))
    spans = torch.tensor([[3 + row * step, 3 + row * step + keys] for row in range(batch)], device=DEVICE).int()
    for start, stop in spans.tolist():
        k[stop : start + step - 3], v[stop : start + step - 3] = torch.nan, torch.nan
    q = (2 * torch.randn(batch * tokens, 8, DIM, device=DEVICE)).bfloat16()
    rows = torch.arange(batch + 1, dtype=torch.int32, device=DEVICE) * tokens
    found = attend_spans(q, k, v, rows, spans, split)
    each = [plain(one, k[a:b], v[a:b]) for one, (a, b) in zip(q.split(tokens), spans.tolist(), strict=True)]
    assert apart(found, torch.cat(each)) < CLOSE
    assert torch.equal(found, attend_spans(q, k, v, rows, spans, split))


def test_a_split_has_all_clusters_at_once() -> None:
    from walkgraph.layers.kernels.folded_attention import split_for

    found = [split_for(batch, 400, DEVICE) for batch in (1, 2, 4, 8, 16, 40)]
    assert found[0] == 8
    assert found[-1] is None
    known = [one or 0 for one in found]
    assert known == sorted(known, reverse=True)


def test_narrow_blocks_are_cut_alike_where_batches_must_not_matter() -> None:
    from walkgraph.layers.attention.narrow_blocks import NarrowBlocks
    from walkgraph.layers.kernels.narrow_attention import narrow_attention

    torch.manual_seed(1)
    q, k, v = (torch.randn(n, h, DIM, device=DEVICE).bfloat16() for n, h in ((100, 8), (2100, 1), (2100, 1)))
    blocks = NarrowBlocks(2, 50, DEVICE)
    blocks.spans.copy_(torch.tensor([[0, 1018], [1034, 2052]]))
    found = blocks(q, k, v)
    wanted = torch.cat([plain(one, k[a:b], v[a:b]) for one, (a, b) in zip(q.split(50), blocks.spans, strict=True)])
    assert apart(found, wanted) < CLOSE
    with batch_invariant():
        alike = blocks(q, k, v)
        assert torch.equal(alike, narrow_attention(q, k, v, blocks.spans))
    assert not torch.equal(alike, found)
