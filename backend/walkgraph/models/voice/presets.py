"""The speaker's configurations for `random:CONFIG:SEED` sources."""

from walkgraph.checkpoints.presets import preset
from walkgraph.models.voice.config import PAUSE, CodecSizes, VoiceConfig

_CODES = 64
VOICE: dict[str, VoiceConfig] = {
    "voice-tiny": VoiceConfig(
        width=48,
        hidden=80,
        layers=2,
        heads=4,
        kv_heads=2,
        head_dim=16,
        vocab=2 * _CODES,
        codec=CodecSizes(codes=_CODES, bands=8, rate=24000, hop=320, top=11000),
        units=(*"ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789", PAUSE),
        ages=8,
    ),
}
"""For tests."""


def voice_config(name: str) -> VoiceConfig:
    return preset(VOICE, name)
