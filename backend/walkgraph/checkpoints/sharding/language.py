"""The division of a language model over the shards of a tensor-parallel group.

Heads are divided, with their rows of the projections and their columns of `o_proj`; key/value heads too, and where
there are fewer of them than shards, several shards hold the same one. So are the hidden widths of MLPs, of each expert
as well unless shards hold whole experts (`sharding.experts`), and the rows of the embedding table and the head. Norms
and routers are on every shard.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import replace

from walkgraph.checkpoints.family import language_model
from walkgraph.checkpoints.language import LanguageConfig
from walkgraph.checkpoints.sharding import experts as whole
from walkgraph.checkpoints.sharding.cut import Cut, Cuts
from walkgraph.checkpoints.sharding.experts import ExpertParallel, HeldExperts, Loads, held_experts

_KEYS = ("k_proj", "v_proj")
_OUTPUTS = ("q_proj", "gate_proj", "up_proj")
_INPUTS = ("o_proj", "down_proj")
_VOCABULARY = ("embed_tokens", "lm_head")
EXPERTS = ".experts."
"""In the names of tensors of experts."""


def shardable(llm: LanguageConfig, count: int, how: ExpertParallel | None = None) -> str | None:
    """The reason that a model can't be divided over `count` shards, in a clause; None if it can. `how`: with whole
    experts, if given."""
    if llm.heads % count:
        return f"its {llm.heads} heads can't be divided by {count}"
    if llm.kv_heads % count and count % llm.kv_heads:
        return f"its {llm.kv_heads} key/value heads can neither be divided by {count} nor be shared by as many each"
    for name, width in _widths(llm, how):
        if width % count:
            return f"the width {width} of its {name} can't be divided by {count}"
    return whole.indivisible(llm.moe, count, how) if llm.moe and how else None


def shard_config(llm: LanguageConfig, count: int, how: ExpertParallel | None = None) -> LanguageConfig:
    """The sizes of a layer's shard. The vocabulary stays whole: every shard answers with all logits. So does the number
    of experts, among which routers choose. Raises ValueError for a model that can't be divided."""
    if why := shardable(llm, count, how):
        raise ValueError(why)
    hidden = llm.moe and (llm.moe.hidden if how else llm.moe.hidden // count)
    experts = llm.moe and replace(llm.moe, hidden=hidden, shared=llm.moe.shared // count)
    kv_heads = max(1, llm.kv_heads // count)
    return replace(llm, heads=llm.heads // count, kv_heads=kv_heads, hidden=llm.hidden // count, moe=experts)


def shard_cuts(llm: LanguageConfig, index: int, count: int, how: ExpertParallel | None = None) -> Cuts:
    """A shard's part of each tensor of a language model that it holds."""
    expected = language_model(llm).expected
    held = min(llm.kv_heads, count)

    def cut(name: str) -> Cut | None:
        kind = name.split(".")[-2]
        if count == 1 or kind not in (*_KEYS, *_OUTPUTS, *_INPUTS, *_VOCABULARY):
            return None
        if how and EXPERTS in name:
            return None
        dim = int(kind in _INPUTS)
        part, parts = (index * held // count, held) if kind in _KEYS else (index, count)
        return Cut(dim, expected[name][dim], part, parts)

    return cut


def shard_tensors(
    llm: LanguageConfig, index: int, count: int, how: ExpertParallel | None = None, loads: Loads | None = None
) -> Callable[[str], bool]:
    """A function that is false for the names of the tensors that other shards hold alone."""
    held = held_experts(llm, index, count, how, loads) if how else dict[int, HeldExperts]()
    foreign = {
        f"model.layers.{layer}.mlp{EXPERTS}{expert}.{part}.weight"
        for layer, mine in held.items()
        for expert in set(range(len(mine.numbers))).difference(mine.experts)
        for part in ("gate_proj", "up_proj", "down_proj")
    }
    return lambda name: name not in foreign


def shard_numbers(
    llm: LanguageConfig,
    count: int,
    counts: Callable[[str], bool] = lambda name: True,
    how: ExpertParallel | None = None,
) -> int:
    """Count the numbers in the tensors of a shard. `counts`: true for the names of those that count."""
    cuts, holds = shard_cuts(llm, 0, count, how), shard_tensors(llm, 0, count, how)
    tensors = ((name, shape) for name, shape in language_model(llm).expected.items() if holds(name) and counts(name))
    parts = ((cuts(name), shape) for name, shape in tensors)
    return sum(math.prod(shape if cut is None else cut.of(shape)) for cut, shape in parts)


def _widths(llm: LanguageConfig, how: ExpertParallel | None) -> Iterator[tuple[str, int]]:
    kinds = [llm.experts_of(layer) for layer in range(llm.layers)]
    if None in kinds:
        yield "MLP", llm.hidden
    if llm.moe is not None and any(kinds):
        if how is None:
            yield "experts", llm.moe.hidden
        yield "shared expert", llm.moe.shared
