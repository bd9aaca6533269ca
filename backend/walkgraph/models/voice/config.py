"""The sizes of a speaker, the words that it knows, and the form of its codec's frames.

A folder holds `config.json`, `speaker` and `codec`.
"""

import dataclasses
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from walkgraph.checkpoints import limits
from walkgraph.checkpoints.decoder import DecoderShape, DecoderSizes
from walkgraph.checkpoints.fields import Fields, described, read_object
from walkgraph.errors import InvalidInput

FORMAT = "walkgraph/voice@1"
PAUSE = " "
"""The unit of silence, which also ends each text."""
_RATES, _HOP, _BANDS, _AGES, _UNITS, _LONGEST = (8000, 192_000), 2**14, 1024, 4096, 2**16, 64


@dataclass(frozen=True, kw_only=True)
class CodecSizes:
    """Frames of harmonics plus noise. Each has one code."""

    codes: int
    bands: int
    """Bands of a frame's spectrum, evenly spaced on the mel scale."""
    rate: int
    """Samples a second."""
    hop: int
    """Samples of a frame."""
    top: int
    """Frequency of the highest band in Hz."""

    def __post_init__(self) -> None:
        if self.bands < 2 or not 0 < self.top <= self.rate / 2:
            raise ValueError(f"a codec of {self.bands} bands up to {self.top} Hz can't be at {self.rate} samples/s")


@dataclass(frozen=True, kw_only=True)
class VoiceConfig(DecoderSizes):
    """`vocab`: tokens; a token is a code, or one of as many others: the same code as the last frame of its unit."""

    codec: CodecSizes
    units: tuple[str, ...]
    """The units that are spoken: words, the letters of other words in capitals, digits, and `PAUSE`."""
    ages: int
    """Frames of a unit that the speaker tells apart."""
    rope_theta: float = 1e4
    norm_eps: float = 1e-5

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.vocab != 2 * self.codec.codes:
            raise ValueError(f"`vocab` must be twice the codec's {self.codec.codes} codes, and is {self.vocab}")
        if PAUSE not in self.units or len(set(self.units)) < len(self.units):
            raise ValueError(f"`units` must have {PAUSE!r}, and each unit once")

    @property
    def shape(self) -> DecoderShape:
        return self.layer(qkv_bias=False, qk_norm=False)


def read_voice(folder: Path) -> VoiceConfig:
    """The config of a checkpoint folder; raises InvalidInput or NotFound with what is wrong."""
    config = Fields(read_object(folder / "config.json"))
    try:
        return _read(config)
    except (InvalidInput, ValueError) as error:
        raise described("a speaker", folder, error) from None


def voice_json(config: VoiceConfig) -> str:
    """The JSON that `read_voice` reads."""
    return json.dumps({"format": FORMAT, **dataclasses.asdict(config)}, indent=1) + "\n"


def _read(config: Fields) -> VoiceConfig:
    config.only("format", *(field.name for field in dataclasses.fields(VoiceConfig)))
    config.word("format", (FORMAT,))
    sizes = {
        "width": limits.WIDTH,
        "hidden": limits.HIDDEN,
        "layers": limits.LAYERS,
        "heads": limits.HEADS,
        "kv_heads": limits.HEADS,
        "head_dim": limits.HEAD_DIM,
        "vocab": limits.VOCAB,
        "ages": _AGES,
    }
    return VoiceConfig(
        **{key: config.whole(key, most) for key, most in sizes.items()},
        codec=_codec(config.section("codec")),
        units=_units(config.values.get("units")),
        rope_theta=config.number("rope_theta", limits.BASE),
        norm_eps=config.number("norm_eps", limits.EPS),
    )


def _codec(config: Fields) -> CodecSizes:
    config.only(*(field.name for field in dataclasses.fields(CodecSizes)))
    least, most = _RATES
    return CodecSizes(
        codes=config.whole("codes", limits.VOCAB // 2),
        bands=config.whole("bands", _BANDS, least=2),
        rate=config.whole("rate", most, least=least),
        hop=config.whole("hop", _HOP, least=2),
        top=config.whole("top", most // 2),
    )


def _units(value: Any) -> tuple[str, ...]:
    listed = cast(list[Any], value) if isinstance(value, list) else []
    if not 0 < len(listed) <= _UNITS or not all(isinstance(one, str) and 0 < len(one) <= _LONGEST for one in listed):
        raise InvalidInput(f"`units` must be a list of 1 to {_UNITS} words of up to {_LONGEST} characters")
    return tuple(cast(list[str], listed))
