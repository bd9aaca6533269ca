"""The recent events of a deployment, kept so that the trace of any of its runs can be assembled.

Packets come by the thousand, and most events belong to no single run: they go unchanged into one ring. A run keeps only
its phases and the number of lost events; its trace is assembled on request (`assembling`). All times are seconds of the
monotonic clock of this host, like those of packets.
"""

import itertools
from array import array
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Literal, TypeVar

import msgspec

from walkgraph.ids import RunId
from walkgraph.telemetry import events as e
from walkgraph.telemetry.places import Places
from walkgraph.telemetry.trace import LoopReason, Played, Served
from walkgraph.wire.processes.host_clocks import Alignment

MAX_EVENTS = 100_000
MAX_BYTES = 32 * 1024 * 1024
"""Bytes of the ring, measured by its packets as received."""
MAX_RUNS = 10_000
"""The most runs that are open, or over and not taken."""
LATE_SECONDS = 0.3
"""Seconds after its end that a run is held open for late events of its ranks."""
BEFORE_SECONDS = 1.1
"""Seconds before a run's beginning in which a gauge still shows the rank's state at the beginning."""
UNNAMED_SECONDS = 10.0
"""Seconds that packets are kept for a run still unknown: the conductor may report it after its ranks."""
RECORDED_SAMPLES = 50_000
"""The most samples of one run, and the most numbers in them:"""
RECORDED_NUMBERS = 8_000_000
ALL_SAMPLES = 200_000
"""The most samples of all runs that are not kept yet, and the most numbers in them:"""
ALL_NUMBERS = 32_000_000
MAX_FORGOTTEN = 1024
"""The most forgotten runs that are remembered, so that late events don't create them anew."""
MAX_SHARED = 4096
"""The most columns that are shared by forwards with equal ones."""

State = Literal["running", "done", "failed", "cancelled"]
Column = TypeVar("Column")


class Heard(msgspec.Struct, frozen=True, gc=False):
    """Events of one packet that belong to no single run."""

    at: float
    """When it came."""
    nbytes: int
    events: tuple[e.Any, ...]
    clock: Alignment | None = None
    """As in its packet."""


@dataclass(frozen=True, slots=True)
class Recorded:
    """A recorded value, with its picked numbers stored separately, at a quarter of the size."""

    sample: e.Sample
    picked: "array[float]"

    def whole(self) -> e.Sample:
        return msgspec.structs.replace(self.sample, picked=tuple(self.picked))


@dataclass(frozen=True, kw_only=True)
class Draft:
    """Everything that a run's trace is made of; immutable."""

    run: RunId
    task: str
    state: State
    error: str | None
    phases: dict[str, float]
    began: float
    until: float
    """The run's end, or the present."""
    wall: float
    """Seconds to add to a time for seconds since 1970."""
    heard: tuple[Heard, ...]
    recorded: tuple[Recorded, ...]
    lost: int
    cut: bool
    places: Places
    seen: dict[str, float] = field(default_factory=dict[str, float])
    """Phases that others have seen, in case the conductor has not reported them."""
    ends: tuple[LoopReason, ...] = ()
    played: Played | None = None
    served: Served | None = None


@dataclass(slots=True)
class _Run:
    task: str
    began: float
    wall: float
    lost_before: int
    phases: dict[str, float] = field(default_factory=dict[str, float])
    error: str | None = None
    recorded: list[Recorded] = field(default_factory=list[Recorded])
    numbers: int = 0
    cut: bool = False
    lost: int | None = None
    """Events lost during the run; set once it is over."""
    over_heard: float | None = None
    """When its end was heard of."""

    @property
    def state(self) -> State:
        if "finished" not in self.phases:
            return "running"
        if self.error is None:
            return "done"
        return "cancelled" if self.error == "cancelled" else "failed"


@dataclass(slots=True)
class _Source:
    expected: int = 0
    """Number of its next event."""
    latest: float = 0.0
    """Time that its events have reached."""


