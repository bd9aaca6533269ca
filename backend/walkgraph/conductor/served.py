"""A graph and its plan as a conductor serves them: everything that depends on the two."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from walkgraph.conductor.events import Command, Rename, ToService
from walkgraph.conductor.itinerary_cache import ItineraryCache
from walkgraph.conductor.ranks import Ranks
from walkgraph.conductor.runs.admission import AdmissionRules
from walkgraph.conductor.runs.page_budget import PageBudget
from walkgraph.conductor.runs.runs import Runs
from walkgraph.conductor.runs.watching import Watching
from walkgraph.errors import ErrorInfo
from walkgraph.graph.document import Graph
from walkgraph.ids import Rank
from walkgraph.placement.tables import Plan
from walkgraph.wire import messages as m


class Served:
    def __init__(self, graph: Graph, plan: Plan, ready: Callable[[Rank], bool], running: int, name: str) -> None:
        """`running`: the most runs admitted at a time. `name`: its name in telemetry."""
        self.graph, self.plan, self.name = graph, plan, name
        self.itineraries, self.pages, self.watching = ItineraryCache(graph, plan), PageBudget(plan), Watching(plan)
        self.runs = Runs(self.pages, AdmissionRules(ready, running, self.watching.steps))


@dataclass(slots=True)
class TakingUp:
    """The way from one served plan to another.

    ending ──no run is left──> loading ──all ranks ready──> over
                                  └──a rank can't load, or dies──> the former plan is loaded
    """

    number: int
    wanted: Served
    former: Served
    state: Literal["ending", "loading"] = "ending"

    def load(self, ranks: Ranks) -> list[Command]:
        """Has all ranks load the wanted plan."""
        self.state = "loading"
        return [Rename(self.wanted.name), *ranks.load(self.wanted.plan, self.wanted.name)]

    def give_up(self, ranks: Ranks, error: ErrorInfo) -> list[Command]:
        """Has all ranks load the former plan again."""
        return [Rename(self.former.name), *ranks.load(self.former.plan, self.former.name), self.told(error)]

    def told(self, error: ErrorInfo | None = None) -> Command:
        return ToService(m.TakenUp(number=self.number, error=error))
