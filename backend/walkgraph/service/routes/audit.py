"""The audit log. It needs the scope `admin`."""

import json
from typing import Annotated

from fastapi import APIRouter, Query

from walkgraph.service.deps import ServicesDep
from walkgraph.service.http.body import StrictRoute
from walkgraph.service.schemas.answers import Answer
from walkgraph.store import keys as queries
from walkgraph.store import tables
from walkgraph.wire.answers.keys import AuditEntry

router = APIRouter(prefix="/api/v1/audit", tags=["keys"], route_class=StrictRoute)
Text = Annotated[str | None, Query(max_length=250)]


@router.get("")
async def entries(
    services: ServicesDep,
    action: Annotated[str | None, Query(pattern=r"^[a-z]{1,32}(\.[a-z]{1,32})?$")] = None,
    caller: Text = None,
    target: Text = None,
    outcome: Annotated[str | None, Query(pattern=r"^(begun|done|refused|failed)$")] = None,
    since: Annotated[float | None, Query(ge=0, le=1e11)] = None,
    before: Annotated[int | None, Query(ge=1, le=2**62)] = None,
    limit: Annotated[int, Query(ge=1, le=1000)] = 100,
) -> list[Answer[AuditEntry]]:
    """Entries, newest first. `action`: one action (`deployment.create`), or all of a kind (`deployment`). `since`:
    seconds since 1970. `before`: the `id` of the previous page's last entry."""
    rows = await services.store.read(
        queries.list_entries,
        action=action,
        caller=caller,
        target=target,
        outcome=outcome,
        since=since,
        before=before,
        limit=limit,
    )
    return [_shown(row) for row in rows]


def _shown(row: tables.AuditEntry) -> AuditEntry:
    return AuditEntry(**row.model_dump(exclude={"details"}), details=json.loads(row.details))
