"""The folder of a deployment on a host that is not the service's: the ranks there meet in it.

    temporary folder / walkgraph-USER / DEPLOYMENT / lock, spec.json, deployment.log, sockets

Who uses a folder holds its lock, shared, as long as it lives. Folders that nobody holds are removed when another one is
entered.
"""

import fcntl
import hashlib
import os
import shutil
import tempfile
from pathlib import Path

from walkgraph.errors import InvalidInput
from walkgraph.wire.spec import DeploymentSpec

_LOCK = "lock"


def folder_of(spec: DeploymentSpec) -> Path:
    """Raises InvalidInput if the deployment is on one host."""
    if spec.network is None:
        raise InvalidInput("a plan for several hosts needs their network; deploy again")
    name = hashlib.sha256(spec.network.keys.public.encode()).hexdigest()[:16]
    return Path(tempfile.gettempdir()) / f"walkgraph-{os.getuid()}" / name


def entered(folder: Path) -> int:
    """Make a folder, if it isn't there, and hold it; returns the file of its lock. Raises InvalidInput if it belongs to
    another user."""
    parent = folder.parent
    parent.mkdir(mode=0o700, exist_ok=True)
    if parent.is_symlink() or parent.stat().st_uid != os.getuid():
        raise InvalidInput(f"`{parent}` belongs to another user; remove it")
    for other in parent.iterdir():
        if other != folder:
            _remove_unused(other)
    while True:
        folder.mkdir(mode=0o700, exist_ok=True)
        try:
            lock = os.open(folder / _LOCK, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
        except FileNotFoundError:
            continue  # it has just been removed
        fcntl.flock(lock, fcntl.LOCK_SH)
        if _is_that_of(folder, lock):
            return lock
        os.close(lock)


def _remove_unused(folder: Path) -> None:
    try:
        lock = os.open(folder / _LOCK, os.O_RDWR | os.O_CLOEXEC)
    except OSError:
        return
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        shutil.rmtree(folder, ignore_errors=True)
    except BlockingIOError:
        pass
    finally:
        os.close(lock)


def _is_that_of(folder: Path, lock: int) -> bool:
    """False if the lock is of a folder that was removed meanwhile."""
    try:
        return os.path.samestat((folder / _LOCK).stat(), os.fstat(lock))
    except FileNotFoundError:
        return False
