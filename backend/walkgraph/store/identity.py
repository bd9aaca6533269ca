"""Check that the open SQLite file is still the one at its path.

A file that was removed or replaced stays open and accepts writes that nobody will ever read; SQLite doesn't notice. So
device and inode of the database and of its write-ahead log are compared with those at opening. A file that is moved
away and back counts as the same.
"""

from pathlib import Path

Identity = tuple[int, int]
"""Device and inode."""


class OpenedFile:
    """An open database, which stays in WAL mode."""

    def __init__(self, path: Path) -> None:
        """`path`: the database's. Connections to it must be open, so that its log exists."""
        self._path = path.absolute()
        # SQLite writes the log beside the file that a link points to.
        self._log = Path(f"{self._path.resolve()}-wal")
        self._opened = identity_of(self._path)
        self._opened_log = identity_of(self._log)

    @property
    def fault(self) -> str | None:
        """A sentence on what is wrong and what to do; it contains no path, as anybody may read it. None if all is
        well."""
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
    """Identity of a file; None if it can't be read."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino
