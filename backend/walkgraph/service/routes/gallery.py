"""The gallery of graphs to start from."""

from fastapi import APIRouter

from walkgraph.service.deployments.judging import off_loop
from walkgraph.service.deps import ServicesDep
from walkgraph.service.http.body import StrictRoute
from walkgraph.service.schemas.answers import Answer
from walkgraph.store import queries
from walkgraph.wire.answers.documents import GalleryEntry

router = APIRouter(tags=["graphs"], route_class=StrictRoute)


@router.get("/api/v1/gallery")
async def gallery(services: ServicesDep) -> list[Answer[GalleryEntry]]:
    """Every stored graph with its tasks, and whether it could be deployed on this machine if nothing else ran."""
    rows = await services.store.read(queries.list_documents, "graph")
    graphs = await services.task_graphs.all()
    return await off_loop(services.gallery.entries, rows, graphs)
