"""Llama and Orpheus's decoding against Transformers: logits of prompts and steps, and greedy speech."""

import json
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from tests.golden.compare.table import SAME, Case
from tests.support.language import forwarded, stepped
from tests.unit.engine.plans import call, engine_of, outputs, plan_of
from walkgraph.architectures.language.weights import load_language_model
from walkgraph.checkpoints.fields import Fields, read_object
from walkgraph.checkpoints.language import LanguageConfig

_PLAIN = {"rope_type": "default", "rope_theta": 1000.0}
_PUBLISHED = {
    "rope_type": "llama3",
    "rope_theta": 5e5,
    "factor": 32.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 8192,
}
_VARIANTS: Mapping[str, Mapping[str, Any]] = {
    "llama3 positions, tied": {},
    "llama3 positions, a head of its own": {"tie_word_embeddings": False},
    "llama3 positions as published for Orpheus": {"rope_parameters": _PUBLISHED},
    "plain positions": {"rope_parameters": _PLAIN},
    "keys and values for each head": {"num_key_value_heads": 4},
    "keys and values for all heads": {"num_key_value_heads": 1},
    "heads wider than their share": {"head_dim": 32},
    "another epsilon": {"rms_norm_eps": 1e-2},
}
_TOKENS = {"audio_base": 20, "codebook": 20}
_SPECIAL = ("bos", "eos", "start_of_speech", "end_of_speech", "start_of_human", "end_of_human", "start_of_ai")
_SPOKEN = 40
_GREEDY = {
    "temperature": 0.0,
    "top_k": 0,
    "top_p": 1.0,
    "min_p": 0.0,
    "presence_penalty": 0.0,
    "frequency_penalty": 0.0,
}


def cases(_code: Path | None) -> Iterator[Case]:
    from tests.golden.make_llama import CONFIG, LENGTH

    for seed, (name, changed) in enumerate(_VARIANTS.items()):
        with tempfile.TemporaryDirectory() as root:
            folder = Path(root) / "llama"
            model = _published({**CONFIG, **changed}, seed, folder)
            ids = torch.randint(0, CONFIG["vocab_size"], (2, LENGTH), generator=torch.Generator().manual_seed(seed))
            wanted = model(ids).logits
            ours = load_language_model(folder, LanguageConfig.published(Fields(read_object(folder / "config.json"))))
            yield Case(f"{name}: logits of a prompt", forwarded(ours, ids), wanted)
            yield Case(f"{name}: logits of steps", stepped(ours, ids), wanted)
    with tempfile.TemporaryDirectory() as root:
        folder = Path(root) / "llama"
        yield from _spoken(_published({**CONFIG, "eos_token_id": None}, 99, folder), folder, CONFIG["vocab_size"])


def _published(config: Mapping[str, Any], seed: int, folder: Path) -> Any:
    from transformers import LlamaConfig as PublishedConfig  # pyright: ignore[reportMissingImports]
    from transformers import LlamaForCausalLM  # pyright: ignore[reportMissingImports]

    torch.manual_seed(seed)
    model = LlamaForCausalLM(PublishedConfig(**config)).eval()
    for name, parameter in model.named_parameters():
        # As in `make_llama`: attention is far from even, and no norm is a 1 that could be left out.
        parameter.data.normal_(1.0 if "norm" in name else 0.0, 0.3)
    model.save_pretrained(folder)
    return model


def _spoken(model: Any, folder: Path, vocab: int) -> Iterator[Case]:
    """By the operator that serves Orpheus, with the penalty of repetition over prompt and speech."""
    config = json.loads((folder / "config.json").read_text())
    tokens = {**_TOKENS, **{name: index for index, name in enumerate(_SPECIAL)}}
    (folder / "config.json").write_text(json.dumps({**config, "speech_tokens": tokens}))
    nodes = {"llm": ("walkgraph.models.orpheus.operators:Backbone", {"kv": "main", "seen": "seen"})}
    engine = engine_of(plan_of(nodes, source=f"checkpoint:{folder.name}"), weights_roots=[folder.parent])
    prompt = torch.randint(20, vocab, (17,), generator=torch.Generator().manual_seed(4))
    for penalty in (1.0, 1.3):
        how = {"do_sample": False, "repetition_penalty": penalty, "max_new_tokens": _SPOKEN, "min_new_tokens": _SPOKEN}
        wanted = model.generate(prompt[None], attention_mask=torch.ones(1, len(prompt)), pad_token_id=0, **how)
        said: list[Tensor] = []
        given = {"ids": prompt}
        for at in range(_SPOKEN):
            params = {**_GREEDY, "repetition_penalty": penalty}
            states = {"kv": "main", "seen": "seen"}
            [out] = outputs(engine, call("llm", given, run=str(penalty), states=states, iteration=(at,), **params))
            said.append(out["token"])
            given = {"token": out["token"]}
        yield Case(f"{_SPOKEN} tokens, penalty {penalty}", torch.cat(said), wanted[0, len(prompt) :], SAME)
