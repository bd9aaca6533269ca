"""Replays of runs, and differences between two runs."""

import msgspec
from fastapi import APIRouter
from fastapi.responses import Response
from starlette.requests import Request

from walkgraph.service.deps import OtherRunName, RunName, ServicesDep
from walkgraph.service.http.body import StrictRoute
from walkgraph.service.runs import replay, results, runs
from walkgraph.service.schemas.answers import Answer
from walkgraph.service.schemas.watch import ReplayRequest
from walkgraph.wire.answers.runs import Differences, Run

router = APIRouter(prefix="/api/v1/runs/{run}", tags=["runs"], route_class=StrictRoute)


@router.post("/replay", status_code=202)
async def again(services: ServicesDep, caller: Request, run: RunName, request: ReplayRequest) -> Answer[Run]:
    """Start a run with the same inputs, parameters and seed, on the same deployment or another. It goes on without a
    client, and is recorded by default."""
    started = await replay.replay(services, run, request.deployment, record=request.record, caller=caller)
    return results.public(runs.row_of(started), started)


@router.get("/differences/{other}", response_model=Answer[Differences])
async def differences(services: ServicesDep, run: RunName, other: OtherRunName) -> Response:
    """Compare two runs value by value, inside and at their outputs; only at their outputs if neither was recorded."""
    found = await replay.compared(services, run, other)
    # Encoded directly, not by the model: non-finite numbers become null.
    return Response(msgspec.json.encode(found), media_type="application/json")
