"""Assemble the trace of a run from the events that its deployment emitted while it ran."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from math import ceil
from typing import Any, TypeVar

from walkgraph.telemetry import events as e
from walkgraph.telemetry.keeping import BEFORE_SECONDS, Draft
from walkgraph.telemetry.places import Places
from walkgraph.telemetry.trace import (
    CALL,
    FOLDED,
    LAUNCH,
    Blocks,
    CalledRun,
    ClockError,
    Counters,
    Hops,
    KeptCall,
    Lane,
    LoopEnd,
    Passes,
    RankPart,
    Shards,
    Trace,
)
from walkgraph.wire.processes.host_clocks import Alignment
from walkgraph.wire.watching import Level

MATES = 4
"""The most runs of the same batch that a block names."""
MAX_BLOCKS = 200_000
"""The most blocks of one trace; a longer one keeps the latest."""

PAUSE_EVENTS = 64
"""Events between two calls of `pause`; each may become a block. They take about half a millisecond."""

Row = tuple[Any, ...]
"""A row of a table, in the order of its columns."""
Table = TypeVar("Table", Blocks, Shards, Hops, Counters)


def assemble(draft: Draft, deployment: str, parent: str = "", pause: Callable[[], None] | None = None) -> Trace:
    """Assemble the trace of a draft, in time proportional to the number of its deployment's events. `pause` is called
    now and then, so that a thread can let others run."""
    found = _Assembly(draft)
    taken = 0
    for heard in draft.heard:
        if heard.at >= draft.began:
            found.clocks.heard(heard.clock)
        for event in heard.events:
            handle = _HANDLERS.get(type(event))
            if handle is not None:
                handle(found, event)
        taken += len(heard.events)
        if pause is not None and taken >= PAUSE_EVENTS:
            pause()
            taken = 0
    found.loops_under_way()
    blocks = sorted(found.blocks, key=_started)
    shown = blocks[-MAX_BLOCKS:]
    lanes = found.lanes()
    ranks = {lane.rank for lane in lanes} | {rank for hop in found.hops for rank in hop[:2]}
    ranks |= {rank for rank, first in enumerate(draft.places.serving) if first in ranks}
    hops = sorted(found.arrived(), key=_sent)
    counters = sorted((row for row in found.gauges if row[0] in ranks), key=_at)
    return Trace(
        run=draft.run,
        deployment=deployment,
        task=draft.task,
        state=draft.state,
        level=_level(draft, blocks),
        wall=draft.wall + draft.began,
        seconds=max(0, found.us(draft.until)) / 1e6,
        phases={phase: found.us(at) for phase, at in {**draft.seen, **draft.phases}.items()},
        error=draft.error,
        parent=parent,
        devices=draft.places.devices,
        serving=draft.places.serving,
        hosts=draft.places.hosts,
        clocks=found.clocks.of(ranks),
        lanes=lanes,
        blocks=_table(Blocks, shown),
        shards=_table(Shards, _shards_of(found, shown, lanes)),
        hops=_table(Hops, hops),
        counters=_table(Counters, counters),
        loops=tuple(sorted(found.ended, key=_ended_at)),
        ends=draft.ends,
        played=draft.played,
        called=tuple(sorted(found.called, key=lambda one: one.asked)),
        kept=tuple(sorted(found.kept, key=lambda one: one.at)),
        passes=tuple(sorted(found.passes, key=lambda one: one.first)),
        parts=tuple(sorted(found.parts, key=lambda one: one.rank)),
        served=draft.served,
        # Only now, as everything before may add names.
        names=tuple(found.names),
        lost=draft.lost,
        cut=draft.cut or len(blocks) > len(shown),
        early=found.early,
    )


class _Clocks:
    """How wrong the times of other hosts may be."""

    def __init__(self, places: Places) -> None:
        self._hosts = places.hosts
        self._worst: dict[str, Alignment] = {}
        """Other host -> the worst alignment of its packets."""

    def heard(self, clock: Alignment | None) -> None:
        """Note how the times of a packet were changed."""
        if clock is not None and ((worst := self._worst.get(clock.host)) is None or worst.error < clock.error):
            self._worst[clock.host] = clock

    def of(self, ranks: Iterable[int]) -> tuple[ClockError, ...]:
        """The clocks of these ranks' hosts."""
        found = (self._worst.get(self._host(rank)) for rank in sorted(ranks))
        used = dict.fromkeys(clock for clock in found if clock is not None)
        return tuple(ClockError(host=one.host, offset=one.offset, error=ceil(one.error * 1e6)) for one in used)

    def error(self, source: int, target: int) -> int | None:
        """The most microseconds by which times of ranks of two hosts may be wrong with one another; None on one."""
        hosts = {self._host(source), self._host(target)}
        errors = (self._worst[one].error for one in hosts & self._worst.keys())
        return sum(ceil(error * 1e6) for error in errors) if len(hosts) > 1 else None

    def _host(self, rank: int) -> str:
        return self._hosts[rank] if rank < len(self._hosts) else ""


