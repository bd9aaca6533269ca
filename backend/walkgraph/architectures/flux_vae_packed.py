"""The FLUX autoencoder in its serving form: `AutoEncoder` laid out for few passes over its pictures.

    pictures     channels-last in one dtype, sums and statistics in float32, what leaves it float32
    convolutions without their bias, which the pass that adds the residual adds too; that pass tells the next norm's
                 statistics
    upsampling   four convolutions of 2 by 2 at the small size, one for each place of a pixel in its square: what the
                 3 by 3 sees of a doubled picture is 2 by 2 pixels of it, so weights are added up once and 5 of 9
                 products are never made
    downsampling a convolution of a picture that was written with its border
    attention    of one head of 512, on its own pieces

In bfloat16 pictures differ from those in float32, with random weights, by 1.2e-2 of their norm (50 dB, on average 0.6
of 255), latents by 1.3e-2; with the starter's weights by 4e-3 (70 dB).
`tests/unit/architectures/test_flux_vae_packed.py` checks these bounds. The residual sums' rounding causes a third of
it, the first and the last layer nothing measurable.

The largest picture, 1024 by 1024, takes less than 3 GB and is not tiled: norms and attention see all of it.

Shape letters: B pictures, H and W pixels, z latent channels, f the downsampling.
"""

from typing import NamedTuple, cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from walkgraph.architectures.flux_vae import AttnBlock, AutoEncoder, Downsample, Level, Middle, ResnetBlock, Upsample
from walkgraph.layers.norm.group_norm import add_norm, added
from walkgraph.layers.norm.picture_sum import GroupNormWeights, PictureSum
from walkgraph.layers.pictures.pixels import few_channels, one_head

_ALIGNED = 8
"""Channels that convolution kernels read at once."""


class _Conv(NamedTuple):
    weight: Tensor
    """`[O, C, k, k]` channels-last"""
    bias: Tensor
    """float32 `[O]`"""
    stride: int
    padding: int

    def __call__(self, x: Tensor, add: Tensor | None = None) -> PictureSum:
        return PictureSum(F.conv2d(x, self.weight, stride=self.stride, padding=self.padding), self.bias, add)


class _Linear(NamedTuple):
    """A convolution of 1 by 1."""

    weight: Tensor
    """`[O, C]`"""
    bias: Tensor

    def __call__(self, x: Tensor) -> Tensor:
        """`[..., C]` -> `[..., O]`, without the bias"""
        return F.linear(x, self.weight)


class _Block(NamedTuple):
    norm1: GroupNormWeights
    conv1: _Conv
    norm2: GroupNormWeights
    conv2: _Conv
    shortcut: _Linear | None

    def __call__(self, x: PictureSum) -> PictureSum:
        kept, made = add_norm(x, self.norm1)
        made = add_norm(self.conv1(made), self.norm2, keep=False)[1]
        if self.shortcut is None:
            return self.conv2(made, kept)
        return self.conv2(made, self.shortcut(kept.permute(0, 2, 3, 1)).permute(0, 3, 1, 2))


class _Attention(NamedTuple):
    norm: GroupNormWeights
    q: _Linear
    k: _Linear
    v: _Linear
    out: _Linear

    def __call__(self, x: PictureSum) -> PictureSum:
        kept, made = add_norm(x, self.norm, silu=False)
        rows = made.permute(0, 2, 3, 1).flatten(1, 2)
        q, k, v = (one(rows) + one.bias.to(rows.dtype) for one in (self.q, self.k, self.v))
        mixed = self.out(one_head(q, k, v))
        return PictureSum(mixed.unflatten(1, kept.shape[2:]).permute(0, 3, 1, 2), self.out.bias, kept)


class _Upsample(NamedTuple):
    conv: _Conv

    def __call__(self, x: PictureSum) -> PictureSum:
        return self.conv(added(x))._replace(phases=True)


class _Downsample(NamedTuple):
    conv: _Conv

    def __call__(self, x: PictureSum) -> PictureSum:
        return self.conv(added(x, pad=True))


_Stage = _Block | _Attention | _Upsample | _Downsample


