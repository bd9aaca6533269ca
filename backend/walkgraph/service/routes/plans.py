"""Plans a graph with a placement, without starting anything."""

from collections.abc import Iterator

from fastapi import APIRouter

from walkgraph.placement.host.neighbours import hosts_of
from walkgraph.placement.routes import handed, routes
from walkgraph.placement.show import render
from walkgraph.placement.tables import Plan, RankPlan
from walkgraph.service.deployments.judging import (
    Judged,
    devices_shown,
    hardware_for,
    judge,
    links_shown,
    off_loop,
    problems_shown,
    resolve,
)
from walkgraph.service.deps import ServicesDep
from walkgraph.service.http.body import StrictRoute
from walkgraph.service.schemas.answers import Answer
from walkgraph.service.schemas.resources import PlanRequest
from walkgraph.wire.answers import plans as answers

router = APIRouter(prefix="/api/v1/plans", tags=["plans"], route_class=StrictRoute)


@router.post("")
async def make(services: ServicesDep, request: PlanRequest) -> Answer[answers.Plan]:
    """The plan, or all reasons why there is none. Running deployments' memory counts as taken; with `hardware`, the
    hosts of the cluster or GPUs are assumed instead, all of them empty."""
    graph = await resolve(services.store, "graph", request.graph)
    placement = await resolve(services.store, "placement", request.placement)
    roots = services.settings.checkpoint_roots
    host = await hardware_for(services.hosts, request.hardware)
    running = services.deployments.plans() if request.hardware is None else []
    known = await services.task_graphs.around(graph.value)
    judged = await off_loop(judge, graph.value, placement.value, running, roots, host, known)
    return await off_loop(_shown, judged)


def _shown(judged: Judged) -> answers.Plan:
    problems = [
        *problems_shown(judged.graph_problems, "/graph"),
        *problems_shown(judged.placement_problems, "/placement"),
    ]
    plan, budgeted = judged.plan, judged.budgeted
    given = handed(judged.graph, budgeted) if judged.graph and budgeted else []
    return answers.Plan(
        ok=plan is not None,
        deployable=judged.deployable,
        problems=problems,
        placement=judged.placement_document if judged.placement else None,
        ranks=[_rank(judged, budgeted, rank) for rank in budgeted.ranks] if budgeted else [],
        devices=[device for host in judged.hardware.hosts for device in devices_shown(host)],
        links=[link for host in judged.hardware.hosts for link in links_shown(host)],
        host_links=[answers.HostLink(**vars(link)) for link in judged.hardware.links],
        routes=[answers.Route(**vars(r)) for r in routes(judged.graph, budgeted)] if judged.graph and budgeted else [],
        handed=[answers.Handed(**vars(route)) for route in given],
        copies=[*_copies(plan, judged)] if plan else [],
        loops=_loops(budgeted) if budgeted else [],
        drawing=render(plan, judged.placement_problems, judged.copies, given, judged.hardware) if plan else None,
        digest=plan.digest if plan else None,
    )


def _copies(plan: Plan, judged: Judged) -> Iterator[answers.Copy]:
    hosts = hosts_of(plan)
    for copy in judged.copies:
        walk = plan.walks[copy.walk].name
        link = judged.hardware.link(hosts[copy.source], hosts[copy.target])
        yield answers.Copy(
            state=plan.states[copy.state].name,
            walk=None if walk.startswith("move:") else walk,
            source=copy.source,
            target=copy.target,
            bytes=copy.bytes,
            largest=copy.largest,
            seconds=link.seconds(copy.bytes) if link is not None and copy.bytes else None,
            transport=copy.transport,
            parts=copy.parts,
        )


def _loops(plan: Plan) -> list[answers.Loop]:
    """The loops that the author wrote, without the outer one that a Walk run per chunk adds. The tables of such Walks
    come last and replace the others."""
    shown: dict[tuple[str, str], answers.Loop] = {}
    for walk in plan.walks_of():
        for loop in walk.loops[1:] if walk.chunked else walk.loops:
            within = walk.loops[loop.within].name if loop.within >= 0 else None
            shown[walk.name, loop.name] = answers.Loop(
                walk=walk.name,
                loop=loop.name,
                resident=loop.resident,
                why=loop.why,
                within=within,
                usual=list(loop.usual),
            )
    return list(shown.values())


def _rank(judged: Judged, plan: Plan, rank: RankPlan) -> answers.PlannedRank:
    return answers.PlannedRank(
        rank=rank.rank,
        host=rank.host or judged.hardware.host,
        device=rank.device,
        nodes=[plan.nodes[node].name for node in rank.nodes],
        kv_bytes=rank.kv_bytes,
        budget=dict(rank.budget),
        capacity=judged.capacities.get(rank.rank, 0),
        unpinned=rank.unpinned,
    )
