"""The folders of weights on this machine, and where others are published."""

from typing import Annotated

from fastapi import APIRouter, Path

from walkgraph.service.deployments.judging import off_loop
from walkgraph.service.deps import ServicesDep
from walkgraph.service.http.body import StrictRoute
from walkgraph.service.schemas.answers import Answer
from walkgraph.store import queries
from walkgraph.wire.answers.checkpoints import Checkpoints, MadeDocuments

router = APIRouter(prefix="/api/v1/checkpoints", tags=["graphs"], route_class=StrictRoute)
Folder = Annotated[str, Path(pattern=r"^[A-Za-z0-9_\-.]{1,255}$")]


@router.get("")
async def checkpoints(services: ServicesDep) -> Answer[Checkpoints]:
    """Every folder under the checkpoint roots: its family, size and precision, what it lacks, whether it fits, and the
    graphs that read it; and what is published for each family."""
    graphs = await services.store.read(queries.list_documents, "graph")
    return await off_loop(services.checkpoints.all, graphs)


@router.get("/{folder}/documents")
async def documents(services: ServicesDep, folder: Folder) -> Answer[MadeDocuments]:
    """The graph and placements that serve a folder, as `walkgraph import` makes them. Put them to store them."""
    return await off_loop(services.checkpoints.made, folder)
