"""Lists and ends the sessions of a deployment."""

from typing import Annotated

import msgspec
from fastapi import APIRouter, Path
from starlette.requests import Request

from walkgraph.errors import NotFound
from walkgraph.service.access.callers import caller_of
from walkgraph.service.deps import Name, ServicesDep
from walkgraph.service.http.body import StrictRoute
from walkgraph.service.schemas.answers import Answer
from walkgraph.wire.answers.deployments import SessionEnds, SessionKept, Sessions

router = APIRouter(prefix="/v1/sessions", tags=["sessions"], route_class=StrictRoute)
SessionName = Annotated[str, Path(min_length=1, max_length=73)]
"""64 characters of the name, and the prefix with a key's id."""


@router.get("/{deployment}")
async def list_sessions(services: ServicesDep, request: Request, deployment: Name) -> Answer[Sessions]:
    """The sessions of the serving version, and the memory that they hold. A key that has only the scope `infer` sees
    its own; sessions of other keys are named `KEY:NAME`."""
    caller = caller_of(request)
    told = (await services.deployments.get(deployment).serving.questions.sessions()).sessions
    named = [(caller.session_shown(session.name), session) for session in told]
    shown = [
        SessionKept(**msgspec.structs.asdict(msgspec.structs.replace(session, name=name)))
        for name, session in named
        if name is not None
    ]
    return Sessions(deployment=deployment, bytes=sum(session["bytes"] for session in shown), sessions=shown)


@router.delete("/{deployment}/{session:path}", status_code=202)
async def end_session(
    services: ServicesDep, request: Request, deployment: Name, session: SessionName
) -> Answer[SessionEnds]:
    """End a session: free its states once none of its runs is under way. Waiting and later requests start a new one."""
    caller = caller_of(request)
    serving = services.deployments.get(deployment).serving
    others = caller.ends_all_runs and caller.key is not None
    for name in (caller.session(session), *((session,) if others else ())):
        if (await serving.questions.sessions(end=name)).known:
            return SessionEnds(state="ending")
    raise NotFound(f"the deployment `{deployment}` keeps no session of that name")
