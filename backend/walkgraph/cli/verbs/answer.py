"""`walkgraph answer`: approve or refuse a run that waits for a person, or show what it asks."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from walkgraph.cli import completing, output
from walkgraph.cli.options import Json
from walkgraph.cli.runs import request, results
from walkgraph.cli.runs.naming import HELP, run_named

SECTION = "Runs"


def command(
    run: Annotated[str, typer.Argument(help=HELP, autocompletion=completing.runs)],
    approve: Annotated[
        bool | None, typer.Option("--approve/--refuse", help="The answer; without one, the question is shown.")
    ] = None,
    note: Annotated[str, typer.Option("--note", help="A text that later steps may read.")] = "",
    out: Annotated[str | None, typer.Option("-o", "--out", help="Folder/ for the values that it shows.")] = None,
    as_json: Json = False,
) -> None:
    """Answer a run that waits for a person.

    \b
    walkgraph answer last -o shown/                       what does it ask, and what does it show?
    walkgraph answer last --approve --note "more red"     let it go on
    walkgraph answer last --refuse                        end it, or let its steps read the answer
    """
    from walkgraph.client import Client
    from walkgraph.settings import Settings

    with Client.local(Settings()) as client:
        asked = client.approval(run_named(client, run))
        if approve is None:
            _show(dict(asked), out, as_json=as_json)
            return
        answer = client.approve if approve else client.refuse
        # The number is that of the question that was read, so that this answer counts for no other.
        found = answer(asked["run"], note, number=asked["number"])
    if as_json:
        output.as_json(found)
    else:
        output.line(f"{'approved' if approve else 'refused'}: {found['id']} is {found['state']}")


def _show(asked: dict[str, Any], out: str | None, *, as_json: bool) -> None:
    if as_json:
        output.as_json(asked)
        return
    outputs = {name: [value] for name, value in asked["values"].items() if value is not None}
    results.show_values(outputs)
    if out is not None:
        folder = out if out.endswith("/") else f"{out}/"
        declared = {"name": "answer", "outputs": list(outputs)}
        for file in request.save({"outputs": outputs, "error": None}, declared, folder):
            output.line(f"wrote {file}")
    results.asks(asked["run"], asked)
