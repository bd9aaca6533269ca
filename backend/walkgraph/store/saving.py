"""Insert or replace rows with one statement for all; `Session.merge` would first query each."""

from collections.abc import Iterable, Mapping
from typing import Any

from sqlalchemy import inspect
from sqlalchemy.dialects import postgresql, sqlite
from sqlmodel import Session, SQLModel

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
