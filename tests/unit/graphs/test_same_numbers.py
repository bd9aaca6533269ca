"""The same numbers everywhere: what a run computes doesn't depend on where its nodes are, on how many replicas there
are, or on how many shards divide them. Every call of each run is compared with that on one rank.

Without shards the bits are equal. With shards, sums are added in another order, and floats are near; tokens are equal.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor

from tests.support.local import LocalDeployment
from tests.support.random_pipelines import random_pipeline
from tests.unit.graphs.test_batch_invariance import FAMILIES, Asked, Family, Numbers, Recorded, Served, differ, picture
from tests.unit.graphs.test_bundled import GRAPHS
from tests.unit.graphs.test_replicas import placed
from walkgraph.collectives.base import Shard
from walkgraph.collectives.joining import join
from walkgraph.engine.device.outside import Firsthand
from walkgraph.graph import codec
from walkgraph.graph.document import Graph
from walkgraph.placement.document import Group, Placement, RankDevice
from walkgraph.placement.tables import Plan, RankPlan
from walkgraph.simulation.reference.random_walks import SeededDraw

NEAR = 1e-5
"""The largest norm of a difference, relative to that of the numbers."""
PATIENCE = 120.0


def shapes() -> Family:
    drawing = {"steps": 2, "preview_every": 1, "cfg_img_scale": 1.5, "seed": 1}
    runs = [
        Asked("text_to_image", drawing, {"prompt": ["a red circle"]}),
        Asked("edit", drawing, {"image": [picture(1)], "instruction": ["make it blue"]}),
        Asked("image_to_text", {"max_tokens": 6}, {"image": [picture(2)]}),
    ]
    return Family("shapes", {}, {}, runs)


def synthetic(name: str, *tasks: str) -> Callable[[], Family]:
    return lambda: Family(f"synthetic_{name}", {}, {}, [Asked(task, {}, {}) for task in tasks])


BUNDLED: Mapping[str, Callable[[], Family]] = {
    **FAMILIES,
    "shapes": shapes,
    "loops": synthetic("loops", "nested", "climb", "count", "skip"),
    "streams": synthetic("streams", "batches", "windows", "contexts", "padded", "chain", "all"),
    "states": synthetic("states", "write", "part_ways", "remember", "roll"),
    "maps": synthetic("maps", "write", "add"),
    "search": synthetic("search", "search"),
    "passes": synthetic("passes", "redraw", "ramble", "recite"),
}
"""The bundled graphs, with small weights and runs."""


class Model(NamedTuple):
    """A bundled graph, with other weights or without."""

    name: str
    source: str = ""
    """The weights of its language model, where these aren't those of `BUNDLED`."""
    resident: bool = False
    """Its loops are device loops, in whose steps a sequence-parallel group divides tokens."""


DENSE, MIXED, SPOKEN = Model("llm", "random:qwen3-tiny:0"), Model("llm"), Model("orpheus")
DRAWN = Model("shapes", resident=True)
SPREAD: dict[str, Any] = {"expert_parallel": True}
WEIGHTS, TOKENS = "tensor_parallel", "sequence_parallel"
DIVIDED: dict[str, tuple[Model, str, dict[str, Any]]] = {
    "dense": (DENSE, WEIGHTS, {}),
    "parts of experts": (MIXED, WEIGHTS, {}),
    "whole experts": (MIXED, WEIGHTS, SPREAD),
    "redundant experts": (MIXED, WEIGHTS, {**SPREAD, "redundant_experts": 4}),
    "spoken": (SPOKEN, WEIGHTS, {}),
    "flow steps": (DRAWN, TOKENS, {}),
}
WIDTHS, REPLICAS, RANKS = (1, 2, 4), (1, 2, 3), 8


@cache
def graph_of(model: Model) -> Graph:
    made = BUNDLED[model.name]()
    document = json.loads(GRAPHS[made.graph].read_text())
    for name, source in made.sources.items():
        document["weights"][name]["source"] = source
    if model.source:
        document["weights"][model.name]["source"] = model.source
    for node, params in made.nodes.items():
        document["nodes"][node]["params"] |= params
    if model.name == "llm":
        document["nodes"]["llm"]["params"]["logits"] = True
    return codec.load(document)