class _Assembly:
    def __init__(self, draft: Draft) -> None:
        self.run, self.places = draft.run, draft.places
        self.began, self.until = draft.began, draft.until
        self.names: dict[str, int] = {}
        self._lanes: dict[tuple[int, str, bool], dict[str, None]] = {}
        """Each lane with its nodes: a loop may not call all of them in every iteration."""
        self.blocks: list[Row] = []
        self.shards: dict[tuple[int, int], list[Row]] = defaultdict(list)
        """(Rank that serves, number) -> rows of its other shards, of all runs."""
        self.hops: list[Row] = []
        self.gauges: list[Row] = []
        self.ended: list[LoopEnd] = []
        self.called: list[CalledRun] = []
        self.kept: list[KeptCall] = []
        self.passes: list[Passes] = []
        self.parts: list[RankPart] = []
        self.early = 0
        """Hops that arrived before they were sent, whatever the clocks' errors."""
        self.clocks = _Clocks(draft.places)
        self._numbers: dict[tuple[int, str, bool], int] = {}
        self._spanning: set[tuple[int, str, bool]] = set()
        self._arrivals: dict[Row, list[int]] = defaultdict(list)
        self._keys: list[Row] = []
        """Keys that match hops with their arrivals."""
        self._moving: dict[Row, list[tuple[e.Looping, Row]]] = defaultdict(list)
        """Open loop -> its blocks so far, without a lane yet."""
        self._passed: dict[Row, tuple[int, int]] = {}
        """Open loop -> (time, iterations done) of its last event."""

    # ── names ───────────────────────────────────────────────────────────────────────────────────

    def us(self, at: float) -> int:
        return round((at - self.began) * 1e6)

    def name(self, text: str) -> int:
        return self.names.setdefault(text, len(self.names))

    def lane(self, rank: int, name: str, nodes: tuple[str, ...], loop: bool, spans: bool = False) -> int:
        key = (rank, name, loop)
        if spans:
            self._spanning.add(key)
        number = self._numbers.setdefault(key, len(self._numbers))
        self._lanes.setdefault(key, {}).update(dict.fromkeys(nodes))
        return number

    def lanes(self) -> tuple[Lane, ...]:
        """All lanes that have blocks."""
        return tuple(
            Lane(
                rank=rank,
                name=name,
                nodes=tuple(nodes),
                loop=loop,
                spans=(rank, name, loop) in self._spanning,
                does="compute" if loop else self.places.does.get(name, "compute"),
            )
            for (rank, name, loop), nodes in self._lanes.items()
        )

    def rows(self, runs: Sequence[str]) -> Iterable[int]:
        """Rows of the run in a batch, mostly none or one."""
        if self.run not in runs:
            return ()
        if runs.count(self.run) == 1:
            return (runs.index(self.run),)
        return tuple(row for row, run in enumerate(runs) if run == self.run)

    def mates(self, runs: Sequence[str]) -> tuple[int, ...]:
        others = (run for run in dict.fromkeys(runs) if run != self.run)
        return tuple(self.name(run) for run, _ in zip(others, range(MATES), strict=False))

    # ── work ────────────────────────────────────────────────────────────────────────────────────

    def forward(self, event: e.Forward) -> None:
        for row in self.rows(event.runs):
            node, ready = event.nodes[row], self.us(event.ready[row])
            lane, use = self.lane(event.rank, node, (node,), loop=False), self.name(event.uses[row])
            # Device times are aligned to the host's and may be off by some microseconds.
            times = ready, max(self.us(event.started), ready)
            what = (use, event.steps[row], event.iterations[row], 1)
            self._block((CALL, lane), event, row, what, times, failed=row in event.failed)

    def launch(self, event: e.Launch) -> None:
        for row in self.rows(event.runs):
            lane = self.lane(event.rank, event.loop, event.nodes, loop=True, spans=event.spans)
            started = max(self.us(event.started), self.us(event.taken))
            # It may be prepared before the previous launch is over, and so before it is ready.
            times = min(self.us(event.ready[row]), started), started
            what = (-1, event.steps[row], (*event.outer[row], event.first[row]), event.count)
            self._block((LAUNCH, lane), event, row, what, times, failed=False)

    def _block(
        self,
        kind: tuple[int, int],
        event: e.Forward | e.Launch,
        row: int,
        what: tuple[int, int, tuple[int, ...], int],
        times: tuple[int, int],
        *,
        failed: bool,
    ) -> None:
        """`kind`: kind and lane. `what`: use, step, iteration, count. `times`: ready and started."""
        (ready, started), taken = times, self.us(event.taken)
        finished = max(self.us(event.finished), started)
        batch = (event.number, len(event.runs), self.mates(event.runs))
        spent = (ready, taken, self.us(event.launched), started, finished, finished - started, started - ready)
        self.blocks.append((*kind, self.name(event.walks[row]), *what, *batch, *spent, event.pages_free, failed))

    def activity(self, event: e.Activity) -> None:
        if event.run != self.run or not event.calls:
            return
        started = self.us(event.launched)
        self.blocks.append(
            self._folded(
                self.lane(event.rank, event.node, (event.node,), loop=False),
                (self.name(event.walk), self.name(event.use)),
                event.iteration,
                event.calls,
                event.batch,
                (started, max(self.us(event.finished), started)),
                (round(event.busy * 1e6), round(event.queued * 1e6)),
            )
        )

    def looping(self, event: e.Looping) -> None:
        for row in self.rows(event.runs):
            iteration = event.iterations[row]
            loop = (event.rank, event.loop, event.walks[row], iteration[:-1])
            at, done = self.us(event.at), iteration[-1] if iteration else 0
            began, before = self._passed.get(loop, (at - round(event.busy * 1e6), 0))
            self._passed[loop] = at, done
            if done <= before:
                continue
            began = min(max(0, began), at)
            place, busy = (self.name(event.walks[row]), -1), min(round(event.busy * 1e6), at - began)
            folded = self._folded(-1, place, iteration, done - before, event.batch, (began, at), (busy, 0))
            self._moving[loop].append((event, folded))

    @staticmethod
    def _folded(
        lane: int,
        place: tuple[int, int],
        iteration: tuple[int, ...],
        count: int,
        batch: int,
        span: tuple[int, int],
        times: tuple[int, int],
    ) -> Row:
        """`place`: Walk and use. `times`: busy and queued."""
        started, finished = span
        places = (FOLDED, lane, *place, -1, iteration, count, -1, batch, ())
        return (*places, started, started, started, started, finished, *times, -1, False)

    def loop_ended(self, event: e.LoopEnded) -> None:
        if event.run != self.run:
            return
        loop = (event.rank, event.loop, event.walk, event.iteration)
        self._passed.pop(loop, None)
        if event.work is not None:
            # The work at the end includes what was reported on the way.
            self._moving.pop(loop, None)
            self._looped(event, event.work)
        self.ended.append(
            LoopEnd(
                rank=event.rank,
                walk=event.walk,
                loop=event.loop,
                iteration=event.iteration,
                iterations=event.iterations,
                reason=event.reason,
                at=self.us(event.at),
            )
        )

    def _looped(self, event: e.LoopEnded, work: e.LoopWork) -> None:
        """Make the loop one block, as the times of its nodes in it are unknown."""
        finished = self.us(event.at)
        nodes = tuple(dict.fromkeys(work.nodes))
        lane = self.lane(event.rank, event.loop, nodes, loop=True, spans=work.spans)
        last = (*event.iteration, max(0, event.iterations - 1))
        span = min(self.us(work.began), finished), finished
        times = round(work.busy * 1e6), round(work.queued * 1e6)
        place = self.name(event.walk), -1
        self.blocks.append(self._folded(lane, place, last, max(1, event.iterations), work.batch, span, times))

    def loops_under_way(self) -> None:
        """Show loops without an end event as far as they have come."""
        for rows in self._moving.values():
            for event, (kind, _, *rest) in rows:
                lane = self.lane(event.rank, event.loop, event.nodes, loop=True, spans=event.spans)
                self.blocks.append((kind, lane, *rest))

    # ── between ranks ───────────────────────────────────────────────────────────────────────────

    def transfer(self, event: e.Transfer) -> None:
        if event.run != self.run:
            return
        places = (self.name(event.walk), self.name(self.places.hop(event.walk, event.edge, event.stream)))
        rest = (event.step, event.key, self.name(event.transport), event.count, event.nbytes, self.us(event.at))
        self._keys.append((event.edge, event.stream, event.step, event.key, event.target))
        self.hops.append((event.source, event.target, *places, *rest))

    def arrival(self, event: e.Arrival) -> None:
        if event.run == self.run:
            key = (event.edge, event.stream, event.step, event.key, event.rank)
            self._arrivals[key].append(self.us(event.at))

    def arrived(self) -> Iterator[Row]:
        """The hops with their arrivals, which another source reports, possibly earlier."""
        waiting = {key: sorted(times, reverse=True) for key, times in self._arrivals.items()}
        for key, hop in zip(self._keys, self.hops, strict=True):
            times, sent = waiting.get(key), hop[-1]
            at = times.pop() if times else None
            if at is not None and (error := self.clocks.error(*hop[:2])) is not None:
                self.early += at < sent - error
            yield (*hop, -1 if at is None else max(at, sent))

    def gauge(self, event: e.RankGauge) -> None:
        if self.began - BEFORE_SECONDS <= event.at <= self.until:
            used = event.pages_total - event.pages_free
            memory = (event.memory_used, used, event.pages_total)
            self.gauges.append((event.rank, max(0, self.us(event.at)), event.busy, event.queue, event.runs, *memory))


