"""Resolves a client's request in an alternative of the plan: its itinerary, and the values that each rank reads."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from walkgraph.conductor.itinerary_cache import Asked, ItineraryCache
from walkgraph.errors import ErrorInfo, InvalidInput, Overloaded, WalkgraphError
from walkgraph.graph.document import SessionPolicy
from walkgraph.graph.steps import approvals_of
from walkgraph.ids import Rank, RunId
from walkgraph.placement.capacity.demand import PageDemand
from walkgraph.placement.expansion.legs import Legs
from walkgraph.placement.tables import Itinerary, Scalar
from walkgraph.wire import messages as m


@dataclass(frozen=True, slots=True)
class Request:
    alternative: int
    """The alternative of the plan in which it goes."""
    asked: Asked
    itinerary: Itinerary
    """The itinerary that its ranks get first."""
    inputs: dict[Rank, dict[str, m.Value]]
    """Rank -> the input values that its steps read."""
    tokens: PageDemand
    work: Mapping[Rank, int]
    """The most tokens that it keeps on each of its ranks; 1 where it keeps none."""
    session: SessionPolicy | None
    """The task's policy if the request names a session."""
    legs: Legs | None = None
    """The legs of a task whose steps loop or wait for a person."""
    given: dict[str, m.Value] = field(default_factory=dict[str, m.Value])
    """Every value by its name, of a run with an approval to come."""

    @property
    def params(self) -> dict[str, Scalar]:
        return self.asked.params


def judge(itineraries: ItineraryCache, submit: m.Submit, seed: int, room: int) -> Request | m.Rejected:
    """The resolved request, or its rejection. `seed` is used if the client gives none. `room`: number of runs that may
    still be queued."""
    try:
        request = resolve(itineraries, itineraries.asked(submit, seed))
        if room <= 0:
            raise Overloaded("the queue of waiting runs is full; try again later")
    except WalkgraphError as error:
        pointer = error.pointer if isinstance(error, InvalidInput) else ""
        return m.Rejected(run=submit.run, error=error.info(), pointer=pointer)
    return request


def closed(run: RunId, draining: bool, failed: str | None) -> m.Rejected | None:
    """The rejection while the deployment takes no runs; None otherwise."""
    if draining:
        error = ErrorInfo(code="shutting_down", message="the deployment is being stopped", retryable=True)
        return m.Rejected(run=run, error=error)
    if failed is not None:
        return m.Rejected(run=run, error=ErrorInfo(code="refused", message=f"the deployment has failed: {failed}"))
    return None


def resolve(itineraries: ItineraryCache, asked: Asked, alternative: int = 0) -> Request:
    """Resolves a request in an alternative of the plan. Raises InvalidInput or NotFound with a pointer."""
    submit, found = asked.submit, itineraries.of(asked, alternative)
    values: dict[str, m.Value] = {
        one.name: m.Many(items=one.values) if one.listed else one.value for one in asked.given
    }
    values |= submit.resumed.kept if submit.resumed is not None else {}
    inputs = {rank: {name: values[name] for name in names if name in values} for rank, names in found.reads.items()}
    task = itineraries.graph.tasks[submit.task]
    session = task.session if submit.session is not None else None
    itinerary, legs = itineraries.legs(asked, found.expanded, alternative)
    asks = itinerary.more and bool(approvals_of(task))
    return Request(
        alternative, asked, itinerary, inputs, found.tokens, found.work, session, legs, values if asks else {}
    )
