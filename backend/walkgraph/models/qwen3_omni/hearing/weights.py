"""Weights of the audio encoder: the tensors below `thinker.audio_tower` of a published folder."""

from pathlib import Path
from typing import Any, Unpack

from walkgraph.abi.operator import LoadContext
from walkgraph.architectures.drawn import drawn
from walkgraph.architectures.weights import Loading, Names, load
from walkgraph.checkpoints.presets import preset
from walkgraph.models.qwen3_omni.hearing.config import AUDIO_PRESETS, AudioConfig, read_audio
from walkgraph.models.qwen3_omni.hearing.model import AudioEncoder
from walkgraph.models.qwen3_omni.parts import AUDIO, STEM, own_name


def load_audio_encoder(folder: Path, config: AudioConfig, **on: Unpack[Loading]) -> AudioEncoder:
    """Load the encoder; strict. Raises `NotFound` and `InvalidInput`."""
    return load(lambda: AudioEncoder(config), folder, STEM, names=Names(rename=own_name(AUDIO)), **on)


def audio_encoder_of(context: LoadContext) -> AudioEncoder:
    """The encoder of the weight set, drawn or read once, and packed."""
    config = context.once(AudioConfig, lambda name, seed: preset(AUDIO_PRESETS, name), read_audio)
    on: dict[str, Any] = {"device": context.device, "dtype": context.dtype}
    return context.once(
        AudioEncoder,
        lambda name, seed: drawn(lambda: AudioEncoder(config), seed, **on).pack(),
        lambda folder: load_audio_encoder(folder, config, **on, progress=context.progress).pack(),
    )