def _shard(found: _Assembly, event: e.ShardWork) -> None:
    started = found.us(event.started)
    row = (event.rank, event.of, event.number, started, max(found.us(event.finished), started))
    found.shards[event.of, event.number].append(row)


def _shards_of(found: _Assembly, blocks: Sequence[Row], lanes: Sequence[Lane]) -> list[Row]:
    """The rows of shards that belong to these blocks, in order. What a former start of the rank counted was over before
    the run began."""
    rank_of = [lane.rank for lane in lanes]
    numbers: set[tuple[int, int]] = {(rank_of[int(row[_LANE])], row[_NUMBER]) for row in blocks}
    rows = [row for number in numbers for row in found.shards.get(number, ()) if row[-1] >= 0]
    return sorted(rows, key=_shard_started)


def _task_called(found: _Assembly, event: e.TaskCalled) -> None:
    if event.run != found.run:
        return
    found.called.append(
        CalledRun(
            run=event.called,
            task=event.task,
            rank=event.rank,
            walk=event.walk,
            node=event.node,
            use=event.use,
            step=event.step,
            iteration=event.iteration,
            asked=found.us(event.asked),
            answered=found.us(event.at),
            failed=event.failed,
        )
    )


def _kept(found: _Assembly, event: e.Kept) -> None:
    if event.run == found.run:
        found.kept.append(
            KeptCall(
                rank=event.rank,
                walk=event.walk,
                node=event.node,
                use=event.use,
                step=event.step,
                iteration=event.iteration,
                at=found.us(event.at),
            )
        )


