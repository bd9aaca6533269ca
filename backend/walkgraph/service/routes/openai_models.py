"""OpenAI's list of models: the deployments with the routes that their tasks serve."""

from typing import Annotated, Literal

from fastapi import APIRouter, Path
from pydantic import BaseModel

from walkgraph.service.deployments.managed import Managed
from walkgraph.service.deps import ServicesDep
from walkgraph.service.http.body import StrictRoute
from walkgraph.service.openai import serving
from walkgraph.service.openai.errors import ANSWERS

router = APIRouter(prefix="/v1/models", tags=["openai"], route_class=StrictRoute, responses=ANSWERS)


class Model(BaseModel):
    id: str
    """`deployment` or `deployment/task`, as in a request's `model`."""
    object: Literal["model"] = "model"
    created: int
    """Seconds since 1970."""
    owned_by: str = "walkgraph"
    routes: dict[serving.Route, list[str]]
    """The tasks that serve each route; `deployment` alone means the first. Empty until the graph has been checked."""


class Models(BaseModel):
    object: Literal["list"] = "list"
    data: list[Model]


@router.get("")
async def list_models(services: ServicesDep) -> Models:
    return Models(data=[_shown(managed, None) for managed in services.deployments.offered()])


@router.get("/{model:path}")
async def get_model(services: ServicesDep, model: Annotated[str, Path(min_length=1, max_length=200)]) -> Model:
    """A deployment or one of its tasks."""
    return _shown(*serving.find(services.deployments, model))


def _shown(managed: Managed, task: str | None) -> Model:
    able: dict[serving.Route, list[str]] = {}
    if managed.graph is not None:
        able = serving.routes(managed.graph, managed.plan)
    if task is not None:
        able = {route: [task] for route, tasks in able.items() if task in tasks}
    name = managed.id if task is None else f"{managed.id}/{task}"
    return Model(id=name, created=int(managed.created_at), routes=able)
