"""`walkgraph run`: send one request to a task, with its inputs and parameters as options."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Annotated, Any

import typer

from walkgraph.cli import completing, output
from walkgraph.cli.options import Json
from walkgraph.cli.runs import request, results

if TYPE_CHECKING:
    from walkgraph.client import Client, Event

SECTION = "Runs"


def command(  # noqa: PLR0913, PLR0917 - the words of a command, each by its name
    context: typer.Context,
    deployment: Annotated[str, typer.Argument(help="The deployment.", autocompletion=completing.deployments)],
    task: Annotated[
        str,
        typer.Argument(
            help="One of its tasks; `walkgraph run D T --inputs` shows its inputs.",
            autocompletion=completing.tasks,
        ),
    ],
    out: Annotated[str | None, typer.Option("-o", "--out", help="File for the picture or sound, or a folder/.")] = None,
    param: Annotated[list[str] | None, typer.Option("--param", "-p", help="A parameter, as `name=value`.")] = None,
    inputs: Annotated[
        bool, typer.Option("--inputs", help="Show the task's inputs and parameters, and run nothing.")
    ] = False,
    record: Annotated[bool, typer.Option("--record", help="Keep a digest of every value, for `replay`.")] = False,
    hold: Annotated[bool, typer.Option("--hold", help="Pause before the first call, to step through it.")] = False,
    as_json: Json = False,
) -> None:
    """Run a task. Its inputs and parameters are options: --prompt TEXT, --image FILE, --seed 7, --steps=20."""
    from walkgraph.client import Client
    from walkgraph.settings import Settings

    with Client.local(Settings()) as client:
        _wait(client, deployment)
        declared = client.task(deployment, task)
        if inputs:
            _show(declared, as_json=as_json)
            return
        body = request.build(declared, context.args, param or [])
        body |= {key: True for key, asked in (("record", record), ("hold", hold)) if asked}
        events = client.stream(deployment, task, body)
        result = results.followed(_noted(events) if hold else events, quiet=as_json)
    files = request.save(result, declared, out)
    if as_json:
        output.as_json(result)
    else:
        results.show(result, files)
        if record and not result["error"]:
            output.note(f"\nrecorded: compare it with `walkgraph replay {result['run']} --compare`")
    raise typer.Exit(1 if result["error"] else 0)


command.settings = {"allow_extra_args": True, "ignore_unknown_options": True}  # type: ignore[attr-defined]


def _wait(client: Client, deployment: str) -> None:
    """Wait for a deployment that is starting, as the starter is after `walkgraph up`."""
    from walkgraph.client import ProblemError

    try:
        found = client.deployment(deployment)
    except ProblemError:
        # Unknown, or this key may not look: the run's own request reports it.
        return
    if found["state"] == "starting":
        output.note(f"`{deployment}` is starting; waiting until it is ready")
        client.wait_ready(deployment)


def _noted(events: Iterable[Event]) -> Iterator[Event]:
    """The same events, with a remark that names the held run."""
    for event in events:
        if event.name == "accepted":
            output.note(f"run {event.data['run']} is held before its first call; Ctrl-C ends it")
            output.note("step it in the studio: `walkgraph open`")
        yield event


def _show(declared: dict[str, Any], *, as_json: bool) -> None:
    if as_json:
        output.as_json(declared)
        return
    output.line(f"{declared['name']}: {declared['label']}\n")
    rows = [
        (
            f"--{name}",
            i["modality"] + (", several" if i["many"] else ""),
            _need(i),
            i["description"],
        )
        for name, i in declared["inputs"].items()
    ]
    for name, p in declared["params"].items():
        bounds = " or ".join(map(str, p["choices"])) or f"{p['min']} to {p['max']}"
        rows.append((f"--{name}", p["type"], f"{bounds}, default {p['default']}", p["description"]))
    output.table(("OPTION", "TYPE", "", "DESCRIPTION"), [*rows, ("--seed", "integer", "random by default", "")])


def _need(declared: Mapping[str, Any]) -> str:
    if declared.get("default") is not None:
        return f"default {declared['default']}"
    return "" if declared["optional"] else "needed"