def _passes(found: _Assembly, event: e.RunPasses) -> None:
    if event.run == found.run:
        found.passes.append(Passes(at=found.us(event.at), first=event.first, passes=event.passes))


def _part(found: _Assembly, event: e.RunPart) -> None:
    if event.run == found.run:
        found.parts.append(RankPart(rank=event.rank, received=found.us(event.received), done=found.us(event.at)))


_HANDLERS: dict[type, Callable[[_Assembly, Any], None]] = {
    e.Forward: _Assembly.forward,
    e.Launch: _Assembly.launch,
    e.ShardWork: _shard,
    e.Activity: _Assembly.activity,
    e.Looping: _Assembly.looping,
    e.LoopEnded: _Assembly.loop_ended,
    e.Kept: _kept,
    e.TaskCalled: _task_called,
    e.RunPasses: _passes,
    e.RunPart: _part,
    e.Transfer: _Assembly.transfer,
    e.Arrival: _Assembly.arrival,
    e.RankGauge: _Assembly.gauge,
}


def _table(kind: type[Table], rows: Iterable[Row]) -> Table:
    return kind(**dict(zip(kind.__struct_fields__, zip(*rows, strict=True), strict=False)))


def _level(draft: Draft, blocks: Sequence[Row]) -> Level:
    if any(row[0] != FOLDED for row in blocks):
        return "full"
    return "summary" if blocks or any(phase != "finished" for phase in draft.phases) else "off"


_LANE = Blocks.__struct_fields__.index("lane")
_NUMBER = Blocks.__struct_fields__.index("number")
_STARTED = Blocks.__struct_fields__.index("started")
_FINISHED = Blocks.__struct_fields__.index("finished")
_SENT = Hops.__struct_fields__.index("sent")


def _started(row: Row) -> tuple[int, int]:
    return row[_STARTED], row[_FINISHED]


def _shard_started(row: Row) -> tuple[int, int]:
    return row[-2], row[0]


def _sent(row: Row) -> int:
    return row[_SENT]


def _at(row: Row) -> int:
    return row[1]


def _ended_at(end: LoopEnd) -> int:
    return end.at
