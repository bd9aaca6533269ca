"""`walkgraph status`: show what is running here."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from walkgraph.cli import output
from walkgraph.cli.options import Json

if TYPE_CHECKING:
    from walkgraph.client.shown import Deployment


def command(as_json: Json = False) -> None:
    """Show the service, its deployments and their ranks."""
    from walkgraph.client import Client
    from walkgraph.settings import Settings

    with Client.local(Settings()) as client:
        deployments, ready, fault = client.deployments(), client.ready(), client.fault()
        url = client.url
    if as_json:
        output.as_json({"url": url, "ready": ready, "fault": fault, "deployments": deployments})
        return
    output.line(f"{url}  {'ready' if ready else 'not ready'}")
    if fault is not None:
        output.line(fault)
    if not deployments:
        output.line("nothing is deployed; try `walkgraph deploy shapes`")
        return
    output.line()
    output.table(("DEPLOYMENT", "GRAPH", "STATE", "RUNS", "WAITING", "RANKS", "RESTARTS"), map(_row, deployments))
    for found in deployments:
        if found["reason"]:
            output.line(f"\n{found['id']}: {found['reason']}")
        coming = found.get("next")
        if coming:
            reason = f": {coming['reason']}" if coming["reason"] else ""
            output.line(f"\n{found['id']}: its new version is {coming['state']}{reason}")


def _row(found: Deployment) -> tuple[Any, ...]:
    ranks = ", ".join(
        f"{rank['rank']} {rank['device'] or ''} {rank['state']}"
        + (f" {rank['fraction']:.0%}" if rank["state"] == "loading" else "")
        for rank in found["ranks"]
    )
    restarts = found["restarts"] + sum(rank["restarts"] for rank in found["ranks"])
    return (found["id"], found["graph"], found["state"], found["running"], found["waiting"], ranks or "-", restarts)
