"""Parts of a vocoder's stages in one launch on a GPU against their naive twins in float32."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from walkgraph.memory.cuda_source import is_available

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(
        not torch.cuda.is_available() or torch.cuda.get_device_capability() != (9, 0), reason="needs Hopper"
    ),
    pytest.mark.skipif(not is_available(), reason="needs cuda-bindings"),
]


def snake(value: Tensor, turns: Tensor, height: Tensor) -> Tensor:
    return value + height * torch.sin(math.pi * turns * value) ** 2


def near(found: Tensor, wanted: Tensor) -> bool:
    return float((found.float() - wanted).norm() / wanted.norm()) < 4e-3


@pytest.mark.parametrize("channels", [96, 192])
@pytest.mark.parametrize(
    ("batch", "length", "dilation", "tail"), [(2, 300, 1, 18), (1, 1000, 9, 6), (3, 5, 3, 54), (5, 6400, 3, 54)]
)
def test_it_adds_and_sends_on_what_its_twin_does(
    channels: int, batch: int, length: int, dilation: int, tail: int
) -> None:
    from walkgraph.layers.kernels.snake_conv import OnwardTensors
    from walkgraph.layers.kernels.vocoder_stage import UnitLaunch

    torch.manual_seed(channels + length)
    device, places = torch.device("cuda"), 6 * dilation
    first = (torch.randn(channels, channels, 7, device=device) / (7 * channels) ** 0.5).bfloat16()
    second = (torch.randn(channels, channels, device=device) / channels**0.5).bfloat16()
    rows = torch.randn(batch, places + length, channels, device=device).bfloat16()
    x = torch.randn(batch, length, channels, device=device).bfloat16()
    bias = (0.1 * torch.randn(channels, device=device)).bfloat16()
    shift = 0.1 * torch.randn(channels, device=device)
    turns, height, next_turns, next_height = (torch.rand(channels, device=device) + 0.1 for _ in range(4))
    tails = torch.randn(batch, 2 * tail * channels + 64, device=device).bfloat16()
    before, after = tails[:, 32 : 32 + tail * channels], torch.zeros_like(tails)[:, 32 : 32 + tail * channels]
    room = torch.full((batch, tail + length, channels), torch.nan, device=device).bfloat16()
    with torch.backends.cudnn.flags(allow_tf32=False):
        inner = F.conv1d(rows.float().transpose(1, 2), first.float(), dilation=dilation).transpose(1, 2)
    inner = snake(inner + bias.float(), turns, height).bfloat16()
    total = (inner.double() @ second.double().T).float() + x.float()
    made = snake(total + shift, next_turns, next_height)
    whole = torch.cat([before.float().unflatten(1, (tail, channels)), made], 1)

    unit = UnitLaunch.of(first, bias, second, dilation)
    assert unit is not None
    onward = OnwardTensors(shift, next_turns, next_height, room, before, after)
    kept, left = x.clone(), x.clone()
    unit(rows, left, (turns, height), onward, keep=False)
    assert torch.equal(left, x)
    unit(rows, kept, (turns, height), onward, keep=True)
    assert near(kept, total)
    assert near(room, whole)
    assert near(after.unflatten(1, (tail, channels)), whole[:, -tail:])
    # A stream alone, and behind others, has the same bits.
    alone = room.new_empty(1, tail + length, channels)
    single = OnwardTensors(shift, next_turns, next_height, alone, before[-1:], after[-1:])
    unit(rows[-1:].contiguous(), x[-1:].clone(), (turns, height), single, keep=True)
    assert torch.equal(alone[0], room[-1])


@pytest.mark.parametrize(("batch", "length", "tail"), [(2, 300, 18), (1, 1000, 54), (3, 5, 54), (17, 700, 6)])
def test_it_upsamples_as_its_twin_does(batch: int, length: int, tail: int) -> None:
    from walkgraph.layers.kernels.snake_conv import OnwardTensors
    from walkgraph.layers.kernels.vocoder_stage import RiseLaunch

    torch.manual_seed(length)
    device = torch.device("cuda")
    weight = (torch.randn(192, 2 * 288, device=device) / 20).bfloat16()
    # The room has a row before those that are read, as that of a stream that begins.
    rows = torch.randn(batch, length + 2, 192, device=device).bfloat16()[:, 1:]
    shift = 0.1 * torch.randn(96, device=device)
    turns, height = (torch.rand(96, device=device) + 0.1 for _ in range(2))
    before = torch.randn(batch, tail * 96, device=device).bfloat16()
    after, room = torch.zeros_like(before), torch.empty(batch, tail + 3 * length, 96, device=device).bfloat16()
    own, past = (rows.double() @ part.double() for part in weight.chunk(2, 1))
    total = (own[:, 1:] + past[:, :-1]).float().view(batch, 3 * length, 96)
    whole = torch.cat([before.float().unflatten(1, (tail, 96)), snake(total + shift, turns, height)], 1)

    rise, kept = RiseLaunch.of(weight, 2), torch.empty_like(total).bfloat16()
    assert rise is not None
    rise(rows, length, kept, OnwardTensors(shift, turns, height, room, before, after))
    assert near(kept, total)
    assert near(room, whole)
    assert near(after.unflatten(1, (tail, 96)), whole[:, -tail:])


def test_other_channels_and_reaches_have_no_launch() -> None:
    from walkgraph.layers.kernels.vocoder_stage import UnitLaunch

    weight = torch.zeros(96, 96, 7, device="cuda", dtype=torch.bfloat16)
    bias = weight[0, :, 0]
    assert UnitLaunch.of(weight, bias, weight[..., 0], 10) is None
    assert UnitLaunch.of(weight.float(), bias.float(), weight[..., 0].float(), 1) is None
    assert UnitLaunch.of(weight[:64, :64], bias[:64], weight[:64, :64, 0], 1) is None
