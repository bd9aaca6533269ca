"""A rank's reports compared with its work: rows are expanded by hand, aggregates are summed by hand."""

from __future__ import annotations

import itertools
import random
from collections import defaultdict
from dataclasses import dataclass, field
from typing import Any

import pytest
import torch

from tests.support.loop_calls import WrittenUse, written
from tests.support.telling import leave
from walkgraph.abi.calls import Call
from walkgraph.engine.calls.chunked_prefill import Forwarded
from walkgraph.engine.device.marks import Timing
from walkgraph.engine.gauges import Gauges
from walkgraph.engine.loops.collection import stepped
from walkgraph.engine.loops.loop_runs import LaunchBatch, LoopDone, LoopKey, LoopRun, Stepped
from walkgraph.engine.loops.spec import LoopCall
from walkgraph.errors import ErrorInfo
from walkgraph.ids import Rank, RunId
from walkgraph.telemetry import events as e
from walkgraph.telemetry.emit import INTERVAL, Buffered, Off
from walkgraph.wire import messages as m
from walkgraph.wire.watching import Level
from walkgraph.worker.events import ABSENT, Arrived, Send
from walkgraph.worker.observe import aggregates, call_aggregates
from walkgraph.worker.observe.work_telemetry import GAUGE_SECONDS, WorkTelemetry

R = Rank(0)


@dataclass
class Engine:
    timed: list[bool] = field(default_factory=list[bool])
    asked: int = 0
    here: dict[LoopKey, int] = field(default_factory=dict[LoopKey, int])
    """Loops in slots, and the iterations that they have done."""
    told: Gauges = field(default_factory=lambda: Gauges(5, 0.25, 100, 1000, 3, 4, 20, 10))

    @property
    def pools(self) -> Engine:
        return self

    def pages(self) -> tuple[int, int]:
        return 3, 4

    def gauges(self) -> Gauges:
        self.asked += 1
        return self.told

    def time_steps(self, *, on: bool) -> None:
        self.timed.append(on)

    def positions(self) -> dict[LoopKey, int]:
        return self.here


@dataclass
class Links:
    tickets_out: int = 2
    rejected: int = 1


class World:
    """A teller, its clock, and what it has told."""

    def __init__(self, level: Level = "summary") -> None:
        self.now, self.reads = 10.0, 0
        self.frames: list[bytes] = []
        self.engine = Engine()
        self.emitter = Buffered("d", "rank 0.1", level, lambda frame: not self.frames.append(frame))
        self.teller = WorkTelemetry(R, self.emitter, self.clock, self.engine, Links())

    def clock(self) -> float:
        self.reads += 1
        return self.now

    def told(self, kind: type[Any] = object) -> list[Any]:
        """All events so far, without gauges unless asked for."""
        self.teller.flush(0)
        found = [event for frame in self.frames for event in e.decode(frame).events if isinstance(event, kind)]
        return found if kind is e.RankGauge else [one for one in found if not isinstance(one, e.RankGauge)]


def call(run: str, node: str = "n", at: float = 4.0, iteration: tuple[int, ...] = (), use: str = "n_1") -> Call:
    return Call(
        run=run, walk="w", node=node, step=2, use=0, iteration=iteration, inputs={}, params={}, states={}, seed=0,
        ready_at=at, name=use,
    )  # fmt: skip


def loop_call(run: str, name: str = "l", times: int = 8, ready: float = 4.0) -> LoopCall:
    """A loop of two nodes, the second of which is called in the first and the third iteration."""
    active = (True, False, True, *(False,) * (times - 3))
    body = (
        WrittenUse(node="always", inputs=(), params={}, varying={}, states={}, seed=0, name="a"),
        WrittenUse(node="at_times", inputs=(), params={}, varying={}, states={}, seed=0, active=active, name="b"),
    )
    return written(run, f"w_{name}", 1, 0, name, (3,), body, times, None, (), ready_at=ready)


def loop_run(of: LoopCall, slot: int = 0, done: int = 0) -> LoopRun:
    """In a slot."""
    return LoopRun(of, 0.0, slot, None, slot=slot, done=done)


# ── batches ──


