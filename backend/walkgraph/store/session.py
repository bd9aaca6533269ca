"""Open the database and run transactions: many readers, one writer at a time, durable once acknowledged.

SQLite in a file, or PostgreSQL, with the same guarantees: a write sees everything before it, and nothing comes in
between.
"""

import sqlite3
import zlib
from collections.abc import Callable, Generator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any, Concatenate, ParamSpec, Self, TypeVar
from urllib.parse import quote

import anyio.to_thread
import structlog
from sqlalchemy import URL, Connection, Engine, QueuePool, event, inspect, make_url
from sqlalchemy.exc import ArgumentError, DataError, DBAPIError, NoSuchModuleError, OperationalError
from sqlalchemy.exc import TimeoutError as NoConnection
from sqlmodel import Session, create_engine

from walkgraph.errors import InvalidInput, Refused, WalkgraphError
from walkgraph.store.identity import OpenedFile
from walkgraph.store.ownership import Ownership, Taken

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")

_MIGRATIONS = Path(__file__).parent / "migrations"
NEWEST = "0005"
"""The newest revision in `_MIGRATIONS`."""
_WRITE = "walkgraph_write"
_BUSY = "the database can't be used now; try again, and see the service's log"
_FULL = ("database or disk is full", "disk i/o error", "no space left on device")
_DRIVERS = {"sqlite": "sqlite", "postgresql": "postgresql+psycopg", "postgres": "postgresql+psycopg"}
OWNER_SECONDS = 5.0
"""PostgreSQL takes a moment to notice that a service has died."""
_WRITER = zlib.crc32(b"walkgraph writer")
"""The name of PostgreSQL's advisory lock of the writing transaction."""
_KEEPALIVE = {"keepalives_idle": 10, "keepalives_interval": 5, "keepalives_count": 3}
"""Keep-alive settings, in seconds, that detect a server which is gone."""
_CACHE = 512
"""KiB of pages that a connection to SQLite caches. All connections fill theirs in the course of hours; the operating
system caches the same pages once."""
_CONNECTIONS = 15
"""Connections to SQLite, all created at opening, as a later one could open another file of the same name."""

_log = structlog.get_logger("walkgraph.store")


class StoreFull(WalkgraphError):
    """Nothing was written: the disk is full."""

    code = "overloaded"
    retryable = True


class StoreBusy(WalkgraphError):
    """Nothing was written: another process holds the database, or it can't be reached."""

    code = "overloaded"
    retryable = True


class StoreLost(WalkgraphError):
    """Nothing was saved: the open file is no longer at its path."""

    code = "storage_lost"


