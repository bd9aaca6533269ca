"""Access for browsers."""

from fastapi import APIRouter
from starlette.requests import Request

from walkgraph.service.access.auditing import act
from walkgraph.service.deps import ServicesDep
from walkgraph.service.http.body import StrictRoute
from walkgraph.service.schemas.answers import Answer
from walkgraph.settings import Settings, standard_home
from walkgraph.wire.answers.deployments import Access, Code

router = APIRouter(prefix="/api/v1/studio", tags=["studio"], route_class=StrictRoute)


@router.get("/access")
async def access(services: ServicesDep) -> Answer[Access]:
    """Paths of the service's home and token, for code examples to run on the same machine."""
    return access_of(services.settings)


def access_of(settings: Settings) -> Access:
    home = settings.home.absolute()
    return Access(
        home=str(home),
        own_home=home != standard_home(),
        token_file=None if settings.token is not None else str(settings.token_file.absolute()),
    )


@router.post("/codes", status_code=201)
async def make_code(services: ServicesDep, caller: Request) -> Answer[Code]:
    """A one-time code that lets one browser into the studio."""
    await services.audit.tell(act(caller, "studio.code", "").entry("done"))
    code = services.codes.make()
    return Code(code=code, path=f"/studio/?code={code}")
