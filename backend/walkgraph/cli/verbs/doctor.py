"""`walkgraph doctor`: whether this machine can run Walkgraph, and what to do where it can't."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Literal, NamedTuple

import typer

from walkgraph.cli import output
from walkgraph.cli.options import Json

if TYPE_CHECKING:
    from walkgraph.settings import Settings

OLDEST = (3, 11)
LEAST_SHM = 1 << 30
LEAST_DISK = 1 << 30


class Finding(NamedTuple):
    level: Literal["ok", "warn", "fail"]
    what: str
    detail: str


def command(as_json: Json = False) -> None:
    """Look at Python, torch, devices, memory, the home folder, the port and the service."""
    from walkgraph.settings import Settings

    settings = Settings()
    found = [finding for look in (_software, _devices, _home, _service) for finding in look(settings)]
    if as_json:
        output.as_json([finding._asdict() for finding in found])
    else:
        output.table(("", "WHAT", ""), [(finding.level, finding.what, finding.detail) for finding in found])
    raise typer.Exit(1 if any(finding.level == "fail" for finding in found) else 0)


def _software(_settings: Settings) -> Iterator[Finding]:
    from importlib.metadata import PackageNotFoundError, version

    now = ".".join(map(str, sys.version_info[:3]))
    yield Finding("ok" if sys.version_info >= OLDEST else "fail", "python", now)
    for package, needed in (("torch", True), ("walkgraph-editor", False), ("flashinfer-python", False)):
        try:
            yield Finding("ok", package, version(package))
        except PackageNotFoundError:
            what = "missing: pip install it" if needed else "not installed (optional)"
            yield Finding("fail" if needed else "ok", package, what)


def _devices(_settings: Settings) -> Iterator[Finding]:
    from walkgraph.placement.hardware import find_hardware

    hardware = find_hardware()
    for device in hardware.devices:
        yield Finding(
            "ok", device.name, f"{device.label} {output.size(device.free)} of {output.size(device.total)} free"
        )
    if len(hardware.devices) == 1:
        yield Finding("ok", "gpu", "none: everything runs on the CPU")
    enough = hardware.shm >= LEAST_SHM
    advice = "" if enough else "; small for several ranks: mount a larger /dev/shm"
    yield Finding("ok" if enough else "warn", "shared memory", f"{output.size(hardware.shm)} free{advice}")


def _home(settings: Settings) -> Iterator[Finding]:
    import shutil

    from walkgraph import starters

    if not settings.home.exists():
        yield Finding("ok", "home", f"{settings.home} (made at the first start)")
    else:
        private = settings.home.stat().st_mode & 0o077 == 0
        advice = "" if private else "; others can read it: chmod 700 it"
        yield Finding("ok" if private else "warn", "home", f"{settings.home}{advice}")
    parent = next(folder for folder in (settings.home, *settings.home.parents) if folder.exists())
    free = shutil.disk_usage(parent).free
    yield Finding("ok" if free >= LEAST_DISK else "warn", "disk", f"{output.size(free)} free")
    yield Finding("ok", "starters", ", ".join(starters.names()) or "none")
    for root in settings.checkpoint_roots:
        there = root.is_dir()
        yield Finding("ok" if there else "fail", "checkpoints", f"{root}" + ("" if there else " is no folder"))


def _service(settings: Settings) -> Iterator[Finding]:
    import socket

    from walkgraph.client import Client, ClientError
    from walkgraph.settings import is_running

    if is_running(settings):
        try:
            with Client.local(settings) as client:
                ready = client.ready()
            yield Finding("ok" if ready else "warn", "service", f"{client.url} " + ("ready" if ready else "not ready"))
        except ClientError as error:
            yield Finding("fail", "service", str(error))
        return
    yield Finding("ok", "service", "not running: start it with `walkgraph up`")
    with socket.socket() as probe:
        taken = probe.connect_ex((settings.host, settings.port)) == 0
    if taken:
        yield Finding("warn", "port", f"{settings.port} is taken by another program: use `walkgraph up --port 0`")
