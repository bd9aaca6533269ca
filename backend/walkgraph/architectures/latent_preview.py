"""A picture of latents without their decoder: each pixel is a linear function of 3 by 3 latent pixels and of the mean
of all, as a decoder's norms make each part of a picture depend on the whole.

The function is fitted at load for the given weights, by least squares to the decoder's own output for random pictures
(flat or smooth grounds with discs and squares) that went through the encoder. Pictures that the autoencoder
reconstructs well weigh more, as its output means little for kinds of pictures that it has never seen.

On the starter's scenes a preview correlates with the decoder's picture by 0.97, and for blurred latents by 0.98; where
they differ from their ground, by 0.65: it shows where a shape is, but not always its colour. Tried without enough gain
for the cost: random features behind a ReLU, the decoder's own coarsest level, squares of latents.

Shape letters: B pictures, z latent channels, h and w latent pixels, d pixels along the side of one, S the side of a
drawn picture.
"""

from typing import Self

import torch
from torch import Tensor
from torch.nn import functional as F

from walkgraph.architectures.flux_vae_packed import PackedVae

_COUNT = 36
_SIDE = 16
"""The most latent pixels along a drawn picture's side."""
_GROUNDS = 1.0, -1.0, 0.0
_LIKELY = 1.0, 0.6, 0.3
"""Probability of a first, a second and a third disc or square."""
_DOUBT = 3e-3
"""Mean squared error at which a picture's weight is half of a perfect one's."""
_RIDGE = 1e-2
"""Share of a latent's mean square, so that weights that a few pictures don't determine stay small."""


class LatentPreview:
    def __init__(self, near: Tensor, mean: Tensor, bias: Tensor, detail: int) -> None:
        """near `[3 d d, z, 3, 3]`, mean `[3 d d, z]`, bias `[3 d d]`: weights for the d by d pixels of a latent
        pixel."""
        self._near, self._mean, self._bias, self.detail = near, mean, bias, detail

    @classmethod
    def fitted(cls, vae: PackedVae, detail: int, side: int, device: torch.device) -> Self:
        """`detail` divides the downsampling; `side`: latent pixels along the largest picture's side."""
        f = vae.config.downsample
        drawn = pictures(_COUNT, min(side, _SIDE) * f, torch.Generator().manual_seed(0))
        given = drawn.to(device)
        latents = vae.encode(given)
        painted = vae.decode(latents)
        weights = 1 / ((painted - given).square().mean((1, 2, 3)) + _DOUBT)
        wanted = F.avg_pool2d(painted.cpu(), f // detail)
        near, mean, bias = _least_squares(latents.cpu(), wanted, weights.cpu(), detail)
        return cls(near.to(device), mean.to(device), bias.to(device), detail)

    def __call__(self, latents: Tensor) -> Tensor:
        """float32 `[B, z, h, w]` -> `[B, 3, h * d, w * d]`, about [-1, 1]"""
        ground = F.linear(latents.mean((2, 3)), self._mean, self._bias)
        return F.pixel_shuffle(F.conv2d(_bordered(latents), self._near) + ground[..., None, None], self.detail)


def pictures(count: int, side: int, generator: torch.Generator) -> Tensor:
    """float32 `[count, 3, S, S]` in [-1, 1]: half on white, black or grey, a quarter on a colour, the rest on a smooth
    field of colours."""

    def even(*shape: int) -> Tensor:
        return torch.rand(*shape, generator=generator)

    flat, plain = count // 2, count // 4
    greys = torch.tensor(_GROUNDS)[torch.randint(0, len(_GROUNDS), (flat,), generator=generator)]
    colours = even(plain, 3, 1, 1) * 2 - 1
    fields = torch.randn(count - flat - plain, 3, max(2, side // 16), max(2, side // 16), generator=generator)
    picture = torch.cat(
        [
            (greys.view(-1, 1, 1, 1) + 0.4 * even(flat, 1, 1, 1) - 0.2).expand(-1, 3, side, side),
            colours.expand(-1, -1, side, side),
            0.6 * F.interpolate(fields, size=(side, side), mode="bicubic"),
        ]
    )
    at = torch.arange(side) + 0.5
    for likely in _LIKELY:
        x, y = (even(count, 1, 1) * side - at.view(shape) for shape in ((1, 1, -1), (1, -1, 1)))
        radius = (0.06 + 0.14 * even(count, 1, 1)) * side
        round_ = even(count, 1, 1) < 0.5
        far = torch.where(round_, torch.hypot(x, y), torch.maximum(x.abs(), y.abs()))
        cover = (radius - far + 0.5).clamp(0, 1) * (even(count, 1, 1) < likely)
        picture = picture + cover[:, None] * (even(count, 3, 1, 1) * 2 - 1 - picture)
    return picture.clamp(-1, 1)


def _bordered(latents: Tensor) -> Tensor:
    return F.pad(latents, (1, 1, 1, 1), mode="replicate")


def _least_squares(latents: Tensor, painted: Tensor, weights: Tensor, detail: int) -> tuple[Tensor, Tensor, Tensor]:
    """latents `[B, z, h, w]`, painted `[B, 3, h * d, w * d]`, weights `[B]` -> the tensors of a `LatentPreview`."""
    z = latents.shape[1]
    near = F.unfold(_bordered(latents), 3).transpose(1, 2)
    mean = latents.mean((2, 3))[:, None].expand(-1, near.shape[1], -1)
    seen = torch.cat([near, mean, torch.ones_like(near[..., :1])], 2).double()
    wanted = F.pixel_unshuffle(painted, detail).flatten(2).transpose(1, 2).double()
    weighted = (seen * weights.double().view(-1, 1, 1)).flatten(0, 1)
    products = weighted.T @ seen.flatten(0, 1)
    ridge = products.diagonal()[: 9 * z].mean() * _RIDGE * torch.ones(len(products), dtype=products.dtype)
    ridge[-1] = 0.0
    found = torch.linalg.solve(products + ridge.diag(), weighted.T @ wanted.flatten(0, 1)).float().T
    return found[:, : 9 * z].reshape(-1, z, 3, 3).contiguous(), found[:, 9 * z : -1].contiguous(), found[:, -1]
