"""The status of runs on their ranks: busy while an engine has work for them, otherwise what they wait for."""

from __future__ import annotations

from itertools import count
from typing import Any

import pytest

from tests.support.cluster import Cluster
from tests.support.synthetic import functions, lanes, one_walk
from tests.unit.worker.test_core import plan_of
from tests.unit.worker.test_resident import STEPS, STREAM, drawn
from walkgraph.ids import Rank
from walkgraph.placement.compiler.assemble import assemble
from walkgraph.placement.compiler.assignment import Assignment
from walkgraph.placement.document import Group, Placement, RankDevice
from walkgraph.simulation.kinds.talkers import NODES, Talker, talker_scenario
from walkgraph.simulation.kinds.talkers import drawn as drawn_talker
from walkgraph.simulation.reference.plain_loop import PlainLoop
from walkgraph.simulation.reference.random_walks import mix
from walkgraph.simulation.scenarios import fixed
from walkgraph.wire import messages as m
from walkgraph.wire.standing import Standing
from walkgraph.worker.events import Arrived


def standings(cluster: Cluster) -> dict[int, Standing]:
    found = {rank: core.standing("r") for rank, core in cluster.cores.items()}
    return {int(rank): one for rank, one in found.items() if one is not None}


def cluster_of(
    name: str, walks: list[tuple[str, bool]] | str, params: dict[str, Any], inputs: dict[str, Any]
) -> Cluster:
    graph, plan = plan_of(name, 2)
    cluster = Cluster(plan, functions(graph), 3)
    itinerary = one_walk(plan, walks) if isinstance(walks, str) else lanes(plan, walks)
    cluster.start("r", itinerary, params, inputs)
    return cluster


def in_flight(cluster: Cluster) -> int:
    return sum(len(queue) for queue in cluster._links.values())


@pytest.mark.parametrize("walk", ["nested", "climb"])
def test_a_run_with_something_to_do_is_busy_or_has_messages_under_way(walk: str) -> None:
    params = {"rows": 3, "columns": 2, "times": 20, "limit": 5, "passes": 3}
    cluster = cluster_of("synthetic_loops", walk, params, {"start": 0})
    while True:
        found = standings(cluster).values()
        missing = sum(one.sent for one in found) - sum(one.received for one in found)
        assert missing == in_flight(cluster)
        assert any(one.busy for one in found) == any(cluster._work.values())
        if not cluster.turn():
            break
    assert cluster.done("r") == {0, 1}
    assert not any(one.waits for one in standings(cluster).values())


def lose(cluster: Cluster, kind: type) -> None:
    """Run until nothing is left to do; one message of a kind is lost on its way."""
    lost = False
    while cluster.turn():
        for queue in cluster._links.values():
            found = next((event for event in queue if isinstance(event.message, kind)), None)
            if found is not None and not lost:
                queue.remove(found)
                lost = True
    assert lost


def test_what_waits_for_a_value_that_was_lost_names_the_port_and_the_source() -> None:
    cluster = cluster_of("synthetic_loops", "ferry", {"times": 3, "numbers": 8}, {})
    lose(cluster, m.Deliver)
    found = standings(cluster)
    assert not any(one.busy for one in found.values())
    assert sum(one.sent for one in found.values()) == sum(one.received for one in found.values()) + 1
    waits = [wait for one in found.values() for wait in one.waits if wait.port]
    assert waits
    assert {(wait.walk, wait.use) for wait in waits} <= {("ferry", "unload"), ("ferry", "load")}
    assert all("." in wait.source for wait in waits)


def test_what_waits_for_the_end_of_a_loop_names_who_tells_it() -> None:
    cluster = cluster_of("synthetic_loops", "climb", {"times": 20, "limit": 5, "passes": 3}, {"start": 0})
    lose(cluster, m.Until)
    waits = [wait for one in standings(cluster).values() for wait in one.waits]
    assert any(not wait.port and wait.source.endswith(".reached") for wait in waits), waits


def test_what_waits_for_a_chunk_names_its_stream() -> None:
    walks = [("produce", False), ("batches", True)]
    cluster = cluster_of("synthetic_streams", walks, {"items": 9, "stop_at": 99, "work": 0, "side": 1}, {})
    lose(cluster, m.StreamDone)
    found = standings(cluster)
    assert not any(one.busy for one in found.values())
    waits = [wait for one in found.values() for wait in one.waits]
    assert any(wait.source == "@stream.batches" for wait in waits), waits


def test_a_loop_on_the_device_that_its_streams_have_no_room_for_is_not_busy() -> None:
    graph = drawn("synthetic_streams")
    groups = (Group(nodes=("*",), ranks=(0,)), Group(nodes=("batch_sum",), ranks=(1,)))
    devices = tuple(RankDevice(rank=rank, device="cpu") for rank in range(2))
    plan = assemble(Assignment(graph, Placement(name="two", groups=groups, ranks=devices)), STEPS)
    cluster = Cluster(plan, functions(graph), 3)
    cluster.start("r", lanes(plan, [("produce", False), ("batches", True)]), {**STREAM, "items": 400}, {})
    while cluster.turn():
        work = [one for one in cluster._work[Rank(0)] if not (isinstance(one, PlainLoop) and one.blocked)]
        assert standings(cluster)[0].busy == bool(work)
        for queue in cluster._links.values():
            for event in [event for event in queue if isinstance(event.message, m.Credit)]:
                queue.remove(event)
    assert cluster.loops
    found = standings(cluster)
    assert not any(one.busy for one in found.values())
    assert "room in its streams" in {wait.source for wait in found[0].waits}


def test_a_loop_that_gives_nothing_more_without_items_is_not_busy() -> None:
    """It may still compute some of a chunk, which nobody gets before the chunk is whole."""
    number = next(n for n in count() if _gives_chunks_of_five(drawn_talker(n)))
    scenario = talker_scenario(number)
    cluster = Cluster(scenario.plan, fixed({node: mix(node) for node in NODES})({}), 3)
    itinerary = lanes(scenario.plan, [("think", False), ("speak", False), ("sound", True)])
    cluster.start("r", itinerary, {"words": 12, "frames": 12}, {"x": 5})
    while cluster.turn():
        for queue in cluster._links.values():
            for event in [event for event in queue if _said_after(event, 7)]:
                queue.remove(event)
    (loop,) = (one for _, one in cluster._blocked)
    assert (loop.done, loop.told, loop.call.grain) == (7, 5, 5)
    assert not any(one.busy for one in standings(cluster).values())


def _gives_chunks_of_five(one: Talker) -> bool:
    ends = one.until or one.stops
    return not (one.told or ends) and (one.size, one.talker) == (5, "test.talker") and len({*one.ranks.values()}) == 3


def _said_after(event: Arrived, index: int) -> bool:
    message = event.message
    return isinstance(message, m.StreamItem) and message.stream == 0 and message.index >= index


def test_a_run_that_is_not_known_stands_nowhere() -> None:
    cluster = cluster_of("synthetic_loops", "nested", {"rows": 1, "columns": 1}, {"start": 0})
    assert cluster.cores[Rank(0)].standing("other") is None