def numbers(model: Model, placement: Placement, shards: Mapping[int, Shard] | None = None) -> dict[Any, Numbers]:
    """(run, alternative) -> what it computes. `shards`: rank -> the place in its group."""

    def options(rank: RankPlan) -> dict[str, Any]:
        # All shards see the same time.
        outside = Firsthand(map(float, count()).__next__)
        return {"outside": outside} | ({"shard": shards[rank.rank]} if shards and rank.shards else {})

    how: dict[str, Any] = {"threads": 1, "kv_bytes": 1 << 24, "resident": model.resident, "batch_invariant": True}
    local = Served(graph_of(model), placement, options_of=options, **how)
    runs = {
        f"{run} on {one.index}": (run, one.index)
        for run in range(len(BUNDLED[model.name]().runs))
        for one in local.plan.alternatives
    }
    for name, (run, alternative) in runs.items():
        task, params, inputs = BUNDLED[model.name]().runs[run]
        local.submit(name, task, params, inputs, session=name, alternative=alternative)
    local.run()
    assert not local.failed
    found: dict[Any, Numbers] = {}
    for name, asked in runs.items():
        engines = [engine for engine in local.engines.values() if isinstance(engine, Recorded)]
        calls = {place: value for engine in engines for place, value in engine.found.get(name, {}).items()}
        found[asked] = {**dict(named(local.plan, asked[1], calls)), **local.outputs[name]}
    return found


def named(plan: Plan, alternative: int, calls: Numbers) -> Iterator[tuple[Any, Any]]:
    """Return the calls with the names of uses, and with the turns of each Walk in place of steps: the numbers of both
    depend on where states move."""
    uses = {walk.name: [use.name for use in walk.uses] for walk in plan.walks_of(alternative)}
    steps: dict[str, set[int]] = {}
    for walk, step, *_ in calls:
        steps.setdefault(walk, set()).add(step)
    turns = {walk: sorted(found) for walk, found in steps.items()}
    for (walk, step, use, *rest), value in calls.items():
        yield (walk, turns[walk].index(step), uses[walk][use], *rest), value


@cache
def alone(model: Model) -> dict[int, Numbers]:
    placement = placed(graph_of(model), "1 whole")
    return {run: found for (run, _), found in numbers(model, placement).items()}


def on_shards(model: Model, placement: Placement, at: Path) -> list[dict[Any, Numbers]]:
    """The numbers on each shard of the last group: a thread has the shards of one index in all of its replicas."""
    group = placement.groups[-1]
    width = group.width

    def work(index: int) -> dict[Any, Numbers]:
        shards: dict[int, Shard] = {
            first: join(at / f"group{first}", index, width, torch.device("cpu"), patience=PATIENCE)
            for first in group.ranks[::width]
        }
        try:
            return numbers(model, placement, shards)
        finally:
            for shard in shards.values():
                shard.close()

    at.mkdir(exist_ok=True)
    with ThreadPoolExecutor(width) as pool:
        return list(pool.map(work, range(width)))


def apart(wanted: Numbers, found: Numbers, near: float) -> list[Any]:
    """The places of values that aren't the same, or that one run alone has."""
    both = [place for place in wanted if place in found]
    return [*wanted.keys() ^ found.keys()] + [place for place in both if not same(wanted[place], found[place], near)]


def same(wanted: Any, found: Any, near: float) -> bool:
    if isinstance(wanted, Tensor) and isinstance(found, Tensor) and wanted.is_floating_point():
        if not near:
            return not differ(wanted, found)
        off = (wanted.double() - found.double()).norm() if wanted.shape == found.shape else None
        return off is not None and bool(off <= near * max(float(wanted.double().norm()), 1.0))
    match wanted, found:
        case [*ones], [*others]:
            return len(ones) == len(others) and all(same(*pair, near) for pair in zip(ones, others, strict=True))
        case {**one}, {**other}:
            return one.keys() == other.keys() and all(same(value, other[key], near) for key, value in one.items())
        case float(), float():
            return abs(wanted - found) <= near * max(abs(wanted), 1.0)
        case str(), str() if wanted != found and wanted.startswith("{"):
            # Probabilities, as the client gets them.
            return same(json.loads(wanted), json.loads(found), near)
        case _:
            return not differ(wanted, found)


def wide(width: int, replicas: int, **how: Any) -> Placement:
    ranks = tuple(range(width * replicas))
    group = Group(nodes=("*",), ranks=ranks, replicas=replicas, **how)
    devices = tuple(RankDevice(rank=rank, device="cpu") for rank in ranks)
    return Placement(name="wide", groups=(group,), ranks=devices)


def pairs() -> Iterator[Any]:
    """Every width with every number of replicas: of each model a part, so that all pairs are there; all with
    `--scale=long`."""
    for turn, name in enumerate(DIVIDED):
        for place, (width, replicas) in enumerate((w, r) for w in WIDTHS[1:] for r in REPLICAS):
            marks = () if (place + turn) % 3 == 0 else pytest.mark.long
            yield pytest.param(name, width, replicas, marks=marks, id=f"{name}-{width}x{replicas}")


