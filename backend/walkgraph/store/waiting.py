"""Queries on runs that wait for a person."""

from collections.abc import Iterable, Sequence

from sqlalchemy.orm import defer
from sqlalchemy.orm.attributes import QueryableAttribute
from sqlmodel import Session, col, delete, select

from walkgraph.errors import NotFound
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


def end_waiting(session: Session, runs: Iterable[str]) -> None:
    """Remove runs that don't wait any more."""
    session.exec(delete(WaitingRun).where(col(WaitingRun.run).in_([*runs])))
