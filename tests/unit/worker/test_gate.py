"""The gate of a run: against a twin that knows lists only, and around whole runs, which must come out as free ones."""

import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from math import inf
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import structs

from tests.support.cluster import Cluster
from tests.support.random_walks import PARAMS, followed, graphs
from tests.support.synthetic import functions, lanes, one_walk
from tests.unit.worker.test_resident import INPUTS, STREAM, drawn, placed, plan_of, served
from tests.unit.worker.test_stepped import called_by, given_by
from walkgraph.abi.calls import Call, StateKey
from walkgraph.errors import ErrorInfo
from walkgraph.graph.document import Graph
from walkgraph.ids import Rank, RunId
from walkgraph.placement.compiler.loop_decisions import stepped
from walkgraph.placement.tables import Plan, StepPlan
from walkgraph.wire.messages import Halted, RankFailed
from walkgraph.wire.watching import Break, HeldCall, Watch
from walkgraph.wire.watching import Gate as Order
from walkgraph.worker.core import Core
from walkgraph.worker.events import (
    Allow,
    CallDone,
    Cancelled,
    Command,
    FreeLoops,
    Gated,
    HoldLoops,
    Items,
    Observe,
    Ref,
    Release,
    Report,
    RunCall,
    RunLoop,
    Started,
    Watched,
)
from walkgraph.worker.observe.gate import Gate

QUICK = settings(max_examples=30)
R = RunId("r")
STEPS = tuple(StepPlan(index=i, walk=0, partition=lane, bindings={}) for i, lane in enumerate((0, 0, 1)))
Path = tuple[tuple[float, ...], ...]


# ── alone ───────────────────────────────────────────────────────────────────────────────────────


@dataclass
class Naive:
    """A plain model of a gate."""

    plan: Plan
    breaks: Sequence[Break] = ()
    mode: str = "open"
    until: HeldCall | None = None
    held: list[HeldCall] = field(default_factory=list[HeldCall])

    def come(self, call: HeldCall) -> bool:
        """Returns True if it passes."""
        passes = self.mode == "open" or (self.mode == "through" and self.inside(call))
        if passes and any(self.hit(one, call) for one in self.breaks):
            self.mode, passes = "closed", False
        if not passes:
            self.held.append(call)
        return passes

    def obey(self, mode: str, call: HeldCall | None) -> list[HeldCall]:
        """Returns the calls that are let pass."""
        gone: list[HeldCall] = []
        if mode == "open":
            gone = list(self.held)
        elif mode == "one":
            gone = [one for one in self.held if one == (call or min(self.held, key=self.order))]
        elif mode == "through":
            self.until = call
            gone = [one for one in self.held if self.inside(one)]
        self.mode = mode if mode in ("open", "through") else "closed"
        self.held = [one for one in self.held if one not in gone]
        return gone

    def hit(self, one: Break, call: HeldCall) -> bool:
        iteration = call.iteration[-1] if call.iteration else 0
        return (one.walk, one.use) == (call.walk, call.use) and one.iteration in (None, iteration)

    def inside(self, call: HeldCall) -> bool:
        last = self.until
        if last is None or STEPS[call.step].partition != STEPS[last.step].partition or call.step > last.step:
            return False
        end = self.path(last)[:-1]
        return call.step < last.step or self.path(call)[: len(end)] <= end

    def path(self, call: HeldCall) -> Path:
        """The way down the body to a call: where each loop begins and its iteration, then the use."""
        walk = self.plan.walks[0]
        use = next(use for use in walk.uses if use.name == call.use)
        firsts = [min(one.index for one in walk.uses if loop in one.loops) for loop in use.loops]
        return (*((float(first), float(i)) for first, i in zip(firsts, call.iteration, strict=True)), (use.index, inf))

    def order(self, call: HeldCall) -> Any:
        return call.step, call.iteration, next(u.index for u in self.plan.walks[0].uses if u.name == call.use)


