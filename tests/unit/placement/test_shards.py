"""Groups that divide weights or tokens: what they can't be, where their bytes are, and which ranks belong together."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.deployment import graph_named
from walkgraph.checkpoints.sharding.experts import ExpertParallel
from walkgraph.components import catalogue, families
from walkgraph.graph.problems import Problem
from walkgraph.placement.document import Group, Placement, RankDevice
from walkgraph.placement.hardware import Device, Hardware
from walkgraph.placement.plan import PlanResult, plan
from walkgraph.placement.show import render
from walkgraph.placement.sizes import find_sizes
from walkgraph.placement.succession import same_processes
from walkgraph.placement.tables import Plan

GIB = 2**30
FOUR = tuple(f"cuda:{number}" for number in range(4))
HARDWARE = Hardware(
    host="here",
    devices=tuple(Device(name=name, total=100 * GIB, free=100 * GIB) for name in ("cpu", *FOUR)),
    cores=8,
    shm=GIB,
)
SIZES = find_sizes(families())
WIDE: dict[str, Any] = {"nodes": ("*",), "ranks": (0, 1), "tensor_parallel": 2}


def planned(
    *groups: dict[str, Any],
    devices: tuple[str, ...] = ("cuda:0", "cuda:1"),
    graph: str = "llm",
    source: str | None = None,
    apart: str | None = None,
) -> PlanResult:
    """`source`: of the graph's weights, instead of its own. `apart`: a node that has weights of the same family for
    itself."""
    placed = tuple(Group(**group) for group in groups)
    ranks = tuple(RankDevice(rank=rank, device=device) for rank, device in enumerate(devices))
    drawn = graph_named(graph)
    if source is not None:
        weights = {name: one.model_copy(update={"source": source}) for name, one in drawn.weights.items()}
        drawn = drawn.model_copy(update={"weights": weights})
    if apart is not None:
        node = drawn.nodes[apart]
        weights = {**drawn.weights, "apart": drawn.weights[str(node.weights)]}
        nodes = {**drawn.nodes, apart: node.model_copy(update={"weights": "apart"})}
        drawn = drawn.model_copy(update={"weights": weights, "nodes": nodes})
    return plan(drawn, Placement(name="p", groups=placed, ranks=ranks), HARDWARE, catalogue(), SIZES)


def made(result: PlanResult) -> Plan:
    assert result.plan is not None, result.problems
    return result.plan


def coded(result: PlanResult, code: str) -> Problem:
    [found] = [problem for problem in result.problems if problem.code == code]
    return found


DRAWN: dict[str, Any] = {"nodes": ("*",), "ranks": (0, 1), "sequence_parallel": 2}
ALONE = {"nodes": ("prompt",), "ranks": (1,)}
ONE: dict[str, Any] = {"nodes": ("*",), "ranks": (0,)}
THREE: dict[str, Any] = {"nodes": ("*",), "ranks": (0, 1, 2), "tensor_parallel": 3}


@pytest.mark.parametrize(
    ("groups", "devices", "code", "pointer"),
    [
        ([{**WIDE, "ranks": (0, 0)}], FOUR[:1], "duplicate_rank", "/groups/0/ranks/1"),
        ([WIDE], ("cuda:0", "cpu"), "mixed_devices", "/groups/0/ranks/1"),
        ([WIDE], ("cuda:0", "cuda:0"), "shared_device", "/groups/0/ranks/1"),
        ([WIDE, ALONE], FOUR[:2], "shared_shard", "/groups/1/ranks/0"),
        ([THREE], FOUR[:3], "indivisible", "/groups/0/tensor_parallel"),
        ([{**WIDE, "expert_parallel": True}], FOUR[:2], "indivisible", "/groups/0/expert_parallel"),
        ([{**ONE, "expert_parallel": True}], FOUR[:1], "indivisible", "/groups/0/expert_parallel"),
        ([{**WIDE, "redundant_experts": 2}], FOUR[:2], "indivisible", "/groups/0/redundant_experts"),
    ],
)
def test_groups_that_can_not_be(
    groups: list[dict[str, Any]], devices: tuple[str, ...], code: str, pointer: str
) -> None:
    found = planned(*groups, devices=devices)
    problem = coded(found, code)
    assert found.plan is None
    assert (problem.pointer, problem.severity) == (pointer, "error")


def test_shards_have_a_part_of_weights_and_caches() -> None:
    alone = made(planned({"nodes": ("*",), "ranks": (0,)}, devices=("cuda:0",)))
    wide = made(planned(WIDE))
    [one], two = alone.ranks, wide.ranks
    assert [rank.shards for rank in two] == [(0, 1), (0, 1)]
    assert [rank.repeats for rank in two] == [False, True]
    assert two[0].nodes == two[1].nodes == one.nodes
    whole, halves = dict(one.budget), [dict(rank.budget) for rank in two]
    for half in halves:
        assert whole["weights llm"] / 2 <= half["weights llm"] < whole["weights llm"] * 0.52
    assert two[0].kv_bytes == two[1].kv_bytes, "they have the same pages"
    assert {use.rank for walk in wide.walks for use in walk.uses} == {0}, "the first one serves"
    shown = render(wide)
    assert "shard 1 of 2" in shown
    assert "shard 2 of 2" in shown


MIXTURE = "random:qwen3-30b-a3b:0"


def test_shards_with_whole_experts_have_as_many_bytes_as_with_a_part_of_each() -> None:
    spread = {**WIDE, "expert_parallel": True}
    parts, whole = (made(planned(group, source=MIXTURE)).ranks for group in (WIDE, spread))
    assert [rank.expert_parallel for rank in (*parts, *whole)] == [None, None, ExpertParallel(), ExpertParallel()]
    assert [dict(rank.budget)["weights llm"] for rank in whole] == [dict(r.budget)["weights llm"] for r in parts]
    assert parts[0].kv_bytes == whole[0].kv_bytes
    assert "shard 2 of 2, whole experts" in render(made(planned(spread, source=MIXTURE)))


def test_redundant_experts_take_memory_on_each_shard() -> None:
    few, more = (
        made(planned({**WIDE, "expert_parallel": True, "redundant_experts": count}, source=MIXTURE)).ranks[1]
        for count in (0, 16)
    )
    # 48 layers of 128 experts, each three matrices of 2048 x 768 numbers of two bytes.
    assert dict(more.budget)["weights llm"] - dict(few.budget)["weights llm"] == 48 * 8 * 3 * 2048 * 768 * 2


def test_experts_that_cant_be_spread_evenly_are_a_problem() -> None:
    found = planned({**WIDE, "expert_parallel": True, "redundant_experts": 1}, source=MIXTURE)
    assert "128 experts and 1 redundant ones can't be divided by 2" in coded(found, "indivisible").message


def test_groups_on_the_same_ranks_hold_experts_alike() -> None:
    prompts = {"nodes": ("prompt",), "ranks": (0, 1), "tensor_parallel": 2}
    spread = {**WIDE, "expert_parallel": True, "redundant_experts": 2}
    for groups in ((spread, prompts), (prompts, spread)):
        found = made(planned(*groups, source=MIXTURE)).ranks
        assert [rank.expert_parallel for rank in found] == [ExpertParallel(2)] * 2


def test_nodes_with_weights_that_can_not_be_divided_are_named() -> None:
    speaker = planned(WIDE, graph="orpheus")
    assert coded(speaker, "repeated_nodes").message.startswith("`vocoder` can't be divided")
    apart = planned(
        WIDE,
        {"nodes": ("vocoder", "audio_out"), "ranks": (2,)},
        devices=("cuda:0", "cuda:1", "cuda:1"),
        graph="orpheus",
    )
    assert not [problem for problem in apart.problems if problem.code == "repeated_nodes"]
    assert made(apart).ranks[2].shards == ()


def test_each_replica_has_its_shards() -> None:
    group = {"nodes": ("*",), "ranks": (0, 1, 2, 3), "tensor_parallel": 2, "replicas": 2}
    both = made(planned(group, devices=FOUR))
    assert [rank.shards for rank in both.ranks] == [(0, 1), (0, 1), (2, 3), (2, 3)]
    assert {use.rank for walk in both.walks for use in walk.uses} == {0, 2}


def test_plans_with_shards_are_taken_up_by_new_processes() -> None:
    wide = made(planned(WIDE))
    assert not same_processes(wide, wide)


# ── sequence parallel ───────────────────────────────────────────────────────────────────────────


TEXT: dict[str, Any] = {"nodes": ("tokenizer",), "ranks": (0, 1), "tensor_parallel": 2}


@pytest.mark.parametrize(
    ("groups", "graph", "code", "pointer", "advice"),
    [
        ([DRAWN], "llm", "indivisible", "/groups/0/sequence_parallel", "set `tensor_parallel` instead"),
        ([WIDE], "bagel", "indivisible", "/groups/0/tensor_parallel", "set `sequence_parallel` instead"),
        ([DRAWN], "synthetic_loops", "indivisible", "/groups/0/sequence_parallel", "with one rank"),
        ([{**DRAWN, "tensor_parallel": 2}], "bagel", "unsupported", "/groups/0/sequence_parallel", "set one of them"),
        ([DRAWN, TEXT], "bagel", "unsupported", "/groups/1/tensor_parallel", "set `sequence_parallel` here too"),
        ([{**DRAWN, "ranks": (0, 1, 2)}], "bagel", "rank_count", "/groups/0/ranks", "`sequence_parallel` times"),
    ],
)
def test_groups_that_can_not_divide_tokens(
    groups: list[dict[str, Any]], graph: str, code: str, pointer: str, advice: str
) -> None:
    found = planned(*groups, devices=FOUR[:3], graph=graph)
    problem = next(problem for problem in found.problems if problem.code == code)
    assert found.plan is None
    assert (problem.pointer, problem.severity) == (pointer, "error")
    assert advice in problem.message


def test_shards_of_tokens_have_whole_weights_and_caches() -> None:
    [one] = made(planned(ONE, devices=("cuda:0",), graph="bagel")).ranks
    both = made(planned(DRAWN, graph="bagel"))
    assert [rank.shards for rank in both.ranks] == [(0, 1), (0, 1)]
    assert all(rank.sequence_parallel for rank in both.ranks)
    assert {rank.budget for rank in both.ranks} == {one.budget}
    assert "shard 2 of 2, whole weights" in render(both)
    assert not made(planned(WIDE)).ranks[0].sequence_parallel


def test_only_nodes_with_weights_of_their_own_are_named_beside_flow_steps() -> None:
    assert not planned(DRAWN, graph="bagel").problems, "encoders and decoders read the weights of the flow steps"
    found = planned(DRAWN, graph="bagel", apart="vae_decoder")
    assert coded(found, "repeated_nodes").message.startswith("`vae_decoder` can't be divided")


def test_each_replica_has_its_shards_of_tokens() -> None:
    group = {**DRAWN, "ranks": (0, 1, 2, 3), "replicas": 2}
    both = made(planned(group, devices=FOUR, graph="bagel"))
    assert [rank.shards for rank in both.ranks] == [(0, 1), (0, 1), (2, 3), (2, 3)]
    assert {use.rank for walk in both.walks for use in walk.uses} == {0, 2}
