"""The division of a language model over the shards of a tensor-parallel group.

Heads are divided, with their rows of the projections and their columns of `o_proj`; key/value heads too, and where
there are fewer of them than shards, several shards hold the same one. So are the hidden widths of MLPs, of each expert
as well, and the rows of the embedding table and the head. Norms and routers are on every shard.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import replace

from walkgraph.checkpoints.family import language_model
from walkgraph.checkpoints.language import LanguageConfig
from walkgraph.checkpoints.sharding.cut import Cut, Cuts

_KEYS = ("k_proj", "v_proj")
_OUTPUTS = ("q_proj", "gate_proj", "up_proj")
_INPUTS = ("o_proj", "down_proj")
_VOCABULARY = ("embed_tokens", "lm_head")


def shardable(llm: LanguageConfig, count: int) -> str | None:
    """The reason that a model can't be divided over `count` shards, in a clause; None if it can."""
    if llm.heads % count:
        return f"its {llm.heads} heads can't be divided by {count}"
    if llm.kv_heads % count and count % llm.kv_heads:
        return f"its {llm.kv_heads} key/value heads can neither be divided by {count} nor be shared by as many each"
    for name, width in _widths(llm):
        if width % count:
            return f"the width {width} of its {name} can't be divided by {count}"
    return None


def shard_config(llm: LanguageConfig, count: int) -> LanguageConfig:
    """The sizes of a layer's shard. The vocabulary stays whole: every shard answers with all logits. Raises ValueError
    for a model that can't be divided."""
    if why := shardable(llm, count):
        raise ValueError(why)
    experts = llm.moe and replace(llm.moe, hidden=llm.moe.hidden // count, shared=llm.moe.shared // count)
    kv_heads = max(1, llm.kv_heads // count)
    return replace(llm, heads=llm.heads // count, kv_heads=kv_heads, hidden=llm.hidden // count, moe=experts)


def shard_cuts(llm: LanguageConfig, index: int, count: int) -> Cuts:
    """A shard's part of each tensor of a language model."""
    expected = language_model(llm).expected
    held = min(llm.kv_heads, count)

    def cut(name: str) -> Cut | None:
        kind = name.split(".")[-2]
        if count == 1 or kind not in (*_KEYS, *_OUTPUTS, *_INPUTS, *_VOCABULARY):
            return None
        dim = int(kind in _INPUTS)
        part, parts = (index * held // count, held) if kind in _KEYS else (index, count)
        return Cut(dim, expected[name][dim], part, parts)

    return cut


def shard_numbers(llm: LanguageConfig, count: int, counts: Callable[[str], bool] = lambda name: True) -> int:
    """Count the numbers in the tensors of a shard. `counts`: true for the names of those that count."""
    cuts = shard_cuts(llm, 0, count)
    tensors = ((cuts(name), shape) for name, shape in language_model(llm).expected.items() if counts(name))
    return sum(math.prod(shape if cut is None else cut.of(shape)) for cut, shape in tensors)


def _widths(llm: LanguageConfig) -> Iterator[tuple[str, int]]:
    kinds = [llm.experts_of(layer) for layer in range(llm.layers)]
    if None in kinds:
        yield "MLP", llm.hidden
    if llm.moe is not None and any(kinds):
        yield "experts", llm.moe.hidden
        yield "shared expert", llm.moe.shared
