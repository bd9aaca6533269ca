"""A tiny vocoder in the published layout, and the codes from which the stored answers were made.

`make_vocoder.py` gives them to `transformers`, the parity tests to ours.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from tests.golden.qwen3_omni.drawing import weight
from walkgraph.layers.unset import unset
from walkgraph.models.qwen3_omni.parts import CODE2WAV, PREFIXES
from walkgraph.models.qwen3_omni.vocoder.config import PUBLISHED, TINY, VocoderConfig
from walkgraph.models.qwen3_omni.vocoder.model import Code2Wav
from walkgraph.models.qwen3_omni.vocoder.weights import scale_of

ANSWERS = Path(__file__).parent / "vocoder.npz"
FRAMES: Mapping[int, int] = {1: 1, 2: 1, 5: 1, 40: 17, 330: 97}
"""Frames of a stream -> how many samples there are for one that is stored. The last is longer than what the published
code decodes at once."""
CONFIGS: Mapping[str, VocoderConfig] = {"tiny": TINY, "published sizes": PUBLISHED}


def section(config: VocoderConfig) -> dict[str, Any]:
    """The section `code2wav_config`."""
    return {
        "codebook_size": config.codebook,
        "num_quantizers": config.groups,
        "hidden_size": config.width,
        "intermediate_size": config.hidden,
        "num_hidden_layers": config.layers,
        "num_attention_heads": config.heads,
        "num_key_value_heads": config.kv_heads,
        "head_dim": config.head_dim,
        "rms_norm_eps": config.norm_eps,
        "sliding_window": config.window,
        "upsampling_ratios": list(config.ratios),
        "upsample_rates": list(config.rates),
        "decoder_dim": config.decoder_width,
        "max_position_embeddings": 8000,
        "hidden_act": "silu",
        "attention_bias": False,
        "rope_parameters": {"rope_type": "default", "rope_theta": config.rope_theta},
    }


def state(config: VocoderConfig) -> dict[str, Tensor]:
    """Its tensors by their published names: snakes near those that training begins with, residual units that add less
    than their input, and little clipping at the end."""
    with unset():
        module = Code2Wav(config)
    shapes = {name: tuple(tensor.shape) for name, tensor in module.state_dict().items()}
    scales = {scale: shape[:1] for name, shape in shapes.items() if (scale := scale_of(name)) is not None}
    return {f"{PREFIXES[CODE2WAV]}{name}": _weight(name, shape) for name, shape in {**shapes, **scales}.items()}


def codes(config: VocoderConfig, frames: int) -> Tensor:
    """int64 `[n, K]`"""
    dice = np.random.Generator(np.random.Philox(frames))
    return torch.from_numpy(dice.integers(0, config.codebook, (frames, config.groups)))


def _weight(name: str, shape: tuple[int, ...]) -> Tensor:
    drawn = weight(f"{PREFIXES[CODE2WAV]}{name}", shape)
    if name.endswith((".alpha", ".beta")):
        return drawn - 1
    if shape[0] == 1:
        return drawn * 0.3
    if len(shape) > 1 and name.startswith("decoder."):
        return drawn * (0.2 if ".conv2." in name else 0.5)
    return drawn
