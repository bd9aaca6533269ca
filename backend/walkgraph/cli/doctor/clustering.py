"""Findings about the Ray cluster of the settings: it is joined and its hosts are asked as the service does it, by a
process that ends with this one."""

from __future__ import annotations

import asyncio
import importlib.util
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from walkgraph.cli.doctor.diagnosing import Finding

if TYPE_CHECKING:
    from walkgraph.placement.hardware import Hardware
    from walkgraph.placement.transports import Transports
    from walkgraph.settings import Settings

SECONDS = 90.0
"""Time that joining the cluster and asking its hosts may take: Ray tries for some time to use a wrong key."""


def cluster_findings(settings: Settings) -> list[Finding]:
    from walkgraph.placement.transports import declared_transports
    from walkgraph.wire.processes.host_hardware import HostsUnknown

    if importlib.util.find_spec("ray") is None:
        return [Finding("fail", "cluster", "`ray` is not installed", "pip install 'walkgraph[ray,cluster]'")]
    try:
        found = asyncio.run(_asked(settings))
    except HostsUnknown as error:
        return [_failed("cluster", str(error))]
    return [*_backend(settings), *host_findings(found, declared_transports())]


async def _asked(settings: Settings) -> Hardware:
    from walkgraph.launch import actor_server
    from walkgraph.wire.processes.host_hardware import ask_hosts

    with tempfile.TemporaryDirectory(prefix="walkgraph-") as folder:
        server = actor_server(Path(folder), settings)
        try:
            path = await server.running()
            return await asyncio.to_thread(ask_hosts, path, settings.checkpoint_roots, seconds=SECONDS)
        finally:
            await server.close()


def _backend(settings: Settings) -> Iterator[Finding]:
    if settings.backend != "ray":
        detail = f"it answers, and `WALKGRAPH_BACKEND` is `{settings.backend}`: a service would not use it"
        yield Finding("warn", "cluster", detail, "set `WALKGRAPH_BACKEND=ray` where the service is started")


def host_findings(hardware: Hardware, transports: Transports) -> Iterator[Finding]:
    """Findings that keep deployments from the hosts of a cluster, or delay them."""
    from walkgraph.placement.host.named import lacking

    several = len(hardware.hosts) > 1
    for host in hardware.hosts:
        what = f"host {host.host}"
        told = [*host.faults, *(text for _, text in (lacking(host, transports) if several else ()))]
        yield from (_failed(what, text) for text in told)
        if host.missing and host is not hardware:
            folders = ", ".join(f"`{folder}`" for folder in host.missing)
            do = "mount it there, or have disk space for the copies in the home of Walkgraph's user"
            yield Finding("warn", what, f"no {folders}: checkpoints are copied there when they are first deployed", do)
        elif not told:
            gpus = sum(device.name != "cpu" for device in host.devices)
            yield Finding("ok", what, f"{host.address}, {host.cores} CPUs, {gpus} GPUs")


def _failed(what: str, sentence: str) -> Finding:
    """`sentence`: what is wrong, and behind a semicolon what to do."""
    detail, _, do = sentence.partition("; ")
    return Finding("fail", what, detail, do)
