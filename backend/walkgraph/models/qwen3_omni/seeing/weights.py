"""Weights of the vision encoder: the tensors below `thinker.visual` of a published folder."""

from pathlib import Path
from typing import Any, Unpack

from walkgraph.abi.operator import LoadContext
from walkgraph.architectures.drawn import drawn
from walkgraph.architectures.weights import Loading, Names, load
from walkgraph.checkpoints.presets import preset
from walkgraph.models.qwen3_omni.parts import STEM, VISION, own_name
from walkgraph.models.qwen3_omni.seeing.config import VISION_PRESETS, VisionConfig, read_vision
from walkgraph.models.qwen3_omni.seeing.model import VisionEncoder


def load_vision_encoder(folder: Path, config: VisionConfig, **on: Unpack[Loading]) -> VisionEncoder:
    """Load the encoder; strict. Raises `NotFound` and `InvalidInput`."""
    return load(lambda: VisionEncoder(config), folder, STEM, names=Names(rename=own_name(VISION)), **on)


def vision_encoder_of(context: LoadContext) -> VisionEncoder:
    """The encoder of the weight set, drawn or read once."""
    config = context.once(VisionConfig, lambda name, seed: preset(VISION_PRESETS, name), read_vision)
    on: dict[str, Any] = {"device": context.device, "dtype": context.dtype}
    return context.once(
        VisionEncoder,
        lambda name, seed: drawn(lambda: VisionEncoder(config), seed, **on),
        lambda folder: load_vision_encoder(folder, config, **on, progress=context.progress),
    )
