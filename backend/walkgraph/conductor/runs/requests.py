"""A client's request -> the run it becomes: parameters filled in, values named, its way through the plan fixed."""

from dataclasses import dataclass

from walkgraph.conductor.itinerary_cache import ItineraryCache
from walkgraph.errors import ErrorInfo, InvalidInput, Overloaded, WalkgraphError
from walkgraph.graph.document import Graph, SessionPolicy
from walkgraph.ids import Rank, RunId
from walkgraph.placement.request import fill_params, name_inputs, task_of
from walkgraph.placement.tables import Itinerary, Scalar
from walkgraph.wire import messages as m


@dataclass(frozen=True, slots=True)
class Request:
    itinerary: Itinerary
    params: dict[str, Scalar]
    inputs: dict[Rank, dict[str, m.Value]]
    """Only what each rank's steps read."""
    tokens: dict[Rank, dict[int, int]]
    """Rank -> paged state -> tokens kept there at most."""
    session: SessionPolicy | None
    """The task's, where the request names a session."""


def judge(graph: Graph, itineraries: ItineraryCache, submit: m.Submit, seed: int, room: int) -> Request | m.Rejected:
    """`room`: how many more runs may wait."""
    try:
        request = resolve(graph, itineraries, submit, seed)
        if room <= 0:
            raise Overloaded("as many runs as may are waiting already; try again later")
    except WalkgraphError as error:
        pointer = error.pointer if isinstance(error, InvalidInput) else ""
        return m.Rejected(run=submit.run, error=error.info(), pointer=pointer)
    return request


def closed(run: RunId, draining: bool, failed: str | None) -> m.Rejected | None:
    """Where nothing is taken any more: why."""
    if draining:
        error = ErrorInfo(code="shutting_down", message="the deployment is being stopped", retryable=True)
        return m.Rejected(run=run, error=error)
    if failed is not None:
        return m.Rejected(run=run, error=ErrorInfo(code="refused", message=f"the deployment has failed: {failed}"))
    return None


def resolve(graph: Graph, itineraries: ItineraryCache, submit: m.Submit, seed: int) -> Request:
    """`seed` is used where the client gives none. Raises InvalidInput or NotFound with a pointer into the request."""
    task = task_of(graph, submit.task)
    params = fill_params(task, {"seed": seed, **submit.params})
    given = name_inputs(task, submit.inputs, submit.parts)
    found = itineraries.of(submit, params, given)
    values = {one.name: one.value for one in given}
    inputs = {rank: {name: values[name] for name in names if name in values} for rank, names in found.reads.items()}
    session = task.session if submit.session is not None else None
    return Request(found.itinerary, params, inputs, found.tokens, session)
