"""Folders of deployment processes below the home: their specs, sockets and logs.

Each living version has a folder of its own. A deployment reuses its folders, and they are removed with it.
"""

import hashlib
import re
import shutil
from collections.abc import Container, Iterable
from itertools import count
from pathlib import Path

import structlog

_SLOTS = 32
"""Folders per deployment; it rarely has more than three versions at a time."""
_NAME = re.compile(r"[0-9a-f]{10}")

_log = structlog.get_logger("walkgraph.deployments")


class Folders:
    def __init__(self, home: Path) -> None:
        self._root = home / "d"

    def free(self, id_: str, taken: Container[Path]) -> Path:
        """The deployment's first folder that no other version uses; it may not exist yet."""
        return next(path for path in (self._of(id_, slot) for slot in count()) if path not in taken)

    def remove(self, id_: str) -> None:
        """Removes the folders of a deployment. None of its processes may be alive."""
        for slot in range(_SLOTS):
            _remove(self._of(id_, slot))

    def sweep(self, wanted: Iterable[str]) -> None:
        """Removes the folders of all other deployments. Call it before any process is started: processes that a killed
        service started died with it."""
        kept = {self._of(id_, slot).name for id_ in wanted for slot in range(_SLOTS)}
        if not self._root.is_dir():
            return
        for found in self._root.iterdir():
            if _NAME.fullmatch(found.name) and found.name not in kept:
                _remove(found)

    def _of(self, id_: str, slot: int) -> Path:
        # Short for any id: the folder holds unix sockets, whose paths are limited.
        return self._root / hashlib.sha256(f"{id_} {slot}".encode()).hexdigest()[:10]


def _remove(path: Path) -> None:
    """Removes a folder with its contents. Links are never followed, and a link in its place stays."""
    if path.is_symlink() or not path.is_dir():
        return
    try:
        shutil.rmtree(path)
    except OSError as error:
        # The next start tries again.
        _log.warning("folder not removed", folder=path.name, reason=error.strerror or type(error).__name__)
