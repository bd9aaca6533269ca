"""Sampled values of a run: all values for a recording, those of its place for a tap, and no others."""

from operator import itemgetter
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.cluster import Cluster
from tests.support.nested_walks import nested
from tests.support.random_walks import PARAMS, followed, graphs, plain
from tests.support.synthetic import functions, lanes, one_walk
from tests.unit.worker.test_resident import INPUTS, STREAM, drawn, placed, plan_of, served
from walkgraph.conductor.runs.watching import Places
from walkgraph.graph.document import Graph
from walkgraph.ids import RunId
from walkgraph.wire.watching import Tap, Watch
from walkgraph.worker.events import ABSENT, Observe

QUICK = settings(max_examples=20)
RANKS = st.just([0] * 12) | st.lists(st.integers(0, 2), min_size=12, max_size=12)
Place = tuple[str, str, int, tuple[int, ...], Any]


def tap(source: str, walk: str = "w", run: str | None = None, to: str = "") -> Tap:
    return Tap(id=f"tap {source}", walk=walk, source=source, to=to, interval=0, run=None if run is None else RunId(run))


def seen(cluster: Cluster, why: str, run: str = "r") -> list[Place]:
    found = [one for _, one in cluster.observed if one.why == why and one.run == run]
    return sorted(map(place, found), key=repr)


def place(one: Observe) -> Place:
    return one.walk, one.source, one.step, one.iteration, "absent" if one.value is ABSENT else plain(one.value)


def made(cluster: Cluster, graph: Graph) -> list[Place]:
    """By the book: all that each call gave, and each input that is read."""
    calls = [call for call in cluster.calls if call.run == "r"]
    outputs = [
        ("w", f"{call.node}.{port}", 0, call.iteration, plain(value))
        for call in calls
        for port, value in served(call.node)(call).items()
    ]
    sources = [edge.from_ for edge in graph.walks["w"].edges]
    sources += [use.name.partition(":")[2] for walk in cluster.plan.walks for use in walk.uses if use.node < 0]
    read = {source.removeprefix("@in.") for source in sources if source.startswith("@in.")}
    return sorted([*outputs, *(("w", f"@in.{name}", 0, (), INPUTS[name]) for name in read)], key=repr)


@QUICK
@given(graphs() | followed() | nested(), RANKS, st.integers(0, 99), st.data())
def test_records_and_taps_tell_what_calls_gave(graph: Graph, ranks: list[int], seed: int, data: st.DataObject) -> None:
    plan = placed(graph, ranks, resident=True)
    cluster = Cluster(plan, {name: served(name) for name in graph.nodes}, seed)
    itinerary = one_walk(plan, "w")
    sources = [*(f"{use}.{port}" for use in graph.nodes for port in ("out", "maybe")), "@in.x", "@in.xs"]
    tapped = data.draw(st.lists(st.sampled_from(sources), max_size=4, unique=True))
    cluster.watch(Watch(taps=tuple(map(tap, tapped))))
    cluster.start("r", itinerary, PARAMS, INPUTS, stepped=True, record=True)
    cluster.start("other", itinerary, PARAMS, INPUTS)
    cluster.run()
    whole = made(cluster, graph)
    assert seen(cluster, "record") == whole
    assert not seen(cluster, "record", "other")
    assert all(call.answered for call in cluster.calls if call.run == "r"), "what is probed is read"
    there = [one for one in seen(cluster, "tap") if one[4] != "absent"]
    assert there == [one for one in whole if one[1] in tapped]
    for one in cluster.observed:
        assert one[1].modality in ("scalar", "tensor", "flag")
        assert [t.source for t in one[1].taps] == ([one[1].source] if one[1].why == "tap" else [])


@QUICK
@given(graphs() | followed() | nested(), RANKS, st.integers(0, 99), st.booleans())
def test_a_tap_on_an_edge_tells_what_goes_over_it(graph: Graph, ranks: list[int], seed: int, stepped: bool) -> None:
    """The client is a witness: of a loop's last value, of all of them, of each as it comes. Only the items of maps
    reach it in another order, theirs."""
    plan = placed(graph, ranks, resident=True)
    cluster = Cluster(plan, {name: served(name) for name in graph.nodes}, seed)
    leaving = [edge for edge in graph.walks["w"].edges if edge.to.startswith("@out.")]
    places = Places(plan)
    taps = tuple(tap(edge.from_, to=edge.to) for edge in leaving)
    assert all(places.has(one) and not places.inside(one) for one in taps), "nothing is stepped for them"
    cluster.watch(Watch(taps=taps))
    cluster.start("r", one_walk(plan, "w"), PARAMS, INPUTS, stepped=stepped)
    cluster.run()
    told: dict[str, list[tuple[Any, Any]]] = {}
    for _, one in cluster.observed:
        if one.value is not ABSENT:
            for seen_by in one.taps:
                told.setdefault(seen_by.to.removeprefix("@out."), []).append((one.iteration, plain(one.value)))
    given = {name: [(at, plain(value)) for at, value in values] for (_, name), values in cluster.emitted.items()}
    if any(loop.head >= 0 for walk in plan.walks for loop in walk.loops):
        told = {name: sorted(values, key=itemgetter(0)) for name, values in told.items()}
        given = {name: sorted(values, key=itemgetter(0)) for name, values in given.items()}
    assert told == given