def forwards(seed: int) -> list[Forwarded]:
    draw = random.Random(seed)
    found: list[Forwarded] = []
    at = 5.0
    places: list[tuple[int, int]] = []
    for _ in range(30):
        if draw.random() < 0.6:
            places = [(draw.randrange(4), draw.randrange(6)) for _ in range(draw.randrange(1, 6))]
        calls = [
            call(f"r{run}", f"n{use // 2}", at - draw.random(), (draw.randrange(9),), f"u{use}") for run, use in places
        ]
        started, finished = at + 0.01, at + 0.01 + draw.random()
        failed = tuple(k for k in range(len(calls)) if draw.random() < 0.1)
        found.append(Forwarded(calls, [c.ready_at for c in calls], failed, Timing(at, at + 0.005, started, finished)))
        at = finished
    return found


@pytest.mark.parametrize("seed", range(4))
def test_a_batch_is_told_with_a_row_for_each_call(seed: int) -> None:
    world, given = World("full"), forwards(seed)
    for one in given:
        world.teller.worked(one)
    told = world.told()
    assert [type(one) for one in told] == [e.Forward] * len(given)
    assert [one.number for one in told] == list(range(1, len(given) + 1))
    for found, one in zip(told, given, strict=True):
        places = zip(found.runs, found.walks, found.nodes, found.uses, strict=True)
        rows = list(zip(places, found.steps, found.iterations, found.ready, strict=True))
        assert rows == [((c.run, c.walk, c.node, c.name), c.step, c.iteration, c.ready_at) for c in one.calls]
        assert (found.taken, found.launched, found.started, found.finished) == tuple(one.timing)
        assert (found.rank, found.failed, found.pages_free) == (R, one.failed, 3)


@pytest.mark.parametrize("seed", range(4))
def test_the_summary_of_batches_is_the_sum_of_their_calls(seed: int) -> None:
    world, given = World(), forwards(seed)
    cut = random.Random(seed).randrange(len(given))
    for number, one in enumerate(given):
        world.teller.worked(one)
        if number == cut:
            world.teller.flush(0)
    sums: dict[tuple[str, str, str], list[Any]] = {}
    for half in (given[: cut + 1], given[cut + 1 :]):
        rows: dict[tuple[str, str, str], list[tuple[Call, Forwarded]]] = defaultdict(list)
        for one in half:
            for c in one.calls:
                rows[c.run, c.node, c.name].append((c, one))
        for key, found in rows.items():
            sums.setdefault(key, []).append(
                (
                    len(found),
                    sum(one.timing.finished - one.timing.started for _, one in found),
                    sum(one.timing.started - c.ready_at for c, one in found),
                    found[0][1].timing.started,
                    found[-1][1].timing.finished,
                    found[-1][0].iteration,
                    max(len(one.calls) for _, one in found),
                )
            )
    told: dict[tuple[str, str, str], list[Any]] = {}
    for one in world.told(e.Activity):
        fields = (one.calls, one.busy, one.queued, one.launched, one.finished, one.iteration, one.batch)
        told.setdefault((one.run, one.node, one.use), []).append(fields)
    assert told.keys() == sums.keys()
    for key, wanted in sums.items():
        for found, true in zip(told[key], wanted, strict=True):
            assert found[0] == true[0]
            assert found[1:5] == pytest.approx(true[1:5])
            assert found[5:] == true[5:]


# ── loops on the device ──


@dataclass
class Loops:
    """Loops of one batch group that start and end as it comes."""

    world: World
    seed: int
    stepped: list[Stepped] = field(default_factory=list[Stepped])
    ended: list[LoopDone] = field(default_factory=list[LoopDone])

    def go(self, steps: int) -> None:
        draw, runs, number, at = random.Random(self.seed), list[LoopRun](), itertools.count(), 20.0
        over = loop_run(loop_call("over"), -1)
        for _ in range(steps):
            while len(runs) < 6 and draw.random() < 0.5:
                one = loop_call(f"r{next(number)}", draw.choice(["l", "m"]), times=draw.randrange(3, 30))
                self.world.teller.began(one)
                runs.append(loop_run(one, len(runs)))
            launched = draw.sample(runs, draw.randrange(len(runs) + 1))
            if not launched:
                continue
            count = min(draw.randrange(1, 4), *(one.call.times - one.done for one in launched))
            timing = Timing(at, at + 0.1, at + 0.05, at + 0.05 + draw.random())
            event = stepped(LaunchBatch([*launched, over]), (0,), count, timing)
            for one in launched:
                one.done += count
                one.busy += timing.busy
                one.since = timing.finished
            self.stepped.append(event)
            self.world.teller.worked(event)
            for one in [one for one in launched if one.done == one.call.times]:
                runs.remove(one)
                self.ended.append(LoopDone(one.call, {}, None, one.done, False, one.busy, 0.5, len(launched)))
                self.world.teller.ended(self.ended[-1])
            self.world.engine.here = {one.key: one.done for one in runs}
            at = self.world.now = timing.finished
            if draw.random() < 0.3:
                self.world.teller.flush(1)


