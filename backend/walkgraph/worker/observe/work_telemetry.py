"""Telemetry of a rank's work: forwards, launches, loops, tensors that leave and arrive, gauges.

Nothing is made while telemetry is off. At level `summary`, `Aggregates` adds events up.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

from walkgraph.abi.calls import Call
from walkgraph.engine.calls.chunked_prefill import Forwarded
from walkgraph.engine.gauges import Gauges
from walkgraph.engine.loops.loop_runs import LoopDone, LoopKey, Stepped
from walkgraph.engine.loops.spec import LoopCall
from walkgraph.ids import Rank, RunId
from walkgraph.telemetry import events as t
from walkgraph.telemetry.emit import Emitter
from walkgraph.wire import messages as m
from walkgraph.wire.processes.host_clocks import HostClock
from walkgraph.wire.watching import Level
from walkgraph.worker.events import Arrived, Send
from walkgraph.worker.observe.aggregates import Aggregates
from walkgraph.worker.observe.launch_groups import LaunchGroup, LaunchGroups

GAUGE_SECONDS = 1.0


class PoolsLike(Protocol):
    def pages(self) -> tuple[int, int]:
        """Free, total."""
        ...


class MeasuredEngine(Protocol):
    """The engine, as far as telemetry needs it."""

    @property
    def pools(self) -> PoolsLike: ...

    def gauges(self) -> Gauges: ...

    def time_steps(self, *, on: bool) -> None: ...

    def positions(self) -> Mapping[LoopKey, int]:
        """Iterations done by each loop that has a slot now."""
        ...


class LinkCounters(Protocol):
    """Counters of the links."""

    @property
    def tickets_out(self) -> int: ...

    @property
    def rejected(self) -> int: ...


class WorkTelemetry:
    def __init__(
        self, rank: Rank, emitter: Emitter, clock: Callable[[], float], engine: MeasuredEngine, links: LinkCounters
    ) -> None:
        self._rank, self._emitter, self._clock = rank, emitter, clock
        self._engine, self._links = engine, links
        self._groups = LaunchGroups()
        self._aggregates = Aggregates(rank, self._groups, engine)
        self._number = 0
        self._received: dict[RunId, float] = {}
        """The times at which this rank read the messages that start its runs."""
        self._gauged = 0.0
        self._working = False
        """True if the last gauge showed work, so that the next one is due soon."""
        self._level: Level = "off"
        self.set_level(emitter.level)

    def set_level(self, level: Level) -> None:
        """Set the level. What was added up before leaves unchanged."""
        for one in self._aggregates.take():
            self._emitter.emit(one)
        self._emitter.set_level(level)
        self._level = self._emitter.level
        self._engine.time_steps(on=self._level != "off")

    def tell(self, clock: HostClock | None) -> None:
        """Take the clock of this host, if it is not the service's."""
        if clock is not None:
            self._emitter.tell(clock)

    def received(self, run: RunId) -> None:
        """Note that the message which starts a run was read."""
        if self._level != "off":
            self._received[run] = self._clock()

    def rests(self, run: RunId) -> None:
        """Report that nothing more is done for a run here, once."""
        received = self._received.pop(run, None)
        if received is not None and self._level != "off":
            self._emitter.emit(t.RunPart(run=run, rank=self._rank, received=received, at=self._clock()))

    def worked(self, event: Forwarded | Stepped) -> None:
        """Report finished work of the engine. The engine sends these events only while telemetry is on."""
        self._number += 1
        if self._level == "full":
            for one in self._rows(event):
                self._emitter.emit(one)
        elif isinstance(event, Stepped):
            self._aggregates.stepped(event)
        else:
            self._aggregates.forwarded(event)

    def called(self, work: Forwarded, event: t.TaskCalled) -> None:
        """Report a call of a task that has ended, as work of its node and as a run of its own."""
        if self._level != "off":
            self.worked(work)
            self._emitter.emit(event)

    def kept(self, call: Call) -> None:
        """Report a call that was not made, as its outputs are known."""
        if self._level == "off":
            return
        self._emitter.emit(
            t.Kept(
                run=RunId(call.run),
                rank=self._rank,
                walk=call.walk,
                node=call.node,
                use=call.name,
                step=call.step,
                iteration=call.iteration,
                at=self._clock(),
            )
        )

    def began(self, call: LoopCall) -> None:
        """Note that a loop was given to the engine."""
        if self._level == "summary":
            self._aggregates.began(call)

    def ended(self, done: LoopDone) -> None:
        if self._level == "off":
            return
        now, call = self._clock(), done.call
        work = self._aggregates.ended(done, now) if self._level == "summary" else None
        self._emitter.emit(
            t.LoopEnded(
                run=RunId(call.run),
                rank=self._rank,
                walk=call.walk,
                loop=call.loop,
                step=call.step,
                iteration=call.iteration,
                iterations=done.iterations,
                reason="error" if done.error else done.reason,
                at=now,
                work=work,
            )
        )

    def transfer(self, send: Send) -> t.Transfer | None:
        """The event to emit once the message has left, or None."""
        if self._level == "off" or not isinstance(send.message, _Carrying):
            return None
        count, nbytes = _tensors(send.value)
        if not count:
            return None
        message = send.message
        return t.Transfer(
            run=message.run,
            source=self._rank,
            target=send.rank,
            walk=send.walk,
            step=message.step,
            **_hop(message)._asdict(),
            transport=send.transport,
            count=count,
            nbytes=nbytes,
            at=self._clock(),
        )

    def departed(self, transfers: Iterable[t.Transfer]) -> None:
        for one in transfers:
            if self._level == "full":
                self._emitter.emit(one)
            elif self._level != "off":
                self._aggregates.sent(one)

    def arrived(self, arrival: Arrived) -> None:
        message = arrival.message
        if self._level != "full" or not isinstance(message, _Carrying) or not _tensors(arrival.value)[0]:
            return
        self._emitter.emit(
            t.Arrival(
                run=message.run,
                rank=self._rank,
                step=message.step,
                **_hop(message)._asdict(),
                at=self._clock(),
            )
        )

    def wait(self, longest: float) -> float:
        """Seconds that may pass before the next `flush`."""
        if self._level == "off" and self._emitter.wait(0.0) is None:
            return longest
        now = self._clock()
        told = self._emitter.gather(now) if self._aggregates else self._emitter.wait(now)
        longest = min(longest, GAUGE_SECONDS) if self._working else longest
        return longest if told is None else min(longest, told)

    def flush(self, runs: int) -> None:
        """Emit gauges if they are due, and send everything gathered so far."""
        if self._level == "off" and self._emitter.wait(0.0) is None:
            return
        now = self._clock()
        if self._level != "off" and now - self._gauged >= GAUGE_SECONDS:
            self._gauged = now
            self._emitter.emit(self._gauge(runs, now))
        if not self._aggregates and self._emitter.wait(now) is None:
            return
        if runs and self._emitter.gather(now):
            return
        for one in self._aggregates.take():
            self._emitter.emit(one)
        self._emitter.flush(now, force=True)

    def _gauge(self, runs: int, now: float) -> t.RankGauge:
        gauges = self._engine.gauges()
        # Figures come one gauge later, so that those of the last work are still to come.
        self._working = bool(runs or gauges.busy or gauges.queue or gauges.figures)
        return t.RankGauge(
            rank=self._rank,
            at=now,
            runs=runs,
            **gauges._asdict(),
            out_tickets=self._links.tickets_out,
            rejected=self._links.rejected,
            dropped=self._emitter.dropped + self._aggregates.lost,
        )

    def _rows(self, event: Forwarded | Stepped) -> Sequence[t.Forward | t.Launch]:
        free, _ = self._engine.pools.pages()
        if isinstance(event, Forwarded):
            return [self._forward(event, free)]
        return [self._launch(event, group, free) for group in self._groups.of(event.members)]

    def _forward(self, event: Forwarded, pages_free: int) -> t.Forward:
        calls, timing = event.calls, event.timing
        return t.Forward(
            rank=self._rank,
            number=self._number,
            runs=tuple([RunId(call.run) for call in calls]),
            walks=tuple([call.walk for call in calls]),
            nodes=tuple([call.node for call in calls]),
            uses=tuple([call.name for call in calls]),
            steps=tuple([call.step for call in calls]),
            iterations=tuple([call.iteration for call in calls]),
            ready=tuple(event.ready),
            taken=timing.taken,
            launched=timing.launched,
            started=timing.started,
            finished=timing.finished,
            pages_free=pages_free,
            failed=event.failed,
        )

    def _launch(self, event: Stepped, group: LaunchGroup, pages_free: int) -> t.Launch:
        timing, columns, uses = event.timing, group.columns, group.uses(event.uses)
        first, ready = event.first, event.ready
        if len(group.members) < len(event.members):
            mine = [row for row, member in enumerate(event.members) if group.has(member)]
            first, ready = [first[row] for row in mine], [ready[row] for row in mine]
        return t.Launch(
            rank=self._rank,
            number=self._number,
            loop=group.loop,
            nodes=uses.nodes,
            uses=uses.names,
            spans=group.spans,
            count=event.iterations,
            runs=columns.runs,
            walks=columns.walks,
            steps=columns.steps,
            outer=columns.outer,
            first=tuple(first),
            ready=tuple(ready),
            taken=timing.taken,
            launched=timing.launched,
            started=timing.started,
            finished=timing.finished,
            pages_free=pages_free,
        )


class _Hop(NamedTuple):
    """The edge or stream by which a value goes from one rank to another."""

    edge: int
    """Edge of the step's Walk, or a stream."""
    stream: bool
    key: tuple[int, ...]


_Carrying = m.Deliver | m.StatePart | m.StreamItem


def _hop(message: m.Deliver | m.StatePart | m.StreamItem) -> _Hop:
    match message:
        case m.Deliver():
            return _Hop(message.edge, stream=False, key=message.key)
        case m.StatePart():
            return _Hop(0, stream=False, key=(message.number,))
        case m.StreamItem():
            return _Hop(message.stream, stream=True, key=(message.index,))


def _tensors(value: Any) -> tuple[int, int]:
    """The number of tensors in a value, and their bytes."""
    if isinstance(value, Mapping):
        return _summed(list(value.values()))
    if isinstance(value, Sequence) and not isinstance(value, str | bytes):
        return _summed(value)
    nbytes = getattr(value, "nbytes", None)
    return (0, 0) if nbytes is None else (1, int(nbytes))


def _summed(values: Sequence[Any]) -> tuple[int, int]:
    found = [_tensors(value) for value in values]
    return sum(count for count, _ in found), sum(nbytes for _, nbytes in found)
