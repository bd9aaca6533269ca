"""Metrics for Prometheus. They need a token like all other routes."""

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
    """Metrics in Prometheus' text format, or in OpenMetrics' if the client accepts it."""
    content, kind = services.metrics.render(accept)
    return Response(content, headers={"Content-Type": kind})
