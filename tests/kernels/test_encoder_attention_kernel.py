"""Attention within pictures, against each picture alone."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from walkgraph.layers.attention import BlockAttend, dense_attention
from walkgraph.layers.kernels.encoder_attention import CHOSEN, Tuning, attend_pictures, supported

INTERPRETED = Tuning(rows=32, keys=16, warps=4, stages=0)
PICTURES = [[70, 1, 33, 64], [16], [15, 17]]
Heads = tuple[Tensor, Tensor, Tensor]
LONG = [[4900], [4900, 1, 128, 1000], [64, 65]]


def drawn(lengths: list[int], heads: int, width: int, dtype: torch.dtype, device: str) -> Heads:
    """Views of one product, as the encoder has them."""
    generator = torch.Generator().manual_seed(width + sum(lengths))
    qkv = torch.randn(sum(lengths), 3 * heads * width, generator=generator).to(device, dtype)
    q, k, v = (part.unflatten(1, (heads, width)) for part in qkv.chunk(3, 1))
    return q, k, v


def starts(lengths: list[int], device: str) -> Tensor:
    return torch.tensor([0, *lengths]).cumsum(0).to(device, torch.int32)


def alone(lengths: list[int], q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    parts = zip(*(one.float()[None].split(lengths, 1) for one in (q, k, v)), strict=True)
    return torch.cat([dense_attention(*part)[0] for part in parts])


@pytest.mark.parametrize("lengths", PICTURES)
@pytest.mark.parametrize("width", [16, 24, 64, 72, 128])
def test_each_picture_is_as_if_alone(lengths: list[int], width: int, device: str) -> None:
    # The interpreter multiplies no bfloat16.
    dtype, tolerance = (torch.bfloat16, 2e-2) if device == "cuda" else (torch.float32, 1e-5)
    heads = drawn(lengths, 2, width, dtype, device)
    tuning = CHOSEN if device == "cuda" else INTERPRETED
    out = attend_pictures(*heads, starts(lengths, device), max(lengths), tuning)
    torch.testing.assert_close(out.float(), alone(lengths, *heads), atol=tolerance, rtol=tolerance)


def test_a_broken_picture_breaks_no_other(device: str) -> None:
    dtype = torch.bfloat16 if device == "cuda" else torch.float32
    heads = drawn([20, 30, 40], 1, 72, dtype, device)
    # Values alone: the interpreter won't take the greatest of scores that are none.
    heads[2][20:50] = torch.nan
    out = attend_pictures(*heads, starts([20, 30, 40], device), 40, CHOSEN if device == "cuda" else INTERPRETED)
    assert out[:20].isfinite().all()
    assert out[20:50].isnan().all()
    assert out[50:].isfinite().all()


def test_what_has_no_form_is_told() -> None:
    q, k, v = drawn([4], 2, 72, torch.bfloat16, "cpu")
    assert supported(q, k, v)
    assert not supported(q.float(), k.float(), v.float())
    assert not supported(q, k.contiguous(), v)
    assert not supported(*drawn([4], 2, 12, torch.bfloat16, "cpu"))
    assert not supported(q, k[:, :1], v[:, :1])


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")
@pytest.mark.parametrize("lengths", LONG)
def test_the_encoder_attends_by_it(lengths: list[int]) -> None:
    heads = drawn(lengths, 16, 72, torch.bfloat16, "cuda")
    attend = BlockAttend(lengths)
    with torch.inference_mode():
        for _ in range(2):
            out = attend(0, *heads)
            torch.testing.assert_close(out.float(), alone(lengths, *heads), atol=1e-2, rtol=1e-2)
