"""A client's request -> the run it becomes: parameters filled in, values named, its way through the plan fixed."""

from dataclasses import dataclass

from walkgraph.graph.document import Graph, SessionPolicy
from walkgraph.ids import Rank
from walkgraph.placement.demand import inputs_read, page_demand
from walkgraph.placement.itinerary import expand
from walkgraph.placement.request import fill_params, name_inputs, task_of
from walkgraph.placement.tables import Itinerary, Plan, Scalar
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


def resolve(graph: Graph, plan: Plan, submit: m.Submit, seed: int) -> Request:
    """`seed` is used where the client gives none. Raises InvalidInput or NotFound with a pointer into the request."""
    task = task_of(graph, submit.task)
    params = fill_params(task, {"seed": seed, **submit.params})
    itinerary = expand(graph, plan, submit.task, params, submit.inputs, submit.parts, submit.outputs)
    values = {given.name: given.value for given in name_inputs(task, submit.inputs, submit.parts)}
    inputs = {
        rank: {name: values[name] for name in names if name in values}
        for rank, names in inputs_read(plan, itinerary).items()
    }
    session = task.session if submit.session is not None else None
    return Request(itinerary, params, inputs, page_demand(plan, itinerary, params), session)
