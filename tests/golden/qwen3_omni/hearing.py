"""A tiny audio encoder in the published layout, and the sounds from which the stored answers were made.

`make_hearing.py` gives them to `transformers`, the parity tests to ours.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from tests.golden.qwen3_omni.drawing import weights, write_folder
from walkgraph.models.qwen3_omni.hearing.config import AUDIO_TINY
from walkgraph.models.qwen3_omni.hearing.model import AudioEncoder
from walkgraph.models.qwen3_omni.parts import AUDIO, PREFIXES

ANSWERS = Path(__file__).parent / "hearing.npz"
RATE = 16000
SECONDS = (0.3, 3.0, 8.5, 31.0)
"""Shorter than a chunk; whole chunks; more than a window; more than Whisper's 30 seconds."""
KEPT = 50
"""Every so many frames of a spectrum are stored."""
PUBLISHED: Mapping[str, Any] = {
    "model_type": "qwen3_omni_moe_audio_encoder",
    "d_model": AUDIO_TINY.width,
    "encoder_ffn_dim": AUDIO_TINY.hidden,
    "encoder_layers": AUDIO_TINY.layers,
    "encoder_attention_heads": AUDIO_TINY.heads,
    "num_mel_bins": AUDIO_TINY.mels,
    "downsample_hidden_size": AUDIO_TINY.channels,
    "output_dim": AUDIO_TINY.out,
    "n_window": 50,
    "n_window_infer": 800,
    "max_source_positions": 1500,
    "activation_function": "gelu",
    "scale_embedding": False,
}
"""The section `thinker_config.audio_config`."""
CONFIG: Mapping[str, Any] = {"model_type": "qwen3_omni_moe", "thinker_config": {"audio_config": PUBLISHED}}


def name_of(seconds: float) -> str:
    return f"{seconds:g} s"


def sound(seconds: float) -> np.ndarray:
    """float32 `[n]`: a rising tone under noise of changing loudness, and silence at the end."""
    count = round(seconds * RATE)
    dice = np.random.Generator(np.random.Philox(count))
    at = np.arange(count) / RATE
    tone = 0.4 * np.sin(2 * np.pi * (110 + 900 * at / max(seconds, 1)) * at)
    noise = 0.2 * dice.standard_normal(count) * (0.5 + 0.5 * np.sin(2.1 * at))
    wave = (tone + noise) * (at < 0.9 * seconds)
    return wave.clip(-1, 1).astype(np.float32)


def folder(root: Path) -> Path:
    return write_folder(root / "hearing", CONFIG, weights(lambda: AudioEncoder(AUDIO_TINY), PREFIXES[AUDIO]))
