"""The life cycle of workers: start, load, connect, watch, restart with growing pauses, give up. Independent of runs.

    starting ──Hello──> loading, warming ──Ready──> connecting ──Connected──> ready

A rank whose host can't be reached is not given up: it is tried again until its host is back.

A rank is ready once it and every other loaded rank have reported that they reach each other's current start. So all
ready ranks are connected with each other.
"""

import signal
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from itertools import count

from walkgraph.conductor.events import Command, Died, ToRank
from walkgraph.conductor.watchdog import CONNECT, RankRecord, Watchdog
from walkgraph.ids import Rank
from walkgraph.placement.tables import Plan
from walkgraph.wire import messages as m
from walkgraph.wire.spec import Limits

HOPELESS = frozenset({"refused", "invalid_input", "not_found", "conflict"})
"""Error codes of loads that would fail again in the same way."""

_News = m.Hello | m.Progress | m.Ready | m.Connected | m.LoadFailed | m.Faulted
"""Messages that change a worker's status."""
_TELLS_NOTHING = (None, 0, -signal.SIGKILL)
"""Exit statuses of a worker that was cut off: it stops or is killed for that."""
_DOUBLINGS = 16
"""How often a pause is doubled at most."""


@dataclass(frozen=True)
class LoadOrders:
    """The plan that workers are to load."""

    plan: Plan
    name: str
    """Its name in telemetry; empty: the spec's."""
    number: int = 0
    """Counts the plans."""

    @property
    def replicated(self) -> bool:
        """True if a run may go on one of several sets of ranks."""
        return len(self.plan.alternatives) > 1

    def next(self, plan: Plan, name: str) -> "LoadOrders":
        return LoadOrders(plan, name, self.number + 1)

    def order(self, workers: Iterable[RankRecord], worker: RankRecord) -> m.Load:
        """The order for one of the workers."""
        known = {one.rank: one for one in workers}
        peers = {rank: one.peer for rank, one in known.items() if one.peer is not None and not one.repeats}
        shards = {rank: known[rank].start for rank in worker.shards}
        return m.Load(plan=self.plan, peers=peers, number=self.number, telemetry_name=self.name, shards=shards)

    def are_for(self, message: m.Ready | m.LoadFailed) -> bool:
        """False for news of the load of an earlier plan."""
        return message.number == self.number


class _Summary:
    """The status of all workers, and when something is due. Hundreds of messages a second change neither."""

    def __init__(self, workers: Collection[RankRecord], watchdog: Watchdog) -> None:
        self._workers, self._watchdog = workers, watchdog
        self._status: tuple[m.RankStatus, ...] | None = None
        """None once it may have changed."""
        self.due = float("inf")
        """Nothing is due before."""

    def status(self) -> tuple[m.RankStatus, ...]:
        if self._status is None:
            self._status = tuple(
                m.RankStatus(
                    rank=w.rank,
                    state=w.state,
                    phase=w.phase,
                    fraction=w.fraction,
                    pid=w.pid or None,
                    restarts=w.restarts,
                    reason=w.reason,
                    away=w.away,
                )
                for w in self._workers
            )
        return self._status

    def changed(self, *workers: RankRecord) -> None:
        """Note that the status of workers may have changed, or that something may be due earlier."""
        self._status = None
        for worker in workers:
            self.hurried(worker)

    def hurried(self, worker: RankRecord) -> None:
        """Note that something may be due earlier."""
        self.due = min(self.due, self._watchdog.due(worker))

    def ticked(self) -> None:
        """Note that what was due is done."""
        self.due = float("inf")
        self.changed(*self._workers)


