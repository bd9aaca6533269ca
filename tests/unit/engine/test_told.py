"""The engine reports its batches and launches correctly while reporting is on."""

from __future__ import annotations

import itertools
import random
from collections import defaultdict
from typing import Any

import pytest
import torch

from tests.support.loop_calls import LoopInput, WrittenUse, written
from tests.support.ticking import Ticking
from tests.unit.engine.plans import call, engine_of, plan_of
from tests.unit.engine.test_engine import ATTEND, PAGE_BYTES, feed
from walkgraph.abi.calls import Call
from walkgraph.engine.calls.chunked_prefill import Done, Forwarded
from walkgraph.engine.calls.schedule import Mix
from walkgraph.engine.device.outside import Firsthand
from walkgraph.engine.engine import Engine
from walkgraph.engine.loops.loop_runs import LoopDone, Stepped
from walkgraph.engine.loops.spec import LoopCall, LoopOutput


def engine(rows: int = 10, *, on: bool = True) -> Engine:
    nodes: dict[str, tuple[str, dict[str, str]]] = {
        "node_main": (ATTEND, {"kv": "main"}),
        "fail": ("walkgraph.models.synthetic.operators:Fail", {}),
        "noop": ("walkgraph.models.synthetic.operators:Noop", {}),
        "later": ("walkgraph.models.synthetic.operators:Noop", {}),
    }
    made = engine_of(
        plan_of(nodes, kv_bytes=PAGE_BYTES * 400), mix=Mix(2 * rows, rows, rows), outside=Firsthand(Ticking(0.001))
    )
    made.time_steps(on=on)
    return made


def loop(run: str, times: int, stop_at: int = 1 << 40) -> LoopCall:
    """The second node is called in every other iteration."""
    token = LoopInput("token", "value", torch.zeros(1, dtype=torch.int64), carried=(0, "token"))
    first = WrittenUse("noop", (token,), {"stop_at": stop_at}, {}, {}, 0)
    active = tuple(k % 2 == 0 for k in range(times))
    second = WrittenUse("later", (LoopInput("token", "use", None, 0, "token"),), {"stop_at": 1}, {}, {}, 0, active)
    outputs = (LoopOutput("token", 0, "token", "last"),)
    return written(run, "count", 3, 0, "tokens", (), (first, second), times, (0, "stop"), outputs, grain=0)


def served(here: Engine) -> list[Any]:
    events: list[Any] = []
    while not here.idle:
        events += here.step()
    return events


def of(kind: type[Any], events: list[Any]) -> list[Any]:
    return [one for one in events if isinstance(one, kind)]


@pytest.mark.parametrize("seed", range(3))
def test_every_call_is_in_one_batch_that_was_told_before_it_was_done(seed: int) -> None:
    here, draw = engine(rows=1000), random.Random(seed)
    calls: list[Call] = []
    events: list[Any] = []
    for number in range(40):
        one = draw.choice(
            [
                feed([1] * draw.randrange(1, 20), run=f"r{number}"),
                call("fail", {"value": number % 6}, run=f"r{number}", at=5, iteration=(number,)),
            ]
        )
        calls.append(one)
        here.add(one)
        if draw.random() < 0.3:
            events += here.step()
    events += served(here)
    told: dict[int, Forwarded] = {}
    for event in events:
        if isinstance(event, Forwarded):
            assert len(event.calls) == len(event.ready)
            for row, (one, ready) in enumerate(zip(event.calls, event.ready, strict=True)):
                assert id(one) not in told
                told[id(one)] = event
                assert ready == one.ready_at
                failed = one.node == "fail" and one.inputs["value"] == 5
                assert (row in event.failed) == failed
        elif isinstance(event, Done):
            assert id(event.call) in told
            assert (event.error is None) == (
                event.call not in [told[id(event.call)].calls[k] for k in told[id(event.call)].failed]
            )
    assert set(told) == {id(one) for one in calls}
    spans = sorted({tuple(one.timing) for one in told.values()}, key=lambda one: one[2])
    for one, two in itertools.pairwise(spans):
        assert one[3] <= two[2], "on one processor one comes after the other"
    for one in told.values():
        taken, launched, started, finished = one.timing
        assert max(one.ready) < taken == started < launched == finished


def test_what_an_operator_cannot_sort_is_told_as_failed() -> None:
    here = engine()
    bad = call("node_main", {}, states={"kv": "main"})
    here.add(bad)
    told, done = served(here)
    assert isinstance(told, Forwarded)
    assert (told.calls, told.failed, told.timing.busy) == ([bad], (0,), 0.0)
    assert isinstance(done, Done)