class Store:
    """Runs one query function per transaction, off the event loop."""

    def __init__(self, engine: Engine, owner: Ownership | None = None, address: str | None = None) -> None:
        """`owner`: holds a PostgreSQL database for this service. `address`: as for `open`."""
        self._reads, self._address = engine, address
        self._writes = engine.execution_options(**{_WRITE: True})
        self._owner = owner
        self._file: OpenedFile | None = None
        """The SQLite file; None for PostgreSQL, or before it is open."""
        self._noticed: str | None = None
        """The file's fault that was last logged."""

    @classmethod
    def open(cls, url: str, address: str | None = None, seconds: float = OWNER_SECONDS) -> Self:
        """Open the database, creating it or upgrading its schema first. `address`: where this service is reached, for
        others that open the database. `seconds`: how long to wait until another service has left it.

        Raises Refused where the URL is none that can be used, StoreBusy where nothing answers there, Taken where
        another service has the database.
        """
        engine = _engine(url)
        with ExitStack() as undone:
            undone.callback(engine.dispose)
            try:
                shared = engine.dialect.name == "postgresql"
                store = cls(engine, Ownership.take(engine, address, seconds) if shared else None, address)
                undone.callback(store.close)
                _migrate(store._writes)
                store._settle()
            except OperationalError as error:
                raise StoreBusy(
                    f"the database {engine.url.render_as_string()} can't be used: it must exist and accept this user"
                ) from error
            undone.pop_all()
        return store

    def close(self) -> None:
        if self._owner is not None:
            with suppress(DBAPIError):
                self._owner.close()
        self._reads.dispose()

    def keep(self) -> bool:
        """True if this service has the database, also if it must take it again, as after the server was started anew.
        False if the server can't be asked, or hasn't noticed yet that an earlier connection is gone. Raises Taken if
        another service has it."""
        if self._owner is None or self._owner.holds:
            return True
        try:
            self._owner = Ownership.take(self._reads, self._address, 0.1)
        except Taken as taken:
            if taken.address != self._address:
                raise
            return False
        except DBAPIError:
            return False
        return True

    @property
    def fault(self) -> str | None:
        """A sentence on why nothing can be saved and what to do; None if all is well."""
        return self._file.fault if self._file else None

    def read_now(
        self,
        query: Callable[Concatenate[Session, Arguments], Result],
        *args: Arguments.args,
        **kwargs: Arguments.kwargs,
    ) -> Result:
        """Run a query. Raises StoreBusy if the database can't be reached. A file that was removed or replaced can still
        be read as it was."""
        with _told(), Session(self._reads, expire_on_commit=False) as session, session.begin():
            return query(session, *args, **kwargs)

    def write_now(
        self,
        query: Callable[Concatenate[Session, Arguments], Result],
        *args: Arguments.args,
        **kwargs: Arguments.kwargs,
    ) -> Result:
        """Run a query whose changes survive a crash once this returns. Raises StoreFull if the disk is full, StoreBusy
        if the database can't be written now, StoreLost if its file was removed or replaced."""
        with _told(), Session(self._writes, expire_on_commit=False) as session:
            self.check()
            with session.begin():
                result = query(session, *args, **kwargs)
            # Changes committed to a file that is gone must not be acknowledged.
            self.check()
            return result

    def check(self) -> None:
        """Raise StoreLost if the open file is no longer at its path."""
        fault = self.fault
        if fault != self._noticed:
            self._notice(fault)
        if fault is not None:
            raise StoreLost(fault)

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

    def _settle(self) -> None:
        """Finish opening: the database and all its connections exist."""
        if self._reads.dialect.name != "sqlite" or not self._reads.url.database:
            return
        path = Path(str(self._reads.url.database))
        with ExitStack() as opened:
            for _ in range(_CONNECTIONS):
                opened.enter_context(self._reads.connect())
            self._file = OpenedFile(path)
        event.listen(self._reads, "connect", self._refuse_another, insert=True)

    def _refuse_another(self, *_: object) -> None:
        fault = self.fault
        if fault is not None:
            raise StoreLost(fault)

    def _notice(self, fault: str | None) -> None:
        """Log the file's fault, once per change."""
        self._noticed = fault
        if fault is None:
            _log.warning("the database file is back; it is written again")
            return
        _log.error("the database file is lost", reason=fault)
        # The log belongs to the opened file. SQLite would replay it into another file of the same name.
        with suppress(DBAPIError), self._reads.connect() as connection:
            connection.exec_driver_sql("PRAGMA wal_checkpoint(TRUNCATE)")


@contextmanager
def _told() -> Generator[None]:
    """Translate database errors into ours."""
    try:
        yield
    except DBAPIError as error:
        if any(sign in str(error.orig).lower() for sign in _FULL):
            raise StoreFull("the disk is too full for the database; free some space and try again") from error
        if isinstance(error, DataError):
            raise InvalidInput("a text has a character that the database can't keep (NUL); leave it out") from error
        if isinstance(error, OperationalError):
            raise StoreBusy(_BUSY) from error
        raise
    except NoConnection as error:
        raise StoreBusy(_BUSY) from error