def test_a_tap_on_a_loops_exit_tells_the_last_value_alone() -> None:
    graph = drawn("synthetic_loops")
    cluster = Cluster(plan_of(graph), functions(graph))
    cluster.watch(Watch(taps=(tap("pass_counter.token", "climb", to="@out.passes"),)))
    params = {"times": 20, "limit": 15, "passes": 1}
    cluster.start("r", one_walk(cluster.plan, "climb"), params, {"start": 0}, stepped=True)
    cluster.run()
    assert [(one.iteration, one.value) for _, one in cluster.observed] == cluster.emitted["r", "passes"] == [((), 2)]


def test_a_port_that_gives_nothing_is_told_as_absent() -> None:
    graph = drawn("synthetic_loops")
    cluster = Cluster(plan_of(graph), {**functions(graph), "limit": lambda call: {"reached": True}})
    cluster.watch(Watch(taps=(tap("limit.value", "climb"),)))
    params = {"times": 3, "limit": 5, "passes": 1}
    cluster.start("r", one_walk(cluster.plan, "climb"), params, {"start": 0}, stepped=True, record=True)
    cluster.run()
    assert [(one[1], one[4]) for one in seen(cluster, "tap")] == [("limit.value", "absent")]
    assert "limit.value" not in {one[1] for one in seen(cluster, "record")}


def test_two_taps_of_one_place_are_one_look() -> None:
    graph = drawn("synthetic_loops")
    cluster = Cluster(plan_of(graph), functions(graph))
    cluster.watch(Watch(taps=(tap("one.value", "climb"), tap("one.value", "climb"))))
    cluster.start("r", one_walk(cluster.plan, "climb"), {"times": 1, "limit": 5, "passes": 1}, {"start": 0})
    cluster.run()
    ((_, one),) = cluster.observed
    assert len(one.taps) == 2


@pytest.mark.parametrize(("run", "sees"), [(None, True), ("r", True), ("other", False)])
def test_a_tap_of_another_run_sees_nothing(run: str | None, sees: bool) -> None:
    graph = drawn("synthetic_loops")
    cluster = Cluster(plan_of(graph), functions(graph))
    itinerary = one_walk(cluster.plan, "climb")
    cluster.watch(Watch(taps=(tap("one.value", "climb", run), tap("one.value", "nested", run))))
    cluster.start("r", itinerary, {"times": 1, "limit": 5, "passes": 1}, {"start": 0})
    cluster.run()
    assert bool(cluster.observed) == sees


def test_taps_come_and_go_while_a_run_goes_on() -> None:
    graph = drawn("synthetic_loops")
    cluster = Cluster(plan_of(graph), functions(graph))
    params = {"times": 20, "limit": 15, "passes": 1}
    cluster.start("r", one_walk(cluster.plan, "climb"), params, {"start": 0}, stepped=True)
    counts: list[int] = []
    for watch in (Watch(), Watch(taps=(tap("grow.sum", "climb"),)), Watch()):
        cluster.watch(watch)
        before = len(cluster.observed)
        for _ in range(20):
            cluster.turn()
        counts.append(len(cluster.observed) - before)
    cluster.run()
    assert (counts[0], counts[2]) == (0, 0)
    assert counts[1] > 0
    assert all(one.source == "grow.sum" for _, one in cluster.observed)


def test_values_of_each_chunk_of_a_stream_are_seen() -> None:
    graph = drawn("synthetic_streams")
    cluster = Cluster(plan_of(graph), functions(graph))
    cluster.watch(Watch(taps=(tap("batch_sum.sum", "batches"),)))
    itinerary = lanes(cluster.plan, [("produce", False), ("batches", True)])
    cluster.start("r", itinerary, STREAM, {})
    cluster.run()
    values = [value for _, value in cluster.emitted["r", "batches"]]
    assert [one.value for _, one in cluster.observed] == values
    assert [one.iteration for _, one in cluster.observed] == [(i,) for i in range(len(values))]
