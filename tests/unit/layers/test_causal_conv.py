"""Convolutions of streams against torch's convolutions of the whole, and the snake between them."""

from __future__ import annotations

from itertools import pairwise

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from walkgraph.layers.sound.causal_conv import CausalConv, DepthwiseConv, MonoConv, Tails, Upsample
from walkgraph.layers.sound.snake import snake_beta

CUTS = [(), (1,), (3, 4, 11), tuple(range(1, 13))]
LENGTH = 13


@pytest.fixture(autouse=True)
def _seeded() -> None:
    torch.manual_seed(5)


@pytest.mark.parametrize("cuts", CUTS)
@pytest.mark.parametrize(("taps", "dilation"), [(7, 1), (7, 3), (3, 9), (1, 1)])
def test_a_causal_convolution_of_chunks_is_that_of_the_whole(taps: int, dilation: int, cuts: tuple[int, ...]) -> None:
    layer = CausalConv(6, 6, taps, dilation=dilation).requires_grad_(False)
    x = torch.randn(2, LENGTH, 6)
    weight, bias = layer.conv.weight.clone(), layer.bias.clone()
    padded = F.pad(x.transpose(1, 2), (layer.places, 0))
    wanted = F.conv1d(padded, weight, bias, dilation=dilation).transpose(1, 2)
    layer.pack()
    assert torch.equal(layer.conv.weight, weight), "packing changes the layout alone"
    rest, parts = torch.zeros(2, layer.places * 6), list[Tensor]()
    for start, stop in pairwise((0, *cuts, LENGTH)):
        tails, length = Tails(rest), stop - start
        made = layer(tails.behind(x[:, start:stop], layer.places, layer.spare(length)), layer.bias)
        assert made.shape[1] == length + layer.spare(length) < length + dilation
        parts.append(made[:, :length])
        rest = tails.after
    torch.testing.assert_close(torch.cat(parts, 1), wanted)
    whole = F.pad(padded, (0, layer.spare(LENGTH)), value=torch.nan).transpose(1, 2)
    torch.testing.assert_close(layer(whole)[:, :LENGTH] + bias, wanted)


@pytest.mark.parametrize("cuts", CUTS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_convolution_into_one_channel_is_torchs_of_the_whole(dtype: torch.dtype, cuts: tuple[int, ...]) -> None:
    layer = MonoConv(6, 7).requires_grad_(False).to(dtype)
    x = torch.randn(2, LENGTH, 6).to(dtype)
    padded = F.pad(x.transpose(1, 2), (layer.places, 0)).float()
    wanted = F.conv1d(padded, layer.conv.weight.float(), layer.conv.bias.float())[:, 0]
    rest, parts = torch.zeros(2, layer.places * 6, dtype=dtype), list[Tensor]()
    for start, stop in pairwise((0, *cuts, LENGTH)):
        tails = Tails(rest)
        parts.append(layer(tails.behind(x[:, start:stop], layer.places)))
        rest = tails.after
    close = 1e-2 if dtype == torch.bfloat16 else 1e-5
    torch.testing.assert_close(torch.cat(parts, 1), wanted, rtol=close, atol=close)


@pytest.mark.parametrize("cuts", CUTS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_convolution_of_each_channel_is_torchs_of_the_whole(dtype: torch.dtype, cuts: tuple[int, ...]) -> None:
    layer = DepthwiseConv(6, 7).requires_grad_(False).to(dtype)
    x = torch.randn(2, LENGTH, 6).to(dtype)
    padded = F.pad(x.transpose(1, 2), (layer.places, 0)).float()
    wanted = F.conv1d(padded, layer.conv.weight.float(), layer.conv.bias.float(), groups=6).transpose(1, 2).to(dtype)
    rest, parts = torch.zeros(2, layer.places * 6, dtype=dtype), list[Tensor]()
    for start, stop in pairwise((0, *cuts, LENGTH)):
        tails = Tails(rest)
        parts.append(layer(tails.behind(x[:, start:stop], layer.places)))
        rest = tails.after
    torch.testing.assert_close(torch.cat(parts, 1), wanted)


@pytest.mark.parametrize("cuts", CUTS)
@pytest.mark.parametrize("rate", [2, 3, 5])
def test_upsampling_of_chunks_is_that_of_the_whole_cut_on_both_sides(rate: int, cuts: tuple[int, ...]) -> None:
    layer = Upsample(6, 4, rate, 2).requires_grad_(False)
    x = torch.randn(2, LENGTH, 6)
    wanted = layer.conv(x.transpose(1, 2))[..., rate:-rate].transpose(1, 2)
    weight = layer.conv.weight.clone()
    layer.pack()
    assert torch.equal(layer.conv.weight, weight), "packing changes the layout alone"
    rest, parts = torch.zeros(2, 6), list[Tensor]()
    for start, stop in pairwise((0, *cuts, LENGTH)):
        tails = Tails(rest)
        room = tails.behind(x[:, start:stop], 1)
        parts.append(layer(room[:, 1:] if start == 0 else room))
        rest = tails.after
    made = torch.cat(parts, 1)
    assert made.shape == (2, (LENGTH - 1) * rate, 4)
    torch.testing.assert_close(made + layer.bias, wanted)


def test_upsampling_of_inputs_alone_needs_no_tail() -> None:
    layer = Upsample(6, 4, 3, 1).requires_grad_(False)
    x = torch.randn(2, LENGTH, 6)
    wanted = layer.conv(x.transpose(1, 2)).transpose(1, 2)
    layer.pack()
    assert layer.places == 0
    torch.testing.assert_close(layer(x) + layer.bias, wanted)


def test_tails_follow_each_other_in_one_row() -> None:
    before = torch.arange(2 * 10.0).view(2, 10)
    tails, x, y = Tails(before), torch.full((2, 1, 2), -1.0), torch.full((2, 5, 4), -2.0)
    assert tails.behind(x, 3).tolist()[1] == [[10, 11], [12, 13], [14, 15], [-1, -1]]
    room = tails.room(1, y)
    assert room[:, 0].tolist() == before[:, 6:].tolist()
    room[:, 1:] = y
    tails.keep(room, 1)
    assert tails.after.tolist() == [[2, 3, 4, 5, -1, -1, *[-2] * 4], [12, 13, 14, 15, -1, -1, *[-2] * 4]]


def test_packed_convolutions_can_be_cast() -> None:
    layers = [CausalConv(4, 4, 3).requires_grad_(False), Upsample(4, 4, 2, 2).requires_grad_(False)]
    x = torch.randn(1, 6, 4)
    for layer in layers:
        layer.pack()
        wanted = layer(x)
        torch.testing.assert_close(layer.double()(x.double()).float(), wanted)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_snake_with_its_own_height_is_rounded_once(dtype: torch.dtype) -> None:
    x, (alpha, beta, bias) = torch.randn(2, 9, 6).to(dtype), torch.randn(3, 6).to(dtype)
    s = x.double() + bias.double()
    wanted = s + torch.sin(s * alpha.double().exp()) ** 2 / (beta.double().exp() + 1e-9)
    room = torch.zeros(2, 12, 6, dtype=dtype)
    made = snake_beta(x, alpha, beta, bias, out=room[:, 3:])
    assert made.data_ptr() == room[:, 3:].data_ptr()
    torch.testing.assert_close(made, wanted.to(dtype), rtol=1e-2 if dtype == torch.bfloat16 else 1e-5, atol=1e-5)
    torch.testing.assert_close(snake_beta(x + bias, alpha, beta), made, rtol=5e-2, atol=5e-2)
    assert not room[:, :3].any()