def test_parts_of_a_call_are_rows_each_and_ready_when_the_one_before_was_done() -> None:
    here = engine(rows=10)
    here.add(feed(list(range(35)), run="long"))
    here.add(feed([1] * 3, run="short"))
    events = served(here)
    rows = [
        (ready, one.timing)
        for one in of(Forwarded, events)
        for part, ready in zip(one.calls, one.ready, strict=True)
        if part.run == "long"
    ]
    assert len(rows) == 4
    [whole] = [one.call for one in of(Done, events) if one.call.run == "long"]
    assert rows[0][0] == whole.ready_at
    for (_, before), (ready, after) in itertools.pairwise(rows):
        assert ready == before.finished <= after.started


@pytest.mark.parametrize("seed", range(3))
def test_launches_add_up_to_the_loops(seed: int) -> None:
    here, draw = engine(), random.Random(seed)
    times = {f"r{number}": draw.randrange(1, 30) for number in range(12)}
    stops = {run: draw.choice([1 << 40, draw.randrange(1, 30)]) for run in times}
    events: list[Any] = []
    for run, count in times.items():
        here.add_loop(loop(run, count, stops[run]))
        for _ in range(draw.randrange(4)):
            events += here.step()
    events += served(here)
    done = {one.call.run: one for one in of(LoopDone, events)}
    made: dict[str, int] = defaultdict(int)
    busy: dict[str, float] = defaultdict(float)
    for one in of(Stepped, events):
        assert 0 in one.uses
        assert len({member.key.run for member in one.members}) == len(one.members) == len(one.first) > 0
        for member, first in zip(one.members, one.first, strict=True):
            run = member.key.run
            assert first == made[run]
            called = any(done[run].call.uses[1].active[k] for k in range(first, first + one.iterations))
            assert (1 in one.uses) == called
            made[run] += one.iterations
            busy[run] += one.timing.busy
    for run, one in done.items():
        assert made[run] == one.iterations <= times[run]
        assert one.busy == pytest.approx(busy[run])
    for one, two in itertools.pairwise(of(Stepped, events)):
        assert one.timing.taken < one.timing.started < one.timing.launched == one.timing.finished < two.timing.taken


def test_off_nothing_is_told_and_the_clock_is_read_no_more_than_for_the_runs_own_times() -> None:
    reads: dict[bool, int] = {}
    for on in (False, True):
        here = engine(on=on)
        clock = here._clock  # pyright: ignore[reportPrivateUsage]
        assert isinstance(clock, Ticking)
        began = clock.now
        here.add_loop(loop("a", 20))
        events = served(here)
        reads[on] = round((clock.now - began) / 0.001)
        assert bool(of(Stepped, events)) == on
    # Of a launch, when it began and when it was over.
    assert reads[False] <= 2 * 20 + 2 < reads[True]


def test_telling_is_switched_while_loops_run() -> None:
    here = engine(on=False)
    here.add_loop(loop("a", 40))
    events: list[Any] = []
    for step in range(40):
        here.time_steps(on=step % 10 >= 5)
        events += here.step()
    told = of(Stepped, events)
    assert 15 <= len(told) <= 25
    assert all(0 < one.timing.taken <= one.timing.started <= one.timing.finished for one in told)


def test_gauges_count_what_waits_and_how_busy_the_device_was() -> None:
    here = engine(rows=10)
    for number in range(3):
        here.add(feed([1] * 8, run=f"r{number}"))
    before = here.gauges()
    assert before.queue == 3
    assert before.busy == 0.0
    assert before.pages_free == before.pages_total == here.pools.pages()[1]
    assert 0 < before.memory_used < before.memory_total
    [spent] = [sum(one.timing.busy for one in of(Forwarded, served(here)))]
    after = here.gauges()
    assert after.queue == 0
    assert 0 < after.busy < 1
    assert spent > 0
    assert after.pages_free < after.pages_total


def test_a_launch_tells_since_when_it_could_have_been() -> None:
    here = engine()
    one = loop("r", 12)
    one.allowed = 4
    here.add_loop(one)
    asked = one.ready_at
    events = served(here)
    assert [launch.first for launch in of(Stepped, events)] == [[0], [1], [2], [3]]
    assert [launch.ready[0] for launch in of(Stepped, events)] == [
        asked, *(launch.timing.finished for launch in of(Stepped, events)[:3]),
    ]  # fmt: skip
    clock: Any = here._clock  # pyright: ignore[reportPrivateUsage]
    clock.now = 200.0
    here.loops.allow("r", 3, 0, (), 6)
    events = served(here)
    first, second = of(Stepped, events)
    assert 200 < first.ready[0] < 200.1, "it was not allowed to before"
    assert second.ready[0] == first.timing.finished
    here.holds.hold_loops("r")
    clock.now = 300.0
    here.loops.allow("r", 3, 0, (), 12)
    clock.now = 400.0
    here.holds.release_loops("r")
    clock.now += 1.0
    events = served(here)
    assert 400 < of(Stepped, events)[0].ready[0] < 400.1, "it was held before"
    (done,) = of(LoopDone, events)
    assert done.queued == pytest.approx(1.0, abs=0.1), "for its second row"
    assert asked < done.began < asked + 0.1
