"""Replicas: every alternative of a plan has the tables of the placement in which those replicas are the only ones."""

from typing import Any

import pytest
from msgspec.structs import replace

from tests.support.placing import CATALOGUE, GIB, duet, hardware, sizes
from walkgraph.graph.problems import Problem
from walkgraph.placement.capacity.facts import Facts
from walkgraph.placement.compiler.assemble import assemble
from walkgraph.placement.compiler.assignment import MOST_ALTERNATIVES, Assignment
from walkgraph.placement.document import Group, Placement, RankDevice
from walkgraph.placement.itinerary import expanded_request
from walkgraph.placement.plan import PlanResult, plan
from walkgraph.placement.request import fill_params, name_inputs
from walkgraph.placement.routes import routes
from walkgraph.placement.show import render
from walkgraph.placement.tables import Plan, StreamPlan, WalkPlan

GPUS = tuple(f"cuda:{number}" for number in range(4))


def placed(*groups: Group, devices: tuple[str, ...] = GPUS) -> Placement:
    ranks = tuple(RankDevice(rank=rank, device=device) for rank, device in enumerate(devices))
    return Placement(name="test", groups=groups, ranks=ranks)


def group(*nodes: str, ranks: tuple[int, ...], **fields: Any) -> Group:
    return Group(nodes=nodes, ranks=ranks, replicas=len(ranks), **fields)


def planned(placement: Placement, graph: Any = None) -> PlanResult:
    return plan(graph or duet(), placement, hardware(*[32 * GIB] * 4), CATALOGUE, sizes())


def problem(result: PlanResult, code: str) -> Problem:
    found = [one for one in result.problems if one.code == code]
    assert len(found) == 1, result.problems
    return found[0]


def unnumbered(walk: WalkPlan, streams: int) -> WalkPlan:
    """The Walk as if its alternative were the first of a plan with so many streams."""
    edges = tuple(
        replace(edge, source=_unnumbered_end(edge.source, streams), target=_unnumbered_end(edge.target, streams))
        for edge in walk.edges
    )
    loops = tuple(loop if loop.stream is None else replace(loop, stream=loop.stream % streams) for loop in walk.loops)
    return replace(walk, index=0, edges=edges, loops=loops)


def _unnumbered_end(end: Any, streams: int) -> Any:
    return replace(end, index=end.index % streams) if end.kind == "stream" else end


def walks_of(made: Plan, alternative: int = 0) -> dict[tuple[str, bool], WalkPlan]:
    each = len(made.streams) // len(made.alternatives)
    return {(walk.name, walk.chunked): unnumbered(walk, each) for walk in made.walks_of(alternative)}


def streams_of(made: Plan, alternative: int = 0) -> list[StreamPlan]:
    """The streams of an alternative, with the names of Walks in place of their numbers."""
    return [
        replace(stream, index=0, walks=tuple(made.walks[walk].name for walk in stream.walks))  # type: ignore[arg-type]
        for stream in made.streams_of(alternative)
    ]


WHOLE = (group("*", ranks=(0, 1, 2)),)
APART = (group("*", ranks=(0, 2)), group("guide", "paint", ranks=(1, 3)))
MIXED = (Group(nodes=("*",), ranks=(0,)), group("llm", ranks=(0, 1)), group("paint", "voice", ranks=(1, 2, 3)))


@pytest.mark.parametrize("groups", [WHOLE, APART, MIXED], ids=["whole", "apart", "mixed"])
def test_an_alternative_is_the_plan_in_which_its_replicas_are_the_only_ones(groups: tuple[Group, ...]) -> None:
    graph = duet()
    made = assemble(Assignment(graph, placed(*groups)), CATALOGUE)
    seen: set[tuple[int, ...]] = set()
    for one in made.alternatives:
        alone = tuple(
            each.model_copy(update={"ranks": (each.ranks[one.replicas[each.replicas]],), "replicas": 1})
            if each.replicas > 1
            else each
            for each in groups
        )
        plain = assemble(Assignment(graph, placed(*alone)), CATALOGUE)
        assert walks_of(made, one.index) == walks_of(plain)
        assert streams_of(made, one.index) == streams_of(plain)
        assert one.ranks == plain.alternatives[0].ranks
        seen.add(tuple(one.replicas.values()))
    counts = sorted({each.replicas for each in groups} - {1})
    assert seen == {(0,), (1,), (2,)} if counts == [3] else len(seen) == len(made.alternatives)


def test_groups_with_equally_many_replicas_take_the_same_one() -> None:
    made = assemble(Assignment(duet(), placed(*APART)), CATALOGUE)
    assert [one.ranks for one in made.alternatives] == [(0, 1), (2, 3)]
    assert made.replicated == {0, 1, 2, 3}


