"""The kernel that scales rows by a gate, against its plain form."""

from __future__ import annotations

import pytest
import torch

from walkgraph.layers.kernels.shared_gate import gated_rows
from walkgraph.layers.moe.shared_expert import gated_rows as plain


@pytest.mark.parametrize(("rows", "width", "hidden"), [(1, 64, 96), (5, 100, 7), (3, 1024, 768)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_rows_are_scaled_by_the_gate_of_their_normed_twins(
    rows: int, width: int, hidden: int, dtype: torch.dtype, device: str
) -> None:
    generator = torch.Generator().manual_seed(width)
    x, inner = (torch.randn(rows, n, generator=generator).to(dtype) for n in (2 * width, hidden))
    gate, norm = (torch.randn(*shape, generator=generator).to(dtype) for shape in ((1, width), (width,)))
    x = 3 * x[:, :width]  # not contiguous where there are several rows
    got = gated_rows(*(one.to(device) for one in (inner, x, gate, norm)), 1e-6).cpu()
    wanted = plain(inner, x, gate, norm, 1e-6)
    assert got.dtype == dtype
    torch.testing.assert_close(got, wanted, rtol=1e-5 if dtype == torch.float32 else 1e-2, atol=1e-6)
    assert not torch.equal(got, inner)
