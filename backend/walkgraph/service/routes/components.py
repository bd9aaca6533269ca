"""The palette: every component that a graph may name, and the tasks that it may call."""

from typing import Any

import anyio.to_thread
from fastapi import APIRouter

from walkgraph.components import catalogue, renew
from walkgraph.errors import NotFound
from walkgraph.service.deps import ServicesDep
from walkgraph.service.http.body import StrictRoute
from walkgraph.service.schemas.palette import shown

router = APIRouter(prefix="/api/v1/components", tags=["components"], route_class=StrictRoute)


@router.get("")
async def list_components(services: ServicesDep, tasks: bool = False) -> list[dict[str, Any]]:
    """All components, those of plug-ins as their files are now. `tasks`: and the tasks that nodes may call, of deployed
    graphs and then of stored ones."""
    await anyio.to_thread.run_sync(renew)
    if not tasks:
        return [shown(component) for component in catalogue().values()]
    known = await services.task_graphs.all()
    return await anyio.to_thread.run_sync(lambda: [shown(component) for component in known.listed()])


@router.get("/{name}")
async def get_component(name: str) -> dict[str, Any]:
    found = catalogue().get(name)
    if found is None:
        raise NotFound("there is no such component; `GET /api/v1/components` lists all")
    return shown(found)
