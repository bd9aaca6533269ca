"""`walkgraph run`: one request of a task, its inputs and parameters as options."""

from __future__ import annotations

import sys
from typing import Annotated, Any

import typer

from walkgraph.cli import output, request
from walkgraph.cli.options import Json


def command(
    context: typer.Context,
    deployment: Annotated[str, typer.Argument(help="Of which deployment.")],
    task: Annotated[str, typer.Argument(help="Which of its tasks; `walkgraph run D T --inputs` shows what it takes.")],
    out: Annotated[str | None, typer.Option("-o", "--out", help="File for the picture or sound; or a folder/.")] = None,
    param: Annotated[list[str] | None, typer.Option("--param", "-p", help="A parameter, as `name=value`.")] = None,
    inputs: Annotated[bool, typer.Option("--inputs", help="Show what the task takes, and run nothing.")] = False,
    as_json: Json = False,
) -> None:
    """Run a task. Its inputs and parameters are options: --prompt TEXT, --image FILE, --seed 7, --steps=20."""
    from walkgraph.client import Client
    from walkgraph.settings import Settings

    with Client.local(Settings()) as client:
        declared = client.task(deployment, task)
        if inputs:
            _show(declared, as_json=as_json)
            return
        body = request.build(declared, context.args, param or [])
        result = _followed(client, declared, body, quiet=as_json)
    files = request.save(result, declared, out)
    if as_json:
        output.as_json(result)
    else:
        _print(result, files)
    raise typer.Exit(1 if result["error"] else 0)


command.settings = {"allow_extra_args": True, "ignore_unknown_options": True}  # type: ignore[attr-defined]


def _followed(client: Any, declared: dict[str, Any], body: dict[str, Any], *, quiet: bool) -> dict[str, Any]:
    """Run it, texts printed as they come; the outputs and figures of the run."""
    result: dict[str, Any] = {"outputs": {}, "error": None, "seed": None}
    for event in client.stream(declared["deployment"], declared["name"], body):
        if event.name == "accepted":
            result |= {"run": event.data["run"], "seed": event.data["seed"]}
        elif event.name == "output":
            value = event.data["value"]
            request.add(result["outputs"], event.data["name"], value)
            if quiet:
                continue
            if value["type"] == "text":
                sys.stdout.write(output.clean(value["text"]))
                sys.stdout.flush()
            else:
                output.note(f"{event.data['name']} {event.data['index'] + 1}")
        else:
            result |= {key: event.data[key] for key in ("seconds", "queued", "times")}
            result["error"] = event.data.get("error")
    if not quiet and any(value["type"] == "text" for found in result["outputs"].values() for value in found):
        output.line()
    return result


def _print(result: dict[str, Any], files: list[str]) -> None:
    error = result["error"]
    if error:
        where = f" (node `{error['node']}`)" if error.get("node") else ""
        output.complain(f"{error['message']}{where}", ["trying again can help"] if error.get("retryable") else [])
        return
    for file in files:
        output.line(f"wrote {file}")
    seconds = result["seconds"]
    output.note(f"\n{seconds:.2f} s, {result['queued'] * 1000:.0f} ms of it queued; seed {result['seed']}\n")
    times = sorted(result["times"], key=lambda row: -row["busy"])
    rows = [
        (r["node"], r["rank"], r["calls"], f"{r['busy'] * 1000:.1f}", f"{r['queued'] * 1000:.1f}",
         f"{r['busy'] / seconds:.0%}" if seconds else "") for r in times
    ]  # fmt: skip
    with output.on_stderr():
        output.table(("NODE", "RANK", "CALLS", "BUSY MS", "QUEUED MS", "SHARE"), rows, right=(1, 2, 3, 4, 5))


def _show(declared: dict[str, Any], *, as_json: bool) -> None:
    if as_json:
        output.as_json(declared)
        return
    output.line(f"{declared['name']}: {declared['label']}\n")
    rows = [
        (
            f"--{name}",
            i["modality"] + (", several" if i["many"] else ""),
            "" if i["optional"] else "needed",
            i["description"],
        )
        for name, i in declared["inputs"].items()
    ]
    for name, p in declared["params"].items():
        bounds = " or ".join(map(str, p["choices"])) or f"{p['min']} to {p['max']}"
        rows.append((f"--{name}", p["type"], f"{bounds}, default {p['default']}", p["description"]))
    output.table(("OPTION", "TYPE", "", "DESCRIPTION"), [*rows, ("--seed", "integer", "drawn if absent", "")])
