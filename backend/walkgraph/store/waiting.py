"""Queries on runs that wait for a person."""

from collections.abc import Mapping, Sequence

from sqlalchemy.orm import defer
from sqlalchemy.orm.attributes import QueryableAttribute
from sqlmodel import Session, col, delete, select

from walkgraph.errors import NotFound
from walkgraph.ids import RunId
from walkgraph.store.tables import WaitingRun


def keep_waiting(session: Session, row: WaitingRun) -> None:
    """Insert or replace a run that waits."""
    session.merge(row)


def list_waiting(session: Session) -> Sequence[WaitingRun]:
    """All runs that wait, the oldest first, without their places."""
    place: QueryableAttribute[bytes] = WaitingRun.place  # pyright: ignore[reportAssignmentType]
    query = select(WaitingRun).options(defer(place)).order_by(col(WaitingRun.created_at))
    return session.exec(query).all()


def place_of(session: Session, run: str) -> bytes:
    found = session.exec(select(WaitingRun.place).where(WaitingRun.run == run)).first()
    if found is None:
        raise NotFound(f"the run `{run}` doesn't wait for a person")
    return found


def end_waiting(session: Session, runs: Mapping[RunId, float]) -> None:
    """Remove runs that don't wait any more. `runs`: with the time limit of the approval that is over, as a run may wait
    at its next one already."""
    for run, expires_at in runs.items():
        session.exec(delete(WaitingRun).where(col(WaitingRun.run) == run, col(WaitingRun.expires_at) == expires_at))
