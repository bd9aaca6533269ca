"""Shared by benchmarks: a service started by the plain command in its own home, and a description of the machine."""

import contextlib
import json
import os
import platform
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

from walkgraph.client import Client, read_address
from walkgraph.resources import bundled
from walkgraph.settings import Settings

ROOT = Path(__file__).parents[1]
_WALKGRAPH = (sys.executable, "-m", "walkgraph.cli.main")


class Service(NamedTuple):
    client: Client
    seconds: float
    """From the command to the starter graph being ready, or to the service where there is none."""


@contextlib.contextmanager
def home() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="wg-") as folder:
        yield Path(folder)


@contextlib.contextmanager
def service(folder: Path, *, starter: bool = True, **settings: str) -> Iterator[Service]:
    """`walkgraph up` with this home on a free port; ready when `shapes` is. Without `starter` neither that nor the
    studio is there. `settings`: further environment variables."""
    environment = {**os.environ, "WALKGRAPH_HOME": str(folder), **settings}
    command = [*_WALKGRAPH, "up", "--detach", "--port", "0"]
    if not starter:
        command.append("--no-deploy")
        environment["WALKGRAPH_STUDIO"] = "false"
    # A benchmark that is told to end takes its service with it.
    before = signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    began = time.perf_counter()
    subprocess.run(command, env=environment, check=True, stdout=subprocess.DEVNULL)
    try:
        with Client.local(Settings(home=folder)) as client:
            if starter:
                when(client, "shapes", is_ready)
            yield Service(client, time.perf_counter() - began)
    finally:
        subprocess.run([*_WALKGRAPH, "down"], env=environment, check=True, stdout=subprocess.DEVNULL)
        signal.signal(signal.SIGTERM, before)


def is_ready(deployment: Mapping[str, Any]) -> bool:
    if deployment["state"] == "failed":
        raise RuntimeError(f"`{deployment['id']}` failed: {deployment['reason']}")
    return deployment["state"] == "ready"


def deployed(
    client: Client, graph: Mapping[str, Any], placement: str | Mapping[str, Any] | None, name: str
) -> dict[str, float]:
    """Deploy, by a placement or a bundled one: seconds until ready, and in each phase of rank 0 on the way there."""
    began = since = time.perf_counter()
    document = json.loads(bundled("placements")[placement].read_text()) if isinstance(placement, str) else placement
    client.deploy(graph, document, name)
    seconds: dict[str, float] = {}
    phase = "process"
    for found in client.follow_deployment(name):
        rank = next(iter(found["ranks"]), {})
        now, entered = time.perf_counter(), rank.get("phase") or phase
        if entered != phase or is_ready(found):
            seconds[phase] = seconds.get(phase, 0.0) + now - since
            phase, since = entered, now
        if is_ready(found):
            break
    return {**seconds, "ready": time.perf_counter() - began}


def when(client: Client, deployment: str, holds: Callable[[Mapping[str, Any]], bool]) -> Mapping[str, Any]:
    """The deployment as soon as this holds of it."""
    for found in client.follow_deployment(deployment):
        if holds(found):
            return found
    raise RuntimeError(f"`{deployment}` is gone")


def _children(pid: int) -> list[int]:
    lists = [path.read_text().split() for path in Path(f"/proc/{pid}/task").glob("*/children")]
    return [int(child) for found in lists for child in found]


def conductor_of(service: int) -> int:
    """The process id of the conductor of a service's only deployment."""
    (found,) = (pid for pid in _children(service) if b"conductor" in Path(f"/proc/{pid}/cmdline").read_bytes())
    return found


def conductor_and_worker(service: int) -> tuple[int, int]:
    """The process ids of a service's only deployment, which has one rank."""
    conductor = conductor_of(service)
    (forks,) = (pid for pid in _children(service) if pid != conductor)
    (worker,) = _children(forks)
    return conductor, worker


def processes_of(folder: Path) -> dict[str, int]:
    """The process ids of a service with one deployment of one rank, by what they are. `folder`: its home."""
    address = read_address(Settings(home=folder))
    assert address is not None
    conductor, worker = conductor_and_worker(address.pid)
    return {"service": address.pid, "conductor": conductor, "worker": worker}


def report(command: str, figures: Mapping[str, Any], out: Path | None) -> None:
    """Print the figures, and write them with what they were measured on; nowhere where `out` is None."""
    rounded = {name: round(value, 4) if isinstance(value, float) else value for name, value in figures.items()}
    for name, value in rounded.items():
        print(f"{name:58} {value}")
    if out is None:
        return
    git = ["git", "-C", str(ROOT), "rev-parse", "HEAD"]
    processor = next((s for s in Path("/proc/cpuinfo").read_text().splitlines() if "model name" in s), "")
    about = {
        "command": command,
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "commit": subprocess.run(git, capture_output=True, text=True, check=True).stdout.strip(),
        "machine": f"{os.cpu_count()} cores, {processor.partition(':')[2].strip()}, Python {platform.python_version()}",
    }
    out.write_text(json.dumps({"about": about, "figures": rounded}, indent=1) + "\n")
