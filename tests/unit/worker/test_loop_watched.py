"""A rank's loop between real sockets: gates, watches and samples."""

import torch

from tests.support.worker_loop import ITINERARY, R, Trio, start, trio, until
from walkgraph.telemetry.emit import Buffered
from walkgraph.telemetry.events import Sample, decode
from walkgraph.wire import messages as m
from walkgraph.worker.events import FreeLoops, Gated, HoldLoops, Observe, Report, Started, Watched
from walkgraph.worker.loop import WorkerLoop

__all__ = ["trio"]


def test_gates_and_watches_reach_the_core_and_holds_the_engine(trio: Trio) -> None:
    desk, one, _ = trio
    gate, watch = m.Gate(run=R, mode="close"), m.Watch(level="off")
    halted = m.Halted(rank=one.rank, run=R, held=())
    one.core.answers.extend([[HoldLoops(R), Report(halted)], [], [FreeLoops(R)]])
    desk.say(one, gate, watch, m.Gate(run=R, mode="open"))
    until(desk, one, lambda: len(one.core.events) == 3)
    assert one.core.events == [Gated(gate), Watched(watch), Gated(m.Gate(run=R, mode="open"))]
    assert one.engine.log[:2] == [("hold", R), ("release", R)]
    assert desk.hear() == halted


def test_how_a_run_is_to_be_watched_is_told_with_its_start(trio: Trio) -> None:
    desk, one, _ = trio
    how = {"stepped": True, "record": True, "hold": True}
    desk.say(one, m.Start(run=R, itinerary=ITINERARY, params={}, inputs={}, **how))
    one.turn()
    assert one.core.events == [Started(R, ITINERARY, {}, {}, **how)]


def test_a_gate_of_a_suspended_run_waits_with_all_else_and_a_watch_does_not(trio: Trio) -> None:
    desk, one, _ = trio
    gate, watch = m.Gate(run=R, mode="open"), m.Watch()
    desk.say(one, m.Suspend(run=R))
    one.turn()
    start(one, desk, [])
    desk.say(one, gate, watch)
    until(desk, one, lambda: bool(one.core.events))
    assert one.core.events == [Watched(watch)]
    desk.say(one, m.Resume(run=R))
    until(desk, one, lambda: len(one.core.events) == 3)
    assert [type(event) for event in one.core.events] == [Watched, Started, Gated]


def test_what_is_looked_at_is_told_as_samples(trio: Trio) -> None:
    desk, one, _ = trio
    told: list[bytes] = []
    loop = WorkerLoop(
        one.rank, one.core, one.engine, one.links, Buffered("d", "rank 0.1", "off", lambda p: not told.append(p))
    )
    one.core.answers.append([Observe("record", R, "w", 0, "n.out", (), "tensor", torch.ones(2))])
    desk.say(one, m.Gate(run=R, mode="close"))
    loop.turn()
    (packet,) = map(decode, told)
    assert [(type(event), event.rank) for event in packet.events] == [(Sample, one.rank)]  # type: ignore[union-attr]
