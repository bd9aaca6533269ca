"""Memory for large content that comes in, used again once nobody has it any more.

The kernel takes longer to make a page than to copy what goes into it, so memory that has been used is the fastest.
"""

from __future__ import annotations

import mmap
import threading
from contextlib import suppress

SMALL_BYTES = 64 * 1024
"""Smaller content has memory of the heap, which uses its pages again by itself."""
HUGE_BYTES = 16 * 1024 * 1024
"""Larger content has memory of its own, in huge pages where the system has them: they are there at once."""
KEPT_BYTES = 64 * 1024 * 1024
"""The most memory that is kept to be used again."""


class Rooms:
    """Gives out memory. Threads may share it."""

    def __init__(self) -> None:
        self._kept: list[bytearray] = []
        """The memory that was given out, of which some is in use; oldest first."""
        self._bytes = 0
        self._lock = threading.Lock()

    def room(self, nbytes: int) -> memoryview:
        """Memory for so many bytes, with any content. It is in use as long as it has a view."""
        if nbytes < SMALL_BYTES:
            return memoryview(bytearray(nbytes))
        if nbytes > HUGE_BYTES:
            return _huge(nbytes)
        with self._lock:
            fitting = (one for one in self._kept if nbytes <= len(one) <= nbytes + nbytes // 4)
            found = next(filter(_unused, fitting), None)
            return memoryview(self._made(nbytes) if found is None else found)[:nbytes]

    def _made(self, nbytes: int) -> bytearray:
        made = bytearray(nbytes)
        self._kept.append(made)
        self._bytes += nbytes
        while self._bytes > KEPT_BYTES:
            # It is freed with its last view.
            self._bytes -= len(self._kept.pop(0))
        return made


room = Rooms().room
"""The memory of this process."""


def _unused(memory: bytearray) -> bool:
    """True if it has no view: with one, its length can't be changed."""
    try:
        memory.append(memory.pop())
    except BufferError:
        return False
    return True


def _huge(nbytes: int) -> memoryview:
    if not hasattr(mmap, "MADV_HUGEPAGE"):
        return memoryview(bytearray(nbytes))
    made = mmap.mmap(-1, nbytes, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    # A kernel may have been built without them.
    with suppress(OSError):
        made.madvise(mmap.MADV_HUGEPAGE)
    return memoryview(made)