class Ranks:
    def __init__(self, plan: Plan, limits: Limits, name: str = "") -> None:
        """`name`: the plan's name in telemetry; empty: the spec's."""
        self._limits = limits
        self.orders = LoadOrders(plan, name)
        self._workers = {rank.rank: RankRecord(rank.rank, rank.host, shards=rank.shards) for rank in plan.ranks}
        self._starts = count(1)
        self._watchdog = Watchdog(limits)
        self._given_up = False
        self._summary = _Summary(self._workers.values(), self._watchdog)
        self.were_ready = False
        """True once all ranks that haven't failed were ready at the same time."""

    # ── state ──

    def ready(self, rank: Rank) -> bool:
        return self._workers[rank].state == "ready"

    def loaded(self, rank: Rank) -> bool:
        return self._workers[rank].loaded is not None

    @property
    def alive(self) -> list[Rank]:
        """Ranks that have a process."""
        return [worker.rank for worker in self._workers.values() if worker.pid is not None]

    @property
    def failure(self) -> str | None:
        """The reason that the deployment has failed; None while replicas without failed ranks can serve."""
        failed = {worker.rank: worker.reason for worker in self._workers.values() if worker.state == "failed"}
        plan = self.orders.plan
        if failed.keys() <= plan.replicated and any(failed.keys().isdisjoint(one.ranks) for one in plan.alternatives):
            return None
        return next(iter(failed.values()), None)

    @property
    def settled(self) -> bool:
        """True if no rank is still to become ready, and runs can be served."""
        over = all(worker.state in ("ready", "failed") for worker in self._workers.values())
        return over and any(all(map(self.ready, one.ranks)) for one in self.orders.plan.alternatives)

    def status(self) -> tuple[m.RankStatus, ...]:
        return self._summary.status()

    def current(self, rank: Rank, start: int) -> bool:
        """True if this is the rank's current start and its process lives; messages of other starts are ignored."""
        worker = self._workers.get(rank)
        return worker is not None and worker.start == start and worker.pid is not None and not worker.parted

    # ── events ──

    def begin(self, now: float) -> list[Command]:
        commands = [worker.spawn(next(self._starts), now) for worker in self._workers.values()]
        self._summary.changed(*self._workers.values())
        return commands

    def load(self, plan: Plan, name: str) -> list[Command]:
        """Has every worker load another plan, of the same ranks. `name`: its name in telemetry."""
        self.orders = self.orders.next(plan, name)
        commands: list[Command] = []
        for worker in self._workers.values():
            worker.loaded, worker.fault, worker.hopeless = None, None, False
            if worker.peer is not None:
                worker.state, worker.phase, worker.fraction = "loading", "load", 0.0
                commands.append(ToRank(worker.rank, self.orders.order(self._workers.values(), worker)))
        self._summary.changed(*self._workers.values())
        return commands

    def spawned(self, rank: Rank, start: int, pid: int, now: float) -> None:
        worker = self._workers[rank]
        if worker.start == start:
            worker.pid, worker.heard, worker.away = pid, now, False
            self._summary.changed(worker)

    def heard(self, rank: Rank, message: m.FromWorker, now: float) -> list[Command]:
        """Handles a worker's message: any is a sign of life; those about the worker itself change its state."""
        worker, commands = self._workers[rank], list[Command]()
        answers = worker.asked is not None
        worker.heard, worker.asked = now, None
        match message:
            case m.Hello(peer=peer):
                worker.peer, worker.state, worker.phase = peer, "loading", "load"
                commands = self._introduce(worker)
            case m.Progress(phase=phase, fraction=fraction):
                worker.phase, worker.fraction = phase, fraction
                worker.state = "loading" if phase == "load" else "warming"
            case m.Ready() if self.orders.are_for(message):
                worker.loaded, worker.state, worker.phase, worker.fraction = now, "warming", CONNECT, 1.0
                self._connect()
                commands = self._watchdog.loaded(worker, now)
            case m.Pong():
                commands = self._watchdog.answered(worker, message, now)
            case m.Connected(peers=peers):
                worker.connected = peers
                self._connect()
            case m.LoadFailed(error=error) if self.orders.are_for(message):
                worker.fault = f"rank {rank} can't load: {error.message}"
                worker.hopeless = error.code in HOPELESS
            case m.Faulted(error=error):
                worker.fault = error.message
            case m.RankDone():
                for one in worker.shards or (rank,):
                    self._workers[one].served = True
            case _:
                pass
        if isinstance(message, _News):
            self._summary.changed(worker)
        elif answers or commands:
            self._summary.hurried(worker)
        return commands

    def died(self, event: Died, now: float) -> list[Command] | None:
        """Handles a worker's exit. Returns None if the start had ended already."""
        worker = self._workers[event.rank]
        if worker.start != event.start or worker.pid is None:
            return None
        if worker.parted and event.code not in _TELLS_NOTHING:
            worker.fault, worker.away = None, False
        worker.reason = worker.fault or event.reason or f"the worker of rank {event.rank} {_end(event.code)}"
        worker.pid = None
        worker.forget()
        self._connect()  # ranks that waited only for it are ready now
        recent = [at for at in worker.deaths if now - at < self._limits.restart_window and not worker.served]
        doublings = min(_DOUBLINGS, len(recent) + worker.refused)
        if event.reason:  # it has not died, but waits for its host
            worker.deaths, worker.refused, worker.away = recent, worker.refused + 1, True
        else:
            worker.deaths, worker.refused = [*recent, now], 0
        if worker.hopeless or (len(recent) >= self._limits.restarts and not event.reason):
            worker.state, worker.retry = "failed", None
            self.were_ready = self.were_ready or self.settled
        elif not self._given_up:
            pause = min(self._limits.backoff_last, self._limits.backoff_first * 2**doublings)
            # One that has served dies for a reason of its own, not at every start.
            worker.retry = now if worker.served else now + pause
        self._summary.changed(worker)
        return list(_taken_along(worker, [self._workers[other] for other in worker.shards]))

    def parted(self, rank: Rank, start: int) -> list[Command] | None:
        """Handles the loss of a connection with a worker: between hosts, it takes messages with it. The worker is not
        started again before its end is told. Returns None if it has not said hello, or its start has ended already."""
        if not self.current(rank, start) or self._workers[rank].peer is None:
            return None
        worker = self._workers[rank]
        where = f": see that host `{worker.host}` runs and is reached, and it is started again" if worker.host else ""
        worker.fault = worker.fault or f"rank {rank} has ended or is cut off{where}"
        worker.reason, worker.parted, worker.away = worker.fault, True, bool(worker.host)
        worker.forget()
        self._connect()  # ranks that waited only for it are ready now
        self._summary.changed(worker)
        killed = [] if worker.killed else [worker.kill()]
        return [*killed, *_taken_along(worker, [self._workers[other] for other in worker.shards])]

    def tick(self, now: float) -> list[Command]:
        """Restarts workers that are due, pings silent ones, and kills those that don't answer."""
        commands: list[Command] = []
        for worker in self._workers.values():
            if worker.pid is None:
                if worker.retry is not None and now >= worker.retry:
                    worker.restarts += 1
                    commands.append(worker.spawn(next(self._starts), now))
            elif not worker.killed:
                commands.extend(self._watchdog.watch(worker, self._workers.values(), now))
        self._summary.ticked()
        return commands

    def due(self) -> float:
        """Time of the next restart, ping or kill; or earlier, if what was due has been put off since the last tick."""
        return self._summary.due

    def give_up(self) -> None:
        """Ends all restarts."""
        self._given_up = True
        for worker in self._workers.values():
            worker.retry = None

    def kill_all(self) -> list[Command]:
        return [w.kill() for w in self._workers.values() if w.pid is not None and not w.killed]

    # ── inside ──

    def _introduce(self, worker: RankRecord) -> list[Command]:
        """Tells a worker that has come what to load, and its peers of it. Shards are told once all of them are here."""
        new = [self._workers[rank] for rank in worker.shards] or [worker]
        if any(one.peer is None for one in new):
            return []
        loads = [(one.rank, self.orders.order(self._workers.values(), one)) for one in new]
        for one in new:
            one.ordered = True
        peers = loads[0][1].peers
        told = dict(loads)
        others = (rank for rank in peers if rank not in told)
        return [*(ToRank(*load) for load in loads), *(ToRank(rank, m.Peers(peers=peers)) for rank in others)]

    def _connect(self) -> None:
        loaded = [worker for worker in self._workers.values() if worker.loaded is not None]
        for worker in loaded:
            if worker.state != "ready" and all(worker.reaches(other) for other in loaded):
                worker.state, worker.phase, worker.fraction, worker.reason = "ready", "", 1.0, None
        self.were_ready = self.were_ready or self.settled


def _taken_along(dead: RankRecord, shards: Iterable[RankRecord]) -> Iterator[Command]:
    """Kills the shards that were loaded with one that has died: they can't go on."""
    for worker in shards:
        if worker.pid is not None and worker.ordered and not worker.killed:
            # What starts next must not be introduced to it.
            worker.peer, worker.fault = None, worker.fault or dead.reason
            yield worker.kill()


def _end(code: int | None) -> str:
    if code is None:
        return "ended"
    return f"was killed by signal {-code}" if code < 0 else f"ended with status {code}"
