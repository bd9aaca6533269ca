"""The attention kernels for narrow blocks, against torch, row by row."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch.nn import functional as F

from walkgraph.layers.invariance import batch_invariant
from walkgraph.layers.kernels.gpu import KINDS
from walkgraph.layers.kernels.narrow_attention import Tuning, narrow_attention, tuning

torch.set_num_threads(1)
H100 = KINDS["H100"]


def drawn(seed: int, *shape: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def plain(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, bounds: torch.Tensor) -> torch.Tensor:
    rows = []
    for mine, (start, stop) in zip(q.float().chunk(bounds.shape[0]), bounds.tolist(), strict=True):
        heads = (x.transpose(0, 1)[None] for x in (mine, k[start:stop].float(), v[start:stop].float()))
        rows.append(F.scaled_dot_product_attention(*heads, enable_gqa=True)[0].transpose(0, 1))
    return torch.cat(rows)


@pytest.mark.parametrize("tuned", [Tuning(rows=16, block=16, splits=n) for n in (1, 2, 8)], ids=str)
@pytest.mark.parametrize(
    ("tokens", "heads", "spans"),
    [
        # Tiles that a block doesn't fill, spans of fewer blocks than splits, one that ends with a block.
        (5, (8, 1, 64), [(3, 8), (20, 84)]),
        (3, (4, 2, 64), [(0, 150)]),
        (9, (2, 2, 128), [(40, 49)]),
        # A padded batch: rows behind contexts of other lengths, the last one behind none.
        (5, (8, 1, 64), [(0, 33), (40, 95), (100, 122), (130, 135)]),
    ],
)
def test_it_equals_torch(
    tuned: Tuning, tokens: int, heads: tuple[int, int, int], spans: list[tuple[int, int]], device: str
) -> None:
    number, groups, width = heads
    q = drawn(1, len(spans) * tokens, number, width).half().to(device)
    k, v = (drawn(seed, 160, groups, width).half().to(device) for seed in (2, 3))
    bounds = torch.tensor(spans, dtype=torch.int32, device=device)
    outside = torch.ones(160, dtype=torch.bool)
    for start, stop in spans:
        outside[start:stop] = False
    wanted = plain(q, k, v, bounds)
    v[outside.to(device)] = float("nan")  # nobody's
    found = narrow_attention(q, k, v, bounds, tuned)
    torch.testing.assert_close(found.float(), wanted, atol=3e-3, rtol=3e-3)
    assert torch.equal(found, narrow_attention(q, k, v, bounds, tuned))


def test_the_keys_are_divided_while_there_are_processors() -> None:
    assert [tuning(batch, 50, 8, 256, H100).splits for batch in (1, 2, 4, 8, 16, 64)] == [16, 8, 8, 4, 1, 1]
    few = tuning(1, 50, 8, 256, replace(H100, processors=16))
    assert few.splits == 2
    assert few.joined
    assert not tuning(1, 50, 8, 256, replace(H100, processors=8)).joined
    with batch_invariant():
        assert len({tuning(batch, 50, 8, 256, H100).splits for batch in (1, 2, 64)}) == 1


def test_tiles_are_no_larger_than_the_memory_of_a_processor() -> None:
    assert tuning(8, 50, 8, 256, H100).rows == 128
    small, narrow = (tuning(8, 50, 8, width, KINDS["RTX 4090"]) for width in (256, 64))
    assert (small.rows, small.block) == (64, 32)
    assert (narrow.rows, narrow.block) == (128, 64)


def test_what_lies_otherwise_is_refused(device: str) -> None:
    q, room = torch.zeros(2, 4, 64, device=device), torch.zeros(8, 2, 64, device=device)
    bounds = torch.zeros(1, 2, dtype=torch.int32, device=device)
    with pytest.raises(ValueError, match="queries and bounds"):
        narrow_attention(q.transpose(0, 1), room, room, bounds)
    with pytest.raises(ValueError, match="equal strides"):
        narrow_attention(q, room, room.transpose(1, 2), bounds)
    with pytest.raises(ValueError, match="wait for each other"):
        narrow_attention(q.repeat(512, 1, 1), room, room, bounds.repeat(1024, 1), Tuning(joined=True))
