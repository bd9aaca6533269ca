"""Drafts of traces: the telemetry of runs whose traces are not stored yet, by version of a deployment."""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace

from walkgraph.ids import RunId
from walkgraph.service.deployments.deployments import Deployments
from walkgraph.service.runs.runs import LiveRun, Runs
from walkgraph.telemetry.events import Packet
from walkgraph.telemetry.keeping import Draft, Keeper
from walkgraph.telemetry.places import Places
from walkgraph.telemetry.trace import LoopReason, Played

UNTOLD_SECONDS = 0.3
"""So long the first telemetry of a run that has ended may be under way; it is gathered before it leaves."""
SWEEP_SECONDS = 1.0
"""Time between two checks for runs whose conductor has not reported their end."""
IDLE_SECONDS = 60.0
"""The drafts of a version that is gone are dropped after so long without telemetry."""


@dataclass(slots=True)
class VersionDrafts:
    deployment: str
    keeper: Keeper
    heard: float
    """Time of its last packet."""
    suspects: dict[RunId, float] = field(default_factory=dict[RunId, float])
    """Runs that have ended for the service, but whose end the conductor has not reported, with the time they were
    noticed."""


class Drafts:
    def __init__(self, runs: Runs, deployments: Deployments, clock: Callable[[], float] = time.monotonic) -> None:
        self.clock = clock
        """The clock of events, in seconds."""
        self._runs, self._deployments = runs, deployments
        self._versions: dict[str, VersionDrafts] = {}

    def __iter__(self) -> Iterator[VersionDrafts]:
        """All versions that have sent telemetry."""
        return iter(list(self._versions.values()))

    def take(self, packet: Packet, deployment: str, nbytes: int) -> VersionDrafts:
        """Adds a packet to its version's drafts, and returns them."""
        now = self.clock()
        found = self._versions.get(packet.deployment)
        if found is None:
            plans = (known.plan for known in self._deployments.versions() if known.label == packet.deployment)
            plan = next(plans, None)
            keeper = Keeper(Places.of(plan) if plan else Places())
            found = self._versions[packet.deployment] = VersionDrafts(deployment, keeper, now)
        found.heard = now
        found.keeper.take(packet, nbytes, now)
        return found

    def find(self, run: RunId) -> tuple[Draft, str] | None:
        """A run's draft and its deployment."""
        for version in self._versions.values():
            draft = self.draft(version, run)
            if draft is not None:
                return draft, version.deployment
        return None

    def draft(self, version: VersionDrafts, run: RunId) -> Draft | None:
        draft, live = version.keeper.draft(run, self.clock()), self._runs.get(run)
        if draft is None or live is None:
            return draft
        # With telemetry off, a recorded run sends its values and nothing else.
        seen = self._seen(live)
        began = draft.began if draft.phases.keys() - {"finished"} else min(draft.began, *seen.values())
        end = live.finished
        loops = end.loops if end is not None else ()
        ends = tuple(
            LoopReason(walk=one.walk, loop=one.loop, iterations=one.iterations, reason=one.reason) for one in loops
        )
        told = end.played if end is not None else None
        played = told and Played(seconds=told.seconds, underruns=told.underruns, late=told.late)
        served = live.times.told(began)
        return replace(draft, task=live.task, began=began, seen=seen, ends=ends, played=played, served=served)

    def parent(self, run: RunId) -> str:
        """The `traceparent` of the run's request."""
        live = self._runs.get(run)
        return live.parent if live else ""

    def waits(self, run: RunId) -> bool:
        """True if the run has ended and its trace is not stored yet."""
        live = self._runs.get(run)
        ended = live is not None and live.finished is not None
        keepers = [version.keeper for version in self._versions.values() if run in version.keeper]
        return any(ended or run in keeper.ending for keeper in keepers)

    def untold(self, run: RunId) -> bool:
        """True if the run has just ended, and no telemetry of it has come yet: that of a short run comes at once."""
        live = self._runs.get(run)
        ended = live.times.ended if live is not None else None
        if ended is None or time.monotonic() - ended > UNTOLD_SECONDS:
            return False
        return not any(run in version.keeper for version in self._versions.values())

    def ended(self, deployment: str) -> list[RunId]:
        """Runs of a deployment that have ended and whose traces are not stored yet."""
        keepers = [version.keeper for version in self._versions.values() if version.deployment == deployment]
        return [run for keeper in keepers for run in (*keeper.open, *keeper.ending) if self.waits(run)]

    def end_lost(self, version: VersionDrafts, run: RunId, at: float) -> None:
        """Closes the draft of a run whose conductor reports no end. `at` is used if the service has seen no end."""
        live = self._runs.get(run)
        error = live.finished.error if live and live.finished else None
        ended_well = live is not None and live.finished is not None and error is None
        if live is not None:
            at = self._seen(live).get("finished", at)
        version.keeper.close(run, at, None if ended_well else error.code if error else "worker_lost")

    def sweep(self, now: float) -> None:
        """Closes the drafts of runs whose conductor died without reporting their end, and drops idle versions."""
        living = {known.label for known in self._deployments.versions()}
        for label, version in list(self._versions.items()):
            suspects: dict[RunId, float] = {}
            for run in version.keeper.open:
                live = self._runs.get(run)
                if live is None or live.finished is not None:
                    suspects[run] = version.suspects.get(run, now)
                    if now - suspects[run] >= SWEEP_SECONDS:
                        self.end_lost(version, run, suspects.pop(run))
            version.suspects = suspects
            idle = now - version.heard > IDLE_SECONDS and not version.keeper.open and not version.keeper.ending
            if label not in living and idle:
                del self._versions[label]

    def _seen(self, live: LiveRun) -> dict[str, float]:
        """The phases of a finished run as the service has seen them, by the clock of events."""
        end, queued = live.finished, self.clock() - live.age
        if end is None:
            return {}
        seen = {"queued": queued, "finished": queued + end.seconds}
        if end.queued < end.seconds:
            seen["started"] = queued + end.queued
        if live.first_output_after is not None:
            seen["first_output"] = queued + min(live.first_output_after, end.seconds)
        return seen
