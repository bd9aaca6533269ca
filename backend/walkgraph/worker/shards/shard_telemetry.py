"""Telemetry of the shards that repeat another's work. The first shard reports all of it, so they add only what it can't
know: when their own devices did their parts, and their gauges."""

from collections.abc import Callable, Iterable

from msgspec.structs import replace

from walkgraph.abi.calls import Call
from walkgraph.engine.calls.chunked_prefill import Forwarded
from walkgraph.engine.loops.loop_runs import LoopDone, Stepped
from walkgraph.engine.loops.spec import LoopCall
from walkgraph.ids import Rank, RunId
from walkgraph.telemetry import events as t
from walkgraph.telemetry.emit import Emitter
from walkgraph.wire.watching import Tap
from walkgraph.worker.events import Arrived, Observe, Send
from walkgraph.worker.observe.work_telemetry import LinkCounters, MeasuredEngine, WorkTelemetry
from walkgraph.worker.shards.shared_outside import RepeatedOutside


class ShardTelemetry(WorkTelemetry):
    def __init__(
        self,
        ranks: tuple[Rank, Rank],
        outside: RepeatedOutside,
        emitter: Emitter,
        clock: Callable[[], float],
        engine: MeasuredEngine,
        links: LinkCounters,
    ) -> None:
        """`ranks`: the shard's own, and the first one's."""
        own, self._first = ranks
        super().__init__(own, emitter, clock, engine, links)
        self._outside = outside

    def received(self, run: RunId) -> None: ...

    def rests(self, run: RunId) -> None: ...

    def worked(self, event: Forwarded | Stepped) -> None:
        """Report the times of this shard's part. The number is the first shard's: both count the same work."""
        self._number += 1
        if self._level == "full":
            started, finished = self._outside.here(event.timing.started, event.timing.finished)
            one = t.ShardWork(rank=self._rank, of=self._first, number=self._number, started=started, finished=finished)
            self._emitter.emit(one)

    def called(self, work: Forwarded, event: t.TaskCalled) -> None:
        """Count a call of a task, in which this shard had no part."""
        if self._level != "off":
            self._number += 1

    def kept(self, call: Call) -> None: ...

    def began(self, call: LoopCall) -> None: ...

    def ended(self, done: LoopDone) -> None: ...

    def transfer(self, send: Send) -> None: ...

    def departed(self, transfers: Iterable[t.Transfer]) -> None: ...

    def arrived(self, arrival: Arrived) -> None: ...

    def _gauge(self, runs: int, now: float) -> t.RankGauge:
        """The gauges of this shard's device. The first shard counts the figures of nodes and looked-up tokens."""
        return replace(super()._gauge(runs, now), figures=(), prefix_tokens=0, prefix_hits=0)


class NoSamples:
    """Takes no samples: the first shard takes them. What nodes give is whole on every shard."""

    def look(self, observe: Observe) -> None: ...

    def keep(self, taps: Iterable[Tap]) -> None: ...

    def wait(self, longest: float) -> float:
        return longest

    def tell(self) -> None: ...
