"""Runs that wait for a person: what is asked, and the answer."""

from typing import Any

from fastapi import APIRouter

from walkgraph.errors import Conflict
from walkgraph.placement.tables import Decision
from walkgraph.service.deps import RunName, ServicesDep
from walkgraph.service.http.body import StrictRoute
from walkgraph.service.runs import results, runs
from walkgraph.service.schemas.answers import Answer
from walkgraph.service.schemas.resources import DecisionRequest
from walkgraph.wire.answers.runs import ApprovalShown, Run

router = APIRouter(prefix="/api/v1/runs/{run}/approval", tags=["runs"], route_class=StrictRoute)


@router.get("")
async def asked(services: ServicesDep, run: RunName) -> Answer[ApprovalShown]:
    """Return the approval that the run waits for, and the values that it shows."""
    live = services.runs.live(run)
    told = results.approval_of(live)
    if live.waiting is None or told is None:
        raise Conflict(f"the run doesn't wait for a person: it is {live.state}")
    shown: dict[str, Any] = results.shown_of(live.waiting)
    return ApprovalShown(**told, run=live.id, values=shown)


@router.post("", status_code=202)
async def decide(services: ServicesDep, run: RunName, request: DecisionRequest) -> Answer[Run]:
    """Approve or refuse. The same answer again changes nothing; one that comes too late is refused with `expired`. If
    the rest of the run can't begin now, the run goes on to wait, and the answer can be given again."""
    live = services.runs.live(run)
    decision = Decision(approved=request.approved, note=request.note)
    await services.approvals.decide(live, decision, request.number)
    return results.public(runs.row_of(live), live)
