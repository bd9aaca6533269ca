"""Pausing, stepping and resuming, by the service's requests and the ranks' reports; and which runs are stepped."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.conductor_world import PAGES, World
from tests.support.deployment import plan_named
from walkgraph.conductor.events import FromRank, FromService
from walkgraph.conductor.runs.steering import PAUSED_SECONDS
from walkgraph.conductor.runs.watching import Places, Watching
from walkgraph.ids import Rank, RunId
from walkgraph.placement.tables import Itinerary, Plan, StepPlan
from walkgraph.wire import messages as m
from walkgraph.wire.spec import Limits
from walkgraph.wire.watching import Break, HeldCall, Tap

GRAPH, PLAN = plan_named("synthetic_states")
ONE_GRAPH, ONE_PLAN = plan_named("synthetic_states", ranks=1)
RUN = RunId("a")
BOTH = (Rank(0), Rank(1))


def world(one: bool = False, **limits: Any) -> World:
    made = World(ONE_GRAPH if one else GRAPH, ONE_PLAN if one else PLAN, Limits(**limits), 0)
    made.settle()
    return made


def started(**fields: Any) -> World:
    """A run on two ranks, which have read that it starts."""
    w = world(step_deadline=1e9)
    w.submit("a", "part_ways", **fields)
    w.hear()
    return w


def call(rank: int, step: int = 0, *iteration: int) -> HeldCall:
    return HeldCall(rank=Rank(rank), walk="w", use="u", node="n", step=step, iteration=iteration)


def halt(w: World, rank: int, *held: HeldCall, breakpoint_: str = "", gate: int = 0) -> None:
    message = m.Halted(rank=Rank(rank), run=RUN, held=held, breakpoint=breakpoint_, gate=gate)
    w.handle(FromRank(Rank(rank), w.workers[Rank(rank)].start, message))


def gates(w: World, rank: int) -> list[tuple[str, HeldCall | None]]:
    """That were sent to a rank and not read yet."""
    return [(gate.mode, gate.call) for gate in w.workers[Rank(rank)].inbox if isinstance(gate, m.Gate)]


def last_gate(w: World, rank: int) -> int:
    return [gate.number for gate in w.workers[Rank(rank)].inbox if isinstance(gate, m.Gate)][-1]


def told(w: World) -> tuple[tuple[HeldCall, ...], str]:
    return w.paused["a"].held, w.paused["a"].breakpoint


# ── steering ───────────────────────────────────────────────────────────────────────────────────


def test_a_pause_closes_all_gates_and_tells_what_is_held_as_it_comes() -> None:
    w = started()
    w.steer("a", "pause")
    assert [gates(w, rank) for rank in BOTH] == [[("close", None)]] * 2
    assert told(w) == ((), "")
    halt(w, 1, call(1, 0, 3))
    halt(w, 0, call(0, 2), call(0, 1, 0))
    assert told(w)[0] == (call(0, 1, 0), call(0, 2), call(1, 0, 3))
    w.steer("a", "pause")
    assert [gates(w, rank) for rank in BOTH] == [[("close", None)] * 2] * 2, (
        "ranks tell anew what their calls were given"
    )
    assert told(w)[0] == (call(0, 1, 0), call(0, 2), call(1, 0, 3))


def test_a_step_lets_the_call_pass_or_the_first() -> None:
    w = started()
    w.steer("a", "step")
    w.steer("a", "pause")
    w.steer("a", "step")
    assert [len(gates(w, rank)) for rank in BOTH] == [1, 1], "nothing was held"
    halt(w, 0, call(0, 1), call(0, 2))
    halt(w, 1, call(1, 0))
    w.steer("a", "step")
    assert gates(w, 0)[-1] == ("one", call(0, 1))
    assert told(w)[0] == (call(0, 2), call(1, 0)), "a second click is meant for the next"
    w.steer("a", "step", call(1, 0))
    assert gates(w, 1)[-1] == ("one", call(1, 0))
    w.steer("a", "step", call(1, 7))
    assert (len(gates(w, 0)), len(gates(w, 1))) == (2, 2)


def test_an_iteration_goes_through_on_all_ranks() -> None:
    w = started()
    w.steer("a", "pause")
    halt(w, 1, call(1, 0, 4))
    w.steer("a", "iteration")
    assert [gates(w, rank)[-1] for rank in BOTH] == [("through", call(1, 0, 4))] * 2


def test_a_breakpoint_closes_the_other_ranks_gates() -> None:
    w = started()
    halt(w, 0, call(0), breakpoint_="b")
    assert (gates(w, 0), gates(w, 1)) == ([], [("close", None)])
    assert told(w) == ((call(0),), "b")
    halt(w, 1, call(1), gate=last_gate(w, 1))
    assert told(w) == ((call(0), call(1)), "b")
    w.steer("a", "step")
    assert told(w) == ((call(1),), "")
    halt(w, 0, call(0, 1), breakpoint_="b", gate=last_gate(w, 0))
    assert told(w) == ((call(0, 1), call(1)), "b"), "it came to it again"
    assert len(gates(w, 1)) == 1, "the others are closed"


def test_a_breakpoint_on_the_way_through_an_iteration_closes_the_others() -> None:
    w = started()
    w.steer("a", "pause")
    halt(w, 0, call(0))
    w.steer("a", "iteration")
    halt(w, 1, call(1), breakpoint_="b", gate=last_gate(w, 1))
    assert gates(w, 0)[-1] == ("close", None)
    assert told(w)[1] == "b"


def test_what_was_said_before_the_opening_is_dropped() -> None:
    w = started()
    halt(w, 0, call(0), breakpoint_="b")
    w.steer("a", "resume")
    assert "a" not in w.paused
    assert [gates(w, rank)[-1][0] for rank in BOTH] == ["open"] * 2
    number = last_gate(w, 0)
    halt(w, 0, call(0), call(0, 1), breakpoint_="b")
    halt(w, 1, call(1), gate=number - 1)
    assert "a" not in w.paused
    halt(w, 0, call(0, 2), breakpoint_="b", gate=number)
    assert told(w) == ((call(0, 2),), "b")


def test_what_is_held_without_a_reason_is_no_pause() -> None:
    w = started()
    halt(w, 0, call(0))
    assert not w.paused


def test_a_run_may_start_paused() -> None:
    w = world()
    w.submit("a", "part_ways", hold=True)
    assert told(w) == ((), "")
    starts = [s for rank in BOTH for s in w.workers[rank].inbox if isinstance(s, m.Start)]
    assert [(s.hold, s.stepped, s.record) for s in starts] == [(True, True, False)] * 2
    w.hear()
    halt(w, 0, call(0))
    assert told(w)[0] == (call(0),)
    w.steer("a", "resume")
    assert "a" not in w.paused


def test_one_that_waits_starts_paused_once_it_is_asked_to() -> None:
    w = world(one=True)
    full = {"prompt": PAGES * 16 - 10, "times": 10}
    w.submit("first", params=full)
    for name in ("a", "b"):
        w.submit(name, params=full)
        w.steer(name, "pause")
        w.steer(name, "pause")
    assert set(w.paused) == {"a", "b"}
    w.steer("b", "resume")
    w.steer("b", "resume")
    assert set(w.paused) == {"a"}
    for run in ("first", "a"):
        w.handle(FromService(m.Abort(run=RunId(run))))
        w.hear()
    holds = {s.run: (s.hold, s.stepped) for s in w.workers[Rank(0)].runs.values()}
    assert holds == {"b": (False, False)}
    w.submit("c", params=full)
    w.steer("c", "pause")
    w.handle(FromService(m.Abort(run=RunId("b"))))
    w.hear()
    assert w.workers[Rank(0)].runs["c"].hold
    assert set(w.paused) == {"c"}


def test_recorded_runs_are_stepped() -> None:
    w = world()
    w.submit("a", "part_ways", record=True)
    (start,) = [s for s in w.workers[Rank(1)].inbox if isinstance(s, m.Start)]
    assert (start.record, start.stepped, start.hold) == (True, True, False)
    assert not w.paused


# ── time, and what may happen meanwhile ────────────────────────────────────────────────────────


def test_time_in_a_pause_is_not_the_runs() -> None:
    w = started(deadline=5.0)
    w.pass_time(4.0)
    w.steer("a", "pause")
    w.pass_time(100.0)
    w.steer("a", "resume")
    w.pass_time(0.9)
    w.hear()
    assert "a" not in w.finished
    assert w.core.due() <= w.now + 0.11
    w.pass_time(0.2)
    w.hear()
    assert w.finished["a"].error.code == "deadline_exceeded"  # type: ignore[union-attr]


def test_a_pause_that_nobody_ends_is_ended() -> None:
    w = started()
    w.steer("a", "pause")
    halt(w, 0, call(0))
    w.pass_time(PAUSED_SECONDS - 1)
    w.hear()
    w.steer("a", "step")
    w.hear()
    for _ in range(2):
        assert "a" not in w.finished
        w.pass_time(PAUSED_SECONDS / 2 + 1)
        w.hear()
    assert "not stepped" in w.finished["a"].error.message  # type: ignore[union-attr]


def test_a_lost_rank_ends_a_paused_run() -> None:
    w = started()
    w.steer("a", "pause")
    w.kill(Rank(1))
    assert w.finished["a"].error.code == "worker_lost"  # type: ignore[union-attr]
    halt(w, 0, call(0))
    assert not w.paused
    w.steer("a", "resume")
    assert not w.paused


def test_a_paused_run_may_be_suspended_and_comes_back_paused() -> None:
    w = world(one=True)
    w.submit("a", params={"prompt": PAGES * 16 - 10, "times": 10})
    w.hear()
    w.steer("a", "pause")
    halt(w, 0, call(0))
    w.submit("high", params={"prompt": 20, "times": 10}, priority=5)
    w.hear()
    worker = w.workers[Rank(0)]
    assert worker.suspended == {"a"}
    w.steer("a", "step")
    assert gates(w, 0) == [("one", call(0))]
    w.handle(FromService(m.Abort(run=RunId("high"))))
    w.hear()
    assert worker.suspended == set()
    assert "a" in w.paused
    w.handle(FromService(m.Abort(run=RUN)))
    w.hear()
    assert w.finished["a"].error.code == "cancelled"  # type: ignore[union-attr]
    assert not w.paused


# ── what is watched ────────────────────────────────────────────────────────────────────────────


def test_ranks_are_told_what_is_watched_at_once_and_when_they_are_ready() -> None:
    w = world()
    watch = m.Watch(level="full", taps=(Tap(id="t", walk="w", source="@in.x", interval=1.0),))
    w.handle(FromService(watch))
    assert [w.workers[rank].inbox[-1] for rank in BOTH] == [watch] * 2
    w.kill(Rank(1))
    w.handle(FromService(m.Watch()))
    w.handle(FromService(watch))
    w.pass_time(1.0)
    w.submit("a", "part_ways")
    w.settle()
    assert w.workers[Rank(1)].watch == watch


def test_what_is_watched_comes_before_a_run_that_starts() -> None:
    w = world()
    w.kill(Rank(1))
    w.submit("a", "part_ways")
    w.handle(FromService(m.Watch(breaks=(Break(id="b", walk="w", use="u"),))))
    w.pass_time(1.0)
    other, worker = w.workers[Rank(0)], w.workers[Rank(1)]
    w.deliver(Rank(1))  # its greeting
    worker.read()  # the order to load
    while worker.outbox:
        w.deliver(Rank(1))
    while other.inbox:
        other.read()
    while other.outbox:
        w.deliver(Rank(0))
    kinds = [type(message) for message in worker.inbox]
    assert kinds.index(m.Watch) < kinds.index(m.Start)


SHAPES, RESIDENT = plan_named("shapes", ranks=1)


def itinerary(plan: Plan, *walks: str) -> Itinerary:
    index = {walk.name: walk.index for walk in plan.walks}
    steps = tuple(StepPlan(index=i, walk=index[name], partition=0, bindings={}) for i, name in enumerate(walks))
    return Itinerary(steps=steps, outputs=(), ranks=(Rank(0),), streams=())


INSIDE = {"walk": "image_gen", "source": "llm.velocity"}
OUTSIDE = {"walk": "image_gen", "source": "vae_decoder.pixels"}
EXIT = {"walk": "image_gen", "source": "combine_cfg.latents"}


@pytest.mark.parametrize(
    ("place", "stepped"),
    [
        (Tap(id="t", interval=1.0, **INSIDE), True),  # type: ignore[arg-type]
        (Tap(id="t", interval=1.0, run=RUN, **INSIDE), True),  # type: ignore[arg-type]
        (Tap(id="t", interval=1.0, run=RunId("b"), **INSIDE), False),  # type: ignore[arg-type]
        (Tap(id="t", interval=1.0, **OUTSIDE), False),  # type: ignore[arg-type]
        (Tap(id="t", interval=1.0, walk="image_gen_cfg", source="llm.velocity"), False),
        (Tap(id="t", interval=1.0, to="combine_cfg.velocity", **INSIDE), True),  # type: ignore[arg-type]
        (Tap(id="t", interval=1.0, to="vae_decoder.latents", **EXIT), False),  # type: ignore[arg-type]
        (Tap(id="t", interval=1.0, **EXIT), True),  # type: ignore[arg-type]
        (Break(id="b", walk="image_gen", use="combine_cfg"), True),
        (Break(id="b", walk="image_gen", use="vae_decoder"), False),
        (Break(id="b", walk="image_gen", use="unknown"), False),
    ],
)
def test_runs_are_stepped_where_a_place_lies_inside_a_loop_of_theirs(place: Tap | Break, stepped: bool) -> None:
    watching = Watching(RESIDENT)
    way = itinerary(RESIDENT, "prefill_text", "image_gen")
    assert not watching.steps(RUN, way)
    is_tap = isinstance(place, Tap)
    watching.watch = m.Watch(taps=(place,) if is_tap else (), breaks=() if is_tap else (place,))  # type: ignore[arg-type]
    assert watching.steps(RUN, way) is stepped
    assert not watching.steps(RUN, itinerary(RESIDENT, "prefill_text"))


@pytest.mark.parametrize(("scale", "stepped"), [(4.0, True), (1.0, False)])
def test_a_run_that_must_be_stepped_starts_so(scale: float, stepped: bool) -> None:
    w = World(SHAPES, RESIDENT, Limits(), 0)
    w.settle()
    w.handle(FromService(m.Watch(breaks=(Break(id="b", walk="image_gen_cfg", use="llm"),))))
    inputs: dict[str, tuple[m.Value, ...]] = {"prompt": (m.Small(value="a red circle"),)}
    w.handle(FromService(m.Submit(run=RUN, task="text_to_image", params={"cfg_text_scale": scale}, inputs=inputs)))
    assert [s.stepped for s in w.workers[Rank(0)].inbox if isinstance(s, m.Start)] == [stepped], w.rejected


def test_places_are_those_of_the_document() -> None:
    places = Places(PLAN)
    document = set(GRAPH.walks)
    assert set(places.walks) == document, "no moves of states"
    for name, walk in GRAPH.walks.items():
        assert {f"@in.{key}" for key in walk.inputs} <= set(places.sources(name))
    assert not list(places.sources("nowhere"))
    assert not list(places.uses("nowhere"))
    assert not places.has(Tap(id="t", walk="nowhere", source="a.b", interval=1.0))


def test_an_edge_is_a_place_where_the_walk_has_it() -> None:
    places = Places(RESIDENT)
    assert places.has(Tap(id="t", interval=1.0, to="vae_decoder.latents", **EXIT))  # type: ignore[arg-type]
    assert not places.has(Tap(id="t", interval=1.0, to="picture_out.pixels", **EXIT))  # type: ignore[arg-type]


def test_iterations_are_those_of_a_loop_around() -> None:
    places = Places(RESIDENT)
    assert places.has(Break(id="b", walk="image_gen", use="llm", iteration=3))
    assert places.has(Break(id="b", walk="image_gen", use="vae_decoder"))
    assert not places.has(Break(id="b", walk="image_gen", use="vae_decoder", iteration=3))
