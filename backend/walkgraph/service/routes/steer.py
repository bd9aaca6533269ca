"""Pauses and single steps of runs."""

from fastapi import APIRouter

from walkgraph.service.deps import RunName, ServicesDep
from walkgraph.service.http.body import StrictRoute
from walkgraph.service.runs import results, steering
from walkgraph.service.schemas.answers import Answer
from walkgraph.service.schemas.watch import SteerRequest
from walkgraph.wire.answers.runs import Steered

router = APIRouter(prefix="/api/v1/runs/{run}", tags=["runs"], route_class=StrictRoute)


@router.post("/steer", status_code=202)
async def steer(services: ServicesDep, run: RunName, request: SteerRequest) -> Answer[Steered]:
    """Pause a run before its next calls, make one call, go on to the next iteration, or resume. Telemetry sends the
    frames `paused` and `resumed`, and the run shows its state."""
    live = services.runs.live(run)
    steering.steer(live, request)
    return Steered(run=live.id, paused=results.paused_of(live))
