"""Graph + placement -> plan, without starting anything."""

import anyio.to_thread
from fastapi import APIRouter

from walkgraph.placement.show import render
from walkgraph.placement.tables import Plan, RankPlan
from walkgraph.service.body import StrictRoute
from walkgraph.service.deps import ServicesDep
from walkgraph.service.judging import Judged, judge, problems_shown, resolve
from walkgraph.service.schemas import PlanRequest, PlanShown, RankShown

router = APIRouter(prefix="/api/v1/plans", tags=["plans"], route_class=StrictRoute)


@router.post("")
async def make(services: ServicesDep, request: PlanRequest) -> PlanShown:
    """The plan, or every reason why there is none. Counts as free what running deployments leave."""
    graph = await resolve(services.store, "graph", request.graph)
    placement = await resolve(services.store, "placement", request.placement)
    running, roots = services.deployments.plans(), services.settings.checkpoint_roots
    judged = await anyio.to_thread.run_sync(judge, graph.value, placement.value, running, roots)
    return _shown(judged)


def _shown(judged: Judged) -> PlanShown:
    problems = [
        *problems_shown(judged.graph_problems, "/graph"),
        *problems_shown(judged.placement_problems, "/placement"),
    ]
    plan = judged.plan
    return PlanShown(
        ok=plan is not None,
        deployable=judged.deployable,
        problems=problems,
        placement=judged.placement_document if judged.placement else None,
        ranks=[_rank(plan, rank) for rank in plan.ranks] if plan else [],
        drawing=render(plan, judged.placement_problems, judged.copies) if plan else None,
        digest=plan.digest if plan else None,
    )


def _rank(plan: Plan, rank: RankPlan) -> RankShown:
    return RankShown(
        rank=rank.rank,
        device=rank.device,
        nodes=[plan.nodes[node].name for node in rank.nodes],
        kv_bytes=rank.kv_bytes,
        budget=dict(rank.budget),
    )
