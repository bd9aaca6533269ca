"""Joins this process to a Ray cluster, once it is first needed. What fails is not tried again for some seconds."""

import importlib
import logging
import re
import socket
import time
from collections.abc import Callable
from typing import Any

from walkgraph.errors import Refused

NAMESPACE = "walkgraph"
RETRY_SECONDS = 5.0
_CONNECT_SECONDS = 5.0
"""Time that a head has to accept a connection. Ray itself would wait for minutes."""
_THIS_MACHINE = ("auto", "local")
"""Addresses that name no host: of a cluster that runs here, or is made for this process."""

_VERSIONS = re.compile(r"^\s*Ray: (\S+)\s+Python: (\S+)$", re.MULTILINE)
"""In Ray's message: the cluster's versions, then this process's."""

_log = logging.getLogger(__name__)


class Joining:
    def __init__(
        self, address: str, join: Callable[[str], Any] | None = None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """`join`: joins, and returns Ray; by default `join_cluster`."""
        self._address, self._join, self._clock = address, join or join_cluster, clock
        self._ray: Any = None
        self._failed: tuple[float, Refused] | None = None

    def joined(self) -> Any:
        """Ray, connected. Raises Refused with what to do."""
        if self._ray is not None:
            return self._ray
        if self._failed is not None and self._clock() < self._failed[0] + RETRY_SECONDS:
            raise self._failed[1]
        try:
            self._ray = self._join(self._address)
        except Refused as error:
            self._failed = self._clock(), error
            raise
        return self._ray


def join_cluster(address: str) -> Any:
    """Raises Refused with what to do."""
    if address not in _THIS_MACHINE:
        _try(address)
    ray = importlib.import_module("ray")
    try:
        ray.init(address=address, namespace=NAMESPACE, log_to_driver=False, logging_level="WARNING")
    except (ray.exceptions.RayError, OSError, RuntimeError, ValueError) as error:
        _log.exception("Ray can't connect to %s", address)
        raise Refused(why_not(address, error)) from None
    return ray


def _try(address: str) -> None:
    """Raises Refused if no head accepts a connection."""
    host, _, port = address.rpartition(":")
    if not host or not port.isdecimal() or not 0 < int(port) < 1 << 16:
        raise Refused(f"`{address}` is not the address of a Ray cluster; set WALKGRAPH_RAY_ADDRESS like 10.0.0.1:6379")
    try:
        socket.create_connection((host.strip("[]"), int(port)), _CONNECT_SECONDS).close()
    except OSError:
        raise Refused(
            f"the head of the Ray cluster doesn't answer at `{address}`; start it, or correct WALKGRAPH_RAY_ADDRESS"
        ) from None


def why_not(address: str, error: Exception) -> str:
    """The advice where Ray can't connect to a cluster, whose head accepts connections unless it is of this machine."""
    versions = _VERSIONS.findall(str(error))
    if len(versions) == 2:
        (ray, python), (own_ray, own_python) = versions
        return (
            f"the Ray cluster runs Ray {ray} on Python {python}, and this machine has Ray {own_ray} on Python "
            f"{own_python}; install the cluster's here: `pip install 'ray=={ray}'` on the same Python"
        )
    if address in _THIS_MACHINE:
        return "no Ray cluster runs on this machine; run `ray start`, or name its head in WALKGRAPH_RAY_ADDRESS"
    if isinstance(error, ConnectionError):
        return (
            f"the head of the Ray cluster at `{address}` doesn't accept this machine's key; set RAY_AUTH_MODE and "
            "RAY_AUTH_TOKEN as they were set where it was started"
        )
    return (
        f"Ray can't join the cluster at `{address}`, and `d/forks.log` says why; run a node of the cluster on this "
        "machine (`ray start --address`)"
    )