@QUICK
@given(graphs(), st.data())
def test_a_gate_does_what_its_twin_does(graph: Graph, data: st.DataObject) -> None:
    plan = stepped(placed(graph, [0] * 12, resident=True))
    walk, naive = plan.walks[0], Naive(plan)
    gate = Gate(plan, Rank(0), R, STEPS, lambda: ())
    told: tuple[HeldCall, ...] = ()
    seen: set[tuple[int, int, tuple[int, ...]]] = set()
    for number in range(1, data.draw(st.integers(5, 40))):
        kind = data.draw(st.sampled_from(["come"] * 6 + ["close", "open", "one", "one", "through", "through", "break"]))
        use = data.draw(st.sampled_from([use for use in walk.uses if use.op == "call"]))
        iteration = tuple(data.draw(st.integers(0, 2)) for _ in use.loops)
        step = data.draw(st.integers(0, len(STEPS) - 1))
        call = HeldCall(rank=Rank(0), walk="w", use=use.name, node=use.name, step=step, iteration=iteration)
        before = naive.mode
        if kind == "break":
            at = data.draw(st.none() | st.integers(0, 2))
            gate.breaks = naive.breaks = (Break(id=f"b{number}", walk="w", use=use.name, iteration=at),)
            continue
        if kind == "come":
            if (step, use.index, iteration) in seen:
                continue
            seen.add((step, use.index, iteration))
            out = gate.take([RunCall(made(call, use.index))])
            passed = [call] if naive.come(call) else []
        else:
            if kind != "open" and data.draw(st.booleans()) and naive.held:
                call = data.draw(st.sampled_from(naive.held))
            asked = None if kind == "one" and naive.held and data.draw(st.booleans()) else call
            out = gate.obey(Order(run=R, mode=kind, call=asked, number=number))
            passed = naive.obey(kind, asked)
        runs = [(c.call.step, c.call.use, c.call.iteration) for c in out if isinstance(c, RunCall)]
        assert runs == [(c.step, use_of(plan, c), c.iteration) for c in passed]
        halted = [c.message for c in out if isinstance(c, Report) and isinstance(c.message, Halted)]
        now = tuple(sorted(naive.held, key=naive.order))
        if naive.mode == "open":
            assert not halted
        elif now != told:
            assert [one.held for one in halted] == [now]
            hit = kind == "come" and before != "closed" and naive.mode == "closed"
            assert bool(halted[0].breakpoint) == hit or kind == "come"
            assert not hit or halted[0].breakpoint == naive.breaks[0].id
        told = now


def made(call: HeldCall, use: int) -> Call:
    return Call(
        run=R, node=call.node, walk="w", step=call.step, use=use, iteration=call.iteration, inputs={}, params={},
        states={}, seed=0,
    )  # fmt: skip


def use_of(plan: Plan, call: HeldCall) -> int:
    return next(use.index for use in plan.walks[0].uses if use.name == call.use)


# ── around runs ─────────────────────────────────────────────────────────────────────────────────


class Hand:
    """Steers the run `r` of a cluster at random, and holds the ranks to what they said."""

    def __init__(self, cluster: Cluster, ranks: Sequence[Rank], seed: int) -> None:
        self.cluster, self.ranks, self.random = cluster, ranks, random.Random(seed)
        self.number = 0

    @property
    def held(self) -> list[HeldCall]:
        """As told last by each rank since its gate was opened."""
        latest: dict[Rank, Halted] = {}
        for report in self.cluster.reports:
            if isinstance(report, Halted) and report.gate >= self.opened:
                latest[report.rank] = report
        return [call for report in latest.values() for call in report.held]

    opened = 0

    def steer(self, mode: str | None = None) -> None:
        self.number += 1
        mode = mode or self.random.choice(["close", "one", "one", "one", "through", "through", "open"])
        held = self.held
        call = self.random.choice(held) if held and mode in ("one", "through") else None
        if mode == "through" and call is None:
            return
        ranks = [call.rank] if mode == "one" and call is not None else self.ranks
        if mode == "open":
            self.opened = self.number
        for rank in ranks:
            self.cluster.gate(rank, Order(run=R, mode=mode, call=call, number=self.number))  # type: ignore[arg-type]

    def all(self, steps: int) -> None:
        """Some of the way by hand, the rest free."""
        for _ in range(steps):
            for _ in range(self.random.randrange(6)):
                self.cluster.turn()
            self.steer()
        self.cluster.watch(Watch())
        self.steer("open")
        self.cluster.run()