def _engine(url: str) -> Engine:
    try:
        parsed = make_url(url)
        driver = _DRIVERS.get(parsed.drivername, parsed.drivername)
        if driver not in _DRIVERS.values():
            raise Refused(f"`{parsed.drivername}` is not a supported database; write sqlite:///... or postgresql://...")
        parsed = parsed.set(drivername=driver)
        if driver == "sqlite" and parsed.database:
            engine = _sqlite_engine(parsed)
        elif driver == "sqlite":
            engine = _memory_engine(parsed)
        else:
            engine = create_engine(parsed, connect_args=_KEEPALIVE, pool_pre_ping=True, hide_parameters=True)
    except (ArgumentError, NoSuchModuleError):
        raise Refused(
            "`WALKGRAPH_DATABASE_URL` is not the address of a database; write postgresql://USER:PASSWORD@HOST/NAME"
        ) from None
    except ModuleNotFoundError:
        raise Refused("for PostgreSQL its driver is needed: pip install 'walkgraph[postgres]'") from None
    if driver == "sqlite":
        event.listen(engine, "connect", _prepare_sqlite)
        event.listen(engine, "begin", _begin_sqlite)
    else:
        event.listen(engine, "begin", _begin_postgresql)
    return engine


def _sqlite_engine(url: URL) -> Engine:
    """An engine whose connections open the existing file and never create one."""
    path = Path(str(url.database))
    path.touch(mode=0o600)
    address = f"file:{quote(str(path.absolute()))}?mode=rw"

    def connect() -> sqlite3.Connection:
        return sqlite3.connect(address, uri=True, check_same_thread=False)

    # The most recently used connection has the next reads in its cache.
    return create_engine(url, creator=connect, pool_size=_CONNECTIONS, max_overflow=0, pool_use_lifo=True)


def _memory_engine(url: URL) -> Engine:
    """An engine whose only connection has all of the database: threads lend it to each other, and none keeps one."""
    lent = {"poolclass": QueuePool, "pool_size": 1, "max_overflow": 0}
    return create_engine(url, connect_args={"check_same_thread": False}, **lent)


def _begin_postgresql(connection: Connection) -> None:
    # Writes that follow reads in a transaction rely on exclusive access, as with SQLite's single writer, so writers
    # wait for each other.
    if connection.get_execution_options().get(_WRITE, False):
        connection.exec_driver_sql(f"SELECT pg_advisory_xact_lock({_WRITER})")


def _prepare_sqlite(connection: Any, _record: object) -> None:
    # The driver's own transactions would exclude DDL and start writes too late; `_begin_sqlite` starts them.
    connection.isolation_level = None
    settings = ("journal_mode=WAL", "busy_timeout=5000", "synchronous=FULL", "foreign_keys=ON", f"cache_size=-{_CACHE}")
    for pragma in settings:
        connection.execute(f"PRAGMA {pragma}")
    # This opens the log too.
    connection.execute("SELECT count(*) FROM sqlite_schema").fetchone()


def _begin_sqlite(connection: Connection) -> None:
    # A write that begins as a read can't wait for another writer: the upgrade fails with `database is locked`.
    write = connection.get_execution_options().get(_WRITE, False)
    connection.exec_driver_sql("BEGIN IMMEDIATE" if write else "BEGIN")


def _migrate(engine: Engine) -> None:
    if _revision(engine) == NEWEST:
        return
    # Imported late: a service that is started again has nothing to migrate.
    from alembic import command
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", str(_MIGRATIONS).replace("%", "%%"))
    with engine.connect() as connection:
        config.attributes["connection"] = connection
        command.upgrade(config, "head")


def _revision(engine: Engine) -> str | None:
    """The schema's revision; None for a database without one."""
    with engine.connect() as connection:
        if not inspect(connection).has_table("alembic_version"):
            return None
        return connection.exec_driver_sql("SELECT version_num FROM alembic_version").scalar()
