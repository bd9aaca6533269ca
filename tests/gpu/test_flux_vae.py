"""On a GPU: the packed autoencoder against the plain one, its layers against their twins, and its captured step."""

from __future__ import annotations

from typing import cast

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from walkgraph.abi.calls import Call
from walkgraph.abi.states import States
from walkgraph.architectures.drawn import drawn
from walkgraph.architectures.flux_vae import AutoEncoder
from walkgraph.architectures.flux_vae_packed import PackedVae
from walkgraph.engine.calls.captured_step import CapturedSteps
from walkgraph.engine.device.capture import Capturer
from walkgraph.layers.pictures.pixels import few_channels, one_head
from walkgraph.models.bagel.config import BAGEL_7B_MOT
from walkgraph.models.bagel.vae_operators import VaeDecoder

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU"),
]
DEVICE = torch.device("cuda")


@pytest.fixture(scope="module")
def plain() -> AutoEncoder:
    return drawn(lambda: AutoEncoder(BAGEL_7B_MOT.vae), 0, device=DEVICE, dtype=torch.float32)


@pytest.fixture(scope="module")
def packed(plain: AutoEncoder) -> PackedVae:
    return PackedVae(plain, torch.bfloat16)


def some(seed: int, *shape: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).to(DEVICE)


def off(made: Tensor, wanted: Tensor) -> float:
    return float((made.double() - wanted.double()).norm() / wanted.double().norm())


@pytest.mark.parametrize("size", [(256, 256), (240, 400), (1024, 1024)])
@torch.inference_mode()
def test_pictures_and_latents_are_those_of_the_plain_network(
    plain: AutoEncoder, packed: PackedVae, size: tuple[int, int]
) -> None:
    z = some(1, 1, 16, size[0] // 8, size[1] // 8)
    picture = F.interpolate(some(2, 1, 3, size[0] // 16, size[1] // 16), size=size, mode="bicubic").clamp(-1, 1)
    with torch.backends.cudnn.flags(enabled=True, allow_tf32=False):
        wanted = plain.decode(z), plain.encode(picture)
    made = packed.decode(z)
    assert made.is_contiguous()
    assert off(made, wanted[0]) < 2e-2
    assert off(packed.encode(picture), wanted[1]) < 2e-2


@torch.inference_mode()
def test_the_ends_and_the_middle_are_their_twins() -> None:
    x = some(3, 2, 64, 33, 20).bfloat16().contiguous(memory_format=torch.channels_last)
    for outputs in (3, 16):
        weight, bias = some(4, outputs, 64, 3, 3).bfloat16(), some(5, outputs)
        made, wanted = few_channels(x, weight, bias), few_channels(x.cpu(), weight.cpu(), bias.cpu())
        assert off(made.cpu(), wanted) < 1e-5
    q, k, v = (some(seed, 2, 5000, 512).bfloat16() for seed in (6, 7, 8))
    exact = [one.float()[:, None] for one in (q, k, v)]
    wanted = F.scaled_dot_product_attention(exact[0], exact[1], exact[2])[:, 0]
    assert off(one_head(q, k, v), wanted) < 1e-2


@torch.inference_mode()
def test_a_captured_step_is_what_forward_makes(packed: PackedVae) -> None:
    decoder = VaeDecoder(packed, BAGEL_7B_MOT)
    capturer = Capturer(DEVICE)
    singles = CapturedSteps(capturer)
    singles.prepare(decoder, {"latents": torch.zeros(32, 32, 64)}, {})
    assert capturer.count == 1, capturer.failed
    calls = [Call("r", "n", "w", 0, 0, (), {"latents": some(s, 32, 32, 64)}, {}, {}, 0) for s in (1, 2)]
    served = singles.serve(decoder, calls, lambda _: {})
    assert served.mark is not None
    served.mark.synchronize()
    for one, made in zip(decoder.forward(calls, cast("States", None)), served.outputs, strict=True):
        assert off(made["pixels"], one["pixels"]) < 5e-3
