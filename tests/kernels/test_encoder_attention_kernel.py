"""Attention within pictures, against each picture alone; how its heads are filled up."""

from __future__ import annotations

import importlib.util

import pytest
import torch
from torch import Tensor

from walkgraph.layers.attention.dense_attention import BlockAttend, dense_attention
from walkgraph.layers.kernels.encoder_attention import fill, supported

HOPPER = (
    torch.cuda.is_available()
    and torch.cuda.get_device_capability()[0] == 9
    and importlib.util.find_spec("flashinfer") is not None
)
Heads = tuple[Tensor, Tensor, Tensor]
SIZES = [[4900], [4900, 1, 128, 1000], [64, 65], [16] * 9]


def drawn(lengths: list[int], heads: int, width: int, dtype: torch.dtype, device: str) -> Heads:
    """Views of one product, as the encoder has them."""
    generator = torch.Generator().manual_seed(width + sum(lengths))
    qkv = torch.randn(sum(lengths), 3 * heads * width, generator=generator).to(device, dtype)
    q, k, v = (part.unflatten(1, (heads, width)) for part in qkv.chunk(3, 1))
    return q, k, v


def alone(lengths: list[int], q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    parts = zip(*(one.float()[None].split(lengths, 1) for one in (q, k, v)), strict=True)
    return torch.cat([dense_attention(*part)[0] for part in parts])


@pytest.mark.parametrize(("heads", "width", "dtype"), [(2, 72, torch.bfloat16), (3, 12, torch.float32)])
def test_heads_are_filled_up_with_what_lies_there(heads: int, width: int, dtype: torch.dtype, device: str) -> None:
    parts = drawn([5], heads, width, dtype, device)
    rows = torch.tensor([0, 1, 4, 5, 7], device=device)
    to = [torch.full((count, heads, 80), 7, dtype=dtype, device=device) for count in (5, 9, 9)]
    fill(parts, to, rows)
    wanted = [torch.full_like(one, 7) for one in to]
    wanted[0][..., :width] = parts[0]
    for one, part in zip(wanted[1:], parts[1:], strict=True):
        one[rows, :, :width] = part
    for one, other in zip(to, wanted, strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=0)


def test_what_has_no_form_is_told() -> None:
    q, k, v = drawn([4], 2, 72, torch.bfloat16, "cuda" if HOPPER else "cpu")
    assert supported(q, k, v) == HOPPER
    assert not supported(q.float(), k.float(), v.float())
    assert not supported(q, k.contiguous(), v)
    assert not supported(*drawn([4], 2, 64, torch.bfloat16, str(q.device)))
    assert not supported(q, k[:, :1], v[:, :1])


@pytest.mark.gpu
@pytest.mark.skipif(not HOPPER, reason="needs a GPU of compute capability 9, and FlashInfer")
@pytest.mark.parametrize("lengths", SIZES, ids=str)
def test_the_encoder_attends_by_it(lengths: list[int]) -> None:
    with torch.inference_mode():
        attend = BlockAttend(lengths)
        for layer in range(3):
            q, k, v = drawn(lengths, 16, 72, torch.bfloat16, "cuda")
            q *= 1 + layer
            torch.testing.assert_close(attend(layer, q, k, v).float(), alone(lengths, q, k, v), atol=1e-2, rtol=1e-2)


@pytest.mark.gpu
@pytest.mark.skipif(not HOPPER, reason="needs a GPU of compute capability 9, and FlashInfer")
def test_a_broken_picture_breaks_no_other() -> None:
    with torch.inference_mode():
        q, k, v = drawn([20, 30, 40], 2, 72, torch.bfloat16, "cuda")
        for one in (q, k, v):
            one[20:50] = torch.nan
        out = BlockAttend([20, 30, 40])(0, q, k, v)
        assert out[:20].isfinite().all()
        assert out[20:50].isnan().all()
        assert out[50:].isfinite().all()
