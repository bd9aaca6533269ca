"""SNAC, the vocoder beside Orpheus: its published `config.json`."""

import math
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from walkgraph.checkpoints.fields import Fields, described, read_object
from walkgraph.errors import InvalidInput

_HERTZ, _DIM, _RATE, _LEVELS, _CODES = 10**6, 2**16, 64, 8, 2**20
_FRAME = 2**20
"""The most samples of a frame."""


@dataclass(frozen=True, kw_only=True)
class SnacConfig:
    """The sizes in the published `config.json`."""

    sampling_rate: int
    encoder_dim: int
    encoder_rates: tuple[int, ...]
    decoder_dim: int
    decoder_rates: tuple[int, ...]
    codebook_size: int
    codebook_dim: int
    vq_strides: tuple[int, ...]
    noise: bool = True
    depthwise: bool = True
    attn_window_size: int | None = None

    def __post_init__(self) -> None:
        if self.attn_window_size is not None:
            raise ValueError("a decoder with attention (`attn_window_size`) is not supported")
        if not self.decoder_rates or min(self.decoder_rates) < 2 or self.decoder_dim % 2 ** len(self.decoder_rates):
            raise ValueError(
                "each of `decoder_rates` must be 2 or more, and `decoder_dim` must be divisible by 2 for each of them"
            )
        strides = self.vq_strides
        if not strides or strides[-1] != 1 or any(a % b for a, b in pairwise(strides)):
            raise ValueError("each of `vq_strides` must divide the one before it, and the last be 1")

    @property
    def latent_dim(self) -> int:
        return self.encoder_dim * 2 ** len(self.encoder_rates)

    @property
    def widths(self) -> tuple[int, ...]:
        """Channels before the first stage and after each."""
        return tuple(self.decoder_dim // 2**i for i in range(len(self.decoder_rates) + 1))

    @property
    def frame_latents(self) -> int:
        return self.vq_strides[0]

    @property
    def frame_samples(self) -> int:
        return self.frame_latents * math.prod(self.decoder_rates)

    @property
    def frame_codes(self) -> int:
        return sum(self.frame_latents // stride for stride in self.vq_strides)


def read_snac(folder: Path) -> SnacConfig:
    """The config of a checkpoint folder; keys for the encoder or a library are ignored. Raises InvalidInput or NotFound
    with what is wrong."""
    config = Fields(read_object(folder / "config.json"))
    try:
        found = SnacConfig(
            sampling_rate=config.whole("sampling_rate", _HERTZ),
            encoder_dim=config.whole("encoder_dim", _DIM),
            encoder_rates=config.wholes("encoder_rates", _RATE, _LEVELS),
            decoder_dim=config.whole("decoder_dim", _DIM),
            decoder_rates=config.wholes("decoder_rates", _RATE, _LEVELS),
            codebook_size=config.whole("codebook_size", _CODES),
            codebook_dim=config.whole("codebook_dim", _DIM),
            vq_strides=config.wholes("vq_strides", _RATE, _LEVELS),
            noise=config.flag("noise", default=True),
            depthwise=config.flag("depthwise", default=True),
            attn_window_size=_attention(config),
        )
        if found.frame_samples > _FRAME:
            raise InvalidInput(f"a frame has {found.frame_samples} samples, and at most {_FRAME} are supported")
        return found
    except (InvalidInput, ValueError) as error:
        raise described("a SNAC model", folder, error) from None


def _attention(config: Fields) -> int | None:
    return None if config.values.get("attn_window_size") is None else config.whole("attn_window_size", 2**31)
