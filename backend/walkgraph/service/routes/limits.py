"""The limits on what a caller may send."""

from fastapi import APIRouter

from walkgraph.service.http import limits
from walkgraph.service.http.body import StrictRoute

router = APIRouter(tags=["limits"], route_class=StrictRoute)


@router.get("/v1/limits")
async def table() -> dict[str, float]:
    return limits.TABLE
