"""Sizes of the vocoder: `code2wav_config` of the published config."""

import math
from dataclasses import dataclass
from typing import Self

from walkgraph.checkpoints import limits
from walkgraph.checkpoints.decoder import StackSizes, rope_base, rope_kind, rope_of
from walkgraph.checkpoints.fields import Fields

_CODES, _GROUPS, _FRAMES, _RATE, _STAGES = 2**20, 64, 2**16, 64, 8
_SAMPLES = 2**20
"""The most samples of a frame."""


@dataclass(frozen=True, kw_only=True)
class VocoderConfig(StackSizes):
    """Raises ValueError for sizes that don't fit together."""

    codebook: int
    """Codes of each group."""
    groups: int
    """Codes of a frame."""
    width: int
    hidden: int
    window: int
    """Frames that a frame attends, itself included."""
    rope_theta: float
    ratios: tuple[int, ...]
    """Upsampling before the decoder."""
    rates: tuple[int, ...]
    """Upsampling in the decoder's stages, each of which has half the channels of the one before."""
    decoder_width: int

    def __post_init__(self) -> None:
        if self.heads % self.kv_heads or self.head_dim % 2:
            raise ValueError("`num_attention_heads` must be a multiple of `num_key_value_heads`, and `head_dim` even")
        if self.decoder_width % 2 ** len(self.rates):
            raise ValueError("`decoder_dim` must be divisible by 2 for each of `upsample_rates`")
        if math.prod(self.ratios) < 2:
            raise ValueError("`upsampling_ratios` must give a frame two places or more before the decoder")
        if self.frame_samples > _SAMPLES:
            raise ValueError(f"a frame has {self.frame_samples} samples, and at most {_SAMPLES} are supported")

    @classmethod
    def published(cls, fields: Fields) -> Self:
        """Raises InvalidInput or ValueError."""
        width, heads = fields.whole("hidden_size", limits.WIDTH), fields.whole("num_attention_heads", limits.HEADS)
        fields.word("hidden_act", ("silu",), "silu")
        rope = rope_of(fields)
        rope_kind(rope, ("default",))
        if fields.flag("attention_bias"):
            raise ValueError("a vocoder with biases in its attention (`attention_bias`) is not supported")
        return cls(
            codebook=fields.whole("codebook_size", _CODES),
            groups=fields.whole("num_quantizers", _GROUPS),
            width=width,
            hidden=fields.whole("intermediate_size", limits.HIDDEN),
            layers=fields.whole("num_hidden_layers", limits.LAYERS),
            heads=heads,
            kv_heads=fields.whole("num_key_value_heads", limits.HEADS, default=heads),
            head_dim=fields.whole("head_dim", limits.HEAD_DIM, default=width // heads),
            norm_eps=fields.number("rms_norm_eps", limits.EPS, default=1e-5),
            window=fields.whole("sliding_window", _FRAMES, least=2, default=72),
            rope_theta=rope_base(fields, rope, 10000.0),
            ratios=fields.wholes("upsampling_ratios", _RATE, _STAGES, default=(2, 2)),
            rates=fields.wholes("upsample_rates", _RATE, _STAGES, least=2, default=(8, 5, 4, 3)),
            decoder_width=fields.whole("decoder_dim", limits.WIDTH),
        )

    @property
    def frame_samples(self) -> int:
        return math.prod(self.ratios) * math.prod(self.rates)

    @property
    def ahead(self) -> int:
        """Samples at the end of a stream that would need another frame: one input of each stage of the decoder."""
        late = 0
        for rate in self.rates:
            late = (late + 1) * rate
        return late

    @property
    def widths(self) -> tuple[int, ...]:
        """Channels before the decoder's first stage and after each."""
        return tuple(self.decoder_width // 2**stage for stage in range(len(self.rates) + 1))


PUBLISHED = VocoderConfig(
    codebook=2048,
    groups=16,
    width=1024,
    hidden=3072,
    layers=8,
    heads=16,
    kv_heads=16,
    head_dim=64,
    norm_eps=1e-5,
    window=72,
    rope_theta=10000.0,
    ratios=(2, 2),
    rates=(8, 5, 4, 3),
    decoder_width=1536,
)
"""The published sizes."""
TINY = VocoderConfig(
    codebook=64,
    groups=16,
    width=32,
    hidden=48,
    layers=2,
    heads=4,
    kv_heads=2,
    head_dim=8,
    norm_eps=1e-5,
    window=6,
    rope_theta=10000.0,
    ratios=(2, 2),
    rates=(8, 5, 4, 3),
    decoder_width=32,
)
"""Sizes for tests: the published frame of 1920 samples, and a short window."""
