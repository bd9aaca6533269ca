"""The audit log: who changed what, when, and from where. Rows are added and never changed.

A change of the store and its entry are written in one transaction (`recorded`), so neither exists without the other.
A refused attempt gets its entry right after it.
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
"""Limit of entries for callers that lack a scope; beyond it, only the process's log shows the requests."""
_REASON = 500
"""Characters of a reason."""

_log = structlog.get_logger("walkgraph.audit")


@dataclass(frozen=True)
class Act:
    """A change that somebody is about to make."""

    caller: Caller
    address: str
    action: str
    target: str
    details: tuple[tuple[str, Any], ...] = ()
    """Names, etags, numbers; nothing secret, nothing long."""

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
    """An act of a route's caller."""
    address = connection.client.host if connection.client else ""
    return Act(caller_of(connection), address, action, target, tuple(details.items()))


def own(action: str, target: str) -> Act:
    """An act of the service itself."""
    return Act(SERVICE, "", action, target)


def recorded(
    session: Session,
    entry: AuditEntry,
    query: Callable[Concatenate[Session, Arguments], Result],
    *args: Arguments.args,
    **kwargs: Arguments.kwargs,
) -> Result:
    """Runs a query and adds its entry, in one transaction."""
    found = query(session, *args, **kwargs)
    queries.add_entries(session, [entry])
    return found


class Audit:
    def __init__(self, store: Store, days: float) -> None:
        """`days`: how long entries are kept."""
        self._store, self._days = store, days
        self._began = time.time() - time.monotonic()
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
        """Encloses the attempt at an act; writes an entry if it is refused."""
        try:
            yield
        except WalkgraphError as error:
            await self.tell(act.entry("refused", str(error)))
            raise

    async def denied(self, act: Act, reason: str) -> None:
        """Writes an entry for an act whose caller lacks the scope. The rate is limited, since there may be many."""
        try:
            self._denials.take()
        except RateLimited:
            return
        await self.tell(act.entry("refused", reason))

    async def tell(self, entry: AuditEntry) -> None:
        """Writes an entry. If the store can't be written, logs an error instead."""
        try:
            await self._store.write(queries.add_entries, [entry])
        except WalkgraphError as error:
            _log.error("not recorded", action=entry.action, target=entry.target, reason=str(error))

    def _now(self) -> float:
        """Epoch seconds. A wall clock that jumps ahead does not make all entries old."""
        return min(time.time(), self._began + time.monotonic())

    async def _prune(self) -> None:
        while True:
            try:
                await self._store.write(queries.prune_entries, self._now() - self._days * DAY)
            except WalkgraphError as error:
                _log.warning("old entries not removed", reason=str(error))
            await asyncio.sleep(PRUNE_SECONDS)