@QUICK
@given(
    graphs() | followed(),
    st.just([0] * 12) | st.lists(st.integers(0, 2), min_size=12, max_size=12),
    st.integers(0, 999),
    st.booleans(),
    st.booleans(),
)
def test_a_steered_run_does_what_a_free_one_does(
    graph: Graph, ranks: list[int], seed: int, slow: bool, broken: bool
) -> None:
    plan = placed(graph, ranks, resident=True)
    itinerary = one_walk(plan, "w")
    cluster = Cluster(plan, {name: served(name) for name in graph.nodes}, seed)
    if broken:
        uses = plan.walks[0].uses
        cluster.watch(Watch(breaks=tuple(Break(id=use.name, walk="w", use=use.name) for use in uses[::2])))
    cluster.start("free", itinerary, PARAMS, INPUTS, stepped=slow)
    for rank in itinerary.ranks:
        cluster.gate(rank, Order(run=RunId("free"), mode="open"))
    cluster.start("r", itinerary, PARAMS, INPUTS, stepped=slow, hold=seed % 2 == 0)
    hand = Hand(cluster, itinerary.ranks, seed)
    if broken:
        cluster.run()
        cluster.watch(Watch())
        for rank in itinerary.ranks:
            cluster.gate(rank, Order(run=RunId("free"), mode="open"))
    hand.all(30)
    assert not cluster.failures
    for run in ("free", "r"):
        assert cluster.done(run) == set(itinerary.ranks), run
    assert given_by(cluster, "r") == given_by(cluster, "free")
    assert called_by(cluster, "r") == called_by(cluster, "free")
    assert not cluster.parked


@pytest.mark.parametrize("name", ["batches", "windows", "contexts"])
@pytest.mark.parametrize("slow", [True, False])
@pytest.mark.parametrize("seed", range(4))
def test_streams_of_a_steered_run_give_what_a_free_one_s_do(name: str, slow: bool, seed: int) -> None:
    graph = drawn("synthetic_streams")
    plan = plan_of(graph)
    cluster = Cluster(plan, functions(graph), seed)
    itinerary = lanes(plan, [("produce", False), (name, True)])
    for run in ("free", "r"):
        cluster.start(run, itinerary, STREAM, {}, stepped=slow)
    Hand(cluster, itinerary.ranks, seed).all(40)
    one, other = ([value for _, value in cluster.emitted[run, name]] for run in ("free", "r"))
    assert one[: len(other)] == other[: len(one)]
    assert abs(len(one) - len(other)) <= 1
    assert cluster.done("r") == set(itinerary.ranks)


# ── one thing after the other ───────────────────────────────────────────────────────────────────

CLIMB = {"times": 20, "limit": 5, "passes": 3}


def climbing(**how: bool) -> tuple[Core, list[Command]]:
    core = Core(plan_of(drawn("synthetic_loops")), Rank(0))
    itinerary = one_walk(core.plan, "climb")
    return core, core.handle(Started(R, itinerary, {"seed": 0, **CLIMB}, {"start": 0}, **how))


def halts(commands: Sequence[Command]) -> list[Halted]:
    return [c.message for c in commands if isinstance(c, Report) and isinstance(c.message, Halted)]


def order(core: Core, mode: Any, call: HeldCall | None = None, number: int = 1) -> list[Command]:
    return core.handle(Gated(Order(run=R, mode=mode, call=call, number=number)))


def served_on(core: Core, commands: Sequence[Command]) -> tuple[list[Call], list[Halted]]:
    """All calls that are let pass from here on, and what is told meanwhile."""
    how, todo = functions(drawn("synthetic_loops")), [c.call for c in commands if isinstance(c, RunCall)]
    calls, told = list(todo), halts(commands)
    while todo:
        one = todo.pop(0)
        out = core.handle(CallDone(Ref(one.run, one.step, one.use, one.iteration), how[one.node](one)))
        todo += [c.call for c in out if isinstance(c, RunCall)]
        calls += [c.call for c in out if isinstance(c, RunCall)]
        told += halts(out)
    return calls, told


