"""The plan that a deployment serves, and the way to another one in the same processes.

ending ──no run is left──> loading ──all ranks ready──> over
                              └──a rank can't load, or dies──> the former plan is loaded
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from walkgraph.conductor.events import Command, Rename, ToRank, ToService
from walkgraph.conductor.itinerary_cache import ItineraryCache
from walkgraph.conductor.ranks import Ranks
from walkgraph.conductor.replicas.choice import ReplicaChoice
from walkgraph.conductor.runs.admission import AdmissionRules
from walkgraph.conductor.runs.page_budget import PageBudget
from walkgraph.conductor.runs.runs import Runs
from walkgraph.conductor.runs.sessions import Sessions
from walkgraph.conductor.runs.watching import Watching
from walkgraph.errors import ErrorInfo
from walkgraph.graph import codec
from walkgraph.ids import Rank
from walkgraph.placement.succession import same_processes
from walkgraph.wire import messages as m


def itineraries_of(message: m.TakeUp) -> ItineraryCache:
    return ItineraryCache(codec.load(message.graph), message.plan)


class ServedPlan:
    """A graph and its plan, with everything that depends on the two."""

    def __init__(self, itineraries: ItineraryCache, ranks: Ranks, running: int, name: str) -> None:
        """`itineraries`: those of the graph and the plan. `running`: the most runs admitted at a time. `name`: its name
        in telemetry; empty: the spec's."""
        self.graph, self.plan, self.name = itineraries.graph, itineraries.plan, name
        self.itineraries, self.pages, self.watching = itineraries, PageBudget(self.plan), Watching(self.plan)
        sessions = Sessions()
        replicas = ReplicaChoice(itineraries, self.pages, sessions, ranks.ready)
        self.runs = Runs(self.pages, sessions, replicas, AdmissionRules(running, self.watching.steps))


@dataclass(slots=True)
class _Change:
    number: int
    wanted: ServedPlan
    former: ServedPlan
    state: Literal["ending", "loading"] = "ending"

    def told(self, error: ErrorInfo | None = None) -> Command:
        return ToService(m.TakenUp(number=self.number, error=error))


class TakingUp:
    def __init__(
        self,
        served: ServedPlan,
        ranks: Ranks,
        running: int,
        read: Callable[[m.TakeUp], ItineraryCache] = itineraries_of,
    ) -> None:
        """`served`: the first plan. `running`: the most runs admitted at a time. `read`: makes the itineraries of a
        graph and plan that are to be taken up."""
        self.served = served
        self._ranks, self._running, self._read = ranks, running, read
        self._change: _Change | None = None

    @property
    def ending(self) -> bool:
        """True while the last runs of a plan end, and no other may begin."""
        return self._change is not None and self._change.state == "ending"

    def begin(self, message: m.TakeUp, refused: str | None, now: float) -> list[Command]:
        """Begins to take up another plan: ends all runs first. `refused`: why the deployment can't."""
        if refused is None and self._change is not None:
            refused = "another plan is being taken up"
        if refused is None and not same_processes(self.served.plan, message.plan):
            refused = "the plan has other ranks"
        if refused is not None:
            error = ErrorInfo(code="refused", message=refused)
            return [ToService(m.TakenUp(number=message.number, error=error))]
        wanted = ServedPlan(self._read(message), self._ranks, self._running, message.telemetry_name)
        self._change = _Change(message.number, wanted, self.served)
        return self.served.runs.end_all("cancelled", now, "the graph that it runs was changed")

    def go_on(self) -> list[Command]:
        """Takes the next step, if it is time for it."""
        change = self._change
        if change is None:
            return []
        if change.state == "ending" and not len(self.served.runs.table):
            change.state = "loading"
            return self._load(change.wanted)
        if change.state == "loading" and self._ranks.settled:
            self._change = None
            return [change.told()]
        return []

    def loaded(self, rank: Rank, message: m.Ready | m.LoadFailed, now: float) -> list[Command]:
        """Handles the end of a rank's load."""
        if not self._ranks.orders.are_for(message):
            return []
        if isinstance(message, m.LoadFailed):
            # Without a plan to go back to, a worker that has served another one would wait for an order.
            return self._give_up(message.error, now) or [ToRank(rank, m.Stop())]
        self.served.pages.set_pools(rank, message.pools)
        watch = self.served.watching.watch
        return [ToRank(rank, watch)] if watch is not None else []

    def rank_lost(self, rank: Rank, now: float) -> list[Command]:
        if self._change is None or self._change.state == "ending":
            return []
        return self._give_up(ErrorInfo(code="worker_lost", message=f"the worker of rank {rank} was lost"), now)

    def failed(self, reason: str) -> list[Command]:
        """Handles the failure of the deployment."""
        change, self._change = self._change, None
        return [change.told(ErrorInfo(code="refused", message=reason))] if change is not None else []

    def _give_up(self, error: ErrorInfo, now: float) -> list[Command]:
        """Returns to the former plan."""
        change = self._change
        if change is None or change.state == "ending":
            return []
        ended = self.served.runs.end_all("refused", now, "the graph that it runs could not be loaded")
        self._change = None
        return [*ended, *self._load(self._without_sessions(change.former)), change.told(error)]

    def _without_sessions(self, former: ServedPlan) -> ServedPlan:
        """A plan that is loaded again: what its sessions kept is gone."""
        anew = ServedPlan(former.itineraries, self._ranks, self._running, former.name)
        anew.watching.watch = former.watching.watch
        return anew

    def _load(self, plan: ServedPlan) -> list[Command]:
        self.served = plan
        return [Rename(plan.name), *self._ranks.load(plan.plan, plan.name)]
