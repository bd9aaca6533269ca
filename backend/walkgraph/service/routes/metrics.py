"""For Prometheus: behind the bearer token, as everything."""

from typing import Annotated

from fastapi import APIRouter, Header
from fastapi.responses import Response

from walkgraph.service.body import StrictRoute
from walkgraph.service.deps import ServicesDep

router = APIRouter(tags=["metrics"], route_class=StrictRoute)


@router.get("/metrics", response_class=Response)
async def metrics(services: ServicesDep, accept: Annotated[str, Header(max_length=1000)] = "") -> Response:
    """Prometheus' text, or OpenMetrics' where that is accepted."""
    content, kind = services.metrics.render(accept)
    return Response(content, headers={"Content-Type": kind})
