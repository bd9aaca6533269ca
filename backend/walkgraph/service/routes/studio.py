"""How a browser gets in."""

from fastapi import APIRouter
from starlette.requests import Request

from walkgraph.service.auditing import act
from walkgraph.service.body import StrictRoute
from walkgraph.service.deps import ServicesDep
from walkgraph.service.schemas import CodeShown

router = APIRouter(prefix="/api/v1/studio", tags=["studio"], route_class=StrictRoute)


@router.post("/codes", status_code=201)
async def make_code(services: ServicesDep, caller: Request) -> CodeShown:
    """A one-time code that lets one browser into the studio."""
    await services.audit.tell(act(caller, "studio.code", "").entry("done"))
    code = services.codes.make()
    return CodeShown(code=code, path=f"/studio/?code={code}")
