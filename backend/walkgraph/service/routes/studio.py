"""How a browser gets in."""

from fastapi import APIRouter

from walkgraph.service.body import StrictRoute
from walkgraph.service.deps import ServicesDep
from walkgraph.service.schemas import CodeShown

router = APIRouter(prefix="/api/v1/studio", tags=["studio"], route_class=StrictRoute)


@router.post("/codes", status_code=201)
async def make_code(services: ServicesDep) -> CodeShown:
    """A one-time code that lets one browser into the studio."""
    code = services.codes.make()
    return CodeShown(code=code, path=f"/studio/?code={code}")
