"""The FLUX.1 autoencoder: pictures to 16-channel latents at an eighth of their side, and back.

Parameter names are the public checkpoint's (`ae.safetensors`).

Shape letters: B pictures, H and W pixels, z latent channels, f = 2^(levels - 1) the downsampling.
"""

from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from walkgraph.checkpoints.flux_vae import VaeConfig


class ResnetBlock(nn.Module):
    def __init__(self, width_in: int, width_out: int, groups: int) -> None:
        super().__init__()
        self.norm1 = nn.GroupNorm(groups, width_in, 1e-6)
        self.conv1 = nn.Conv2d(width_in, width_out, 3, padding=1)
        self.norm2 = nn.GroupNorm(groups, width_out, 1e-6)
        self.conv2 = nn.Conv2d(width_out, width_out, 3, padding=1)
        self.nin_shortcut = nn.Conv2d(width_in, width_out, 1) if width_in != width_out else None

    def forward(self, x: Tensor) -> Tensor:
        h = self.conv1(F.silu(self.norm1(x)))
        h = self.conv2(F.silu(self.norm2(h)))
        return h + (x if self.nin_shortcut is None else self.nin_shortcut(x))


class AttnBlock(nn.Module):
    """Single-head attention over all pixels."""

    def __init__(self, width: int, groups: int) -> None:
        super().__init__()
        self.norm = nn.GroupNorm(groups, width, 1e-6)
        self.q = nn.Conv2d(width, width, 1)
        self.k = nn.Conv2d(width, width, 1)
        self.v = nn.Conv2d(width, width, 1)
        self.proj_out = nn.Conv2d(width, width, 1)

    def forward(self, x: Tensor) -> Tensor:
        h = self.norm(x)
        q, k, v = (conv(h).flatten(2).transpose(1, 2)[:, None] for conv in (self.q, self.k, self.v))
        mixed = F.scaled_dot_product_attention(q, k, v)[:, 0].transpose(1, 2).unflatten(2, x.shape[2:])
        return x + self.proj_out(mixed)


class Downsample(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.conv = nn.Conv2d(width, width, 3, stride=2)

    def forward(self, x: Tensor) -> Tensor:
        return self.conv(F.pad(x, (0, 1, 0, 1)))


class Upsample(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.conv = nn.Conv2d(width, width, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        return self.conv(F.interpolate(x, scale_factor=2.0, mode="nearest"))


class Middle(nn.Module):
    def __init__(self, width: int, groups: int) -> None:
        super().__init__()
        self.block_1 = ResnetBlock(width, width, groups)
        self.attn_1 = AttnBlock(width, groups)
        self.block_2 = ResnetBlock(width, width, groups)

    def forward(self, x: Tensor) -> Tensor:
        return self.block_2(self.attn_1(self.block_1(x)))


class Level(nn.Module):
    """Residual blocks at one resolution, then (encoder) a downsampling or (decoder) an upsampling."""

    def __init__(self, width_in: int, width_out: int, blocks: int, groups: int) -> None:
        super().__init__()
        widths = [width_in] + [width_out] * blocks
        self.block = nn.ModuleList(ResnetBlock(a, b, groups) for a, b in pairwise(widths))

    def forward(self, x: Tensor) -> Tensor:
        for block in self.block:
            x = block(x)
        for resample in ("downsample", "upsample"):
            if resample in self._modules:
                x = self.get_submodule(resample)(x)
        return x


class Encoder(nn.Module):
    def __init__(self, config: VaeConfig) -> None:
        super().__init__()
        widths = [config.channels * m for m in config.multipliers]
        self.conv_in = nn.Conv2d(3, config.channels, 3, padding=1)
        self.down = nn.ModuleList()
        for index, (a, b) in enumerate(zip([config.channels, *widths], widths, strict=False)):
            level = Level(a, b, config.blocks, config.norm_groups)
            if index < len(widths) - 1:
                level.downsample = Downsample(b)
            self.down.append(level)
        self.mid = Middle(widths[-1], config.norm_groups)
        self.norm_out = nn.GroupNorm(config.norm_groups, widths[-1], 1e-6)
        self.conv_out = nn.Conv2d(widths[-1], 2 * config.latent_channels, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        x = self.conv_in(x)
        for level in self.down:
            x = level(x)
        return self.conv_out(F.silu(self.norm_out(self.mid(x))))


class Decoder(nn.Module):
    def __init__(self, config: VaeConfig) -> None:
        super().__init__()
        widths = [config.channels * m for m in config.multipliers]
        self.conv_in = nn.Conv2d(config.latent_channels, widths[-1], 3, padding=1)
        self.mid = Middle(widths[-1], config.norm_groups)
        self.up = nn.ModuleList()
        for index, (a, b) in enumerate(zip([*widths[1:], widths[-1]], widths, strict=True)):
            level = Level(a, b, config.blocks + 1, config.norm_groups)
            if index > 0:
                level.upsample = Upsample(b)
            self.up.append(level)
        self.norm_out = nn.GroupNorm(config.norm_groups, widths[0], 1e-6)
        self.conv_out = nn.Conv2d(widths[0], 3, 3, padding=1)

    def forward(self, z: Tensor) -> Tensor:
        x = self.mid(self.conv_in(z))
        for level in reversed(self.up):
            x = level(x)
        return self.conv_out(F.silu(self.norm_out(x)))


class AutoEncoder(nn.Module):
    def __init__(self, config: VaeConfig) -> None:
        super().__init__()
        self.config = config
        self.encoder = Encoder(config)
        self.decoder = Decoder(config)

    def posterior(self, images: Tensor) -> tuple[Tensor, Tensor]:
        """images `[B, 3, H, W]` in [-1, 1] -> mean and log-variance, each `[B, z, H/f, W/f]`, unscaled."""
        mean, log_variance = self.encoder(images).chunk(2, 1)
        return mean, log_variance

    def encode(self, images: Tensor, noise: Tensor | None = None) -> Tensor:
        """-> latents `[B, z, H/f, W/f]`: the posterior's mean, or with `noise` (standard normal) a sample of it."""
        mean, log_variance = self.posterior(images)
        z = mean if noise is None else torch.addcmul(mean, torch.exp(0.5 * log_variance), noise)
        return self.config.scale * (z - self.config.shift)

    def decode(self, latents: Tensor) -> Tensor:
        """latents `[B, z, H/f, W/f]` -> images `[B, 3, H, W]`, about [-1, 1]."""
        return self.decoder(latents / self.config.scale + self.config.shift)
