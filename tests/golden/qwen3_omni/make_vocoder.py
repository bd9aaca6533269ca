"""Writes what `transformers`, which is no requirement of ours, gives for the codes of `vocoder.py`:

    PYTHONPATH=.:backend:FOLDER python tests/golden/qwen3_omni/make_vocoder.py

`vocoder.npz` then holds every so many samples of each stream, decoded whole.
"""

from typing import Any

import numpy as np
from torch import Tensor

from tests.golden.qwen3_omni import vocoder as tiny
from walkgraph.models.qwen3_omni.parts import CODE2WAV, PREFIXES
from walkgraph.models.qwen3_omni.vocoder.config import TINY, VocoderConfig


def published(config: VocoderConfig) -> Any:
    """The published code's vocoder, with our numbers."""
    from transformers.models.qwen3_omni_moe import configuration_qwen3_omni_moe as configuration
    from transformers.models.qwen3_omni_moe import modeling_qwen3_omni_moe as modeling

    made = configuration.Qwen3OmniMoeCode2WavConfig(**tiny.section(config), attn_implementation="eager")
    model = modeling.Qwen3OmniMoeCode2Wav(made).eval().requires_grad_(False)
    model.load_state_dict({name.removeprefix(PREFIXES[CODE2WAV]): one for name, one in tiny.state(config).items()})
    return model


def decoded(model: Any, codes: Tensor) -> Tensor:
    """codes `[n, K]` -> `[s]`"""
    return model(codes.t()[None])[0, 0]


def main() -> None:
    model = published(TINY)
    found = {str(n): decoded(model, tiny.codes(TINY, n))[::every].numpy() for n, every in tiny.FRAMES.items()}
    np.savez_compressed(tiny.ANSWERS, **found)


if __name__ == "__main__":
    main()
