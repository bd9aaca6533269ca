"""Records of the ranks' workers, and the watchdog that finds those that no longer answer."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Literal

from walkgraph.conductor.events import Command, Kill, Spawn, ToRank
from walkgraph.ids import Rank
from walkgraph.telemetry.clocks import HostClocks
from walkgraph.wire import messages as m
from walkgraph.wire.spec import Limits

PING_SECONDS = 0.5
"""A loaded worker that was silent for so long is pinged. One on another host is pinged every so often, even while it
loads: only a message that can't be sent shows that the connection is lost, and the answers tell the host's clock."""
FIRST_PINGS = 8
"""Pings of a worker on another host that follow each other once it has loaded, so that its host's clock is known."""
NEXT_PINGS = 3
"""Such pings from then on, of one worker of the host each time: those after the first one find both processes awake,
and take less time."""
TOGETHER = 0.1
"""Workers on other hosts whose pings are due within so many seconds are pinged together, as each turn takes longer than
its pings."""
CONNECT = "connect"
"""Phase of a worker that has loaded and isn't ready yet."""
CONNECT_DEADLINES = 3
"""Deadline for connecting, in multiples of `step_deadline`: peers read greetings and answers only between steps."""

STARTING = 0
"""Process id of a worker that was asked for and is not known to exist yet."""

State = Literal["starting", "loading", "warming", "ready", "lost", "failed"]


@dataclass(slots=True)
class RankRecord:
    rank: Rank
    host: str = ""
    """As the plan names it; empty: this one."""
    state: State = "starting"
    start: int = 0
    pid: int | None = None
    """`STARTING` at first; None if there is no process."""
    peer: m.Peer | None = None
    phase: str = ""
    fraction: float = 0.0
    loaded: float | None = None
    """Time at which it had loaded."""
    connected: Mapping[Rank, int] = field(default_factory=dict[Rank, int])
    """Rank -> start of the ranks that it reports to be connected with, in both directions."""
    reason: str | None = None
    """Why it is not ready, or was not before its restart."""
    fault: str | None = None
    """The reason for this start's end, if it is known before the end."""
    heard: float = 0.0
    asked: float | None = None
    """Time of the first unanswered ping."""
    pinged: float = 0.0
    """Time of the last ping."""
    pings_left: int = 0
    """Pings that each follow an answer at once."""
    retry: float | None = None
    """Time of its next start."""
    deaths: list[float] = field(default_factory=list[float])
    refused: int = 0
    """Starts in a row that were not possible."""
    restarts: int = 0
    served: bool = False
    """True if this start has completed its part of a run, so that its death does not count as a crash loop."""
    hopeless: bool = False
    killed: bool = False
    shards: tuple[Rank, ...] = ()
    """Ranks that hold shards of the same nodes, this one among them. They are loaded together and end together."""
    parted: bool = False
    """True if a connection with it is lost: nothing of it counts any more but its end."""
    ordered: bool = False
    """True if this start was told what to load."""
    away: bool = False
    """True if it waits for its host, until that has started it again."""

    @property
    def repeats(self) -> bool:
        """True if it repeats another shard: nothing is sent to it but by that one."""
        return bool(self.shards) and self.shards[0] != self.rank

    def spawn(self, start: int, now: float) -> Command:
        self.start, self.pid, self.heard, self.retry = start, STARTING, now, None
        self.state, self.fault = "starting", None
        self.served = self.hopeless = self.killed = self.parted = self.ordered = False
        return Spawn(self.rank, start)

    def forget(self) -> None:
        """Forgets what it had loaded and whom it had reached, as it is lost."""
        self.peer, self.asked = None, None
        self.state, self.phase, self.fraction = "lost", "", 0.0
        self.loaded, self.connected, self.pings_left = None, {}, 0

    def kill(self) -> Command:
        self.killed = True
        return Kill(self.rank)

    def reaches(self, other: "RankRecord") -> bool:
        """True if both have reported that they are connected with each other's current start. Shards that repeat
        another are connected with that one alone, which loads with them."""
        if self is other or self.repeats or other.repeats:
            return True
        return self.connected.get(other.rank) == other.start and other.connected.get(self.rank) == self.start


class Watchdog:
    """Pings silent workers, and kills those that don't answer or can't be connected."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._pings = 0
        self._clocks = HostClocks()
        self._measured: dict[str, float] = {}
        """Host -> when its clock was last measured by `NEXT_PINGS`."""

    def due(self, worker: RankRecord) -> float:
        """Time of a worker's restart, or at which `watch` must act on it, unless it sends a message before."""
        retry = float("inf") if worker.retry is None else worker.retry
        if worker.pid is None or worker.killed:
            return retry
        return min(retry, self._deadline(worker), self._connect_deadline(worker), self._ping_time(worker))

    def watch(self, worker: RankRecord, others: Iterable[RankRecord], now: float) -> Iterable[Command]:
        if now >= self._connect_deadline(worker):
            unreached = ", ".join(
                f"rank {other.rank}" for other in others if other.loaded is not None and not worker.reaches(other)
            )
            worker.fault = f"the worker of rank {worker.rank} can't be connected with {unreached}"
            yield worker.kill()
        elif now >= self._deadline(worker):
            worker.fault = f"the worker of rank {worker.rank} didn't answer for {now - worker.heard:.0f} s"
            yield worker.kill()
        elif now >= self._ping_time(worker) - (TOGETHER if worker.host else 0.0):
            if worker.loaded is not None and now >= self._measured.get(worker.host, 0.0) + PING_SECONDS - TOGETHER:
                self._measured[worker.host] = now
                worker.pings_left = max(worker.pings_left, NEXT_PINGS - 1)
            yield self._ping(worker, now)

    def loaded(self, worker: RankRecord, now: float) -> list[Command]:
        """Pings a worker on another host that has loaded."""
        worker.pings_left = FIRST_PINGS - 1
        return [self._ping(worker, now)] if worker.host else []

    def answered(self, worker: RankRecord, pong: m.Pong, now: float) -> list[Command]:
        """Takes the clock of another host from a worker's answer, and pings on if that is due."""
        if not worker.host or worker.loaded is None:
            return []
        self._clocks.answered(pong.number, pong.at, now)
        if not worker.pings_left:
            return []
        worker.pings_left -= 1
        return [self._ping(worker, now)]

    def _ping(self, worker: RankRecord, now: float) -> Command:
        worker.pinged = now
        if worker.loaded is not None and worker.asked is None:
            worker.asked = now
        self._pings += 1
        if worker.host:
            self._clocks.asked(self._pings, worker.host, now)
        return ToRank(worker.rank, m.Ping(number=self._pings, clock=self._clocks.clock(worker.host)))

    def _ping_time(self, worker: RankRecord) -> float:
        if worker.host:
            return worker.pinged + PING_SECONDS if worker.peer is not None else float("inf")
        return worker.heard + PING_SECONDS if worker.loaded is not None and worker.asked is None else float("inf")

    def _deadline(self, worker: RankRecord) -> float:
        if worker.loaded is None:
            return worker.heard + self._limits.load_deadline
        if worker.asked is None:
            return float("inf")
        return worker.asked + self._limits.step_deadline

    def _connect_deadline(self, worker: RankRecord) -> float:
        if worker.loaded is None or worker.state == "ready":
            return float("inf")
        return worker.loaded + CONNECT_DEADLINES * self._limits.step_deadline
