"""`walkgraph deploy`: start a deployment, or switch one, and watch it come up."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from walkgraph.cli import completing, documents, output
from walkgraph.cli.options import Json
from walkgraph.cli.show import progress

if TYPE_CHECKING:
    from walkgraph.client import Client
    from walkgraph.client.shown import Deployment

SECTION = "Deployments"
INTERRUPTED = 130


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
            try:
                found = _followed(client, found["id"])
            except KeyboardInterrupt:
                output.note(_goes_on(found["id"], switched=bool(found.get("next"))))
                raise typer.Exit(INTERRUPTED) from None
    if as_json:
        output.as_json(found)
    else:
        output.line(_sentence(found))
    raise typer.Exit(1 if found["state"] in ("failed", "stopped") or _next_failed(found) else 0)


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


def _followed(client: Client, id_: str) -> Deployment:
    found = client.deployment(id_)
    with progress.shown() as shown:
        for found in client.follow_deployment(id_):
            shown.take(found)
            if _next_failed(found) or (not found.get("next") and found["state"] not in ("starting", "degraded")):
                break
    return found


def _goes_on(id_: str, *, switched: bool) -> str:
    """A remark for a person who stops waiting."""
    if switched:
        return f"\n`{id_}` is still being switched and serves the old version until then; see `walkgraph status`"
    return f"\n`{id_}` is still starting; `walkgraph status` shows its progress, `walkgraph undeploy {id_}` stops it"


def _next_failed(found: Deployment) -> bool:
    return (found.get("next") or {}).get("state") == "failed"


def _sentence(found: Deployment) -> str:
    text = f"{found['id']} is {found['state']}" + (f": {found['reason']}" if found["reason"] else "")
    coming = found.get("next")
    if not coming:
        return text
    if coming["state"] == "failed":
        return f"{text}, as it was before; the new version failed: {coming['reason']}"
    return f"{text}; its new version is {coming['state']}"
