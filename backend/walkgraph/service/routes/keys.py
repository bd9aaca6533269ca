"""Clients' keys. All routes need the scope `admin`."""

from typing import Annotated

from fastapi import APIRouter, Path, Query
from starlette.requests import Request

from walkgraph.service.access.auditing import act
from walkgraph.service.access.callers import SCOPES
from walkgraph.service.deps import Services, ServicesDep
from walkgraph.service.http.body import StrictRoute
from walkgraph.service.schemas.answers import Answer
from walkgraph.service.schemas.keys import KeyRequest
from walkgraph.store import tables
from walkgraph.wire.answers.keys import Key, KeyMade

router = APIRouter(prefix="/api/v1/keys", tags=["keys"], route_class=StrictRoute)
KeyId = Annotated[str, Path(pattern=r"^[0-9a-f]{8}$")]


@router.get("")
async def list_all(services: ServicesDep, former: Annotated[bool, Query()] = False) -> list[Answer[Key]]:
    """Keys, oldest first. With `former`, revoked and expired ones too."""
    rows = [row for row in services.keys.listed() if former or services.keys.is_valid(row)]
    return [_shown(services, row) for row in rows]


@router.post("", status_code=201)
async def add(services: ServicesDep, caller: Request, request: KeyRequest) -> Answer[KeyMade]:
    """Make a key. Its `secret` is shown only in this answer."""
    attempt = act(caller, "key.add", request.name)
    async with services.audit.attempt(attempt):
        row, secret = await services.keys.add(
            request.name,
            request.scopes,
            request.requests_per_minute,
            request.concurrent,
            request.expires_in,
            attempt,
        )
    return KeyMade(**_shown(services, row), secret=secret)


@router.get("/{key}")
async def get(services: ServicesDep, key: KeyId) -> Answer[Key]:
    return _shown(services, services.keys.get(key))


@router.delete("/{key}")
async def revoke(services: ServicesDep, caller: Request, key: KeyId) -> Answer[Key]:
    """Revoke a key at once. Its open requests and sockets are closed, and their runs end unless they run detached."""
    attempt = act(caller, "key.revoke", key)
    async with services.audit.attempt(attempt):
        row = await services.keys.revoke(key, attempt)
    return _shown(services, row)


def _shown(services: Services, row: tables.Key) -> Key:
    return Key(
        **row.model_dump(exclude={"digest", "scopes"}),
        scopes=[scope for scope in row.scopes.split(",") if scope in SCOPES],
        valid=services.keys.is_valid(row),
        running=services.keys.running(row.id),
    )
