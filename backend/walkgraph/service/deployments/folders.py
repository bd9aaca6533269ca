"""Folders of deployments' processes, below the home: what they are started from, their sockets, their log.

A version has one of its own while it lives; the slots of a deployment are used again. They go with the deployment.
"""

import hashlib
import re
import shutil
from collections.abc import Container, Iterable
from itertools import count
from pathlib import Path

import structlog

_SLOTS = 32
"""Of one deployment; it has rarely more than three versions at a time."""
_NAME = re.compile(r"[0-9a-f]{10}")

_log = structlog.get_logger("walkgraph.deployments")


class Folders:
    def __init__(self, home: Path) -> None:
        self._root = home / "d"

    def free(self, id_: str, taken: Container[Path]) -> Path:
        """The first one of a deployment that no other version of it has; it may not be there yet."""
        return next(path for path in (self._of(id_, slot) for slot in count()) if path not in taken)

    def remove(self, id_: str) -> None:
        """Those of a deployment. None of its processes may live."""
        for slot in range(_SLOTS):
            _remove(self._of(id_, slot))

    def sweep(self, wanted: Iterable[str]) -> None:
        """Remove all but those of these deployments. To be called before any process is started; what a killed service
        left behind has died with it."""
        kept = {self._of(id_, slot).name for id_ in wanted for slot in range(_SLOTS)}
        if not self._root.is_dir():
            return
        for found in self._root.iterdir():
            if _NAME.fullmatch(found.name) and found.name not in kept:
                _remove(found)

    def _of(self, id_: str, slot: int) -> Path:
        # Short, whatever the id: unix sockets lie in it.
        return self._root / hashlib.sha256(f"{id_} {slot}".encode()).hexdigest()[:10]


def _remove(path: Path) -> None:
    """With what is in it; links are never followed, and one in its place is left alone."""
    if path.is_symlink() or not path.is_dir():
        return
    try:
        shutil.rmtree(path)
    except OSError as error:
        # The next start tries again.
        _log.warning("folder not removed", folder=path.name, reason=error.strerror or type(error).__name__)
