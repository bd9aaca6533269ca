"""The workers' lives: started, loaded, connected, watched, restarted with growing pauses, given up. Knows nothing of
runs.

    starting ──Hello──> loading, warming ──Ready──> connecting ──Connected──> ready

A rank is ready once it and every other rank that has loaded have told that they reach each other's present start: ranks
that are ready are connected with each other.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Literal

from walkgraph.conductor.events import Command, Kill, Spawn, ToRank
from walkgraph.ids import Rank
from walkgraph.placement.tables import Plan
from walkgraph.wire import messages as m
from walkgraph.wire.spec import Limits

PING_SECONDS = 0.5
"""A worker that has loaded and was silent for so long is asked whether it still turns."""
CONNECT = "connect"
"""Phase of a worker that has loaded and isn't ready."""
CONNECT_DEADLINES = 3
"""Times `step_deadline` in which it must be: a peer reads a greeting, and an answer, between two steps."""
HOPELESS = frozenset({"refused", "invalid_input", "not_found", "conflict"})
"""Codes of a failed load that would fail again in the same way."""

State = Literal["starting", "loading", "warming", "ready", "lost", "failed"]


@dataclass(slots=True)
class _Worker:
    rank: Rank
    state: State = "starting"
    start: int = 0
    pid: int | None = None
    peer: m.Peer | None = None
    phase: str = ""
    fraction: float = 0.0
    loaded: float | None = None
    """When it was."""
    connected: Mapping[Rank, int] = field(default_factory=dict[Rank, int])
    """Starts of the ranks that it reaches, and that reach it, as it says."""
    reason: str | None = None
    """Why it is not ready, or was not before."""
    fault: str | None = None
    """What is known of why this start ends, before it does."""
    heard: float = 0.0
    asked: float | None = None
    """When the ping was sent that waits for its answer."""
    retry: float | None = None
    """When it will be started anew."""
    deaths: list[float] = field(default_factory=list[float])
    restarts: int = 0
    served: bool = False
    """This start has ended a run well: its death begins no loop of crashes."""
    hopeless: bool = False
    killed: bool = False


