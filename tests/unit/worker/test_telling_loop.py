"""A rank's loop reports in time: held events leave even if nothing more happens, at the level set last."""

from __future__ import annotations

import time

import pytest

from tests.support.loop_calls import WrittenUse, written
from tests.support.worker_loop import ITINERARY, Desk, FakeEngine, R, Trio, Worker, outside, trio
from tests.support.yardstick import patience
from tests.unit.worker.test_telling import R as RANK
from tests.unit.worker.test_telling import World
from walkgraph.engine.gauges import Gauges
from walkgraph.engine.loops.spec import LoopCall
from walkgraph.ids import RunId
from walkgraph.telemetry import events as e
from walkgraph.telemetry.emit import INTERVAL, Buffered
from walkgraph.wire import messages as m
from walkgraph.wire.watching import Level, Watch
from walkgraph.worker.events import Release, Report, RunLoop
from walkgraph.worker.loop import WorkerLoop

__all__ = ["outside", "trio"]  # fixtures


class Gauged(FakeEngine):
    """Loops that are handed to it take their time."""

    def gauges(self) -> Gauges:
        return Gauges(0, 0.0, 1, 2, 3, 4, 5, 6)

    def add_loop(self, call: LoopCall) -> None:
        del call

    def allow(self, run: str, step: int, use: int, iteration: tuple[int, ...], upto: int) -> None: ...


class Told:
    def __init__(self, worker: Worker, level: Level) -> None:
        self.frames: list[bytes] = []
        worker.engine = Gauged()
        worker.core.runs = (R,)
        emitter = Buffered("d", "rank 0.1", level, lambda frame: not self.frames.append(frame))
        worker.loop = WorkerLoop(worker.rank, worker.core, worker.engine, worker.links, emitter)

    @property
    def events(self) -> list[e.Any]:
        return [event for frame in self.frames for event in e.decode(frame).events]


def begin(worker: Worker, desk: Desk) -> None:
    use = WrittenUse(node="n", inputs=(), params={}, varying={}, states={}, seed=0)
    loop = written(run=R, walk="w", step=0, use=0, loop="l", iteration=(), body=(use,), times=9, until=None, outputs=())
    worker.core.answers.append([RunLoop(loop)])
    desk.say(worker, m.Cancel(run=R))


def test_what_waits_for_its_packet_leaves_while_the_loop_is_idle(trio: Trio) -> None:
    desk, one, _ = trio
    told = Told(one, "summary")
    begin(one, desk)
    one.turn()
    assert told.events == []
    began = time.monotonic()
    while not told.events and time.monotonic() - began < 60:
        one.turn()
    assert time.monotonic() - began < patience(10 * INTERVAL)
    assert {type(event) for event in told.events} == {e.Looping, e.RankGauge}


@pytest.mark.parametrize("level", ["off", "full"])
def test_the_level_is_the_one_that_was_last_asked(trio: Trio, level: Level) -> None:
    desk, one, _ = trio
    told = Told(one, "summary")
    desk.say(one, Watch(level=level))
    one.turn()
    told.frames.clear()
    begin(one, desk)
    one.turn()
    assert not any(isinstance(event, e.Looping) for event in told.events)
    desk.say(one, Watch(level="summary"))
    begin(one, desk)
    began = time.monotonic()
    while not any(isinstance(event, e.Looping) for event in told.events):
        assert time.monotonic() - began < 60
        one.turn()


@pytest.mark.parametrize("ends", ["done", "cancelled"])
def test_a_rank_tells_how_long_it_had_a_run_however_that_ended(trio: Trio, ends: str) -> None:
    desk, one, _ = trio
    told = Told(one, "summary")
    desk.say(one, m.Start(run=R, itinerary=ITINERARY, params={}, inputs={}))
    one.turn()
    if ends == "done":
        one.core.answers.append([Report(m.RankDone(rank=one.rank, run=R, times=()))])
    else:
        one.core.answers.append([Release(R)])
    desk.say(one, m.Cancel(run=R))
    one.core.runs = ()
    one.turn()
    (part,) = [event for event in told.events if isinstance(event, e.RunPart)]
    assert part.run == R
    assert part.received <= part.at


def test_a_rank_tells_once_when_it_had_a_run() -> None:
    for level in ("summary", "full"):
        world = World(level)
        world.teller.received(RunId("a"))
        world.teller.received(RunId("b"))
        world.now = 12.0
        world.teller.rests(RunId("a"))
        world.now = 13.0
        world.teller.rests(RunId("a"))
        assert world.told(e.RunPart) == [e.RunPart(run=RunId("a"), rank=RANK, received=10.0, at=12.0)]


def test_a_run_that_began_while_telemetry_was_off_is_not_told() -> None:
    world = World("off")
    world.teller.received(RunId("a"))
    world.teller.set_level("full")
    world.teller.received(RunId("b"))
    for run in ("a", "b"):
        world.teller.rests(RunId(run))
    assert [one.run for one in world.told(e.RunPart)] == ["b"]
