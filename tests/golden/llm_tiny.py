"""Tiny language models in the public layout, and the tokens from which the stored answers were made.

`make_llm.py` gives them to `transformers`, the parity tests to ours. Everything follows from names and seeds, so that
only answers are stored.
"""

import hashlib
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import save_file
from torch import Tensor

from walkgraph.checkpoints.family import language_model
from walkgraph.checkpoints.fields import Fields
from walkgraph.checkpoints.language import KINDS, LanguageConfig

SEED = 20251124
LENGTH = 48
ANSWERS = Path(__file__).parent / "llm_tiny.npz"
_COMMON: Mapping[str, Any] = {
    "hidden_act": "silu",
    "hidden_size": 48,
    "intermediate_size": 72,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "vocab_size": 160,
    "max_position_embeddings": 1024,
    "rms_norm_eps": 1e-6,
    "rope_theta": 10000.0,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "torch_dtype": "float32",
}
_LLAMA3: Mapping[str, Any] = {
    "rope_type": "llama3",
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 32,
}
_QWEN: Mapping[str, Any] = {**_COMMON, "attention_bias": False, "use_sliding_window": False, "sliding_window": None}
CONFIGS: Mapping[str, Mapping[str, Any]] = {
    "qwen3": {
        **_QWEN,
        "model_type": "qwen3",
        "architectures": ["Qwen3ForCausalLM"],
        "tie_word_embeddings": True,
    },
    "qwen3_moe": {
        **_QWEN,
        "model_type": "qwen3_moe",
        "architectures": ["Qwen3MoeForCausalLM"],
        "num_hidden_layers": 4,
        "num_experts": 8,
        "num_experts_per_tok": 3,
        "moe_intermediate_size": 40,
        "norm_topk_prob": True,
        "decoder_sparse_step": 1,
        "mlp_only_layers": [1],
        "tie_word_embeddings": False,
    },
    "llama": {
        **_COMMON,
        "model_type": "llama",
        "architectures": ["LlamaForCausalLM"],
        "attention_bias": False,
        "mlp_bias": False,
        "rope_theta": 1000.0,
        "rope_scaling": _LLAMA3,
        "tie_word_embeddings": False,
    },
    "mistral": {
        **_COMMON,
        "model_type": "mistral",
        "architectures": ["MistralForCausalLM"],
        "num_key_value_heads": 1,
        "head_dim": 24,
        "sliding_window": None,
        "tie_word_embeddings": False,
    },
}
"""Kind -> its published `config.json`."""
VARIANTS: Mapping[str, tuple[str, Mapping[str, Any]]] = {
    "a head of its own": ("qwen3", {"tie_word_embeddings": False}),
    "every second layer has experts": ("qwen3_moe", {"decoder_sparse_step": 2, "mlp_only_layers": []}),
    "shares as they are": ("qwen3_moe", {"norm_topk_prob": False, "mlp_only_layers": []}),
    "one expert": ("qwen3_moe", {"num_experts_per_tok": 1, "norm_topk_prob": False}),
    "all experts": ("qwen3_moe", {"num_experts_per_tok": 8}),
    "tied": ("llama", {"tie_word_embeddings": True}),
    "plain positions": ("llama", {"rope_scaling": None}),
    "heads of their share": ("mistral", {"head_dim": 12}),
}
"""Further configs, which only the live comparison tries."""


def tokens() -> Tensor:
    """int64 `[2, LENGTH]`"""
    return torch.randint(0, _COMMON["vocab_size"], (2, LENGTH), generator=torch.Generator().manual_seed(SEED))


def weight(name: str, shape: tuple[int, ...]) -> Tensor:
    """float32, from the name alone. Larger than a fresh model's: attention and routing are far from even, and no norm
    is a 1 that could be left out."""
    digest = hashlib.blake2b(f"{SEED}:{name}".encode(), digest_size=8).digest()
    numbers = np.random.Generator(np.random.Philox(int.from_bytes(digest, "big"))).standard_normal(shape)
    return torch.from_numpy(numbers.astype(np.float32)) * 0.3 + (1.0 if "norm" in name else 0.0)


def weights(config: Mapping[str, Any]) -> Iterator[tuple[str, Tensor]]:
    """By their names in public files: each expert has three matrices of its own."""
    for name, shape in language_model(LanguageConfig.published(Fields(config), KINDS)).expected.items():
        yield name, weight(name, shape)


def write_folder(root: Path, config: Mapping[str, Any], *, shards: int = 2) -> Path:
    """As published: a config, and shards with an index."""
    folder = root / f"{config['model_type']}-tiny"
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps(config, indent=2))
    state, places = dict(weights(config)), dict[str, str]()
    for index in range(shards):
        file = f"model-{index + 1:05}-of-{shards:05}.safetensors"
        mine = {name: state[name] for name in sorted(state)[index::shards]}
        save_file(mine, folder / file, metadata={"format": "pt"})
        places |= dict.fromkeys(mine, file)
    (folder / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": places}))
    return folder
