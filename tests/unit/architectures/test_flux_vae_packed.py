"""The served autoencoder against the plain one: equal in float32, and close in bfloat16."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

import walkgraph.starters.shapes
from walkgraph.architectures.drawn import drawn
from walkgraph.architectures.flux_vae import AutoEncoder
from walkgraph.architectures.flux_vae_packed import PackedVae
from walkgraph.checkpoints.flux_vae import VaeConfig
from walkgraph.models.bagel.config import read_bagel
from walkgraph.models.bagel.presets import BAGEL
from walkgraph.models.bagel.weights import load_autoencoder

torch.set_num_threads(1)
CPU = torch.device("cpu")
NARROW = VaeConfig(channels=32, multipliers=(1, 2, 4, 4), blocks=2, latent_channels=16, shift=0.1159, scale=0.3611)
"""The published one at a quarter of its width."""


def plain(name: str) -> AutoEncoder:
    if name == "starter":
        folder = Path(walkgraph.starters.shapes.__file__).parent
        return load_autoencoder(folder, read_bagel(folder))
    config = NARROW if name == "narrow" else BAGEL["bagel-tiny"].vae
    return drawn(lambda: AutoEncoder(config), 0, device=CPU, dtype=torch.float32)


def some(model: AutoEncoder, pixels: int) -> tuple[Tensor, Tensor]:
    """(a smooth picture that isn't square, latents of its size)"""
    generator, f = torch.Generator().manual_seed(1), model.config.downsample
    small = torch.rand(1, 3, pixels // 4, pixels // 4, generator=generator) * 2 - 1
    picture = F.interpolate(small, size=(pixels, pixels + 2 * f), mode="bicubic").clamp(-1, 1)
    z = torch.randn(1, model.config.latent_channels, pixels // f, pixels // f + 2, generator=generator)
    return picture, z


def off(made: Tensor, wanted: Tensor) -> float:
    return float((made - wanted).norm() / wanted.norm())


def levels(picture: Tensor) -> Tensor:
    return (picture * 0.5 + 0.5).clamp(0, 1) * 255


@pytest.mark.parametrize("name", ["tiny", "starter", "narrow"])
@torch.inference_mode()
def test_in_float32_it_is_the_plain_one(name: str) -> None:
    model = plain(name)
    packed = PackedVae(model, torch.float32)
    picture, z = some(model, 48)
    pictures, latents = torch.cat([picture, -picture]), torch.cat([z, 0.5 * z])
    made = packed.decode(latents)
    assert made.is_contiguous()
    assert off(made, model.decode(latents)) < 1e-5
    assert off(packed.encode(pictures), model.encode(pictures)) < 1e-5


@pytest.mark.parametrize(
    ("name", "pixels", "decoded", "noise", "encoded"),
    [("narrow", 96, 2e-2, 45.0, 2e-2), ("starter", 64, 6e-3, 65.0, 5e-3)],
)
@torch.inference_mode()
def test_in_bfloat16_nobody_sees_a_difference(
    name: str, pixels: int, decoded: float, noise: float, encoded: float
) -> None:
    """`noise`: decibels of a picture's levels over their error, at least; 40 is where eyes give up."""
    model = plain(name)
    packed = PackedVae(model, torch.bfloat16)
    picture, z = some(model, pixels)
    made, wanted = packed.decode(z), model.decode(z)
    assert made.dtype == torch.float32
    assert 1e-4 < off(made, wanted) < decoded
    wrong = (levels(made) - levels(wanted)).square().mean()
    assert 10 * torch.log10(255**2 / wrong) > noise
    assert 1e-4 < off(packed.encode(picture), model.encode(picture)) < encoded


@torch.inference_mode()
def test_pictures_of_a_batch_do_not_see_each_other() -> None:
    model = plain("tiny")
    packed = PackedVae(model, torch.float32)
    a, b = (some(model, 32)[1] * scale for scale in (1.0, 3.0))
    together = packed.decode(torch.cat([a, b]))
    torch.testing.assert_close(together[:1], packed.decode(a), rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(together[1:], packed.decode(b), rtol=1e-5, atol=1e-5)
