"""What a deployment keeps between the runs of its sessions."""

from typing import Annotated, Literal

from fastapi import APIRouter, Path

from walkgraph.errors import NotFound
from walkgraph.service.body import StrictRoute
from walkgraph.service.deps import Name, ServicesDep
from walkgraph.service.schemas import Shown

router = APIRouter(prefix="/v1/sessions", tags=["sessions"], route_class=StrictRoute)
SessionName = Annotated[str, Path(min_length=1, max_length=64)]


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
async def list_sessions(services: ServicesDep, deployment: Name) -> SessionsShown:
    """The sessions of the version that serves, and the memory that they hold."""
    told = (await services.deployments.get(deployment).serving.sessions()).sessions
    shown = [SessionShown.model_validate(session, from_attributes=True) for session in told]
    return SessionsShown(deployment=deployment, bytes=sum(session.bytes for session in shown), sessions=shown)


@router.delete("/{deployment}/{session:path}", status_code=202)
async def end_session(services: ServicesDep, deployment: Name, session: SessionName) -> SessionEnds:
    """Free what it keeps once nothing of it runs. A request that waits in it, or comes later, begins it anew."""
    if not (await services.deployments.get(deployment).serving.sessions(end=session)).known:
        raise NotFound(f"the deployment `{deployment}` keeps no session of that name")
    return SessionEnds(state="ending")