def test_groups_with_unequally_many_replicas_are_combined() -> None:
    made = assemble(Assignment(duet(), placed(*MIXED)), CATALOGUE)
    assert [one.replicas for one in made.alternatives] == [{2: a, 3: b} for a in range(2) for b in range(3)]
    assert made.replicated == {1, 2, 3}, "rank 0 has other nodes too"


def test_a_request_takes_the_same_steps_on_its_replicas() -> None:
    graph = duet()
    made = assemble(Assignment(graph, placed(*APART)), CATALOGUE)
    task, params = graph.tasks["remember"], fill_params(graph.tasks["remember"], {"seed": 1})
    given = name_inputs(task, {"fact": ["it rains"]})
    found = [expanded_request(Facts(made, one.index), task, params, given, None).itinerary for one in made.alternatives]
    walked = [[made.walks[step.walk].name for step in one.steps] for one in found]
    assert walked[0] == walked[1] == ["remember", "recall"]
    assert [one.ranks for one in found] == [(0,), (2,)]
    assert len({step.walk for one in found for step in one.steps}) == 4


def test_every_rank_with_a_replica_needs_its_memory() -> None:
    made = planned(placed(*WHOLE, devices=GPUS[:3]))
    assert made.plan is not None, made.problems
    alone = planned(placed(Group(nodes=("*",), ranks=(0,)), devices=GPUS[:1])).plan
    assert alone is not None
    assert [rank.nodes for rank in made.plan.ranks] == [alone.ranks[0].nodes] * 3
    weights = [[line for line in rank.budget if line[0].startswith("weights")] for rank in made.plan.ranks]
    assert weights == [[line for line in alone.ranks[0].budget if line[0].startswith("weights")]] * 3
    assert len({rank.kv_bytes for rank in made.plan.ranks}) == 1
    assert made.plan.ranks[0].kv_bytes > 0


def test_the_plan_shows_the_ranks_of_runs_by_their_replicas() -> None:
    made = planned(placed(*APART)).plan
    assert made is not None
    shown = render(made)
    assert "\nreplicas\n" in shown
    assert "  1 of 2  ranks 0, 1 · " in shown
    assert "  2 of 2  ranks 2, 3 · " in shown
    assert "replicas\n" not in render(planned(placed(Group(nodes=("*",), ranks=(0,)), devices=GPUS[:1])).plan or made)


def test_routes_are_those_with_any_replicas() -> None:
    made = planned(placed(*APART)).plan
    assert made is not None
    pairs = {(route.source, route.target) for route in routes(duet(), made)}
    assert {(0, 1), (2, 3)} <= pairs
    assert not pairs & {(0, 3), (2, 1)}


# ── problems ───────────────────────────────────────────────────────────────────────────────────


def test_a_replica_needs_a_rank_of_its_own() -> None:
    made = planned(placed(Group(nodes=("*",), ranks=(0, 0), replicas=2), devices=GPUS[:1]))
    assert made.plan is None
    found = problem(made, "same_rank")
    assert (found.pointer, found.message) == (
        "/groups/0/ranks/1",
        "rank 0 holds two replicas; give each a rank of its own",
    )


def test_too_few_ranks() -> None:
    found = problem(planned(placed(Group(nodes=("*",), ranks=(0, 1), replicas=3))), "rank_count")
    assert found.pointer == "/groups/0/ranks"
    assert "is 3, but 2 ranks are given" in found.message


def test_too_few_gpus() -> None:
    devices = ("cuda:0", "cuda:0", "cuda:7")
    made = planned(placed(group("*", ranks=(0, 1, 2)), devices=devices))
    assert made.plan is None
    assert problem(made, "no_device").pointer == "/ranks/2/device"
    shared = problem(made, "shared_device")
    assert (shared.severity, shared.pointer) == ("warning", "/groups/0/ranks/1")


def test_a_state_stays_on_one_rank_with_any_replicas() -> None:
    graph = duet()
    nodes = graph.nodes | {"guide": graph.nodes["guide"].model_copy(update={"states": {"kv": "main"}})}
    groups = (Group(nodes=("*",), ranks=(0,)), group("guide", ranks=(0, 1)))
    made = planned(placed(*groups, devices=GPUS[:2]), graph.model_copy(update={"nodes": nodes}))
    found = problem(made, "split_state")
    assert made.plan is None
    assert found.pointer == "/groups/1"
    assert "would be on ranks 0, 1 at once" in found.message


def test_there_are_not_too_many_combinations() -> None:
    devices = ("cpu",) * 24
    groups = (group("*", ranks=tuple(range(8))), group("llm", ranks=tuple(range(8, 17))))
    made = plan(duet(), placed(*groups, devices=devices), hardware(), CATALOGUE, sizes())
    assert made.plan is None
    found = problem(made, "too_many_replicas")
    assert found.pointer == "/groups/1/replicas"
    assert f"make 72 combinations, and there may be {MOST_ALTERNATIVES}" in found.message
