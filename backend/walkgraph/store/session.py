"""Opening the database, and transactions: many readers, one writer at a time, durable once acknowledged.

SQLite in a file, or PostgreSQL; what a transaction may rely on is the same: writes see everything before them, and
nothing comes between.
"""

import zlib
from collections.abc import Callable, Generator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any, Concatenate, ParamSpec, Self, TypeVar

import anyio.to_thread
from alembic import command
from alembic.config import Config
from sqlalchemy import Connection, Engine, event, make_url
from sqlalchemy.exc import ArgumentError, DataError, DBAPIError, NoSuchModuleError, OperationalError
from sqlmodel import Session, create_engine

from walkgraph.errors import Conflict, InvalidInput, Refused, WalkgraphError

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")

_MIGRATIONS = Path(__file__).parent / "migrations"
_WRITE = "walkgraph_write"
_FULL = ("database or disk is full", "disk i/o error", "no space left on device")
_DRIVERS = {"sqlite": "sqlite", "postgresql": "postgresql+psycopg", "postgres": "postgresql+psycopg"}
_WRITER, _OWNER = zlib.crc32(b"walkgraph writer"), zlib.crc32(b"walkgraph owner")
"""Names of PostgreSQL's advisory locks: of the transaction that writes, and of the service whose database it is."""
_KEEPALIVE = {"keepalives_idle": 10, "keepalives_interval": 5, "keepalives_count": 3}
"""Seconds after which a server that is gone without a word is known to be."""


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

    def __init__(self, engine: Engine, owner: Connection | None = None) -> None:
        """`owner`: holds the database for this service, as long as it lives."""
        self._reads = engine
        self._writes = engine.execution_options(**{_WRITE: True})
        self._owner = owner

    @classmethod
    def open(cls, url: str) -> Self:
        """Open the database, made or brought to the newest schema first.

        Raises Refused where the address is none that can be used, StoreBusy where nothing answers there, Conflict where
        another service has the database.
        """
        engine = _engine(url)
        with ExitStack() as undone:
            undone.callback(engine.dispose)
            try:
                store = cls(engine, _owned(engine) if engine.dialect.name == "postgresql" else None)
                undone.callback(store.close)
                _migrate(store._writes)
            except OperationalError as error:
                raise StoreBusy(
                    f"the database {engine.url.render_as_string()} can't be used: it must be there and take this user"
                ) from error
            undone.pop_all()
        return store

    def close(self) -> None:
        if self._owner is not None:
            with suppress(DBAPIError):
                self._owner.close()
        self._reads.dispose()

    def read_now(
        self,
        query: Callable[Concatenate[Session, Arguments], Result],
        *args: Arguments.args,
        **kwargs: Arguments.kwargs,
    ) -> Result:
        """Raises StoreBusy where the database can't be reached."""
        with _told(), Session(self._reads, expire_on_commit=False) as session, session.begin():
            return query(session, *args, **kwargs)

    def write_now(
        self,
        query: Callable[Concatenate[Session, Arguments], Result],
        *args: Arguments.args,
        **kwargs: Arguments.kwargs,
    ) -> Result:
        """Once this returns, what was written survives a crash. Raises StoreFull where the disk has no room, StoreBusy
        where the database can't be written now."""
        with _told(), Session(self._writes, expire_on_commit=False) as session, session.begin():
            return query(session, *args, **kwargs)

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


@contextmanager
def _told() -> Generator[None]:
    """The database's failures in our words."""
    try:
        yield
    except DBAPIError as error:
        if any(sign in str(error.orig).lower() for sign in _FULL):
            raise StoreFull("there is no room on the disk for the database; make some and try again") from error
        if isinstance(error, DataError):
            raise InvalidInput("a text has a character that the database can't keep (NUL); leave it out") from error
        if isinstance(error, OperationalError):
            raise StoreBusy("the database can't be used now; try again, and see the service's log") from error
        raise


def _engine(url: str) -> Engine:
    try:
        parsed = make_url(url)
        driver = _DRIVERS.get(parsed.drivername, parsed.drivername)
        if driver not in _DRIVERS.values():
            raise Refused(
                f"`{parsed.drivername}` is no database that can be used; write sqlite:///... or postgresql://..."
            )
        parsed = parsed.set(drivername=driver)
        if driver == "sqlite":
            engine = create_engine(parsed, connect_args={"check_same_thread": False})
        else:
            engine = create_engine(parsed, connect_args=_KEEPALIVE, pool_pre_ping=True, hide_parameters=True)
    except (ArgumentError, NoSuchModuleError):
        raise Refused(
            "`WALKGRAPH_DATABASE_URL` is no address of a database: postgresql://USER:PASSWORD@HOST/NAME"
        ) from None
    except ModuleNotFoundError:
        raise Refused("for PostgreSQL its driver is needed: pip install 'walkgraph[postgres]'") from None
    if driver == "sqlite":
        if engine.url.database:
            Path(engine.url.database).touch(mode=0o600)
        event.listen(engine, "connect", _prepare_sqlite)
        event.listen(engine, "begin", _begin_sqlite)
    else:
        event.listen(engine, "begin", _begin_postgresql)
    return engine


def _owned(engine: Engine) -> Connection:
    """A connection that holds the database: its end frees it, however its service died."""
    owner = engine.connect().execution_options(isolation_level="AUTOCOMMIT")
    # The pool must not lend it to others, nor forget it with those that a server took along.
    owner.detach()
    if owner.exec_driver_sql(f"SELECT pg_try_advisory_lock({_OWNER})").scalar():
        return owner
    owner.close()
    raise Conflict(
        f"another Walkgraph service uses the database {engine.url.render_as_string()}; give each one its own"
    )


def _begin_postgresql(connection: Connection) -> None:
    # Reads that are followed by writes rely on them, as with SQLite's one writer: whoever writes waits for who does.
    if connection.get_execution_options().get(_WRITE, False):
        connection.exec_driver_sql(f"SELECT pg_advisory_xact_lock({_WRITER})")


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
