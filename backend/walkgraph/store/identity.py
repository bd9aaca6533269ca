"""Whether the SQLite file that was opened is still the one at its path.

A file that is removed or replaced stays open, and takes writes that nobody will ever read: SQLite doesn't notice. So
device and inode of the database and of its write-ahead log are compared with what was opened. A file that is moved away
and back is the same one again.
"""

from pathlib import Path

Identity = tuple[int, int]
"""Device and inode."""


class OpenedFile:
    """A database that is open in WAL mode, and stays so."""

    def __init__(self, path: Path) -> None:
        """`path`: of the database. Connections to it must be open, so that its log exists."""
        self._path = path.absolute()
        # SQLite writes the log beside the file that a link points at.
        self._log = Path(f"{self._path.resolve()}-wal")
        self._opened = identity_of(self._path)
        self._opened_log = identity_of(self._log)

    @property
    def fault(self) -> str | None:
        """What is wrong with it, and what to do, in a sentence without a path: anybody may read it."""
        found = identity_of(self._path)
        if found is None:
            return (
                "the database file was removed while the service ran, so nothing can be saved: "
                "move it back, or restart the service, which begins with an empty one"
            )
        if found != self._opened:
            return (
                "the database file was replaced while the service ran, so nothing can be saved: "
                "restart the service to use the new file, or move the old one back"
            )
        if self.log_is_ours:
            return None
        return (
            "the `-wal` file of the database was removed or replaced while the service ran, so nothing can be saved: "
            "move it back, or restart the service"
        )

    @property
    def log_is_ours(self) -> bool:
        return identity_of(self._log) == self._opened_log

    @property
    def log(self) -> Path:
        return self._log


def identity_of(path: Path) -> Identity | None:
    """None where there is no file that can be looked at."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino
