"""For Prometheus: behind the bearer token, as everything."""

from typing import Annotated

from fastapi import APIRouter, Header
from fastapi.responses import Response

from walkgraph.service.deps import ServicesDep
from walkgraph.service.http.body import StrictRoute
from walkgraph.service.http.documenting import answer

router = APIRouter(tags=["metrics"], route_class=StrictRoute)
_TEXT = answer("The series.", {"text/plain": {"type": "string"}, "application/openmetrics-text": {"type": "string"}})


@router.get("/metrics", response_class=Response, responses={200: _TEXT})
async def metrics(services: ServicesDep, accept: Annotated[str, Header(max_length=1000)] = "") -> Response:
    """Prometheus' text, or OpenMetrics' where that is accepted."""
    content, kind = services.metrics.render(accept)
    return Response(content, headers={"Content-Type": kind})
