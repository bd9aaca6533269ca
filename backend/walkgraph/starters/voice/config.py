"""The starter's sizes."""

from walkgraph.models.voice.config import CodecSizes, VoiceConfig
from walkgraph.starters.voice.units import UNITS

CODEC = CodecSizes(codes=1024, bands=32, rate=24000, hop=320, top=11000)
"""75 frames a second."""


def config() -> VoiceConfig:
    """0.85 million parameters."""
    return VoiceConfig(
        width=128,
        hidden=256,
        layers=2,
        heads=4,
        kv_heads=2,
        head_dim=32,
        vocab=2 * CODEC.codes,
        codec=CODEC,
        units=UNITS,
        ages=64,
    )
