"""Finds stalled runs by probing their ranks after some seconds of silence.

    silent for QUIET_SECONDS ──> Probe to its ranks ──> Probed by all ──> at rest ──> Probe ... ──> stalled

A run is at rest if no engine has work of it that can go on, and no rank has a message to send. (Work that waits for
other runs, a batch or a row counts as the engine's.) If it is at rest in two probes, with as many messages received as
sent and equal counts in both, no message was under way between them: only something from outside could move it. If
messages stay missing, they were lost.

A rank answers between two steps of its engine, so one in a long call answers after it. Runs that make progress are not
probed; for silent ones, each of their ranks is probed once every few seconds.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from walkgraph.conductor.events import Command, ToRank
from walkgraph.errors import ErrorInfo
from walkgraph.ids import Rank, RunId
from walkgraph.wire import messages as m
from walkgraph.wire.standing import Held, Probe, Standing, Wait

QUIET_SECONDS = 3.0
"""Silence of a run before its ranks are probed, and time between two probes while it isn't at rest."""
AGAIN_SECONDS = 1.0
"""Time from a probe in which a run was at rest to the next."""
PROBES = 2
"""Consecutive probes at rest after which a run has stalled."""
LOST_PROBES = 10
"""The same if messages are missing."""

_NEVER = float("inf")


class QuietRun(NamedTuple):
    """A run that should make progress."""

    run: RunId
    ranks: frozenset[Rank]
    heard: float
    """Time of the last message about it from or to its ranks."""


class _Counts(NamedTuple):
    """Messages of a run between its ranks, summed over the ranks."""

    sent: int
    received: int


class _Rest(NamedTuple):
    """A run that was at rest in the last probes."""

    heard: float
    counts: _Counts
    probes: int


class Stalls:
    def __init__(self) -> None:
        self._look = _NEVER
        """Time of the next check for quiet runs."""
        self._number = 0
        self._asked: dict[RunId, QuietRun] = {}
        """Runs of the current probe."""
        self._missing: set[Rank] = set()
        """Ranks that have not answered the current probe."""
        self._answers: dict[Rank, m.Probed] = {}
        self._resting: dict[RunId, _Rest] = {}

    @property
    def due(self) -> float:
        return self._look

    def begin(self, now: float) -> None:
        """Notes that a run starts or goes on."""
        if not self._missing:
            self._look = min(self._look, now + QUIET_SECONDS)

    def tick(self, runs: Iterable[QuietRun], now: float) -> list[Command]:
        """Probes the ranks of quiet runs, if that is due. `runs`: those that should make progress."""
        if now < self._look:
            return []
        all_ = {run.run: run for run in runs}
        self._asked = {name: run for name, run in all_.items() if now >= run.heard + QUIET_SECONDS}
        if not self._asked:
            self._resting.clear()
            self._look = min((run.heard for run in all_.values()), default=_NEVER) + QUIET_SECONDS
            return []
        self._number += 1
        self._look, self._answers = _NEVER, {}
        self._missing = {rank for run in self._asked.values() for rank in run.ranks}
        return [ToRank(rank, Probe(number=self._number, runs=self._of(rank))) for rank in sorted(self._missing)]

    def probed(self, message: m.Probed, now: float) -> list[tuple[QuietRun, ErrorInfo]]:
        """Handles a rank's answer. Returns the stalled runs, each with its error, which applies if it has still been
        quiet since."""
        if message.number != self._number or message.rank not in self._missing:
            return []
        self._missing.discard(message.rank)
        self._answers[message.rank] = message
        if self._missing:
            return []
        resting: dict[RunId, _Rest] = {}
        stalled: list[tuple[QuietRun, ErrorInfo]] = []
        for run in self._asked.values():
            parts = self._parts(run)
            if len(parts) < len(run.ranks) or any(part.busy for part in parts.values()):
                continue
            counts, before = _counts(parts.values()), self._resting.get(run.run)
            same = before is not None and (before.heard, before.counts) == (run.heard, counts)
            rest = resting[run.run] = _Rest(run.heard, counts, before.probes + 1 if before and same else 1)
            lost = counts.sent - counts.received
            if rest.probes >= (LOST_PROBES if lost else PROBES):
                stalled.append((run, _error(parts, lost)))
        self._resting = resting
        self._look = now + (AGAIN_SECONDS if resting else QUIET_SECONDS)
        return stalled

    def rank_lost(self, rank: Rank, now: float) -> None:
        """Gives up the current probe if the rank has not answered it."""
        if rank in self._missing:
            self._missing.clear()
            self._look = now + QUIET_SECONDS

    def _of(self, rank: Rank) -> tuple[RunId, ...]:
        return tuple(name for name, run in self._asked.items() if rank in run.ranks)

    def _parts(self, run: QuietRun) -> dict[Rank, Standing]:
        answers = ((rank, self._answers[rank].runs) for rank in sorted(run.ranks))
        return {rank: one for rank, told in answers for one in told if one.run == run.run}


def _counts(parts: Iterable[Standing]) -> _Counts:
    there = tuple(parts)
    return _Counts(sum(part.sent for part in there), sum(part.received for part in there))


def _error(parts: Mapping[Rank, Standing], lost: int) -> ErrorInfo:
    held = [(rank, one) for rank, part in parts.items() for one in part.held]
    waits = [(rank, one) for rank, part in parts.items() for one in part.waits]
    rank, wait = _first(waits)
    if held:
        why = _of_held(*held[0])
        rank = held[0][0]
    elif lost:
        why = f"of the messages between its ranks, {lost} never arrived"
    else:
        why = "all its messages have arrived"
    where = "" if wait is None else f"; {_of_wait(wait)}"
    return ErrorInfo(
        code="stalled",
        message=f"the run has stalled, with no work or message under way: {why}{where}. Send it again, and report it",
        use=wait.use if wait else None,
        port=wait.port or None if wait else None,
        walk=wait.walk if wait else None,
        iteration=wait.iteration if wait else (),
        rank=rank,
    )


def _first(waits: Sequence[tuple[Rank, Wait]]) -> tuple[Rank | None, Wait | None]:
    """The wait at the root of the others: its source doesn't wait for anything itself."""
    waiting = {(one.walk, one.use) for _, one in waits}
    found = [(rank, one) for rank, one in waits if (one.walk, one.source.partition(".")[0]) not in waiting]
    return next(iter(found or waits), (None, None))


def _of_held(rank: Rank, held: Held) -> str:
    what = f"`{held.edge}`" if held.edge else "a message"
    return f"rank {rank} holds {what} for rank {held.to}, which it doesn't know"


def _of_wait(wait: Wait) -> str:
    place = f"`{wait.use}.{wait.port}`" if wait.port else f"`{wait.use}`"
    return f"{place} of Walk `{wait.walk}` waits for {wait.source}"
