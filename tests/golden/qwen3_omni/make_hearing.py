"""Writes what `transformers`, which is no requirement of ours, gives for the sounds of `hearing.py`:

    PYTHONPATH=.:backend:FOLDER python tests/golden/qwen3_omni/make_hearing.py

`hearing.npz` then holds for every sound its embeddings float32 `[n, d]`, computed alone, and every 50th frame of its
spectrum.
"""

import importlib
from typing import Any

import numpy as np
import torch
from torch import Tensor

from tests.golden.qwen3_omni import hearing as tiny
from tests.golden.qwen3_omni.drawing import weights
from walkgraph.models.qwen3_omni.hearing.config import AUDIO_TINY
from walkgraph.models.qwen3_omni.hearing.model import AudioEncoder
from walkgraph.models.qwen3_omni.parts import AUDIO, PREFIXES


def published() -> Any:
    """The published code's encoder, with our numbers."""
    models = importlib.import_module("transformers.models.qwen3_omni_moe")

    config = models.configuration_qwen3_omni_moe.Qwen3OmniMoeAudioEncoderConfig(
        **tiny.PUBLISHED, attn_implementation="eager"
    )
    model = models.modeling_qwen3_omni_moe.Qwen3OmniMoeAudioEncoder(config).eval()
    state = weights(lambda: AudioEncoder(AUDIO_TINY), PREFIXES[AUDIO])
    model.load_state_dict({name.removeprefix(PREFIXES[AUDIO]): tensor for name, tensor in state.items()})
    return model


def spectrum(wave: np.ndarray) -> Tensor:
    """float32 `[mels, frames]`"""
    extract = importlib.import_module("transformers").WhisperFeatureExtractor(
        feature_size=AUDIO_TINY.mels, sampling_rate=tiny.RATE
    )
    given = {"sampling_rate": tiny.RATE, "padding": True, "truncation": False, "return_attention_mask": True}
    return extract(wave, **given, return_tensors="pt")["input_features"][0]


def embeddings(model: Any, wave: np.ndarray) -> Tensor:
    features = spectrum(wave)
    with torch.no_grad():
        return model(features, feature_lens=torch.tensor([features.shape[1]])).last_hidden_state


def main() -> None:
    model, kept = published(), dict[str, np.ndarray]()
    for seconds in tiny.SECONDS:
        name, wave = tiny.name_of(seconds), tiny.sound(seconds)
        kept[f"{name}: embeddings"] = embeddings(model, wave).numpy()
        kept[f"{name}: spectrum"] = spectrum(wave)[:, :: tiny.KEPT].t().numpy()
    np.savez_compressed(tiny.ANSWERS, allow_pickle=False, **kept)


if __name__ == "__main__":
    main()