def test_a_held_run_waits_before_its_first_calls() -> None:
    core, commands = climbing(stepped=True, hold=True)
    assert not [c for c in commands if isinstance(c, RunCall)]
    (halted,) = halts(commands)
    assert [(c.use, c.node, c.iteration, c.loop) for c in halted.held] == [
        ("one", "one", (), ""),
        ("first_pass", "pass_counter", (0,), ""),
    ]
    assert (halted.breakpoint, halted.gate) == ("", 0)
    looked = [(c.why, c.source, c.modality, c.value) for c in commands if isinstance(c, Observe)]
    assert looked == [("held", "first_pass.count", "tensor", StateKey("r", "passes", (0, 0)))]
    out = order(core, "one")
    assert [c.call.node for c in out if isinstance(c, RunCall)] == ["one"]
    assert [(one.gate, [c.use for c in one.held]) for one in halts(out)] == [(1, ["first_pass"])]
    _, told = served_on(core, out)
    assert [c.use for c in told[-1].held] == ["grow", "first_pass"]
    grow = told[-1].held[0]
    assert [type(c) for c in order(core, "one", grow)] == [RunCall, Report]
    assert order(core, "one", grow) == []


def test_inputs_of_held_calls_are_looked_at_once_and_anew_for_who_asks() -> None:
    core, _ = climbing(stepped=True, hold=True)
    (one,) = (c.call for c in order(core, "one") if isinstance(c, RunCall))
    out = core.handle(CallDone(Ref("r", 0, one.use, ()), {"value": 7}))
    looked = {(c.source, c.modality): c.value for c in out if isinstance(c, Observe)}
    assert looked == {("grow.a", "scalar"): 0, ("grow.b", "scalar"): 7}
    again = {(c.source, c.modality): c.value for c in order(core, "close") if isinstance(c, Observe)}
    assert looked.items() <= again.items()
    assert not [c for c in order(core, "open") if isinstance(c, Observe)]


def test_an_iteration_is_gone_through_and_the_next_one_held() -> None:
    core, commands = climbing(stepped=True, hold=True)
    calls, told = served_on(core, order(core, "through", halts(commands)[0].held[1]))
    assert [one.iteration for one in calls if one.iteration[1:]] == [(0, 0), (0, 1)]
    assert {one.iteration[0] for one in calls if one.iteration} == {0}
    assert {one.iteration for one in told[-1].held} == {(1,)}
    inner, _ = served_on(core, order(core, "through", told[-1].held[0]))
    assert {one.iteration[0] for one in inner} == {1}


def test_a_loop_on_the_device_leaves_its_row_and_is_told_as_held() -> None:
    graph = drawn("synthetic_faults")
    core = Core(plan_of(graph), Rank(0))
    params = {"seed": 0, "times": 6, "at": 99, "work": 0, "side": 1}
    commands = core.handle(Started(R, one_walk(core.plan, "fail"), params, {}))
    (loop,) = (c.call for c in commands if isinstance(c, RunLoop))
    out = order(core, "close")
    assert [c for c in out if isinstance(c, HoldLoops)] == [HoldLoops(R)]
    (held,) = halts(out)[0].held
    assert held.loop == loop.loop
    assert order(core, "close") == []
    assert [c for c in order(core, "one", held) if isinstance(c, HoldLoops | FreeLoops)] == [FreeLoops(R)]
    again = order(core, "close")
    assert [c for c in again if isinstance(c, HoldLoops)] == [HoldLoops(R)]
    assert [c for c in order(core, "open") if not isinstance(c, Report)] == [FreeLoops(R)]
    core.handle(Items(loop, 0, 0, {}))
    assert order(core, "open") == []


def test_a_loop_goes_on_with_its_part_on_another_rank() -> None:
    graph = drawn("synthetic_faults")
    core = Core(plan_of(graph), Rank(0))
    params = {"seed": 0, "times": 6, "at": 99, "work": 0, "side": 1}
    core.handle(Started(R, one_walk(core.plan, "fail"), params, {}))
    (held,) = halts(order(core, "close"))[0].held
    part = structs.replace(held, rank=Rank(1), use="elsewhere", node="elsewhere")
    for other in (
        structs.replace(part, loop="l"),
        structs.replace(part, iteration=(0,)),
        structs.replace(part, step=1),
    ):
        assert order(core, "one", other) == []
    assert order(core, "one", part)[0] == FreeLoops(R)


def test_a_loop_is_held_before_it_is_entered() -> None:
    graph = drawn("synthetic_faults")
    core = Core(plan_of(graph), Rank(0))
    params = {"seed": 0, "times": 6, "at": 99, "work": 0, "side": 1}
    commands = core.handle(Started(R, one_walk(core.plan, "fail"), params, {}, hold=True))
    assert not [c for c in commands if isinstance(c, RunLoop)]
    (held,) = halts(commands)[0].held
    out = order(core, "one", held)
    assert [type(c) for c in out if not isinstance(c, Report)] == [RunLoop]


