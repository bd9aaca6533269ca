"""`walkgraph deploy`: start a deployment and watch it come up."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from walkgraph.cli import documents, output
from walkgraph.cli.options import Json


def command(
    graph: Annotated[str, typer.Argument(help="A graph: a file, or a name the service knows.")],
    placement: Annotated[
        str | None, typer.Argument(help="A placement: a file, or a name; default: all on one rank.")
    ] = None,
    name: Annotated[str | None, typer.Option(help="Of the deployment; default: the graph's.")] = None,
    wait: Annotated[bool, typer.Option(help="Return once it is ready, or failed.")] = True,
    as_json: Json = False,
) -> None:
    """Deploy a graph."""
    from walkgraph.client import Client
    from walkgraph.settings import Settings

    placed = documents.name_or_value(placement, "placements") if placement is not None else None
    with Client.local(Settings()) as client:
        found = client.deploy(documents.name_or_value(graph, "graphs"), placed, name)
        if wait:
            found = _followed(client, found["id"])
    if as_json:
        output.as_json(found)
    else:
        output.line(f"{found['id']} is {found['state']}" + (f": {found['reason']}" if found["reason"] else ""))
    raise typer.Exit(1 if found["state"] in ("failed", "stopped") else 0)


def _followed(client: Any, id_: str) -> dict[str, Any]:
    found: dict[str, Any] = {}
    told = ""
    for found in client.follow_deployment(id_):
        now = ", ".join(f"rank {r['rank']} {r['state']} {r['phase']} {r['fraction']:.0%}" for r in found["ranks"])
        if now and now != told:
            output.note(now)
            told = now
        if found["state"] not in ("starting", "degraded"):
            break
    return found
