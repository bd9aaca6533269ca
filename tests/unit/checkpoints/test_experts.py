"""The spread of whole experts over shards: all are held, by equally many a shard, and the work is even."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from walkgraph.checkpoints.family import language_model
from walkgraph.checkpoints.language import ExpertSizes
from walkgraph.checkpoints.sharding.experts import (
    LOADS,
    ExpertParallel,
    held_experts,
    indivisible,
    loads_text,
    read_loads,
    spread,
)
from walkgraph.checkpoints.sharding.language import (
    shard_config,
    shard_cuts,
    shard_numbers,
    shard_tensors,
    shardable,
)
from walkgraph.errors import InvalidInput
from walkgraph.models.llm.presets import LLM

SPARSE = LLM["qwen3-moe-tiny"].llm
SIZES = ExpertSizes(experts=8, chosen=2, hidden=32, renormed=True)


@st.composite
def cases(draw: st.DrawFn, *, redundant: bool = False) -> tuple[list[float], int, int]:
    """Loads of experts, the number of shards, and that of redundant experts."""
    count = draw(st.integers(2, 8))
    copies = count * draw(st.integers(1, 6))
    twice = draw(st.integers(0, copies // 2)) if redundant else 0
    load = st.one_of(st.integers(0, 5), st.integers(0, 10**6), st.just(10**6)).map(float)
    return draw(st.lists(load, min_size=copies - twice, max_size=copies - twice)), count, twice


def totals(loads: Sequence[float], held: Sequence[Sequence[int]]) -> list[float]:
    """Each shard's load, where the holders of an expert share it."""
    holders = Counter(expert for mine in held for expert in mine)
    return [sum(loads[expert] / holders[expert] for expert in mine) for mine in held]


