"""The time that values of a simulated request spend between hosts, against times computed by hand."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import msgspec
import pytest

from tests.support.deployment import plan_named
from tests.support.placing import CATALOGUE, duet, planned
from walkgraph.components import catalogue
from walkgraph.placement.capacity.budget import Copy
from walkgraph.placement.document import ALL
from walkgraph.placement.hardware import Hardware
from walkgraph.placement.host.host_costs import HostCost, HostCosts, total
from walkgraph.placement.host.host_links import HostLink
from walkgraph.placement.simulate import simulate
from walkgraph.placement.tables import Plan

LINK = HostLink(first="a", second="b", bandwidth=1e9, latency=1e-4)


def hosts(*links: HostLink) -> Hardware:
    here, there = (Hardware(host=name, cores=1, shm=0, devices=()) for name in ("a", "b"))
    return replace(here, others=(there,), links=links)


def apart(plan: Plan) -> Plan:
    """The plan with its second rank on the other host."""
    first, second = plan.ranks
    return msgspec.structs.replace(plan, ranks=(first, msgspec.structs.replace(second, host="b")))


def loops(task: str, params: Mapping[str, Any], hardware: Hardware, **sizes: int) -> list[tuple[HostCost, ...]]:
    """The costs of the steps of a task of `synthetic_loops`. `sizes`: by Walk and edge, as `ferry_0`."""
    graph, plan = plan_named("synthetic_loops")
    told = {f"/walks/{name.rpartition('_')[0]}/edges/{name.rpartition('_')[2]}": size for name, size in sizes.items()}
    found = simulate(graph, catalogue(), task, params, {})
    [lane] = HostCosts(graph, apart(plan), hardware, sizes=told).of(task, found)
    return [tuple(step) for step in lane]


def test_each_value_takes_the_latency_and_its_bytes() -> None:
    [step] = loops("ferry", {"times": 4}, hosts(LINK), ferry_0=4_000_000)
    [cost] = step
    assert (cost.what, cost.pointer) == ("load.items -> unload.items", "/walks/ferry/edges/0")
    assert (cost.source, cost.target, cost.times, cost.bytes) == ("a", "b", 4, 4_000_000)
    # Four times 0.1 ms, and 4 MB at 1 GB/s.
    assert cost.seconds == pytest.approx(4 * (0.0001 + 0.004))
    assert total([[step]]) == cost.seconds


def test_without_a_size_the_latency_counts_and_without_a_link_nothing() -> None:
    [[cost]] = loops("ferry", {"times": 7}, hosts(LINK))
    assert (cost.bytes, cost.seconds) == (None, pytest.approx(0.0007))
    [[cost]] = loops("ferry", {"times": 7}, hosts())
    assert (cost.times, cost.seconds) == (7, None)
    assert total([[(cost,)]]) is None


def test_what_enters_a_loop_goes_over_once_and_what_is_in_it_each_time() -> None:
    [step] = loops("climb", {"limit": 20}, hosts(LINK), climb_2=1_000_000)
    told = {cost.what: (cost.source, cost.target, cost.times) for cost in step}
    turns = next(times for _, _, times in told.values() if times != 1)
    assert told == {
        "limit.value -> grow.a": ("a", "b", turns),
        "one.value -> grow.b": ("a", "b", 1),
        "grow.sum -> limit.value": ("b", "a", turns),
    }
    assert total([[step]]) == pytest.approx(2 * turns * 0.0001 + 0.0001 + 0.001)


def test_nested_loops_multiply() -> None:
    costs = {cost.what: cost.times for step in loops("nested", {"rows": 2, "columns": 5}, hosts(LINK)) for cost in step}
    # Each row's start and steps go over once, and what has grown comes back whole.
    assert costs == {
        "row_start.sum -> grow.a": 2,
        "steps_of_row.values -> grow.b": 2,
        "grow.sum -> row_total.values": 2,
    }


def test_one_host_costs_nothing() -> None:
    graph, plan = plan_named("synthetic_loops")
    found = simulate(graph, catalogue(), "ferry", {}, {})
    assert HostCosts(graph, plan, hosts(LINK)).of("ferry", found) == [[()]]


GROUPS = (
    {"nodes": [ALL], "ranks": [0], "memory": "8GiB"},
    {"nodes": ["guide", "say", "voice"], "ranks": [1], "memory": "8GiB"},
)


def duets(task: str, inputs: dict[str, int], parts: tuple[str, ...] = (), **params: Any) -> dict[str, HostCost]:
    """What the steps of a task of `duet` cost, by name."""
    plan = planned(*GROUPS).plan
    assert plan is not None
    found = simulate(duet(), CATALOGUE, task, params, inputs, parts)
    state = next(state.index for state in plan.states if state.name == "guide")
    walk = next(walk.index for walk in plan.walks if walk.name == "prefill")
    copy = Copy(walk, state, plan.ranks[0].rank, plan.ranks[1].rank, 2_000_000, 9_000_000, "nixl", parts=False)
    costs = HostCosts(duet(), apart(plan), hosts(LINK), (copy,)).of(task, found)
    return {cost.what: cost for lane in costs for step in lane for cost in step}


def test_states_streams_and_uses_with_conditions() -> None:
    found = duets("talk", {}, ("text",), times=6)
    assert found["guide"].seconds == pytest.approx(0.0001 + 0.002)
    assert (found["llm.token -> say.token"].times, found["llm.token -> @stream.heard"].times) == (6, 6)
    drawn = duets("draw", {"prompt": 1}, times=5, scale=3.0)
    # The guide is left out in the first of five iterations.
    assert drawn["guide.velocity -> mix.other"].times == 4
    assert drawn["noise.latents -> guide.latents"].times == 1
    assert drawn["mix.latents -> guide.latents"].times == 5
    assert "guide.velocity -> mix.other" not in duets("draw", {"prompt": 1}, times=5, scale=1.0)
