"""Sizes of the FLUX autoencoder, as configs of several layouts give them."""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class VaeConfig:
    channels: int
    multipliers: tuple[int, ...]
    """Width of each level, in units of `channels`; every level but the last halves the side."""
    blocks: int
    """Residual blocks per level of the encoder; the decoder has one more."""
    latent_channels: int
    shift: float
    scale: float
    """Latents are scale * (z - shift)."""
    norm_groups: int = 32

    def __post_init__(self) -> None:
        if not self.multipliers or any((self.channels * m) % self.norm_groups for m in self.multipliers):
            raise ValueError(f"`vae.channels` times each of `vae.multipliers` must divide by {self.norm_groups} groups")

    @property
    def downsample(self) -> int:
        return 2 ** (len(self.multipliers) - 1)