@given(cases())
def test_each_expert_is_on_one_shard_and_the_work_is_even(case: tuple[list[float], int, int]) -> None:
    loads, count, _ = case
    held = spread(loads, count)
    assert sorted(expert for mine in held for expert in mine) == [*range(len(loads))]
    assert {len(mine) for mine in held} == {len(loads) // count}
    order = sorted(loads, reverse=True)
    rounds = [order[start : start + count] for start in range(0, len(order), count)]
    work = totals(loads, held)
    assert max(work) - min(work) <= max(one[0] - one[-1] for one in rounds) + 1e-6


@given(cases(redundant=True))
def test_the_experts_with_most_work_are_on_two_shards(case: tuple[list[float], int, int]) -> None:
    loads, count, redundant = case
    held = spread(loads, count, redundant)
    assert {len(mine) for mine in held} == {(len(loads) + redundant) // count}
    assert all(len(set(mine)) == len(mine) for mine in held)
    holders = Counter(expert for mine in held for expert in mine)
    twice = {expert for expert, number in holders.items() if number == 2}
    assert set(holders) == set(range(len(loads)))
    assert (len(twice), max(holders.values())) == (redundant, 2 if redundant else 1)
    assert sorted(loads[one] for one in twice) == sorted(loads)[len(loads) - redundant :]
    work, heaviest = totals(loads, held), max(loads[expert] / number for expert, number in holders.items())
    assert max(work) - min(work) <= 2 * heaviest + 1e-6


def test_a_hot_expert_on_two_shards_halves_what_the_busiest_one_computes() -> None:
    loads = [90.0, 10, 10, 10, 10, 10, 10]
    once, twice = spread([*loads, 0.0], 2), spread(loads, 2, 1)
    assert (max(totals([*loads, 0.0], once)), max(totals(loads, twice))) == (110, 75)


@pytest.mark.parametrize("redundant", [0, 8])
def test_swaps_even_out_what_rounds_leave(redundant: int) -> None:
    """The first round alone gives one shard 1,000 and another 435."""
    loads = [float(round(1000 / place**0.6)) for place in range(1, 65)]
    work = totals(loads, spread(loads, 4, redundant))
    assert max(work) < 1.001 * sum(work) / 4


def test_equal_loads_are_dealt_in_order() -> None:
    assert spread([1.0] * 6, 3) == ((0, 3), (1, 4), (2, 5))
    assert spread([1.0] * 6, 3, 3) == spread([1.0] * 6, 3, 3)


@given(cases(redundant=True))
def test_every_row_has_one_holder_of_each_expert(case: tuple[list[float], int, int]) -> None:
    loads, count, redundant = case
    moe = replace(SIZES, experts=len(loads), chosen=1)
    llm = replace(SPARSE, layers=1, moe=moe)
    every = [held_experts(llm, index, count, ExpertParallel(redundant), {0: loads})[0] for index in range(count)]
    for expert in range(len(loads)):
        for parity in range(2):
            numbers = [one.numbers[expert][parity] for one in every]
            [(holder, number)] = [(i, n) for i, n in enumerate(numbers) if n < len(every[i].experts)]
            assert every[holder].experts[number] == expert


@pytest.mark.parametrize(
    ("count", "redundant", "why"),
    [
        (2, 0, None),
        (2, 8, None),
        (3, 1, None),
        (3, 0, "its 8 experts can't be divided by 3, but with 1 redundant ones"),
        (4, 2, "its 8 experts and 2 redundant ones can't be divided by 4, but with 4 redundant ones"),
        (3, 9, "9 experts can't be redundant, as a layer has 8"),
    ],
)
def test_the_reason_that_experts_cant_be_spread(count: int, redundant: int, why: str | None) -> None:
    assert indivisible(SIZES, count, ExpertParallel(redundant)) == why


def test_widths_of_whole_experts_need_not_be_divisible() -> None:
    odd = replace(SPARSE, moe=replace(SIZES, hidden=31, dense=(1,)))
    assert "width 31" in (shardable(odd, 2) or "")
    assert shardable(odd, 2, ExpertParallel()) is None
    assert "8 experts and 3" in (shardable(odd, 2, ExpertParallel(3)) or "")
    found = shard_config(odd, 2, ExpertParallel()).moe
    assert found is not None
    assert (found.hidden, found.experts) == (31, 8)


@pytest.mark.parametrize(("count", "redundant"), [(2, 0), (4, 0), (2, 2), (4, 4)])
def test_shards_have_all_tensors_and_equally_many_numbers(count: int, redundant: int) -> None:
    how, numbers = ExpertParallel(redundant), [0] * count
    for name in language_model(SPARSE).expected:
        holders = [index for index in range(count) if shard_tensors(SPARSE, index, count, how)(name)]
        if ".experts." in name:
            assert 1 <= len(holders) <= 2
            assert shard_cuts(SPARSE, 0, count, how)(name) is None
        else:
            assert holders == [*range(count)]
            assert shard_cuts(SPARSE, 1, count, how)(name) == shard_cuts(SPARSE, 1, count)(name)
    for index in range(count):
        holds = shard_tensors(SPARSE, index, count, how)
        numbers[index] = shard_numbers(SPARSE, count, lambda name, holds=holds: holds(name), how)
    assert numbers[0] == shard_numbers(SPARSE, count, how=how)
    of_experts = [shard_numbers(SPARSE, count, lambda name: ".experts." in name, one) for one in (None, how)]
    assert of_experts[1] == of_experts[0] * (8 + redundant) // 8


def test_loads_of_a_folder_are_read_by_layer(tmp_path: Path) -> None:
    assert read_loads(tmp_path, SPARSE) == {}
    loads = {layer: [*range(8)] for layer in range(SPARSE.layers) if SPARSE.experts_of(layer)}
    (tmp_path / LOADS).write_text(loads_text(loads))
    assert {layer: list(load) for layer, load in read_loads(tmp_path, SPARSE).items()} == loads
    [held] = {held_experts(SPARSE, 0, 2, ExpertParallel(), loads)[layer].experts for layer in loads}
    assert held == (0, 3, 4, 7) != held_experts(SPARSE, 0, 2, ExpertParallel())[next(iter(loads))].experts


@pytest.mark.parametrize("text", ['{"0": [1, 2]}', '{"0": [-1, 1, 1, 1, 1, 1, 1, 1]}', '{"9": [1]}', "[]", "{"])
def test_loads_of_another_model_are_refused(text: str, tmp_path: Path) -> None:
    (tmp_path / LOADS).write_text(text)
    with pytest.raises(InvalidInput):
        read_loads(tmp_path, SPARSE)
