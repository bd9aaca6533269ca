"""A PostgreSQL database belongs to the one service whose connection holds a lock.

The connection also tells where its service is reached, so that the address is gone with the service. PostgreSQL notices
a client that went silent, whose machine is gone, within `SILENT_SECONDS`.
"""

import zlib
from typing import Self

from sqlalchemy import Connection, Engine
from sqlalchemy.exc import DBAPIError, OperationalError

from walkgraph.errors import Conflict

SILENT_SECONDS = 16
_IDLE, _INTERVAL, _COUNT = 10, 2, 3
"""Keep-alive settings of the server's side: `_IDLE` seconds, then `_COUNT` probes."""
_NAME = "walkgraph "
MOST_ADDRESS = 63 - len(_NAME)
"""Characters of an address: PostgreSQL cuts the names of connections."""
_LOCK = zlib.crc32(b"walkgraph owner")
_HOLDER = """
SELECT application_name FROM pg_stat_activity JOIN pg_locks USING (pid)
WHERE locktype = 'advisory' AND classid = 0 AND objid::bigint = %s AND granted AND datname = current_database()
"""


class Taken(Conflict):
    """Another service has the database."""

    def __init__(self, message: str, address: str | None) -> None:
        super().__init__(message)
        self.address = address
        """The address at which that one is reached; None if it doesn't tell."""


class Ownership:
    """A connection that holds the database for this service. The lock ends with it, however the service dies."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    @classmethod
    def take(cls, engine: Engine, address: str | None, seconds: float) -> Self:
        """Take the database, waiting for as long as `seconds`. `address`: where this service is reached. Raises
        Taken, sqlalchemy.exc.OperationalError."""
        connection = engine.connect().execution_options(isolation_level="AUTOCOMMIT")
        # The pool must neither lend it out nor discard it with connections that a server closed.
        connection.detach()
        try:
            connection.exec_driver_sql("SELECT set_config('application_name', %s, false)", (_NAME + (address or ""),))
            for name, value in ("idle", _IDLE), ("interval", _INTERVAL), ("count", _COUNT):
                connection.exec_driver_sql(f"SET tcp_keepalives_{name} = {value}")
            connection.exec_driver_sql(f"SET lock_timeout = {round(seconds * 1000)}")
        except DBAPIError:
            connection.close()
            raise
        try:
            connection.exec_driver_sql(f"SELECT pg_advisory_lock({_LOCK})")
        except OperationalError:
            told = connection.exec_driver_sql(_HOLDER, (_LOCK,)).scalar()
            connection.close()
            raise Taken(
                f"another Walkgraph service uses the database {engine.url.render_as_string()}; give each one its own",
                (told or "").removeprefix(_NAME) or None,
            ) from None
        return cls(connection)

    @property
    def holds(self) -> bool:
        """True if the connection still is there, and with it the lock. Waits for the server's answer."""
        try:
            self._connection.exec_driver_sql("SELECT 1")
        except DBAPIError:
            return False
        return True

    def close(self) -> None:
        self._connection.close()
