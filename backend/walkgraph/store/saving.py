"""Rows that replace those of the same key, by one statement for all: `Session.merge` asks for each first."""

from collections.abc import Sequence

from sqlalchemy import inspect
from sqlalchemy.dialects import postgresql, sqlite
from sqlmodel import Session, SQLModel

_INSERT = {"postgresql": postgresql.insert, "sqlite": sqlite.insert}


def save(session: Session, rows: Sequence[SQLModel]) -> None:
    """Insert or replace, in order; `rows`, all of one table, don't become the session's."""
    if not rows:
        return
    table = type(rows[0])
    mapper = inspect(table)
    names = mapper.column_attrs.keys()
    statement = _INSERT[session.get_bind().dialect.name](table)
    keys = [column.name for column in mapper.primary_key]
    fresh = {name: statement.excluded[name] for name in names if name not in keys}
    statement = statement.on_conflict_do_update(index_elements=keys, set_=fresh)
    session.connection().execute(statement, [{name: getattr(row, name) for name in names} for row in rows])
