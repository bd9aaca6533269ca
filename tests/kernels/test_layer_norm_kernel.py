"""Layer norm of a sum, against its plain form."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from walkgraph.layers.kernels import layer_norm
from walkgraph.layers.kernels.layer_norm import norm_rows, shifted_rows, sum_rows
from walkgraph.layers.norm.layer_norm import SUMMED, added_norm, row_sums, shifted_norm


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
@pytest.mark.parametrize(("rows", "width"), [(5, 1152), (1, 24), (70, 8)])
@pytest.mark.parametrize("adds", [True, False])
@pytest.mark.parametrize("many", [True, False])
def test_rows_are_normed_as_plainly(
    rows: int, width: int, adds: bool, many: bool, dtype: torch.dtype, device: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(layer_norm, "_MANY", 0 if many else 100)
    generator = torch.Generator().manual_seed(width)
    x, y, weight, bias = (torch.randn(n, width, generator=generator) for n in (rows, rows, 1, 1))
    x, y = (3 * x + 2).to(device, dtype), y.to(device, dtype) if adds else None
    norm = nn.LayerNorm(width, 1e-6)
    with torch.no_grad():
        norm.weight.copy_(weight[0])
        norm.bias.copy_(bias[0])
    norm = norm.to(device, dtype)
    total, normed = norm_rows(x, y, norm.weight.detach(), norm.bias.detach(), norm.eps)
    tolerance = 2e-2 if dtype == torch.bfloat16 else 1e-5
    sums, plain = (part.detach() for part in added_norm(x.cpu(), None if y is None else y.cpu(), norm.cpu()))
    # The interpreter cuts off where a GPU rounds.
    torch.testing.assert_close(total.cpu(), sums, rtol=tolerance / 2, atol=0)
    torch.testing.assert_close(normed.cpu(), plain, rtol=tolerance, atol=2 * tolerance)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
@pytest.mark.parametrize("shifts", [True, False])
def test_rows_are_normed_as_if_shifted(shifts: bool, dtype: torch.dtype, device: str) -> None:
    generator = torch.Generator().manual_seed(3)
    norm = nn.LayerNorm(24, 1e-6).to(device, dtype)
    x, shift = (torch.randn(n, 24, generator=generator).to(device) for n in (5, 1))
    given = shift[0] if shifts else None
    found = shifted_rows(x.to(dtype), given, norm.weight.detach(), norm.bias.detach(), norm.eps)
    wanted = shifted_norm(x.to(dtype).cpu(), None if given is None else given.cpu(), norm.cpu()).detach()
    tolerance = 2e-2 if dtype == torch.bfloat16 else 1e-5
    torch.testing.assert_close(found.cpu(), wanted, rtol=tolerance, atol=tolerance)
    exact = nn.functional.layer_norm(x.to(dtype).cpu().float() + (shift.cpu() if shifts else 0), (24,), eps=1e-6)
    torch.testing.assert_close(wanted.float(), exact, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("width", [64, 192, 1408])
def test_parts_of_rows_are_summed_as_plainly(width: int, device: str) -> None:
    x = (torch.randn(5, width, generator=torch.Generator().manual_seed(width)) + 1).to(device, torch.bfloat16)
    torch.testing.assert_close(sum_rows(x, SUMMED).cpu(), row_sums(x.cpu()), rtol=1e-5, atol=1e-4)
