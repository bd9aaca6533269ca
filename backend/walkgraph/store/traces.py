"""Statements on kept traces, one function each. The caller owns the transaction."""

from collections.abc import Sequence
from typing import Any

from sqlalchemy.orm import defer
from sqlmodel import Session, col, delete, desc, func, select
from sqlmodel.sql.expression import Select

from walkgraph.errors import NotFound
from walkgraph.store.saving import age_order, save
from walkgraph.store.tables import RunTrace

KEPT_BYTES = 256 * 1024 * 1024
"""The most bytes of one deployment's traces and recordings."""
ALL_BYTES = 2 * 1024 * 1024 * 1024
"""The most bytes over all deployments, including removed ones."""

_BYTES: tuple[Any, ...] = (RunTrace.trace, RunTrace.recording)
_AT_ONCE = 500
"""The most rows named by one statement."""
_NEWEST_FIRST = (desc(col(RunTrace.created_at)), desc(col(RunTrace.run)))


def save_traces(
    session: Session,
    traces: Sequence[RunTrace],
    keep: int,
    keep_bytes: int = KEPT_BYTES,
    all_bytes: int = ALL_BYTES,
) -> None:
    """Insert or replace traces. Afterwards each of their deployments keeps its `keep` newest, as far as they fit; if
    all deployments together exceed the limit, the oldest traces go."""
    save(session, RunTrace, traces)
    for deployment in {trace.deployment for trace in traces}:
        _prune(
            session, select(RunTrace.run, RunTrace.nbytes).where(RunTrace.deployment == deployment), keep, keep_bytes
        )
    if (session.exec(select(func.sum(RunTrace.nbytes))).one() or 0) > all_bytes:
        _prune(session, select(RunTrace.run, RunTrace.nbytes), None, all_bytes)


def get_trace(session: Session, run: str) -> bytes:
    """The trace of a run. Raises NotFound."""
    found = session.exec(select(RunTrace.trace).where(RunTrace.run == run)).first()
    if found is None:
        raise NotFound(f"there is no trace of the run `{run}`")
    return found


def get_recording(session: Session, run: str) -> bytes | None:
    """The recording of a run; None if it was not recorded, or has no trace."""
    return session.exec(select(RunTrace.recording).where(RunTrace.run == run)).first()


def list_traces(session: Session, deployment: str, task: str | None, limit: int) -> Sequence[RunTrace]:
    """Traces without their bytes, newest first."""
    query = select(RunTrace).where(RunTrace.deployment == deployment)
    if task is not None:
        query = query.where(RunTrace.task == task)
    query = query.options(*(defer(column) for column in _BYTES))
    return session.exec(query.order_by(*_NEWEST_FIRST).limit(limit)).all()


def _prune(session: Session, query: Select[str, int], keep: int | None, keep_bytes: int) -> None:
    """`keep`: the most traces; None for any number."""
    room = keep_bytes
    surplus: list[str] = []
    newest = session.exec(query.order_by(desc(age_order(RunTrace.created_at)), desc(col(RunTrace.run)))).all()
    for number, (run, nbytes) in enumerate(newest):
        room -= nbytes
        # The newest one stays, whatever its size.
        if number and (room < 0 or (keep is not None and number >= keep)):
            surplus.append(run)
    for at in range(0, len(surplus), _AT_ONCE):
        session.exec(delete(RunTrace).where(col(RunTrace.run).in_(surplus[at : at + _AT_ONCE])))
