"""Compares our Llama's logits with those of `transformers` in float32, at full size, teacher-forced: a prefill through
the paged cache, then one step per token. Both use the same random weights.

    python benchmarks/parity_orpheus.py [--config orpheus-3b] [--prefill 128] [--steps 64] [--rows 2]

Prints JSON, and exits with 1 if our distance from float32 is more than 1.2 times that of `transformers` in bfloat16.
"""

import argparse
import json
import sys
from typing import Any

import torch
from torch import Tensor

from walkgraph.abi.calls import StateKey
from walkgraph.abi.states import CacheShape, Segment
from walkgraph.abi.step import PagedRows, PagedSlot
from walkgraph.architectures.drawn import drawn
from walkgraph.architectures.language.model import LanguageModel
from walkgraph.checkpoints.language import LanguageConfig
from walkgraph.engine.kv.allocator import pages_for
from walkgraph.engine.kv.attention_backends import AttentionBackends
from walkgraph.engine.kv.pool import KVPools, Pool
from walkgraph.engine.kv.states import StateTable
from walkgraph.models.orpheus.presets import orpheus_config

FACTOR = 1.2
KEYS = ("prefill", "steps")


def main() -> int:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--config", default="orpheus-3b")
    arguments.add_argument("--prefill", type=int, default=128)
    arguments.add_argument("--steps", type=int, default=64)
    arguments.add_argument("--rows", type=int, default=2)
    arguments.add_argument("--seed", type=int, default=0)
    given = arguments.parse_args()
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    dtype = torch.bfloat16 if device.type == "cuda" else torch.float32
    config = orpheus_config(given.config).llm
    length = given.prefill + given.steps
    ids = torch.randint(0, config.vocab, (given.rows, length), generator=torch.Generator().manual_seed(given.seed))
    ids = ids.to(device)
    with torch.inference_mode():
        model = drawn(lambda: LanguageModel(config), given.seed, device=device, dtype=dtype).pack()
        ours = taught(model, ids, given.prefill)
        theirs = reference(model, ids, given.prefill, dtype)
        exact = reference(model, ids, None, torch.float32)
    report: dict[str, Any] = {
        "config": given.config,
        "device": torch.cuda.get_device_name(device) if device.type == "cuda" else "cpu",
        "dtype": str(dtype),
        "rows": given.rows,
        "ours": compared(ours, exact, given.prefill),
        "transformers": compared(theirs, exact, given.prefill),
    }
    mine, other = (report[who] for who in ("ours", "transformers"))
    near = all(mine[key]["distance"] <= FACTOR * other[key]["distance"] + 1e-6 for key in KEYS)
    print(json.dumps({**report, "near": near}, indent=2))
    return 0 if near else 1


def taught(model: LanguageModel, ids: Tensor, prefill: int) -> Tensor:
    """ids `[B, L]` -> logits `[B, L, V]` on the CPU: the first `prefill` tokens by one forward, the rest by steps."""
    batch, length = ids.shape
    config, device = model.config, ids.device
    dtype = model.head.dtype
    shape = CacheShape(layers=config.layers, kv_heads=config.kv_heads, head_dim=config.head_dim, dtype=dtype)
    pool = Pool(shape, batch * pages_for(length), device)
    table = StateTable(KVPools({"main": pool}), AttentionBackends())
    keys = [StateKey(str(row), "main") for row in range(batch)]
    rows = torch.arange(batch * prefill, device=device).split(prefill)
    transaction = table.transaction()
    attend = transaction.attend([Segment(key, mine, "causal") for key, mine in zip(keys, rows, strict=True)])
    positions = torch.arange(prefill, device=device).repeat(batch)
    logits = [model(ids[:, :prefill].flatten(), positions, attend).view(batch, prefill, -1).cpu()]
    transaction.commit(attend)
    transaction.settle()
    pages = []
    for key in keys:
        held = table.paged[key].sequences[0].pages
        pages.append(held + pool.pages.take(pages_for(length) - len(held)))
    at = torch.full((batch,), prefill, dtype=torch.int32, device=device)
    batch_rows = torch.arange(batch, dtype=torch.int32, device=device)
    standing = PagedRows(batch_rows, torch.tensor(pages, dtype=torch.int32, device=device), at, at.clone())
    slot = PagedSlot(pool.k, pool.v, standing)
    for place in range(prefill, length):
        logits.append(model.step(ids[:, place].contiguous(), slot)[:, None].cpu())
        standing.lengths.add_(1)
        standing.positions.add_(1)
    return torch.cat(logits, 1)


def reference(model: LanguageModel, ids: Tensor, prefill: int | None, dtype: torch.dtype) -> Tensor:
    """Logits `[B, L, V]` on the CPU by `transformers`: by a prefill and steps over its cache, or by one forward."""
    from transformers import LlamaForCausalLM  # pyright: ignore[reportMissingImports]
    from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding  # pyright: ignore[reportMissingImports]

    config = transformers_config(model.config)
    with torch.device("meta"):
        other = LlamaForCausalLM(config).eval()
    state = {name: tensor.to(dtype) for name, tensor in model.state_dict().items()}
    missing, unknown = other.load_state_dict(state, strict=False, assign=True)
    if unknown or set(missing) - {"lm_head.weight"}:
        raise RuntimeError(f"the state names differ: {missing}, {unknown}")
    other.tie_weights()
    with torch.device(ids.device):
        other.model.rotary_emb = LlamaRotaryEmbedding(config)
    if prefill is None:
        return torch.cat([other(row[None], use_cache=False).logits.cpu() for row in ids])
    given = other(ids[:, :prefill], use_cache=True)
    logits = [given.logits.cpu()]
    for place in range(prefill, ids.shape[1]):
        given = other(ids[:, place : place + 1], past_key_values=given.past_key_values, use_cache=True)
        logits.append(given.logits.cpu())
    return torch.cat(logits, 1)


def transformers_config(config: LanguageConfig) -> Any:
    """The reference's config of the same network."""
    from transformers import LlamaConfig as Config  # pyright: ignore[reportMissingImports]

    rope: dict[str, Any] = {"rope_type": "default", "rope_theta": config.rope_theta}
    if config.scaling is not None:
        rope |= {
            "rope_type": "llama3",
            "factor": config.scaling.factor,
            "low_freq_factor": config.scaling.low,
            "high_freq_factor": config.scaling.high,
            "original_max_position_embeddings": config.scaling.original,
        }
    return Config(
        hidden_size=config.width,
        intermediate_size=config.hidden,
        num_hidden_layers=config.layers,
        num_attention_heads=config.heads,
        num_key_value_heads=config.kv_heads,
        head_dim=config.head_dim,
        vocab_size=config.vocab,
        rms_norm_eps=config.norm_eps,
        max_position_embeddings=131072,
        tie_word_embeddings=config.tied,
        rope_parameters=rope,
    )


def compared(got: Tensor, exact: Tensor, prefill: int) -> dict[str, dict[str, float]]:
    """Per part: distance (relative L2, of all its logits) and how often the likeliest token is the same."""
    lengths = [prefill, got.shape[1] - prefill]
    parts = zip(KEYS, got.split(lengths, 1), exact.split(lengths, 1), strict=True)
    return {
        key: {
            "distance": float((mine.float() - theirs).norm() / theirs.norm()),
            "likeliest": float((mine.argmax(-1) == theirs.argmax(-1)).float().mean()),
        }
        for key, mine, theirs in parts
    }


if __name__ == "__main__":
    sys.exit(main())