class Ranks:
    def __init__(self, plan: Plan, limits: Limits) -> None:
        self._plan, self._limits = plan, limits
        self._workers = {rank.rank: _Worker(rank.rank) for rank in plan.ranks}
        self._starts = 0
        self._pings = 0
        self._given_up = False
        self.were_ready = False
        """All of them, at a time."""

    # ── what they are ──

    def ready(self, rank: Rank) -> bool:
        return self._workers[rank].state == "ready"

    def loaded(self, rank: Rank) -> bool:
        return self._workers[rank].loaded is not None

    @property
    def all_ready(self) -> bool:
        return all(worker.state == "ready" for worker in self._workers.values())

    @property
    def alive(self) -> list[Rank]:
        """Those with a process."""
        return [worker.rank for worker in self._workers.values() if worker.pid is not None]

    @property
    def failure(self) -> str | None:
        """Why the deployment can't go on."""
        return next((w.reason for w in self._workers.values() if w.state == "failed"), None)

    def status(self) -> tuple[m.RankStatus, ...]:
        return tuple(
            m.RankStatus(
                rank=w.rank,
                state=w.state,
                phase=w.phase,
                fraction=w.fraction,
                pid=w.pid,
                restarts=w.restarts,
                reason=w.reason,
            )
            for w in self._workers.values()
        )

    def current(self, rank: Rank, start: int) -> bool:
        """Whether a message of this start is still of interest."""
        worker = self._workers.get(rank)
        return worker is not None and worker.start == start and worker.pid is not None

    # ── what happens ──

    def begin(self, now: float) -> list[Command]:
        return [self._spawn(worker, now) for worker in self._workers.values()]

    def spawned(self, rank: Rank, start: int, pid: int, now: float) -> None:
        worker = self._workers[rank]
        if worker.start == start:
            worker.pid, worker.heard = pid, now

    def heard(self, rank: Rank, message: m.FromWorker, now: float) -> list[Command]:
        """Any message is a sign of life; those about the worker itself move it on."""
        worker = self._workers[rank]
        worker.heard, worker.asked = now, None
        match message:
            case m.Hello(peer=peer):
                worker.peer, worker.state, worker.phase = peer, "loading", "load"
                return self._introduce(worker)
            case m.Progress(phase=phase, fraction=fraction):
                worker.phase, worker.fraction = phase, fraction
                worker.state = "loading" if phase == "load" else "warming"
            case m.Ready():
                worker.loaded, worker.state, worker.phase, worker.fraction = now, "warming", CONNECT, 1.0
                self._connect()
            case m.Connected(peers=peers):
                worker.connected = peers
                self._connect()
            case m.LoadFailed(error=error):
                worker.fault = f"rank {rank} can't load: {error.message}"
                worker.hopeless = error.code in HOPELESS
            case m.Faulted(error=error):
                worker.fault = error.message
            case m.RankDone():
                worker.served = True
            case _:
                pass
        return []

    def died(self, rank: Rank, start: int, code: int, now: float) -> bool:
        """False for a start that was already known to be over."""
        worker = self._workers[rank]
        if worker.start != start or worker.pid is None:
            return False
        end = f"was killed by signal {-code}" if code < 0 else f"ended with status {code}"
        worker.reason = worker.fault or f"the worker of rank {rank} {end}"
        worker.pid, worker.peer, worker.asked = None, None, None
        worker.state, worker.phase, worker.fraction = "lost", "", 0.0
        worker.loaded, worker.connected = None, {}
        self._connect()  # nobody waits for it
        recent = [at for at in worker.deaths if now - at < self._limits.restart_window and not worker.served]
        worker.deaths = [*recent, now]
        if worker.hopeless or len(recent) >= self._limits.restarts:
            worker.state, worker.retry = "failed", None
        elif not self._given_up:
            pause = min(self._limits.backoff_last, self._limits.backoff_first * 2 ** len(recent))
            worker.retry = now + pause
        return True

    def tick(self, now: float) -> list[Command]:
        """Restarts that are due, questions to the silent, an end to those that don't answer."""
        commands: list[Command] = []
        for worker in self._workers.values():
            if worker.pid is None:
                if worker.retry is not None and now >= worker.retry:
                    worker.restarts += 1
                    commands.append(self._spawn(worker, now))
            elif not worker.killed:
                commands.extend(self._watch(worker, now))
        return commands

    def due(self) -> float:
        """When something is to be done next."""
        times = [w.retry for w in self._workers.values() if w.retry is not None]
        for worker in self._workers.values():
            if worker.pid is not None and not worker.killed:
                times.append(min(self._deadline(worker), self._connect_deadline(worker)))
        return min(times, default=float("inf"))

    def give_up(self) -> None:
        """Start nothing anew."""
        self._given_up = True
        for worker in self._workers.values():
            worker.retry = None

    def kill_all(self) -> list[Command]:
        return [self._kill(w) for w in self._workers.values() if w.pid is not None and not w.killed]

    # ── inside ──

    def _spawn(self, worker: _Worker, now: float) -> Command:
        self._starts += 1
        worker.start, worker.heard, worker.retry = self._starts, now, None
        worker.state, worker.fault = "starting", None
        worker.served = worker.hopeless = worker.killed = False
        return Spawn(worker.rank, self._starts)

    def _introduce(self, worker: _Worker) -> list[Command]:
        peers = {w.rank: w.peer for w in self._workers.values() if w.peer is not None}
        known = (w.rank for w in self._workers.values() if w.peer is not None and w is not worker)
        load = ToRank(worker.rank, m.Load(plan=self._plan, peers=peers))
        return [load, *(ToRank(rank, m.Peers(peers=peers)) for rank in known)]

    def _connect(self) -> None:
        loaded = [worker for worker in self._workers.values() if worker.loaded is not None]
        for worker in loaded:
            if worker.state != "ready" and all(_reach(worker, other) for other in loaded):
                worker.state, worker.phase, worker.fraction, worker.reason = "ready", "", 1.0, None
        self.were_ready = self.were_ready or self.all_ready

    def _watch(self, worker: _Worker, now: float) -> Iterable[Command]:
        if now >= self._connect_deadline(worker):
            worker.fault = f"the worker of rank {worker.rank} can't be connected with {self._unreached(worker)}"
            yield self._kill(worker)
        elif worker.loaded is not None and worker.asked is None:
            if now - worker.heard >= PING_SECONDS:
                worker.asked = now
                self._pings += 1
                yield ToRank(worker.rank, m.Ping(number=self._pings))
        elif now >= self._deadline(worker):
            worker.fault = f"the worker of rank {worker.rank} didn't answer for {now - worker.heard:.0f} s"
            yield self._kill(worker)

    def _deadline(self, worker: _Worker) -> float:
        if worker.loaded is None:
            return worker.heard + self._limits.load_deadline
        if worker.asked is None:
            return worker.heard + PING_SECONDS
        return worker.asked + self._limits.step_deadline

    def _connect_deadline(self, worker: _Worker) -> float:
        if worker.loaded is None or worker.state == "ready":
            return float("inf")
        return worker.loaded + CONNECT_DEADLINES * self._limits.step_deadline

    def _unreached(self, worker: _Worker) -> str:
        others = (other for other in self._workers.values() if other.loaded is not None)
        return ", ".join(f"rank {other.rank}" for other in others if not _reach(worker, other))

    def _kill(self, worker: _Worker) -> Command:
        worker.killed = True
        return Kill(worker.rank)


def _reach(one: _Worker, other: _Worker) -> bool:
    """Each reaches the other, which both have told."""
    if one is other:
        return True
    return one.connected.get(other.rank) == other.start and other.connected.get(one.rank) == one.start