@pytest.mark.parametrize("seed", range(4))
def test_a_launch_is_told_with_a_row_for_each_loop(seed: int) -> None:
    world = World("full")
    loops = Loops(world, seed)
    loops.go(60)
    told: dict[int, list[e.Launch]] = defaultdict(list)
    for one in world.told(e.Launch):
        told[one.number].append(one)
    assert list(told) == list(range(1, len(loops.stepped) + 1))
    since: dict[str, float] = {}
    for number, given in enumerate(loops.stepped, 1):
        rows = {
            (one.loop, run, walk, step, outer, first)
            for one in told[number]
            for run, walk, step, outer, first in zip(one.runs, one.walks, one.steps, one.outer, one.first, strict=True)
        }
        assert rows == {
            (r.loop, r.key.run, r.walk, 1, (3,), first) for r, first in zip(given.members, given.first, strict=True)
        }
        ready = {run: at for one in told[number] for run, at in zip(one.runs, one.ready, strict=True)}
        assert ready == {r.key.run: since.get(r.key.run, 4.0) for r in given.members}
        since.update(dict.fromkeys(ready, given.timing.finished))
        assert {one.loop for one in told[number]} == {r.loop for r in given.members}
        for one in told[number]:
            assert (one.count, one.nodes, one.uses) == (given.iterations, ("always",), ("a",))
            assert (one.taken, one.launched, one.started, one.finished) == tuple(given.timing)
    assert not world.told(e.Looping)
    assert not world.told(e.Activity)


@pytest.mark.parametrize("seed", range(4))
def test_the_summary_of_launches_is_their_sum(seed: int) -> None:
    world = World()
    loops = Loops(world, seed)
    loops.go(60)
    for name in ("l", "m"):
        mine = [(one, [r for r in one.members if r.loop == name]) for one in loops.stepped]
        mine = [(one, members) for one, members in mine if members]
        told = [one for one in world.told(e.Looping) if one.loop == name]
        assert sum(one.launches for one in told) == len(mine)
        assert sum(one.calls for one in told) == sum(one.iterations * len(members) for one, members in mine)
        assert sum(one.busy for one in told) == pytest.approx(sum(one.timing.busy for one, _ in mine))
        moved = [one for one in told if one.launches]
        assert moved[-1].batch == len(mine[-1][0].members)
        assert moved[-1].at == mine[-1][0].timing.finished
        latest: dict[str, int] = {}
        for one in told:
            assert len(one.runs) == len(one.walks) == len(one.iterations)
            for run, (outer, done) in zip(one.runs, one.iterations, strict=True):
                assert outer == 3
                assert latest.get(run, 0) <= done
                latest[run] = done
        over = {done.call.run for done in loops.ended}
        assert {r.key.run for _, members in mine for r in members} <= latest.keys() | over


@pytest.mark.parametrize("iterations", [0, 1, 2, 3, 8])
def test_the_time_of_a_loop_is_its_own_and_no_nodes(iterations: int) -> None:
    world = World()
    error = ErrorInfo(code="node_error", message="no") if not iterations else None
    done = LoopDone(loop_call("r"), None if error else {}, error, iterations, False, 6.0, 0.5, 2, 4.5)
    world.teller.ended(done)
    assert not world.told(e.Activity)
    [end] = world.told(e.LoopEnded)
    assert end.work is not None
    tried = max(1, iterations)
    assert (end.work.uses, end.work.nodes) == (("a", "b"), ("always", "at_times"))
    assert end.work.calls == (tried, sum((True, False, True, *(False,) * 5)[:tried]))
    assert (end.work.busy, end.work.queued, end.work.began, end.work.batch, end.at) == (6.0, 0.5, 4.5, 2, 10.0)
    assert not end.work.spans


def test_a_loop_that_has_begun_is_told_before_its_first_launch_is_over() -> None:
    world = World()
    world.teller.began(loop_call("r"))
    [one] = world.told(e.Looping)
    assert (one.nodes, one.runs, one.iterations, one.launches) == (("always", "at_times"), ("r",), ((3, 0),), 0)
    assert one.uses == ("a", "b")
    quick = loop_call("q")
    world.teller.began(quick)
    world.teller.ended(LoopDone(quick, {}, None, 8, False, 1.0, 0.5, 2))
    assert len(world.told(e.Looping)) == 1, "of one that is over already, its end alone"


