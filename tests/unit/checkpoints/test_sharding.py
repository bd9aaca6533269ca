"""The division of language models: what can be divided, by how much, and that the parts are the whole."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from walkgraph.checkpoints.family import language_model
from walkgraph.checkpoints.language import ExpertSizes, LanguageConfig
from walkgraph.checkpoints.sharding.cut import Cut
from walkgraph.checkpoints.sharding.language import shard_config, shard_cuts, shard_numbers, shardable
from walkgraph.models.llm.presets import LLM
from walkgraph.models.orpheus.presets import ORPHEUS

TINY = LLM["qwen3-tiny"].llm
SPARSE = LLM["qwen3-moe-tiny"].llm
SHARED = replace(SPARSE, moe=ExpertSizes(experts=8, chosen=2, hidden=32, renormed=True, shared=30))
EVERY = {**{name: one.llm for name, one in LLM.items()}, **{name: one.llm for name, one in ORPHEUS.items()}}


@pytest.mark.parametrize(
    ("llm", "count", "why"),
    [
        (TINY, 1, None),
        (TINY, 2, None),
        (TINY, 4, None),
        (TINY, 3, "4 heads can't be divided by 3"),
        (replace(TINY, heads=18, kv_heads=3, head_dim=8), 2, "3 key/value heads can neither be divided by 2"),
        (replace(TINY, heads=18, kv_heads=3, head_dim=8, hidden=81), 9, None),
        (replace(TINY, hidden=81), 2, "width 81 of its MLP"),
        (replace(SPARSE, hidden=81), 2, "width 81 of its MLP"),
        (replace(SPARSE, hidden=81, moe=replace(SPARSE.moe or 0, dense=())), 2, None),
        (SHARED, 4, "width 30 of its shared expert"),
        (replace(SPARSE, moe=replace(SPARSE.moe or 0, hidden=31)), 2, "width 31 of its experts"),
    ],
)
def test_the_reason_that_a_model_cant_be_divided(llm: LanguageConfig, count: int, why: str | None) -> None:
    found = shardable(llm, count)
    assert found == why if why is None else why in (found or "")
    if why is not None:
        with pytest.raises(ValueError, match=why):
            shard_config(llm, count)


@pytest.mark.parametrize("name", EVERY)
def test_published_models_divide_by_two_and_four(name: str) -> None:
    assert [shardable(EVERY[name], count) for count in (2, 4)] == [None, None]


def test_a_shard_has_its_heads_and_widths() -> None:
    found = shard_config(SPARSE, 4)
    assert (found.heads, found.kv_heads, found.hidden) == (1, 1, SPARSE.hidden // 4)
    assert found.moe is not None
    assert (found.moe.hidden, found.moe.experts, found.vocab) == (8, 8, SPARSE.vocab)
    assert shard_config(TINY, 1) == TINY


@pytest.mark.parametrize("count", [1, 2, 4])
@pytest.mark.parametrize("llm", [TINY, SPARSE, ORPHEUS["orpheus-tiny"].llm], ids=["dense", "sparse", "uneven"])
def test_parts_of_each_tensor_are_the_whole_of_it(llm: LanguageConfig, count: int) -> None:
    numbers = [0] * count
    for name, shape in language_model(llm).expected.items():
        cuts = [shard_cuts(llm, index, count)(name) for index in range(count)]
        if cuts[0] is None:
            assert count == 1 or "norm" in name or name.endswith("mlp.gate.weight")
            numbers = [total + math.prod(shape) for total in numbers]
            continue
        held = [range(cut.start, cut.stop) for cut in cuts if cut is not None]
        copies = max(1, count // llm.kv_heads) if name.endswith(("k_proj.weight", "v_proj.weight")) else 1
        assert [at for part in held[::copies] for at in part] == [*range(shape[cuts[0].dim])]
        assert held == [part for part in held[::copies] for _ in range(copies)]
        for index, cut in enumerate(cuts):
            assert cut is not None
            assert cut.whole(cut.of(shape)) == shape
            numbers[index] += math.prod(cut.of(shape))
    assert numbers == [shard_numbers(llm, count)] * count


def test_the_last_parts_are_shorter_and_filled_up() -> None:
    cuts = [Cut(0, 5, part, 4) for part in range(4)]
    assert [(cut.start, cut.stop, cut.length) for cut in cuts] == [(0, 2, 2), (2, 4, 2), (4, 5, 2), (5, 5, 2)]
    assert (Cut(1, 6, 1, 3).of((4, 6, 2)), Cut(1, 6, 1, 3).whole((4, 2, 2))) == ((4, 2, 2), (4, 6, 2))


def test_the_numbers_of_experts_are_counted_by_name() -> None:
    experts = 2 * 8 * 3 * 48 * 32
    assert [shard_numbers(SPARSE, count, lambda name: ".experts." in name) for count in (1, 2)] == [
        experts,
        experts // 2,
    ]
