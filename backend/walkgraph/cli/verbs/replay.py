"""`walkgraph replay`: repeat a run, here or on another deployment, and compare the results."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from walkgraph.cli import completing, output
from walkgraph.cli.options import Json
from walkgraph.cli.runs import comparing, request, results
from walkgraph.cli.runs.naming import HELP, run_named

if TYPE_CHECKING:
    from walkgraph.client import Client
    from walkgraph.client.shown import Differences, Run

SECTION = "Runs"

DIFFERENT = 4
_CONFLICT = 409


def command(
    run: Annotated[str, typer.Argument(help=HELP, autocompletion=completing.runs)],
    on: Annotated[
        str | None,
        typer.Option(
            "--on", help="Deployment to replay on; default: the run's own.", autocompletion=completing.deployments
        ),
    ] = None,
    compare: Annotated[bool, typer.Option("--compare", help="Compare value by value.")] = False,
    out: Annotated[str | None, typer.Option("-o", "--out", help="File for the picture or sound, or a folder/.")] = None,
    as_json: Json = False,
) -> None:
    """Repeat a run with the same inputs, parameters and seed.

    \b
    walkgraph replay last                         its outputs again
    walkgraph replay 3f2a --compare               is every value the same?
    walkgraph replay 3f2a --on shapes2 --compare  and on another graph or placement?

    With --compare the exit code is 4 if anything differs; a run that was not recorded is also replayed on its own
    deployment.
    """
    from walkgraph.client import Client
    from walkgraph.settings import Settings

    if compare and out is not None:
        raise typer.BadParameter("`--compare` writes no files; remove `--out`")
    with Client.local(Settings()) as client:
        id_ = run_named(client, run)
        if compare:
            found = _compared(client, id_, on)
            _show(found, as_json=as_json)
            raise typer.Exit(DIFFERENT if comparing.differ(found) else 0)
        started, result = _replayed(client, id_, on, record=False, quiet=as_json)
        files = request.save(result, client.task(started["deployment"], started["task"]), out)
    if as_json:
        output.as_json(result)
    else:
        results.show(result, files)
    raise typer.Exit(1 if result["error"] else 0)


def _replayed(client: Client, run: str, on: str | None, *, record: bool, quiet: bool) -> tuple[Run, dict[str, Any]]:
    """(the started run, its result). The run is cancelled if the caller stops waiting."""
    started = client.replay(run, on, record=record)
    try:
        result = results.followed(client.follow_run(started["id"]), quiet=quiet)
    except KeyboardInterrupt:
        client.cancel(started["id"])
        raise
    return started, result


def _recorded(client: Client, run: str, on: str | None) -> str:
    """The id of a recorded replay."""
    started, result = _replayed(client, run, on, record=True, quiet=True)
    output.note(f"replayed on {started['deployment']} as {started['id']}")
    if result["error"]:
        results.complain(result["error"])
        raise typer.Exit(1)
    return started["id"]


def _compared(client: Client, run: str, on: str | None) -> Differences:
    from walkgraph.client import ProblemError

    replay = _recorded(client, run, on)
    try:
        return client.differences(run, replay)
    except ProblemError as error:
        if error.status != _CONFLICT:
            raise
    output.note("the run was not recorded, or its record is gone: it is also replayed on its own deployment")
    return client.differences(_recorded(client, run, None), replay)


def _show(found: Differences, *, as_json: bool) -> None:
    if as_json:
        output.as_json(found)
        return
    for line in comparing.verdict(found):
        output.line(line)
    rows = comparing.rows(found)
    if rows:
        output.line()
        output.table(comparing.HEADERS, rows, right=comparing.RIGHT)
        if len(found["rows"]) > len(rows):
            output.line(f"and {len(found['rows']) - len(rows)} more")
