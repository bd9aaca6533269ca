"""Sizes of Qwen3-Omni's audio encoder."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from walkgraph.checkpoints import limits
from walkgraph.checkpoints.fields import Fields, described, read_object
from walkgraph.errors import InvalidInput

_FRAMES = 4096
"""The most frames of a chunk."""
_CHUNKS = 4096
"""The most chunks of a window."""


@dataclass(frozen=True, kw_only=True)
class AudioConfig:
    width: int
    hidden: int
    layers: int
    heads: int
    mels: int
    """Bands of a spectrum."""
    channels: int
    """Channels of the convolutions."""
    out: int
    """Width of an embedding."""
    chunk: int = 100
    """Frames that the convolutions see at once, of 10 ms each."""
    window: int = 8
    """Chunks whose embeddings attend each other."""
    norm_eps: float = 1e-5

    def __post_init__(self) -> None:
        if self.width % self.heads or self.width % 2 or self.width < 4:
            raise ValueError(f"`width` {self.width} must be even and a multiple of `heads` {self.heads}")

    @property
    def bands(self) -> int:
        """Bands after the convolutions."""
        return halved(self.mels)

    @property
    def reach(self) -> int:
        """Embeddings of a whole window."""
        return self.window * halved(self.chunk)

    def tokens(self, frames: int) -> int:
        """Embeddings of a sound with so many frames."""
        return frames // self.chunk * halved(self.chunk) + halved(frames % self.chunk)

    @classmethod
    def published(cls, fields: Fields) -> Self:
        """The section `thinker_config.audio_config` of a published config. Raises InvalidInput."""
        fields.word("activation_function", ("gelu",), default="gelu")
        if fields.flag("scale_embedding"):
            raise InvalidInput(f"`{fields.at}scale_embedding` is true, and only false can be run")
        chunk = 2 * fields.whole("n_window", _FRAMES // 2, default=50)
        return cls(
            width=fields.whole("d_model", limits.WIDTH),
            hidden=fields.whole("encoder_ffn_dim", limits.HIDDEN),
            layers=fields.whole("encoder_layers", limits.LAYERS),
            heads=fields.whole("encoder_attention_heads", limits.HEADS),
            mels=fields.whole("num_mel_bins", limits.WIDTH, default=128),
            channels=fields.whole("downsample_hidden_size", limits.WIDTH, default=480),
            out=fields.whole("output_dim", limits.WIDTH),
            chunk=chunk,
            window=max(fields.whole("n_window_infer", _CHUNKS * _FRAMES, default=800) // chunk, 1),
        )


def halved(length: int) -> int:
    """A length after three convolutions of stride 2, each with one number of padding on both sides."""
    for _ in range(3):
        length = (length + 1) // 2
    return length


AUDIO = AudioConfig(width=1280, hidden=5120, layers=32, heads=20, mels=128, channels=480, out=2048)
"""Values published with Qwen3-Omni-30B-A3B."""
AUDIO_TINY = AudioConfig(width=32, hidden=48, layers=2, heads=4, mels=128, channels=8, out=64)
AUDIO_PRESETS: Mapping[str, AudioConfig] = {"qwen3-omni-30b-a3b": AUDIO, "qwen3-omni-tiny": AUDIO_TINY}


def read_audio(folder: Path) -> AudioConfig:
    """The sizes in a published folder. Raises InvalidInput or NotFound with what is wrong."""
    config = Fields(read_object(folder / "config.json"))
    try:
        return AudioConfig.published(config.section("thinker_config").section("audio_config"))
    except (InvalidInput, ValueError) as error:
        raise described("a Qwen3-Omni model", folder, error) from None