def test_what_a_held_loop_is_allowed_comes_behind_it() -> None:
    plan = plan_of(drawn("synthetic_faults"))
    core = Core(plan, Rank(0))
    params = {"seed": 0, "times": 6, "at": 99, "work": 0, "side": 1}
    (loop,) = (c for c in core.handle(Started(R, one_walk(plan, "fail"), params, {})) if isinstance(c, RunLoop))
    gate = Gate(plan, Rank(0), R, STEPS, lambda: ())
    gate.obey(Order(run=R, mode="close", call=None, number=1))
    call = loop.call
    more = [Allow(Ref(call.run, call.step, call.use, call.iteration), upto) for upto in (1, 3)]
    other = Allow(Ref(call.run, call.step + 1, call.use, call.iteration), 1)
    passed = [*gate.take([loop, more[0]]), *gate.take([other, more[1]])]
    assert [c for c in passed if isinstance(c, RunLoop | Allow)] == [other]
    passed = gate.obey(Order(run=R, mode="open", call=None, number=2))
    assert [c for c in passed if not isinstance(c, Report | Observe)] == [loop, *more]
    assert gate.take([more[1]]) == [more[1]]


def test_breakpoints_close_the_gate_and_let_pass_what_was_let_pass() -> None:
    core, commands = climbing(stepped=True)
    assert core.handle(Watched(Watch(breaks=(Break(id="b", walk="climb", use="grow", iteration=1),)))) == []
    calls, told = served_on(core, commands)
    assert ("grow", (0,)) in [(one.node, one.iteration) for one in calls]
    assert (told[0].breakpoint, ("grow", (1,)) in [(c.use, c.iteration) for c in told[0].held]) == ("b", True)
    rest, more = served_on(core, order(core, "open"))
    assert ("grow", (1,)) in [(one.node, one.iteration) for one in rest]
    assert not more
    assert core.handle(Watched(Watch())) == []


@pytest.mark.parametrize("run", [None, "r", "other"])
def test_a_breakpoint_of_another_run_or_walk_is_none(run: str | None) -> None:
    of = None if run is None else RunId(run)
    for walk, hits in ("climb", run != "other"), ("nested", False):
        core = Core(plan_of(drawn("synthetic_loops")), Rank(0))
        core.handle(Watched(Watch(breaks=(Break(id="b", walk=walk, use="one", run=of),))))
        itinerary = one_walk(core.plan, "climb")
        commands = core.handle(Started(R, itinerary, {"seed": 0, **CLIMB}, {"start": 0}, stepped=True))
        assert bool(halts(commands)) == hits


def test_the_end_of_a_paused_run_forgets_it() -> None:
    core, _ = climbing(stepped=True, hold=True)
    assert core.handle(Cancelled(R)) == [Release(R)]
    assert order(core, "open") == []
    assert core.runs == ()


def test_a_run_that_failed_lets_nothing_pass() -> None:
    graph = drawn("synthetic_faults")
    core = Core(plan_of(graph), Rank(0))
    params = {"seed": 0, "times": 6, "at": 0, "work": 0, "side": 1}
    commands = core.handle(Started(R, one_walk(core.plan, "fail"), params, {}, stepped=True))
    (first,) = (c.call for c in commands if isinstance(c, RunCall))
    order(core, "close")
    error = ErrorInfo(code="node_error", message="no")
    out = core.handle(CallDone(Ref("r", first.step, first.use, first.iteration), error=error))
    assert [type(c.message) for c in out if isinstance(c, Report)] == [RankFailed]
    assert order(core, "open") == []


def test_what_a_breakpoint_holds_is_newer_than_the_orders_before_it() -> None:
    """Though nobody needed the gate in between: a conductor drops what was said before it opened it."""
    core, _ = climbing(hold=True)
    commands = order(core, "open", number=7)
    core.handle(Watched(Watch(breaks=(Break(id="b", walk="climb", use="grow"),))))
    _, said = served_on(core, commands)
    assert [(halted.breakpoint, halted.gate) for halted in said][:1] == [("b", 7)]
