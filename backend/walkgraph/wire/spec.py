"""The plan that a deployment's processes serve, and the status that they report.

The spec that starts them is `spec.json` in their directory, written by the service, read by conductor and workers.

service -> conductor    TakeUp
conductor -> service    Status, TakenUp
"""

import os
from pathlib import Path
from typing import Any, Literal

import msgspec

from walkgraph.errors import ErrorInfo, InvalidInput
from walkgraph.ids import Rank
from walkgraph.placement.tables import Plan
from walkgraph.wire.fault_points import Fault
from walkgraph.wire.processes.host_network import HostNetwork
from walkgraph.wire.watching import Level, Message

FILE = "spec.json"
LOG = "deployment.log"
SERVICE_SOCKET = "service"
"""Between service (binds) and conductor."""
WORKERS_SOCKET = "workers"
"""Between conductor (binds) and its workers."""


class Limits(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Bounds of one deployment, in seconds unless noted."""

    queue: int = 256
    """The most runs waiting for admission."""
    running: int = 256
    """The most runs admitted at a time, whatever the page budgets allow."""
    step_deadline: float = 10.0
    """Seconds of silence after which a busy worker is killed and restarted."""
    load_deadline: float = 600.0
    """The same while it loads, between two signs of progress."""
    restarts: int = 5
    """Restarts within `restart_window` before the deployment is `failed`."""
    restart_window: float = 60.0
    backoff_first: float = 0.5
    backoff_last: float = 8.0
    arena_bytes: int = 512 * 1024 * 1024
    """Shared memory for tensors that leave one worker; pages are used only as they are written."""
    kept_bytes: int = 0
    """Bytes of outputs that each rank keeps of deterministic nodes whose outputs are `kept`, so that it need not make
    such a call again."""


class DeploymentSpec(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    name: str
    graph: dict[str, Any]
    """A graph document that passed `check`."""
    plan: Plan
    """The plan of that graph on its placement."""
    checkpoint_roots: tuple[str, ...] = ()
    """Folders that are searched for `checkpoint:` sources."""
    telemetry_address: str | None = None
    """A PULL socket of the service (`ipc://...`); None switches telemetry off."""
    telemetry_name: str = ""
    """The name in telemetry, if the deployment's own is ambiguous: two versions may be alive at once."""
    telemetry_level: Level = "summary"
    """The level at the start; `Watch` changes it."""
    batch_invariant: bool = False
    """A run's numbers don't depend on the other runs in its batches."""
    numa_binding: bool = True
    """Ranks with a GPU run on the processors of its NUMA node, on a host with several."""
    changing: bool = False
    """Its processes are to take up other plans: nothing of a plan is made to stay, but for the outputs of all
    deterministic nodes."""
    shared_pages: bool = False
    """All runs find the pages of prompts that begin alike, not only those of one owner."""
    limits: Limits = Limits()
    network: HostNetwork | None = None
    """Joins the hosts of the plan; None: there is one."""
    fault: Fault | None = None
    """The fault to inject into it, for a test."""


class RankStatus(Message, frozen=True, tag="rank_status"):
    rank: Rank
    state: Literal["starting", "loading", "warming", "ready", "lost", "failed"]
    phase: str = ""
    fraction: float = 0.0
    pid: int | None = None
    restarts: int = 0
    reason: str | None = None
    away: bool = False
    """It waits for its host, which isn't reached, or can't start it now."""


class Status(Message, frozen=True, tag="status"):
    """The deployment's status, sent on every change."""

    state: Literal["starting", "ready", "degraded", "draining", "failed", "stopped"]
    ranks: tuple[RankStatus, ...]
    running: int = 0
    waiting: int = 0
    reason: str | None = None


class TakeUp(Message, frozen=True, tag="take_up"):
    """Serve another graph in the same processes, answered by `TakenUp`. Its plan has the ranks of the present one.
    Unfinished runs are cancelled, and sessions end."""

    number: int
    """Number of the request."""
    graph: dict[str, Any]
    """A graph document that passed `check`."""
    plan: Plan
    telemetry_name: str
    """The name in telemetry from then on."""


class TakenUp(Message, frozen=True, tag="taken_up"):
    number: int
    error: ErrorInfo | None = None
    """Why the processes go back to the former plan."""


def write_spec(directory: Path, spec: DeploymentSpec) -> None:
    """Make the deployment's directory (0700) and put `spec.json` (0600) into it."""
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    directory.chmod(0o700)
    # Several processes of a host may write the same one, and others read it.
    part = directory / f"{FILE}.{os.getpid()}"
    part.touch(mode=0o600)
    part.write_bytes(msgspec.json.encode(spec))
    part.replace(directory / FILE)


def read_spec(directory: Path) -> DeploymentSpec:
    try:
        return msgspec.json.decode((directory / FILE).read_bytes(), type=DeploymentSpec)
    except (OSError, msgspec.DecodeError) as error:
        raise InvalidInput(f"`{FILE}` of this deployment can't be read; deploy again") from error
