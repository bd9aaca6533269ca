"""`walkgraph queue`: one's own runs that wait or go on, to be cancelled and put in order."""

from __future__ import annotations

import textwrap
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from walkgraph.cli import completing, output
from walkgraph.cli.options import Json
from walkgraph.cli.runs.naming import HELP, run_named
from walkgraph.cli.show.spans import moment

if TYPE_CHECKING:
    from walkgraph.client.shown import Queue

SECTION = "Runs"
_SAID = 40
"""Characters of a request in the table."""

command = typer.Typer(
    help="List your runs that wait or go on, cancel them, put them in order.",
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
)
_Run = Annotated[str, typer.Argument(help=HELP, autocompletion=completing.queued_runs)]


class Direction(StrEnum):
    UP = "up"
    DOWN = "down"


@command.command("list")
def show(
    deployment: Annotated[
        str | None,
        typer.Argument(help="Only those of this one. [default: all]", autocompletion=completing.deployments),
    ] = None,
    as_json: Json = False,
) -> None:
    """List your runs that wait or go on, in the order of the queue, with their places among those of all callers."""
    from walkgraph.client import Client
    from walkgraph.settings import Settings

    with Client.local(Settings()) as client:
        names = [deployment] if deployment is not None else [found["id"] for found in client.deployments()]
        queues = [client.queue(name) for name in names]
    if as_json:
        output.as_json(queues)
    else:
        _table(queues)


@command.command("move")
def move(
    run: _Run,
    direction: Annotated[Direction, typer.Argument(help="Towards the front, or towards the end.")],
    as_json: Json = False,
) -> None:
    """Exchange the places of a waiting run and of your next one before or behind it. Runs of others keep theirs.

    \b
    walkgraph queue list shapes            which of my runs wait, and where?
    walkgraph queue move 3f9a up           let this one begin before the one in front of it
    """
    from walkgraph.client import Client
    from walkgraph.settings import Settings

    with Client.local(Settings()) as client:
        queue = client.move(run_named(client, run), direction.value)
    if as_json:
        output.as_json(queue)
    else:
        _table([queue])


@command.command("cancel")
def cancel(
    run: Annotated[str | None, typer.Argument(help=HELP, autocompletion=completing.queued_runs)] = None,
    everything: Annotated[
        str | None,
        typer.Option(
            "--all", metavar="DEPLOYMENT", help="All of yours of this one.", autocompletion=completing.deployments
        ),
    ] = None,
    as_json: Json = False,
) -> None:
    """Cancel a run that waits or goes on, or all of yours of a deployment."""
    from walkgraph.client import Client
    from walkgraph.settings import Settings

    if (run is None) == (everything is None):
        raise typer.BadParameter("name a run, or give `--all DEPLOYMENT`", param_hint="RUN")
    with Client.local(Settings()) as client:
        if everything is not None:
            count = client.cancel_all(everything)["cancelling"]
        else:
            client.cancel(run_named(client, run or ""))
            count = 1
    if as_json:
        output.as_json({"cancelling": count})
    else:
        output.line(f"cancelling {count} {'run' if count == 1 else 'runs'}")


def _table(queues: list[Queue]) -> None:
    rows = [
        (
            queue["deployment"],
            one["place"] or "-",
            one["run"],
            one["task"],
            one["state"],
            moment(one["created_at"]),
            textwrap.shorten(one["said"], _SAID),
        )
        for queue in queues
        for one in queue["runs"]
    ]
    if not rows:
        output.line("no run of yours waits or goes on")
        return
    output.table(("DEPLOYMENT", "PLACE", "RUN", "TASK", "STATE", "CAME", "ASKED"), rows, right=(1,))
    for queue in queues:
        others = queue["waiting"] - sum(one["place"] is not None for one in queue["runs"])
        if others:
            output.note(f"{others} more of other callers {'waits' if others == 1 else 'wait'} at {queue['deployment']}")