# ── values ──


def send(run: str, edge: int, key: tuple[int, ...], value: Any) -> Send:
    message = m.Deliver(run=RunId(run), step=4, edge=edge, key=key, value=m.Absent())
    return Send(Rank(1), message, value, "shm", "talk")


def item(index: int, value: Any) -> Send:
    message = m.StreamItem(run=RunId("r"), stream=1, step=4, index=index, value=m.Absent(), count=2)
    return Send(Rank(1), message, value, "cuda_ipc")


SENT = [
    send("r", 0, (0,), torch.zeros(4)),
    send("r", 0, (1,), {"a": torch.zeros(4, 2), "b": [torch.zeros(3, dtype=torch.uint8), "text"]}),
    send("q", 0, (0,), torch.zeros(5)),
    send("r", 2, (), torch.zeros(6)),
    item(0, torch.zeros(2, 2)),
    item(2, [torch.zeros(1), torch.zeros(1)]),
    send("r", 3, (), "no tensor"),
    send("r", 3, (), ABSENT),
    Send(Rank(1), m.StreamDone(run=RunId("r"), stream=1, step=4, count=4)),
]


def test_tensors_that_leave_are_told_one_by_one() -> None:
    world = World("full")
    for one in SENT:
        leave(world.teller, one)
    told = world.told(e.Transfer)
    assert [(t.run, t.walk, t.edge, t.stream, t.step, t.key, t.count, t.nbytes, t.transport) for t in told] == [
        ("r", "talk", 0, False, 4, (0,), 1, 16, "shm"),
        ("r", "talk", 0, False, 4, (1,), 2, 35, "shm"),
        ("q", "talk", 0, False, 4, (0,), 1, 20, "shm"),
        ("r", "talk", 2, False, 4, (), 1, 24, "shm"),
        ("r", "", 1, True, 4, (0,), 1, 16, "cuda_ipc"),
        ("r", "", 1, True, 4, (2,), 2, 8, "cuda_ipc"),
    ]
    assert {(one.source, one.target, one.at) for one in told} == {(0, 1, 10.0)}


def test_on_summary_those_of_an_edge_are_one() -> None:
    every, summed = World("full"), World()
    for number, one in enumerate(SENT):
        every.now = summed.now = 10.0 + number
        leave(every.teller, one)
        leave(summed.teller, one)
    sums: dict[Any, list[e.Transfer]] = defaultdict(list)
    for one in every.told(e.Transfer):
        sums[one.run, one.target, one.edge, one.stream, one.step].append(one)
    told = summed.told(e.Transfer)
    assert len(told) == len(sums) == 4
    for one in told:
        of = sums[one.run, one.target, one.edge, one.stream, one.step]
        assert (one.count, one.nbytes) == (sum(x.count for x in of), sum(x.nbytes for x in of))
        assert (one.at, one.key, one.walk, one.transport) == (of[-1].at, of[-1].key, of[-1].walk, of[-1].transport)


def test_what_arrives_is_told_on_full_and_names_what_was_sent() -> None:
    sender, full, summary = World("full"), World("full"), World()
    for one in SENT:
        leave(sender.teller, one)
        arrival = Arrived(one.message, one.value)
        full.teller.arrived(arrival)
        summary.teller.arrived(arrival)
    sent, arrived = sender.told(e.Transfer), full.told(e.Arrival)
    names = [(one.run, one.edge, one.stream, one.step, one.key) for one in sent]
    assert [(one.run, one.edge, one.stream, one.step, one.key) for one in arrived] == names
    assert not summary.told()


# ── levels, gauges, packets ──


def everything(teller: WorkTelemetry) -> None:
    of = loop_call("r")
    teller.began(of)
    teller.worked(stepped(LaunchBatch([loop_run(of)]), (0,), 1, Timing(1, 2, 3, 4)))
    teller.ended(LoopDone(of, {}, None, 8, False, 1.0, 0.5, 2))
    leave(teller, SENT[0])
    teller.arrived(Arrived(SENT[0].message, SENT[0].value))


def test_off_costs_no_look_at_the_clock_and_tells_nothing() -> None:
    world = World("off")
    of = loop_call("r")
    world.teller.began(of)
    world.teller.ended(LoopDone(of, {}, None, 8, False, 1.0, 0.5, 2))
    leave(world.teller, SENT[0])
    world.teller.arrived(Arrived(SENT[0].message, SENT[0].value))
    world.teller.flush(3)
    assert world.teller.wait(7.0) == 7.0
    assert (world.reads, world.engine.asked, world.frames, world.engine.timed) == (0, 0, [], [False])


