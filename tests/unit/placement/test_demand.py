"""The demand of a run's steps on each rank."""

from typing import Any

import pytest

from benchmarks._runtime import bundled_graph
from tests.support.placing import at, duet, planned
from walkgraph.components import catalogue
from walkgraph.errors import InvalidInput
from walkgraph.ids import Rank
from walkgraph.placement.capacity.demand import Kept, PageDemand, inputs_read, page_demand, whole_pages
from walkgraph.placement.compiler.assemble import assemble
from walkgraph.placement.compiler.assignment import Assignment
from walkgraph.placement.document import Group, Placement, RankDevice
from walkgraph.placement.itinerary import expand
from walkgraph.placement.tables import Itinerary, Plan

DECODE = at(1, "llm", "say", walks=("decode",))
RECALL = at(1, "keep", "read", "say", walks=("recall",))


def plan_of(*groups: dict[str, Any]) -> Plan:
    made = planned(*groups)
    assert made.plan is not None, made.problems
    return made.plan


def talk(plan: Plan) -> Itinerary:
    return expand(duet(), plan, "talk", {"seed": 1}, {"prompt": ["a", "b"]})


def kept(tokens: dict[int, dict[int, int]]) -> PageDemand:
    """One sequence in each state."""
    return PageDemand({Rank(rank): {s: Kept(n, 1) for s, n in states.items()} for rank, states in tokens.items()})


def test_each_rank_is_sent_what_it_reads() -> None:
    plan = plan_of(RECALL)
    found = expand(duet(), plan, "remember", {"seed": 1}, {"fact": ["x"]})
    assert inputs_read(plan, found) == {0: {"fact.0"}, 1: frozenset()}


def test_pages_are_asked_for_where_states_are() -> None:
    alone, apart = plan_of(), plan_of(DECODE)
    assert page_demand(alone, talk(alone), {"room": 100}) == kept({0: {0: 100, 1: 100}})
    assert page_demand(apart, talk(apart), {"room": 7}) == kept({0: {0: 7, 1: 7}, 1: {0: 7}})
    with pytest.raises(InvalidInput, match="state `main`"):
        page_demand(alone, talk(alone), {})


@pytest.mark.parametrize(
    ("items", "width", "kept"), [(1000, 1, Kept(24, 1)), (1000, 8, Kept(192, 8)), (5, 64, Kept(120, 5))]
)
def test_a_map_keeps_a_copy_for_each_item_at_once(items: int, width: int, kept: Kept) -> None:
    graph = bundled_graph("synthetic_maps")
    one = Placement(name="one", groups=(Group(nodes=("*",), ranks=(0,)),), ranks=(RankDevice(rank=0, device="cpu"),))
    plan = assemble(Assignment(graph, one), catalogue())
    params = {"items": items, "width": width, "prompt": 20, "times": 4, "fail_at": -1, "seed": 1}
    itinerary = expand(graph, plan, "write", params, {})
    assert page_demand(plan, itinerary, params) == PageDemand({Rank(0): {0: kept}})


@pytest.mark.parametrize(("tokens", "width", "pages"), [(0, 2, 0), (1, 1, 1), (16, 1, 1), (17, 1, 2), (34, 2, 4)])
def test_sequences_have_pages_of_their_own(tokens: int, width: int, pages: int) -> None:
    assert whole_pages(tokens, width, 16) == pages
