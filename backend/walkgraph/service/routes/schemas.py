"""The published JSON Schemas."""

from typing import Any

from fastapi import APIRouter

from walkgraph.graph import schema as graph_schema
from walkgraph.placement import document as placement_document
from walkgraph.service.http.body import StrictRoute

router = APIRouter(prefix="/schemas", tags=["schemas"], route_class=StrictRoute)


@router.get("/graph-v1.json")
async def graph() -> dict[str, Any]:
    return graph_schema.schema()


@router.get("/placement-v1.json")
async def placement() -> dict[str, Any]:
    return placement_document.schema()