def test_the_level_changes_at_run_time() -> None:
    world = World("off")
    world.teller.set_level("summary")
    everything(world.teller)
    kinds = {type(one) for one in world.told()}
    assert kinds == {e.Looping, e.LoopEnded, e.Transfer}
    world.teller.set_level("full")
    world.frames.clear()
    everything(world.teller)
    assert {type(one) for one in world.told()} == {e.Launch, e.LoopEnded, e.Transfer, e.Arrival}
    world.teller.set_level("off")
    world.frames.clear()
    world.teller.ended(LoopDone(loop_call("r"), {}, None, 8, False, 1.0, 0.5, 2))
    assert not world.told()
    assert world.engine.timed == [False, True, True, False]


@pytest.mark.parametrize("level", ["full", "off"])
def test_what_was_added_up_before_a_change_leaves_all_the_same(level: Level) -> None:
    world = World()
    everything(world.teller)
    world.teller.set_level(level)
    assert {type(one) for one in world.told()} == {e.Looping, e.LoopEnded, e.Transfer}


def test_where_nobody_listens_the_engine_is_not_asked_to_time() -> None:
    engine = Engine()
    teller = WorkTelemetry(R, Off(), lambda: 0.0, engine, Links())
    teller.set_level("full")
    assert engine.timed == [False, False]


def test_gauges_come_every_second_and_tell_what_the_engine_says() -> None:
    world = World()
    for turn in range(41):
        world.now = 100.0 + turn / 10
        world.teller.flush(2)
    told = world.told(e.RankGauge)
    assert [one.at for one in told] == pytest.approx([100.0, 101.0, 102.0, 103.0, 104.0], abs=0.11)
    one = told[0]
    assert (one.runs, one.queue, one.busy, one.memory_used, one.memory_total) == (2, 5, 0.25, 100, 1000)
    assert (one.pages_free, one.pages_total, one.prefix_tokens, one.prefix_hits) == (3, 4, 20, 10)
    assert (one.out_tickets, one.rejected, one.dropped) == (2, 1, 0)


def test_after_work_one_more_gauge_comes_soon_and_then_none() -> None:
    world = World()
    world.teller.flush(1)
    world.now += INTERVAL
    world.teller.flush(1)
    assert world.teller.wait(30.0) == GAUGE_SECONDS
    figure = e.NodeFigure(nodes=("llm",), name="distinct_experts", count=4, total=30, most=9)
    # After figures there may be more: they come one gauge later.
    for figures, due in (((figure,), GAUGE_SECONDS), ((), 30.0)):
        world.engine.told = world.engine.told._replace(queue=0, busy=0.0, figures=figures)
        world.now += GAUGE_SECONDS
        assert world.told(e.RankGauge)[-1].figures == figures
        assert world.teller.wait(30.0) == due


def test_changes_of_a_run_wait_for_their_packet_and_leave_with_its_end() -> None:
    world = World()
    world.teller.flush(0)  # a gauge
    assert len(world.frames) == 1
    world.now += 0.5
    world.teller.began(loop_call("a"))
    world.teller.flush(1)
    assert len(world.frames) == 1
    world.now += INTERVAL / 4
    world.teller.began(loop_call("b"))
    world.teller.flush(1)
    assert len(world.frames) == 1
    assert world.teller.wait(0.05) == pytest.approx(INTERVAL * 3 / 4)
    world.now += INTERVAL
    world.teller.flush(1)
    assert (len(world.frames), world.teller.wait(0.05)) == (2, 0.05)
    world.teller.began(loop_call("c"))
    world.teller.flush(0)
    assert len(world.frames) == 3, "without runs nothing is put off"


def test_what_finds_no_room_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(aggregates, "MOST", 3)
    monkeypatch.setattr(call_aggregates, "MOST", 3)
    world = World()
    for number in range(5):
        world.teller.worked(Forwarded([call(f"r{number}")], [4.0], (), Timing(5, 5, 5, 6)))
        leave(world.teller, send(f"r{number}", 0, (), torch.zeros(1)))
    assert len(world.told(e.Activity)) == len(world.told(e.Transfer)) == 3
    world.now += GAUGE_SECONDS
    assert world.told(e.RankGauge)[-1].dropped == 4