class Sources:
    """The processes whose events are counted, by name: `conductor`, or `rank 0.2`, the second start of rank 0."""

    def __init__(self) -> None:
        self.lost = 0
        """Total events that never came."""
        self._sources: dict[str, _Source] = {}

    def __len__(self) -> int:
        return len(self._sources)

    def count(self, packet: e.Packet) -> _Source:
        source = self._sources.get(packet.source)
        if source is None:
            self._forget_starts(packet.source)
        if source is None or packet.first < source.expected:
            # A restarted process counts from the beginning.
            source = self._sources[packet.source] = _Source()
        self.lost += packet.first - source.expected
        source.expected = packet.first + len(packet.events)
        return source

    def all_later(self, at: float) -> bool:
        """True if the events of every source have reached a later time."""
        return all(source.latest > at for source in self._sources.values())

    def _forget_starts(self, source: str) -> None:
        """Forget the starts of a source's rank before this one. The last of them stays: its packets may still come."""
        rank = source.partition(".")[0]
        for start in [name for name in self._sources if name.partition(".")[0] == rank][:-1]:
            del self._sources[start]


class Keeper:
    """Keeps one version of a deployment. Not thread-safe, but the results of `draft` may be shared."""

    def __init__(self, places: Places, *, max_events: int = MAX_EVENTS, max_bytes: int = MAX_BYTES) -> None:
        self.places = places
        self.sources = Sources()
        self._max_events, self._max_bytes = max_events, max_bytes
        self._ring: deque[Heard] = deque()
        self._events = self._bytes = 0
        self._evicted = 0.0
        """When the newest packet evicted from the ring came."""
        self._runs: dict[RunId, _Run] = {}
        self._ending: dict[RunId, None] = {}
        self._forgotten: dict[RunId, None] = {}
        self._shared: dict[object, object] = {}
        self._samples = self._numbers = 0
        """Counts of all runs' recordings."""

    # ── what comes ──────────────────────────────────────────────────────────────────────────────

    def take(self, packet: e.Packet, nbytes: int, now: float) -> None:
        """Take a packet of `nbytes` as received."""
        source = self.sources.count(packet)
        shared: list[e.Any] = []
        for event in packet.events:
            match event:
                case e.Forward() | e.Launch():
                    shared.append(self._alike(event))
                case e.RunPhase():
                    self._phase(event, packet.wall, now)
                case e.Sample():
                    self._sample(event, packet.wall)
                case e.QueueGauge():
                    pass
                case _:
                    shared.append(event)
        if self._ending:
            source.latest = max(source.latest, *(time_of(event) for event in packet.events), 0.0)
        if shared:
            self._keep(Heard(now, nbytes, tuple(shared), packet.clock))

    def close(self, run: RunId, now: float, error: str | None) -> None:
        """End a run whose conductor has not reported its end and won't. No effect on a run that is over or unknown."""
        found = self._runs.get(run)
        if found is not None and "finished" not in found.phases:
            self._end(run, found, max(now, found.began), error, now)

    def forget(self, run: RunId) -> None:
        """Forget a run; its late events are dropped."""
        found = self._runs.pop(run, None)
        if found is not None:
            self._samples -= len(found.recorded)
            self._numbers -= found.numbers
        self._ending.pop(run, None)
        self._forgotten[run] = None
        if len(self._forgotten) > MAX_FORGOTTEN:
            del self._forgotten[next(iter(self._forgotten))]

    # ── queries ────────────────────────────────────────────────────────────────────────────────────

    @property
    def open(self) -> list[RunId]:
        """Runs that are not over."""
        return [run for run, found in self._runs.items() if found.over_heard is None]

    @property
    def waiting(self) -> int:
        """Number of runs that are over and not forgotten."""
        return len(self._ending)

    @property
    def ending(self) -> Sequence[RunId]:
        """Runs that are over and not forgotten, in the order of their ends."""
        return tuple(self._ending)

    def due(self, now: float) -> list[RunId]:
        """Runs that are over and complete: every source has reported something later, or had the time to."""
        return [run for run in self._ending if self._complete(self._runs[run], now)]

    def __contains__(self, run: RunId) -> bool:
        return run in self._runs

    def draft(self, run: RunId, now: float) -> Draft | None:
        """The draft of a run; None if it is unknown or forgotten. Costs a pass over the run's part of the ring;
        `assemble` does the rest and may run elsewhere."""
        found = self._runs.get(run)
        if found is None:
            return None
        return Draft(
            run=run,
            task=found.task,
            state=found.state,
            error=found.error,
            phases=dict(found.phases),
            began=found.began,
            until=found.phases.get("finished", now),
            wall=found.wall,
            heard=tuple(self._since(found.began - BEFORE_SECONDS)),
            recorded=tuple(found.recorded),
            lost=(self.sources.lost if found.lost is None else found.lost) - found.lost_before,
            cut=found.cut or self._evicted > found.began,
            places=self.places,
        )

    # ── inside ──────────────────────────────────────────────────────────────────────────────────

    def _phase(self, event: e.RunPhase, wall: float, now: float) -> None:
        found = self._known(event.run, event.at, wall)
        if found is None:
            return
        found.task = event.task
        if event.phase == "finished":
            if "finished" not in found.phases:
                self._end(event.run, found, event.at, event.error, now)
        else:
            found.phases.setdefault(event.phase, event.at)

    def _end(self, run: RunId, found: _Run, at: float, error: str | None, now: float) -> None:
        found.phases["finished"], found.error = at, error
        found.over_heard = now
        self._ending[run] = None

    def _sample(self, sample: e.Sample, wall: float) -> None:
        if sample.why != "record":
            return
        found = self._known(sample.run, sample.at, wall)
        if found is None:
            return
        count = len(sample.picked)
        own = len(found.recorded) < RECORDED_SAMPLES and found.numbers + count <= RECORDED_NUMBERS
        if not (own and self._samples < ALL_SAMPLES and self._numbers + count <= ALL_NUMBERS):
            found.cut = True
            return
        found.numbers += count
        self._samples, self._numbers = self._samples + 1, self._numbers + count
        found.recorded.append(Recorded(msgspec.structs.replace(sample, picked=()), array("d", sample.picked)))

    def _known(self, run: RunId, at: float, wall: float) -> _Run | None:
        """The run, created if new; None if it was forgotten."""
        found = self._runs.get(run)
        if found is None:
            if run in self._forgotten:
                return None
            found = self._runs[run] = _Run(task="", began=at, wall=wall, lost_before=self.sources.lost)
            if len(self._runs) > MAX_RUNS:
                self.forget(next(iter(self._runs)))
        else:
            found.began = min(found.began, at)
        return found

    def _complete(self, found: _Run, now: float) -> bool:
        heard, at = found.over_heard, found.phases["finished"]
        if heard is not None and now - heard < LATE_SECONDS and not self.sources.all_later(at):
            return False
        if found.lost is None:
            found.lost = self.sources.lost
        return True

    def _keep(self, heard: Heard) -> None:
        self._ring.append(heard)
        self._events += len(heard.events)
        self._bytes += heard.nbytes
        needed = self._needed_since(heard.at)
        while self._events > self._max_events or self._bytes > self._max_bytes or self._ring[0].at < needed:
            gone = self._ring.popleft()
            self._events -= len(gone.events)
            self._bytes -= gone.nbytes
            self._evicted = gone.at

    def _needed_since(self, now: float) -> float:
        """No trace is made of what came before. Runs are heard of in about the order in which they began."""
        oldest = next(iter(self._runs.values()), None)
        return min(now, oldest.began if oldest is not None else now) - BEFORE_SECONDS - UNNAMED_SECONDS

    def _since(self, at: float) -> Iterator[Heard]:
        """Packets since a time, in order."""
        later = list(itertools.takewhile(lambda heard: heard.at >= at, reversed(self._ring)))
        return reversed(later)

    def _alike(self, event: e.Forward | e.Launch) -> e.Forward | e.Launch:
        """The event with its columns shared with equal ones of other events: most of its size."""
        shared = {name: self._once(getattr(event, name)) for name in _ALIKE[type(event)]}
        return msgspec.structs.replace(event, **shared)

    def _once(self, column: Column) -> Column:
        if len(self._shared) >= MAX_SHARED:
            self._shared.clear()
        return self._shared.setdefault(column, column)  # pyright: ignore[reportReturnType]


_ALIKE: dict[type, tuple[str, ...]] = {
    e.Forward: ("runs", "walks", "nodes", "uses", "steps"),
    e.Launch: ("loop", "nodes", "uses", "runs", "walks", "steps", "outer"),
}


def time_of(event: e.Any) -> float:
    """When the work or state that an event reports was over."""
    match event:
        case e.Forward() | e.Launch() | e.ShardWork() | e.Activity():
            return event.finished
        case _:
            return event.at
