"""The palette: every component that a graph may name."""

from typing import Any

from fastapi import APIRouter

from walkgraph.components import catalogue
from walkgraph.errors import NotFound
from walkgraph.service.deployments.palette import shown
from walkgraph.service.http.body import StrictRoute

router = APIRouter(prefix="/api/v1/components", tags=["components"], route_class=StrictRoute)


@router.get("")
async def list_components() -> list[dict[str, Any]]:
    return [shown(component) for component in catalogue().values()]


@router.get("/{name}")
async def get_component(name: str) -> dict[str, Any]:
    found = catalogue().get(name)
    if found is None:
        raise NotFound("there is no such component; `GET /api/v1/components` lists all")
    return shown(found)
