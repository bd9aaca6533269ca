"""`walkgraph ls`: list the service's objects."""

from __future__ import annotations

import textwrap
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from walkgraph.cli import completing, output
from walkgraph.cli.options import Json

if TYPE_CHECKING:
    from walkgraph.client import Client

SECTION = "Deployments"
Kind = Literal["deployments", "tasks", "graphs", "placements", "runs"]


def command(
    what: Annotated[Kind, typer.Argument(help="What to list.")] = "deployments",
    deployment: Annotated[
        str | None,
        typer.Option(
            "--deployment", "-d", help="List only the tasks or runs of this one.", autocompletion=completing.deployments
        ),
    ] = None,
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, max=1000, help="The most runs listed.")] = 20,
    as_json: Json = False,
) -> None:
    """List deployments, their tasks, stored graphs and placements, or the newest runs."""
    from walkgraph.client import Client
    from walkgraph.settings import Settings

    if deployment is not None and what not in ("tasks", "runs"):
        raise typer.BadParameter("`--deployment` works only with `tasks` and `runs`", param_hint="--deployment")
    with Client.local(Settings()) as client:
        found = list(_listed(client, what, deployment, limit))
    if as_json:
        output.as_json(found)
        return
    headers, row = _COLUMNS[what]
    output.table(headers, map(row, found))


def _listed(client: Client, what: Kind, deployment: str | None, limit: int) -> Iterable[Mapping[str, Any]]:
    match what:
        case "deployments":
            return client.deployments()
        case "graphs":
            return client.graphs()
        case "placements":
            return client.placements()
        case "runs":
            return client.runs(deployment, limit)
        case "tasks":
            return client.tasks(deployment)


def _document(found: Mapping[str, Any]) -> Sequence[Any]:
    return found["name"], "bundled" if found["bundled"] else "", ", ".join(found["tags"])


def _run(found: Mapping[str, Any]) -> Sequence[Any]:
    at = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(found["created_at"]))
    took = "" if found["seconds"] is None else f"{found['seconds']:.2f} s"
    said = (found.get("glimpse") or {}).get("said", "")
    return found["id"], found["deployment"], found["task"], found["state"], at, took, textwrap.shorten(said, 40)


def _task(found: Mapping[str, Any]) -> Sequence[Any]:
    return found["deployment"], found["name"], ", ".join(found["inputs"]), ", ".join(found["outputs"])


def _deployment(found: Mapping[str, Any]) -> Sequence[Any]:
    return found["id"], found["graph"], found["placement"], found["state"]


_COLUMNS: dict[Kind, tuple[tuple[str, ...], Callable[[Mapping[str, Any]], Sequence[Any]]]] = {
    "deployments": (("DEPLOYMENT", "GRAPH", "PLACEMENT", "STATE"), _deployment),
    "tasks": (("DEPLOYMENT", "TASK", "INPUTS", "OUTPUTS"), _task),
    "graphs": (("GRAPH", "", "TAGS"), _document),
    "placements": (("PLACEMENT", "", "TAGS"), _document),
    "runs": (("RUN", "DEPLOYMENT", "TASK", "STATE", "BEGAN", "TOOK", "ASKED"), _run),
}
