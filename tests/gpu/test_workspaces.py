"""On a GPU: launches on one stream share workspaces, separate from those of another stream."""

from __future__ import annotations

import pytest
import torch

from walkgraph.layers.linear.product import product
from walkgraph.layers.linear.step_linear import linear

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU"),
]


@pytest.mark.parametrize("rows", [8, 258])
def test_products_of_two_streams_keep_apart(rows: int) -> None:
    """Few outputs and a long K: the sums of one are made by several programs."""
    torch.manual_seed(rows)
    work = linear if rows <= 64 else product
    given = [
        (torch.randn(rows, 4096, device="cuda").bfloat16(), torch.randn(1024, 4096, device="cuda").bfloat16() / 64)
        for _ in range(2)
    ]
    streams = [torch.cuda.Stream(), torch.cuda.Stream()]
    with torch.inference_mode():
        wanted = [work(x, weight) for x, weight in given]
        torch.cuda.synchronize()
        found: list[list[torch.Tensor]] = [[], []]
        for _ in range(300):
            for stream, (x, weight), mine in zip(streams, given, found, strict=True):
                with torch.cuda.stream(stream):
                    mine.append(work(x, weight))
        torch.cuda.synchronize()
    for one, mine in zip(wanted, found, strict=True):
        assert all(torch.equal(one, other) for other in mine)
