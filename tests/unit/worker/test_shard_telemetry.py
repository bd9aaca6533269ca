"""Another shard reports its own times of the first one's work, its gauges, and nothing twice."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.telling import A
from tests.unit.worker.test_broadcast import streams
from tests.unit.worker.test_telling import Engine, Links, World, call, forwards
from walkgraph.engine.calls.chunked_prefill import Forwarded
from walkgraph.engine.gauges import Gauges
from walkgraph.ids import Rank
from walkgraph.telemetry import events as e
from walkgraph.telemetry.emit import Buffered
from walkgraph.wire.watching import Level
from walkgraph.worker.observe.work_telemetry import WorkTelemetry
from walkgraph.worker.shards.shard_telemetry import ShardTelemetry
from walkgraph.worker.shards.shared_outside import RepeatedOutside

LATE = 100.0
"""Seconds by which the other shard's device is behind the first one's."""


def work(teller: WorkTelemetry, given: list[Forwarded]) -> None:
    """A run's work, as a loop reports it."""
    teller.received(A)
    for one in given:
        teller.worked(one)
    asked = e.TaskCalled(
        run=A, rank=Rank(0), walk="w", node="n", use="n", step=0, iteration=(), task="g/t", called="", asked=1.0,
        at=2.0, failed=False,
    )  # fmt: skip
    teller.called(given[0], asked)
    teller.worked(given[1])
    teller.kept(call("r0"))
    teller.rests(A)


@pytest.mark.parametrize("level", ["full", "summary", "off"])
def test_another_shard_adds_its_times_and_its_gauges(tmp_path: Path, level: Level) -> None:
    figure = e.NodeFigure(nodes=("n",), name="tokens", count=1, total=2, most=2)
    first, given = World(level), forwards(1)
    engine = Engine(told=Gauges(5, 0.25, 100, 1000, 3, 4, 20, 10, (figure,)))
    frames: list[bytes] = []
    with streams(tmp_path) as (writer, [reader]):
        outside = RepeatedOutside(reader, lambda: 0.0)
        for timing in [one.timing for one in given]:
            writer.span(timing.started, timing.finished)
            outside.span(timing.started + LATE, timing.finished + LATE)
        emitter = Buffered("d", "rank 1.1", level, lambda frame: not frames.append(frame))
        other = ShardTelemetry((Rank(1), Rank(0)), outside, emitter, lambda: 10.0, engine, Links())
        work(first.teller, given)
        work(other, given)
        other.flush(0)
    told = [event for frame in frames for event in e.decode(frame).events]
    gauges = [one for one in told if isinstance(one, e.RankGauge)]
    parts = [one for one in told if isinstance(one, e.ShardWork)]
    assert len(told) == len(gauges) + len(parts)
    assert [(one.rank, one.figures, one.memory_used) for one in gauges] == [(1, (), 100)] * (level != "off")
    called = len(given) + 1
    """The number of the call of a task, in which the shard has no part."""
    whole = [one for one in first.told(e.Forward) if one.number != called]
    late = [(1, 0, one.number, one.started + LATE, one.finished + LATE) for one in whole]
    assert [(one.rank, one.of, one.number, one.started, one.finished) for one in parts] == late
    assert len(late) == (len(given) + 1) * (level == "full")
