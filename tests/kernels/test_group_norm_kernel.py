from __future__ import annotations

import pytest
import torch
from torch import Tensor

from walkgraph.layers.kernels import group_norm
from walkgraph.layers.kernels.group_norm import add_norm, added
from walkgraph.layers.norm import group_norm as twin
from walkgraph.layers.norm.picture_sum import GroupNormWeights, PictureSum


def picture(seed: int, *shape: int, dtype: torch.dtype = torch.float32, far: float = 0.0) -> Tensor:
    made = torch.randn(*shape, generator=torch.Generator().manual_seed(seed)) + far
    return made.to(dtype).contiguous(memory_format=torch.channels_last)


def some(channels: int, groups: int) -> GroupNormWeights:
    return GroupNormWeights(
        groups, picture(7, 1, channels, 1, 1).flatten(), picture(8, 1, channels, 1, 1).flatten(), 1e-6
    )


def on(device: str, x: PictureSum) -> PictureSum:
    held, bias, add = (None if one is None else one.to(device) for one in x[:3])
    assert held is not None
    return PictureSum(held, bias, add, x.phases)


def close(made: Tensor, wanted: Tensor) -> None:
    assert made.is_contiguous(memory_format=torch.channels_last)
    assert made.dtype == wanted.dtype
    loose = 1e-5 if made.dtype == torch.float32 else 8e-3
    torch.testing.assert_close(made.cpu(), wanted, rtol=loose, atol=loose)


@pytest.mark.parametrize("half", [False, True])
@pytest.mark.parametrize("given", ["", "bias", "add", "bias add", "phases bias"])
@pytest.mark.parametrize(("channels", "groups", "size"), [(12, 4, (3, 5)), (160, 4, (9, 8))])
def test_sums_and_norms_are_the_twins(
    half: bool, given: str, channels: int, groups: int, size: tuple[int, int], device: str
) -> None:
    # The interpreter cuts what it should round to bfloat16.
    dtype = (torch.bfloat16 if device == "cuda" else torch.float16) if half else torch.float32
    norm, phases = some(channels, groups), "phases" in given
    held = picture(0, 2, channels, *size, dtype=dtype, far=2.0)
    if phases:
        held = picture(0, 2, 4 * channels, size[0] + 1, size[1] + 1, dtype=dtype)
    bias = picture(1, 1, channels, 1, 1).flatten() if "bias" in given else None
    x = PictureSum(held, bias, picture(2, 2, channels, *size, dtype=dtype) if "add" in given else None, phases)
    lent = GroupNormWeights(groups, norm.weight.to(device), norm.bias.to(device), norm.eps)
    for keep, silu in (True, True), (False, False):
        kept, made = add_norm(on(device, x), lent, silu=silu, keep=keep)
        wanted = twin.add_norm(x, norm, silu=silu, keep=keep)
        close(made, wanted[1])
        if keep:
            close(kept, wanted[0])
    for pad in (False, True):
        close(added(on(device, x), pad=pad), twin.added(x, pad=pad))


def test_channels_far_from_zero_lose_nothing_over_chunks_of_many_tiles(
    device: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(group_norm, "_PROGRAMS", 4)
    x, norm = PictureSum(picture(3, 2, 8, 31, 20, far=3000.0)), some(8, 4)
    wanted = torch.nn.functional.group_norm(x.held.double(), 4, norm.weight.double(), norm.bias.double(), 1e-6)
    lent = GroupNormWeights(4, norm.weight.to(device), norm.bias.to(device), norm.eps)
    made = add_norm(on(device, x), lent, silu=False, keep=False)[1]
    # An ulp of 3000 is 2.4e-4 of the deviation.
    torch.testing.assert_close(made.cpu().double(), wanted, rtol=0, atol=2e-3)


def test_pictures_in_another_order_are_refused(device: str) -> None:
    x = PictureSum(torch.zeros(2, 8, 4, 4, device=device))
    with pytest.raises(ValueError, match="channels-last"):
        added(x, pad=False)
