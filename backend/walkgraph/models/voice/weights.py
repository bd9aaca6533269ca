"""The speaker's weights: drawn, or read from a folder once for all its operators."""

from typing import Any

import torch

from walkgraph.abi.operator import LoadContext
from walkgraph.architectures.drawn import drawn
from walkgraph.architectures.weights import load
from walkgraph.models.voice.codec import Codec
from walkgraph.models.voice.config import VoiceConfig, read_voice
from walkgraph.models.voice.model import Speaker
from walkgraph.models.voice.presets import voice_config


def config_of(context: LoadContext) -> VoiceConfig:
    return context.once(VoiceConfig, lambda name, seed: voice_config(name), read_voice)


def speaker_of(context: LoadContext) -> Speaker:
    config, on = config_of(context), dict[str, Any](device=context.device, dtype=context.dtype)
    return context.once(
        Speaker,
        lambda name, seed: drawn(lambda: Speaker(config), seed, **on).pack(),
        lambda folder: load(lambda: Speaker(config), folder, "speaker", **on, progress=context.progress).pack(),
    )


def codec_of(context: LoadContext) -> Codec:
    """In float32, wherever it is."""
    sizes, on = config_of(context).codec, dict[str, Any](device=context.device, dtype=torch.float32)
    return context.once(
        Codec,
        lambda name, seed: drawn(lambda: Codec(sizes), seed, **on).audible(),
        lambda folder: load(lambda: Codec(sizes), folder, "codec", **on, progress=context.progress),
    )
