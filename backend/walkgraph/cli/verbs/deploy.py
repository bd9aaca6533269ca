"""`walkgraph deploy`: start a deployment, or switch one, and watch it come up."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from walkgraph.cli import completing, documents
from walkgraph.cli.options import Json
from walkgraph.cli.show import changes

if TYPE_CHECKING:
    from walkgraph.client import Client
    from walkgraph.client.shown import Deployment

SECTION = "Deployments"


def command(
    graph: Annotated[
        str, typer.Argument(help="A graph: a file, or a name the service knows.", autocompletion=completing.graphs)
    ],
    placement: Annotated[
        str | None,
        typer.Argument(
            help="A placement: a file, or a name; default: all on one rank.", autocompletion=completing.placements
        ),
    ] = None,
    name: Annotated[str | None, typer.Option(help="Name of the deployment; default: the graph's.")] = None,
    replace: Annotated[
        bool, typer.Option("--replace", help="If a deployment of that name exists, switch it without a pause.")
    ] = False,
    wait: Annotated[bool, typer.Option(help="Wait until it is ready or has failed.")] = True,
    as_json: Json = False,
) -> None:
    """Deploy a graph."""
    from walkgraph.client import Client
    from walkgraph.settings import Settings

    placed = documents.name_or_value(placement, "placements") if placement is not None else None
    with Client.local(Settings()) as client:
        found = _deployed(client, documents.name_or_value(graph, "graphs"), placed, name, replace)
        if wait:
            found = changes.awaited(client, found)
    changes.tell(found, as_json=as_json)


def _deployed(client: Client, graph: Any, placement: Any, name: str | None, replace: bool) -> Deployment:
    from walkgraph.client import ProblemError

    named = graph.get("name") if isinstance(graph, dict) else graph
    id_ = name or str(named)
    if replace and any(found["id"] == id_ for found in client.deployments()):
        return client.replace(id_, graph, placement)
    try:
        return client.deploy(graph, placement, name)
    except ProblemError as error:
        if error.code != "conflict" or replace:
            raise
        detail = (
            f"the deployment `{id_}` exists already; switch it without "
            "a pause with `--replace`, or choose another `--name`"
        )
        raise ProblemError(error.status, {**error.content, "detail": detail}) from None
