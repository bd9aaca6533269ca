"""The division of mixtures by whole experts: which shards of a group hold an expert, and for which rows.

Every shard holds equally many experts of a layer. Redundant experts, those with the most work, are on two shards, each
of which computes some of their rows.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from walkgraph.checkpoints.fields import Fields, read_optional
from walkgraph.checkpoints.language import ExpertSizes, LanguageConfig
from walkgraph.errors import InvalidInput

LOADS = "expert_loads.json"
"""The file of a weights folder with the measured load of each expert: index of a layer -> a list of whole
numbers, such as how many rows chose each."""
_MOST = 2**53
Loads = Mapping[int, Sequence[float]]
"""Layer -> the load of each of its experts, in any unit. Those of a missing layer are equal."""


@dataclass(frozen=True)
class ExpertParallel:
    """A group divides mixtures by whole experts."""

    redundant: int = 0
    """Experts of each layer, those with the most work, that two shards hold."""


@dataclass(frozen=True)
class HeldExperts:
    """The experts of one layer that one shard holds."""

    experts: tuple[int, ...]
    """Number here -> expert, ascending."""
    numbers: tuple[tuple[int, int], ...]
    """Expert -> its number here for even rows and for odd ones (`layers.moe.routing.held_part`); where another shard
    computes them, how many experts there are here."""


def indivisible(sizes: ExpertSizes, count: int, how: ExpertParallel) -> str | None:
    """The reason that whole experts can't be spread evenly over `count` shards, in a clause; None if they can."""
    if how.redundant > sizes.experts:
        return f"{how.redundant} experts can't be redundant, as a layer has {sizes.experts}"
    copies = sizes.experts + how.redundant
    if copies % count:
        beside = f" and {how.redundant} redundant ones" if how.redundant else ""
        more = how.redundant + -copies % count
        return f"its {sizes.experts} experts{beside} can't be divided by {count}, but with {more} redundant ones"
    return None


def spread(loads: Sequence[float], count: int, redundant: int = 0) -> tuple[tuple[int, ...], ...]:
    """Spread experts with these loads over `count` shards: shard -> its experts, ascending. The number of experts and
    of redundant ones together must be divisible by `count`.

    Experts are dealt in rounds, those with most load first: each shard gets one in a round, and the one with least load
    so far gets the heaviest. So two shards differ by no more than two experts of one round do, or with redundant ones,
    by twice the heaviest copy. Then the busiest and the least busy shard swap experts for as long as that brings them
    closer. Equal loads are dealt in the order of experts and shards.
    """
    order = sorted(range(len(loads)), key=lambda expert: (-loads[expert], expert))
    weights = {expert: loads[expert] / 2 if place < redundant else loads[expert] for place, expert in enumerate(order)}
    copies = sorted([*order, *order[:redundant]], key=lambda expert: (-weights[expert], expert))
    held = [list[int]() for _ in range(count)]
    for start in range(0, len(copies), count):
        dealt, shards = copies[start : start + count], _by_load(held, weights)
        if dealt[0] in held[shards[0]]:
            # The other copy of an expert was the last one of the round before, and went there.
            shards[0], shards[1] = shards[1], shards[0]
        for expert, shard in zip(dealt, shards, strict=True):
            held[shard].append(expert)
    for _ in range(len(copies)):
        low, *_, high = _by_load(held, weights)
        swap = _swap(held[low], held[high], weights)
        if swap is None:
            break
        less, more = swap
        held[low][held[low].index(less)], held[high][held[high].index(more)] = more, less
    return tuple(tuple(sorted(mine)) for mine in held)


def _by_load(held: Sequence[Sequence[int]], weights: Mapping[int, float]) -> list[int]:
    """The shards, those with least load first."""
    return sorted(range(len(held)), key=lambda shard: (sum(weights[expert] for expert in held[shard]), shard))


def _swap(low: Sequence[int], high: Sequence[int], weights: Mapping[int, float]) -> tuple[int, int] | None:
    """The experts of two shards whose swap makes them most even; None if none brings them closer."""
    gap = sum(weights[expert] for expert in high) - sum(weights[expert] for expert in low)
    closer = [
        (abs(weights[more] - weights[less] - gap / 2), less, more)
        for less in low
        for more in high
        if 0 < weights[more] - weights[less] < gap and less not in high and more not in low
    ]
    return min(closer)[1:] if closer else None


def held_experts(
    llm: LanguageConfig, index: int, count: int, how: ExpertParallel, loads: Loads | None = None
) -> dict[int, HeldExperts]:
    """Layer -> the experts that a shard of `count` holds, for the layers with a mixture."""
    found: dict[int, HeldExperts] = {}
    for layer in range(llm.layers):
        if (sizes := llm.experts_of(layer)) is not None:
            load = (loads or {}).get(layer, [1.0] * sizes.experts)
            found[layer] = _held(spread(load, count, how.redundant), index, sizes.experts)
    return found


def _held(every: Sequence[Sequence[int]], index: int, experts: int) -> HeldExperts:
    holders: list[list[int]] = [[] for _ in range(experts)]
    for shard, held in enumerate(every):
        for expert in held:
            holders[expert].append(shard)
    mine = {expert: number for number, expert in enumerate(every[index])}

    def number(expert: int, holder: int) -> int:
        return mine[expert] if holder == index else len(mine)

    return HeldExperts(tuple(mine), tuple((number(e, who[0]), number(e, who[-1])) for e, who in enumerate(holders)))


def read_loads(folder: Path, llm: LanguageConfig) -> Loads:
    """The loads that a weights folder has; empty if it has none. Raises InvalidInput for those of another model."""
    return dict(_loads(Fields(read_optional(folder / LOADS)), llm))


def loads_text(loads: Loads) -> str:
    """The text of a folder's file."""
    return json.dumps({str(layer): list(load) for layer, load in loads.items()}) + "\n"


def _loads(fields: Fields, llm: LanguageConfig) -> Iterator[tuple[int, Sequence[int]]]:
    mixtures = {str(layer): sizes for layer in range(llm.layers) if (sizes := llm.experts_of(layer)) is not None}
    fields.only(*mixtures)
    for layer in map(str, fields.values):
        sizes, load = mixtures[layer], fields.wholes(layer, _MOST, mixtures[layer].experts, least=0)
        if len(load) != sizes.experts:
            raise InvalidInput(f"`{LOADS}` has {len(load)} loads of layer {layer}, which has {sizes.experts} experts")
        yield int(layer), load
