"""Graph drafts with their checks, drawings and simulations."""

import json
from collections.abc import Sequence
from dataclasses import asdict
from typing import Annotated, Any, cast

from fastapi import APIRouter, Body
from fastapi.responses import PlainTextResponse

from walkgraph.errors import InvalidInput
from walkgraph.graph.document import Graph
from walkgraph.graph.export import to_python
from walkgraph.graph.mermaid import draw
from walkgraph.placement.hardware import emptied
from walkgraph.placement.host.host_costs import Costs, HostCost, HostCosts, total
from walkgraph.placement.simulate import PartitionSeen, SimulatedTurn, Value
from walkgraph.placement.simulate import simulate as run
from walkgraph.service.deployments import documents
from walkgraph.service.deployments.judging import (
    Judged,
    check_graph,
    check_here,
    hardware_for,
    judge,
    off_loop,
    problems_shown,
    resolve,
)
from walkgraph.service.deployments.task_graphs import KnownGraphs
from walkgraph.service.deps import Name, Services, ServicesDep
from walkgraph.service.http.body import StrictRoute
from walkgraph.service.http.problems import Fault, Unprocessable
from walkgraph.service.outward.reachable import unreachable
from walkgraph.service.schemas.answers import Answer
from walkgraph.service.schemas.resources import PythonRequest, SimulateRequest
from walkgraph.store import queries
from walkgraph.wire.answers import plans as answers
from walkgraph.wire.answers.documents import Check, Problem, Python

router = APIRouter(route_class=StrictRoute)
_extra = APIRouter(prefix="/api/v1/graphs", tags=["graphs"], route_class=StrictRoute)


@_extra.post("/check")
async def check(services: ServicesDep, document: Annotated[Any, Body()]) -> Answer[Check]:
    """All problems of a document, including weights that aren't on this machine, and servers that its nodes may not
    call."""
    known = await services.task_graphs.around(document)
    report = await off_loop(check_here, document, services.settings.checkpoint_roots, known)
    graph = report.graph
    more = () if graph is None else await off_loop(unreachable, graph, known.catalogue, services.settings)
    return Check(ok=report.ok, problems=problems_shown((*report.problems, *more)))


@_extra.post("/python")
async def python(services: ServicesDep, request: PythonRequest) -> Answer[Python]:
    """The graph as a Python program that builds it. Raises Unprocessable if the graph is malformed."""
    found = await resolve(services.store, "graph", request.graph)
    graph = await off_loop(_well_formed, found.value, "/graph")
    return Python(text=await off_loop(to_python, graph))


@_extra.post("/simulate")
async def simulate(services: ServicesDep, request: SimulateRequest) -> Answer[answers.Simulation]:
    """Predicts a request with these parameters, inputs and parts: its steps, the iterations of loops, which uses are
    called, and why. With a placement also what goes from host to host, and how long that takes over their links. Runs
    nothing."""
    found = await resolve(services.store, "graph", request.graph)
    known = await services.task_graphs.around(found.value)
    placed = await _placed(services, request, found.value, known)
    return await off_loop(_simulated, found.value, request, known, placed)


@_extra.get("/{name}/drawing", response_class=PlainTextResponse)
async def drawing(services: ServicesDep, name: Name, walk: str | None = None) -> str:
    """The component graph, or one of its Walks, as Mermaid text. Raises Unprocessable if the graph is malformed."""
    row = await services.store.read(queries.get_document, "graph", name)
    graph = await off_loop(_well_formed, json.loads(row.text), "")
    return await off_loop(draw, graph, walk)


async def _placed(services: Services, request: SimulateRequest, graph: Any, known: KnownGraphs) -> Judged | None:
    """The graph on the request's placement, on empty hosts; None without one."""
    if request.placement is None:
        return None
    placement = (await resolve(services.store, "placement", request.placement)).value
    host = emptied(await hardware_for(services.hosts, request.hardware))
    return await off_loop(judge, graph, placement, (), services.settings.checkpoint_roots, host, known)


def _simulated(
    document: Any, request: SimulateRequest, known: KnownGraphs, placed: Judged | None
) -> answers.Simulation:
    report = check_graph(document, known)
    if report.graph is None or not report.ok:
        return _refused(problems_shown(report.problems, "/graph"))
    if placed is not None and placed.budgeted is None:
        return _refused(problems_shown(placed.placement_problems, "/placement"))
    try:
        turns = [SimulatedTurn(turn.role, tuple(map(Value, turn.parts))) for turn in request.turns]
        given = request.task, request.params, request.inputs, request.parts, turns
        found = run(report.graph, known.catalogue, *given)
    except InvalidInput as error:
        return _refused([Problem(code=error.code, pointer=error.pointer, message=str(error), severity="error")])
    costs: Costs = [[() for _ in lane.steps] for lane in found.lanes]
    if placed is not None and placed.budgeted is not None:
        made = HostCosts(report.graph, placed.budgeted, placed.hardware, placed.copies, request.sizes)
        costs = made.of(request.task, found)
    lanes = [_lane(lane, its) for lane, its in zip(found.lanes, costs, strict=True)]
    return answers.Simulation(ok=True, problems=[], params=dict(found.params), lanes=lanes, between_hosts=total(costs))


def _refused(problems: list[Problem]) -> answers.Simulation:
    return answers.Simulation(ok=False, problems=problems, params={}, lanes=[], between_hosts=None)


def _lane(lane: PartitionSeen, costs: Sequence[Sequence[HostCost]]) -> answers.Lane:
    steps = [
        {**asdict(step), "host_costs": [asdict(one) for one in its]}
        for step, its in zip(lane.steps, costs, strict=True)
    ]
    return answers.Lane(lane=lane.lane, steps=[cast(answers.Step, {**step, "as": step.pop("as_")}) for step in steps])


def _well_formed(document: Any, prefix: str) -> Graph:
    report = check_graph(document)
    if report.written is None:
        faults = [Fault(prefix + p.pointer, p.code, p.message) for p in report.problems]
        raise Unprocessable("this needs a well-formed graph; fix what `errors` lists", faults)
    return report.written


router.include_router(_extra)
router.include_router(documents.router("graph"))
