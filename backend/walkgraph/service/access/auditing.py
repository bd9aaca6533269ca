"""Who changed what, when, and from where: rows that are added, and never changed.

What is written into the store is told in the same transaction (`recorded`), so neither is there without the other. An
attempt that was refused is told right after it.
"""

import asyncio
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import Any, Concatenate, Literal, ParamSpec, TypeVar

import msgspec
import structlog
from sqlmodel import Session
from starlette.requests import HTTPConnection

from walkgraph.errors import WalkgraphError
from walkgraph.service.access.callers import SERVICE, Caller, caller_of
from walkgraph.service.access.rates import Meter, RateLimited
from walkgraph.store import keys as queries
from walkgraph.store.session import Store
from walkgraph.store.tables import AuditEntry

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")
Outcome = Literal["begun", "done", "refused", "failed"]

PRUNE_SECONDS = 3600.0
DAY = 86_400.0
REFUSALS_PER_MINUTE = 120
"""Of callers without the scope, that are told; of more, the log of the process alone tells."""
_REASON = 500
"""Characters."""

_log = structlog.get_logger("walkgraph.audit")


@dataclass(frozen=True)
class Act:
    """What somebody is about to change."""

    caller: Caller
    address: str
    action: str
    target: str
    details: tuple[tuple[str, Any], ...] = ()
    """Names, etags, numbers: nothing that is secret, nothing long."""

    def of(self, **details: Any) -> "Act":
        return replace(self, details=(*self.details, *details.items()))

    def entry(self, outcome: Outcome, reason: str = "") -> AuditEntry:
        return AuditEntry(
            at=time.time(),
            caller=self.caller.id,
            caller_name=self.caller.name,
            address=self.address,
            action=self.action,
            target=self.target,
            details=msgspec.json.encode(dict(self.details)).decode(),
            outcome=outcome,
            reason=reason[:_REASON],
        )


def act(connection: HTTPConnection, action: str, target: str, **details: Any) -> Act:
    """What the caller of a route is about to do."""
    address = connection.client.host if connection.client else ""
    return Act(caller_of(connection), address, action, target, tuple(details.items()))


def own(action: str, target: str) -> Act:
    """What the service does by itself."""
    return Act(SERVICE, "", action, target)


def recorded(
    session: Session,
    entry: AuditEntry,
    query: Callable[Concatenate[Session, Arguments], Result],
    *args: Arguments.args,
    **kwargs: Arguments.kwargs,
) -> Result:
    """A query with its entry, in one transaction."""
    found = query(session, *args, **kwargs)
    queries.add_entries(session, [entry])
    return found


class Audit:
    def __init__(self, store: Store, days: float) -> None:
        """`days`: how long entries are kept."""
        self._store, self._days = store, days
        self._denials = Meter(REFUSALS_PER_MINUTE, None)
        self._pruning: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._pruning = asyncio.create_task(self._prune())

    async def close(self) -> None:
        if self._pruning is not None:
            self._pruning.cancel()
            await asyncio.gather(self._pruning, return_exceptions=True)

    @asynccontextmanager
    async def attempt(self, act: Act) -> AsyncGenerator[None]:
        """Inside, somebody tries to do it; where it is refused, that is told."""
        try:
            yield
        except WalkgraphError as error:
            await self.tell(act.entry("refused", str(error)))
            raise

    async def denied(self, act: Act, reason: str) -> None:
        """Somebody has not the scope for it. There may be many of these."""
        try:
            self._denials.take()
        except RateLimited:
            return
        await self.tell(act.entry("refused", reason))

    async def tell(self, entry: AuditEntry) -> None:
        """Where the store can't be written, the log tells."""
        try:
            await self._store.write(queries.add_entries, [entry])
        except WalkgraphError as error:
            _log.error("not recorded", action=entry.action, target=entry.target, reason=str(error))

    async def _prune(self) -> None:
        while True:
            try:
                await self._store.write(queries.prune_entries, time.time() - self._days * DAY)
            except WalkgraphError as error:
                _log.warning("old entries not removed", reason=str(error))
            await asyncio.sleep(PRUNE_SECONDS)
