"""Opening the database, and transactions: many readers, one writer at a time, durable once acknowledged."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, Concatenate, ParamSpec, Self, TypeVar

import anyio.to_thread
from alembic import command
from alembic.config import Config
from sqlalchemy import Connection, Engine, event
from sqlalchemy.exc import DBAPIError, OperationalError
from sqlmodel import Session, create_engine

from walkgraph.errors import WalkgraphError

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")

_MIGRATIONS = Path(__file__).parent / "migrations"
_WRITE = "walkgraph_write"
_FULL = ("database or disk is full", "disk i/o error")


class StoreFull(WalkgraphError):
    """Nothing was written: there is no room on the disk."""

    code = "overloaded"
    retryable = True


class StoreBusy(WalkgraphError):
    """Nothing was written: somebody else holds the database, or it can't be reached."""

    code = "overloaded"
    retryable = True


class Store:
    """Runs one query function a transaction, off the event loop."""

    def __init__(self, engine: Engine) -> None:
        self._reads = engine
        self._writes = engine.execution_options(**{_WRITE: True})

    @classmethod
    def open(cls, url: str) -> Self:
        """Open the database, made or brought to the newest schema first."""
        engine = create_engine(url, connect_args={"check_same_thread": False} if url.startswith("sqlite") else {})
        if engine.dialect.name == "sqlite":
            if engine.url.database:
                Path(engine.url.database).touch(mode=0o600)
            event.listen(engine, "connect", _prepare_sqlite)
            event.listen(engine, "begin", _begin_sqlite)
        store = cls(engine)
        _migrate(store._writes)
        return store

    def close(self) -> None:
        self._reads.dispose()

    def read_now(
        self,
        query: Callable[Concatenate[Session, Arguments], Result],
        *args: Arguments.args,
        **kwargs: Arguments.kwargs,
    ) -> Result:
        with Session(self._reads, expire_on_commit=False) as session, session.begin():
            return query(session, *args, **kwargs)

    def write_now(
        self,
        query: Callable[Concatenate[Session, Arguments], Result],
        *args: Arguments.args,
        **kwargs: Arguments.kwargs,
    ) -> Result:
        """Once this returns, what was written survives a crash. Raises StoreFull where the disk has no room, StoreBusy
        where the database can't be written now."""
        try:
            with Session(self._writes, expire_on_commit=False) as session, session.begin():
                return query(session, *args, **kwargs)
        except DBAPIError as error:
            if any(sign in str(error.orig).lower() for sign in _FULL):
                raise StoreFull("there is no room on the disk for the database; make some and try again") from error
            if isinstance(error, OperationalError):
                raise StoreBusy("the database can't be written now; try again, and see the service's log") from error
            raise

    async def read(
        self,
        query: Callable[Concatenate[Session, Arguments], Result],
        *args: Arguments.args,
        **kwargs: Arguments.kwargs,
    ) -> Result:
        return await anyio.to_thread.run_sync(lambda: self.read_now(query, *args, **kwargs))

    async def write(
        self,
        query: Callable[Concatenate[Session, Arguments], Result],
        *args: Arguments.args,
        **kwargs: Arguments.kwargs,
    ) -> Result:
        return await anyio.to_thread.run_sync(lambda: self.write_now(query, *args, **kwargs))


def _prepare_sqlite(connection: Any, _record: object) -> None:
    # The driver's own transactions would leave DDL outside and begin writes too late; `_begin_sqlite` begins them.
    connection.isolation_level = None
    for pragma in ("journal_mode=WAL", "busy_timeout=5000", "synchronous=FULL", "foreign_keys=ON"):
        connection.execute(f"PRAGMA {pragma}")


def _begin_sqlite(connection: Connection) -> None:
    # A write that begins as a read can't wait for another writer: it fails with `database is locked` when it upgrades.
    write = connection.get_execution_options().get(_WRITE, False)
    connection.exec_driver_sql("BEGIN IMMEDIATE" if write else "BEGIN")


def _migrate(engine: Engine) -> None:
    config = Config()
    config.set_main_option("script_location", str(_MIGRATIONS).replace("%", "%%"))
    with engine.connect() as connection:
        config.attributes["connection"] = connection
        command.upgrade(config, "head")
