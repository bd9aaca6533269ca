"""Files of memory that a sender lends to its receiver, and fills again once they have come back: the kernel takes
several times as long to make a file's pages as to fill them.

    sender    lend(number, data) ── file ──> receiver, which maps or copies it
              give_back(number) <── number ── when nothing there refers to the bytes any more

A file has the same size for good, so that a view of it is never beyond its end. Its bytes change only while it is here:
the receiver has to rely on that, as it does for the bytes themselves.
"""

import fcntl
import os
import resource
from typing import NamedTuple

SIZED = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL
"""The seals of a lent file."""
MOST_LENT = 1024
"""The most files that are lent at the same time."""
MOST_FREE_BYTES = 64 * 1024 * 1024
"""The most memory that waits here to be filled again."""
_SLACK = 4
"""At most this part of a file may stay unused: a quarter."""


class _File(NamedTuple):
    descriptor: int
    nbytes: int


class LentFiles:
    def __init__(self, most: int | None = None) -> None:
        """`most`: files that are lent at the same time; None: as many as this process can spare."""
        self._most = _spared() if most is None else most
        self._free: list[_File] = []
        """Oldest first."""
        self._lent: dict[int, _File] = {}
        """By the numbers of their values."""

    def lend(self, number: int, data: bytes | memoryview) -> int | None:
        """The descriptor of a file that begins with these bytes; it stays open here. None if too many are lent. Raises
        OSError."""
        if len(self._lent) >= self._most:
            return None
        fitting = (one for one in self._free if len(data) <= one.nbytes <= len(data) + len(data) // _SLACK)
        found = next(fitting, None)
        if found is None:
            found = _made(data)
        else:
            self._free.remove(found)
            try:
                _write(found.descriptor, data)
            except OSError:
                os.close(found.descriptor)
                raise
        self._lent[number] = found
        return found.descriptor

    def give_back(self, number: int) -> None:
        """Take a file back; no effect for one that is not lent."""
        found = self._lent.pop(number, None)
        if found is None:
            return
        self._free.append(found)
        while sum(one.nbytes for one in self._free) > MOST_FREE_BYTES:
            os.close(self._free.pop(0).descriptor)

    def forget(self) -> None:
        """Close all files. The memory of those that are lent is free with the last view of it."""
        for one in (*self._free, *self._lent.values()):
            os.close(one.descriptor)
        self._free.clear()
        self._lent.clear()


def _spared() -> int:
    """A quarter of the files that this process may open, at most."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return MOST_LENT if soft == resource.RLIM_INFINITY else min(MOST_LENT, soft // 4)


def _made(data: bytes | memoryview) -> _File:
    file = os.memfd_create("walkgraph-lent", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    try:
        _write(file, data)
        fcntl.fcntl(file, fcntl.F_ADD_SEALS, SIZED)
    except OSError:
        os.close(file)
        raise
    return _File(file, len(data))


def _write(file: int, data: bytes | memoryview) -> None:
    left, at = memoryview(data), 0
    while left:
        count = os.pwrite(file, left, at)
        left, at = left[count:], at + count
