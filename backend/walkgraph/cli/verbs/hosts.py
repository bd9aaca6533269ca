"""`walkgraph hosts`: list the hosts that the service deploys to, and the ranks that run there."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING

from walkgraph.cli import output
from walkgraph.cli.options import Json

if TYPE_CHECKING:
    from walkgraph.client.shown import Host

SECTION = "Deployments"


def command(as_json: Json = False) -> None:
    """List the hosts of the service's cluster, or its machine alone, and the ranks that run there."""
    from walkgraph.client import Client
    from walkgraph.settings import Settings

    with Client.local(Settings()) as client:
        found = client.hosts()
    if as_json:
        output.as_json(found)
    else:
        headers = ("HOST", "ADDRESS", "CPUS", "MEMORY", "FREE", "GPUS", "RANKS")
        output.table(headers, [_row(host) for host in found], right=(2, 3, 4))
        for problem in (problem for host in found for problem in host["problems"]):
            output.note(problem)
        links = [*_links(found)]
        if links:
            output.line()
            output.table(("BETWEEN", "AND", "BANDWIDTH", "LATENCY"), links, right=(2, 3))


def _row(host: Host) -> tuple[object, ...]:
    from walkgraph.placement.capacity.budget import show_bytes

    name = f"{host['name']} (the service's)" if host["here"] else host["name"]
    ranks = _ranks(host)
    if not host["alive"]:
        return name, host["address"] or "gone", "", "", "", "", ranks
    memory = next(device for device in host["devices"] if device["name"] == "cpu")
    return (
        name,
        host["address"] or "-",
        host["cores"],
        show_bytes(memory["total"]),
        show_bytes(memory["free"]),
        _gpus(host),
        ranks,
    )


def _links(hosts: list[Host]) -> Iterator[tuple[str, str, str, str]]:
    """Each link once, from the first of its hosts in the list."""
    from walkgraph.placement.capacity.budget import show_bytes
    from walkgraph.placement.show import show_time

    for place, host in enumerate(hosts):
        later = {other["name"] for other in hosts[place + 1 :]}
        for reach in host["reaches"]:
            if reach["host"] in later:
                bandwidth = f"{show_bytes(int(reach['bandwidth']))}/s"
                yield host["name"], reach["host"], bandwidth, show_time(reach["latency"])


def _gpus(host: Host) -> str:
    """`2 x NVIDIA H200 of 141 GiB, 100 GiB free`."""
    from walkgraph.placement.capacity.budget import show_bytes

    gpus = [device for device in host["devices"] if device["name"] != "cpu"]
    kinds = Counter((gpu["title"], gpu["total"]) for gpu in gpus)
    free = f", {show_bytes(sum(gpu['free'] for gpu in gpus))} free" if gpus else "-"
    return "; ".join(f"{count} x {title} of {show_bytes(total)}" for (title, total), count in kinds.items()) + free


def _ranks(host: Host) -> str:
    """`talk 0, 1; draw 2 (lost)`."""
    found: dict[str, list[str]] = {}
    for rank in host["ranks"]:
        state = "" if rank["state"] == "ready" else f" ({rank['state']})"
        found.setdefault(rank["deployment"], []).append(f"{rank['rank']}{state}")
    return "; ".join(f"{deployment} {', '.join(ranks)}" for deployment, ranks in found.items()) or "-"