class PackedVae:
    """`AutoEncoder.encode` (the posterior's mean) and `AutoEncoder.decode`, without gradients."""

    def __init__(self, model: AutoEncoder, dtype: torch.dtype) -> None:
        self.config, self._dtype = model.config, dtype
        encoder, decoder = model.encoder, model.decoder
        pack = _Packer(dtype)
        self._first = pack.conv(encoder.conv_in, padding=1)
        self._down = [
            *(stage for level in encoder.down for stage in pack.level(cast(Level, level))),
            *pack.middle(encoder.mid),
        ]
        self._latent_norm, self._mean = (
            pack.norm(encoder.norm_out),
            pack.last(encoder.conv_out, model.config.latent_channels),
        )
        self._start = pack.conv(decoder.conv_in, padding=1)
        levels = (stage for level in reversed(decoder.up) for stage in pack.level(cast(Level, level)))
        self._up = [*pack.middle(decoder.mid), *levels]
        self._pixel_norm, self._pixels = pack.norm(decoder.norm_out), pack.last(decoder.conv_out, 3)

    def encode(self, images: Tensor) -> Tensor:
        """images `[B, 3, H, W]` in [-1, 1] -> latents float32 `[B, z, H/f, W/f]`"""
        mean = self._through(images, self._first, self._down, self._latent_norm, self._mean)
        return self.config.scale * (mean - self.config.shift)

    def decode(self, latents: Tensor) -> Tensor:
        """latents `[B, z, H/f, W/f]` -> images float32 `[B, 3, H, W]`, about [-1, 1]"""
        z = latents.float() / self.config.scale + self.config.shift
        return self._through(z, self._start, self._up, self._pixel_norm, self._pixels)

    def _through(
        self, x: Tensor, first: _Conv, stages: list[_Stage], norm: GroupNormWeights, last: tuple[Tensor, Tensor]
    ) -> Tensor:
        total = first(_aligned(x, self._dtype))
        for stage in stages:
            total = stage(total)
        return few_channels(add_norm(total, norm, keep=False)[1], *last)


def _aligned(x: Tensor, dtype: torch.dtype) -> Tensor:
    """`[B, C, H, W]` channels-last, with channels zero-padded to a multiple of 8."""
    b, c, h, w = x.shape
    wide = torch.zeros(b, h, w, c + -c % _ALIGNED, dtype=dtype, device=x.device).permute(0, 3, 1, 2)
    wide[:, :c] = x
    return wide


class _Packer:
    def __init__(self, dtype: torch.dtype) -> None:
        self._dtype = dtype

    def norm(self, module: nn.GroupNorm) -> GroupNormWeights:
        return GroupNormWeights(module.num_groups, module.weight.float(), module.bias.float(), module.eps)

    def conv(self, module: nn.Conv2d, *, padding: int = 0, stride: int = 1) -> _Conv:
        return self._conv(module.weight, _bias(module), padding=padding, stride=stride)

    def last(self, module: nn.Conv2d, channels: int) -> tuple[Tensor, Tensor]:
        """(weight, bias) of the first output channels."""
        return module.weight[:channels].to(self._dtype), _bias(module)[:channels]

    def level(self, module: Level) -> list[_Stage]:
        found: list[_Stage] = [self.block(cast(ResnetBlock, block)) for block in module.block]
        for name, child in module.named_children():
            if name == "downsample":
                found.append(_Downsample(self.conv(cast(Downsample, child).conv, stride=2)))
            elif name == "upsample":
                conv = cast(Upsample, child).conv
                found.append(_Upsample(self._conv(_phases(conv.weight), _bias(conv), padding=1, stride=1)))
        return found

    def middle(self, module: Middle) -> list[_Stage]:
        return [self.block(module.block_1), self._attention(module.attn_1), self.block(module.block_2)]

    def block(self, module: ResnetBlock) -> _Block:
        shortcut = None if module.nin_shortcut is None else self._linear(module.nin_shortcut)
        conv2 = self.conv(module.conv2, padding=1)
        if shortcut is not None:
            conv2 = conv2._replace(bias=conv2.bias + shortcut.bias)
        return _Block(
            self.norm(module.norm1), self.conv(module.conv1, padding=1), self.norm(module.norm2), conv2, shortcut
        )

    def _attention(self, module: AttnBlock) -> _Attention:
        q, k, v, out = (self._linear(conv) for conv in (module.q, module.k, module.v, module.proj_out))
        return _Attention(self.norm(module.norm), q, k, v, out)

    def _linear(self, module: nn.Conv2d) -> _Linear:
        return _Linear(module.weight.flatten(1).to(self._dtype), _bias(module))

    def _conv(self, weight: Tensor, bias: Tensor, *, padding: int, stride: int) -> _Conv:
        weight = F.pad(weight, (0, 0, 0, 0, 0, -weight.shape[1] % _ALIGNED)).to(self._dtype)
        return _Conv(weight.contiguous(memory_format=torch.channels_last), bias, stride, padding)


def _bias(module: nn.Conv2d) -> Tensor:
    if module.bias is None:
        raise ValueError("a convolution of this autoencoder has a bias")
    return module.bias.float()


def _phases(weight: Tensor) -> Tensor:
    """`[O, C, 3, 3]` over a doubled picture -> `[4 O, C, 2, 2]` over the picture itself, phase by phase."""
    rows = (_folded(weight.float(), 2, late=late) for late in (False, True))
    return torch.cat([_folded(row, 3, late=late) for row in rows for late in (False, True)])


def _folded(weight: Tensor, axis: int, *, late: bool) -> Tensor:
    """Three neighbours along an axis as two: the first of a doubled pixel's copies has the other copy after it, the
    second before it."""
    a, b, c = weight.unbind(axis)
    return torch.stack([a + b, c] if late else [a, b + c], axis)
