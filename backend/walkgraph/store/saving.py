"""Insert or replace rows with one statement for all; `Session.merge` would first query each."""

import time
from collections.abc import Iterable, Mapping
from typing import Any

from sqlalchemy import ColumnElement, case, inspect
from sqlalchemy.dialects import postgresql, sqlite
from sqlmodel import Session, SQLModel, col

_INSERT = {"postgresql": postgresql.insert, "sqlite": sqlite.insert}


def save(session: Session, table: type[SQLModel], rows: Iterable[SQLModel | Mapping[str, Any]]) -> None:
    """Insert or replace rows in order. `rows`: of the table, or all their columns by name; the session doesn't own
    them."""
    mapper = inspect(table)
    names = mapper.column_attrs.keys()
    columns = [row if isinstance(row, Mapping) else {name: getattr(row, name) for name in names} for row in rows]
    if not columns:
        return
    statement = _INSERT[session.get_bind().dialect.name](table)
    keys = [column.name for column in mapper.primary_key]
    fresh = {name: statement.excluded[name] for name in names if name not in keys}
    statement = statement.on_conflict_do_update(index_elements=keys, set_=fresh)
    session.connection().execute(statement, columns)


def age_order(created_at: float) -> ColumnElement[float]:
    """A column of epoch seconds to order rows by, newest last. What lies in the future is older than all else: the
    clock was set back since, and rows that come now must outlive it."""
    return case((col(created_at) > time.time(), 0.0), else_=col(created_at))