@pytest.mark.parametrize(("name", "width", "replicas"), [*pairs()])
def test_shards_and_replicas_compute_what_one_rank_does(name: str, width: int, replicas: int, tmp_path: Path) -> None:
    model, divides, how = DIVIDED[name]
    first, *others = on_shards(model, wide(width, replicas, **{divides: width}, **how), tmp_path / "groups")
    assert first.keys() == {(run, alternative) for run in alone(model) for alternative in range(replicas)}
    assert any(place[-1] == "logits" for place in alone(model)[0]) is (model.name == "llm"), "else it tests less"
    for asked, found in first.items():
        assert apart(alone(model)[asked[0]], found, NEAR) == []
        assert all(not apart(found, other[asked], 0.0) for other in others), "shards have equal bits"


def kinds() -> Iterator[Any]:
    """Two and three replicas, of whole graphs and of some nodes."""
    for turn, name in enumerate(BUNDLED):
        for place, kind in enumerate(("2 whole", "3 of some", "2 of some", "3 whole")):
            marks = () if place == turn % 2 else pytest.mark.long
            yield pytest.param(name, kind, marks=marks, id=f"{name}-{kind}")


@pytest.mark.parametrize(("name", "kind"), [*kinds()])
def test_replicas_compute_the_bits_of_one_rank(name: str, kind: str) -> None:
    model = Model(name)
    for (run, _), found in numbers(model, placed(graph_of(model), kind)).items():
        assert apart(alone(model)[run], found, 0.0) == []


# ── random placements ───────────────────────────────────────────────────────────────────────────


def scattered(graph: Graph, draw: SeededDraw, divided: str = "") -> Placement:
    """Nodes on up to eight ranks at random; nodes that share a state stay together. The last group has replicas, and
    shards of the node `divided`, if there is one."""
    parts: list[set[str]] = []
    for name, node in graph.nodes.items():
        bound = {*node.states.values()}
        joined = [
            part for part in parts if bound & {state for one in part for state in graph.nodes[one].states.values()}
        ]
        parts = [part for part in parts if part not in joined] + [{name}.union(*joined)]
    width, replicas = draw.one(WIDTHS) if divided else 1, draw.one(REPLICAS[:2])
    singles = draw.integer(0 if divided else 1, RANKS - width * replicas)
    wide_ranks = tuple(range(singles, singles + width * replicas))
    last = next(part for part in parts if divided in part) if divided else draw.one(parts)
    groups = [
        Group(nodes=tuple(sorted(part)), ranks=(draw.integer(0, singles - 1) if singles else wide_ranks[0],))
        for part in parts
        if part is not last
    ]
    groups.append(Group(nodes=tuple(sorted(last)), ranks=wide_ranks, tensor_parallel=width, replicas=replicas))
    devices = tuple(RankDevice(rank=rank, device="cpu") for rank in range(singles + width * replicas))
    return Placement(name="scattered", groups=tuple(groups), ranks=devices)


def test_bundled_graphs_compute_the_same_on_random_placements(placements: int, tmp_path: Path) -> None:
    """`--placements 500` draws more of them."""
    names = [*BUNDLED]
    for seed in range(placements):
        draw, model = SeededDraw(seed), Model(names[seed % len(names)])
        divided = "llm" if model in (MIXED, SPOKEN) else ""
        placement = scattered(graph_of(model), draw, divided)
        first, *others = on_shards(model, placement, tmp_path / str(seed))
        near = NEAR if others else 0.0
        for asked, found in first.items():
            assert apart(alone(model)[asked[0]], found, near) == [], (seed, placement)
            assert all(not apart(found, other[asked], 0.0) for other in others), (seed, placement)


def test_random_graphs_give_the_same_on_random_placements(placements: int) -> None:
    for seed in range(20 * placements):
        draw = SeededDraw(seed)
        graph = random_pipeline(draw, 20).graph()
        inputs = {"text": ["ab1"], "other": ["b, a"], "texts": ["a", "", "1[]"][: draw.integer(1, 3)]}
        params = {"n": draw.integer(-9, 9), "flag": draw.flag()}
        one, several = (
            LocalDeployment(graph, placement, threads=1, kv_bytes=1 << 16)
            for placement in (placed(graph, "1 whole"), scattered(graph, draw))
        )
        for local in (one, several):
            for alternative in local.plan.alternatives:
                local.submit(f"{alternative.index}", "t", params, inputs, alternative=alternative.index)
            local.run()
        for run in (f"{alternative.index}" for alternative in several.plan.alternatives):
            assert (run in several.failed) is ("0" in one.failed), seed
            if run not in several.failed:
                assert not apart(one.outputs["0"], several.outputs[run], 0.0), seed
