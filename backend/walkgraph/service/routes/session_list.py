"""What a deployment keeps between the runs of its sessions."""

from typing import Annotated, Literal

import msgspec
from fastapi import APIRouter, Path
from starlette.requests import Request

from walkgraph.errors import NotFound
from walkgraph.service.access.callers import caller_of
from walkgraph.service.deps import Name, ServicesDep
from walkgraph.service.http.body import StrictRoute
from walkgraph.service.schemas.resources import Shown

router = APIRouter(prefix="/v1/sessions", tags=["sessions"], route_class=StrictRoute)
SessionName = Annotated[str, Path(min_length=1, max_length=73)]
"""64 characters of its own, and the key's that others know it by."""


class SessionShown(Shown):
    name: str
    run: str | None
    """That runs in it; null: it keeps its states until the next."""
    waiting: int
    """Runs that wait for their turn."""
    bytes: int
    """Of the cache pages that are reserved for it, on all ranks."""
    idle: float
    """Seconds since its last run ended; 0 while one runs."""
    ttl: float
    """Seconds that it may be idle before it ends."""
    ending: bool


class SessionsShown(Shown):
    deployment: str
    bytes: int
    """Of all."""
    sessions: list[SessionShown]


class SessionEnds(Shown):
    state: Literal["ending"]


@router.get("/{deployment}")
async def list_sessions(services: ServicesDep, request: Request, deployment: Name) -> SessionsShown:
    """The sessions of the version that serves, and the memory that they hold. A key with the scope `infer` alone sees
    its own; where another key's are seen, they are called `KEY:NAME`."""
    caller = caller_of(request)
    told = (await services.deployments.get(deployment).serving.sessions()).sessions
    named = [(caller.session_shown(session.name), session) for session in told]
    shown = [
        SessionShown.model_validate({**msgspec.structs.asdict(session), "name": name})
        for name, session in named
        if name is not None
    ]
    return SessionsShown(deployment=deployment, bytes=sum(session.bytes for session in shown), sessions=shown)


@router.delete("/{deployment}/{session:path}", status_code=202)
async def end_session(services: ServicesDep, request: Request, deployment: Name, session: SessionName) -> SessionEnds:
    """Free what it keeps once nothing of it runs. A request that waits in it, or comes later, begins it anew."""
    caller = caller_of(request)
    serving = services.deployments.get(deployment).serving
    others = caller.ends_all_runs and caller.key is not None
    for name in (caller.session(session), *((session,) if others else ())):
        if (await serving.sessions(end=name)).known:
            return SessionEnds(state="ending")
    raise NotFound(f"the deployment `{deployment}` keeps no session of that name")
