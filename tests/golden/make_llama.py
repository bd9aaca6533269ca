"""Writes a tiny Llama in the public layout, drawn at random, and its logits by `transformers`, which is no requirement
of ours:

    python tests/golden/make_llama.py

`tests/golden/llama/` then holds `config.json`, `model.safetensors` and `answers.safetensors`: the ids `[2, L]` of two
sequences and their logits `[2, L, V]` in float32. The positions go beyond where the scaling of rotary ones sets in.
"""

import json
from pathlib import Path

import torch
from safetensors.torch import save_file
from transformers import LlamaConfig, LlamaForCausalLM  # pyright: ignore[reportMissingImports]

FOLDER = Path(__file__).parent / "llama"
LENGTH = 48
CONFIG = {
    "hidden_size": 48,
    "intermediate_size": 72,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "vocab_size": 160,
    "rms_norm_eps": 1e-5,
    "max_position_embeddings": 1024,
    "tie_word_embeddings": True,
    "rope_parameters": {
        "rope_type": "llama3",
        "rope_theta": 1000.0,
        "factor": 8.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 32,
    },
}


def main() -> None:
    torch.manual_seed(0)
    model = LlamaForCausalLM(LlamaConfig(**CONFIG)).eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            # Larger than a fresh model's: attention is far from even, and no norm is a 1 that could be left out.
            parameter.normal_(1.0 if "norm" in name else 0.0, 0.3)
        ids = torch.randint(0, CONFIG["vocab_size"], (2, LENGTH))
        logits = model(ids).logits
    model.save_pretrained(FOLDER)
    (FOLDER / "generation_config.json").unlink()
    speech = {"audio_base": 20, "codebook": 20}
    names = ("bos", "eos", "start_of_speech", "end_of_speech", "start_of_human", "end_of_human", "start_of_ai")
    speech |= {name: index for index, name in enumerate(names)}
    config = FOLDER / "config.json"
    config.write_text(json.dumps({**json.loads(config.read_text()), "speech_tokens": speech}, indent=2) + "\n")
    save_file({"ids": ids, "logits": logits}, FOLDER / "answers.safetensors")


if __name__ == "__main__":
    main()
