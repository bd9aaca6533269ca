"""`walkgraph bench`: measure how fast a running deployment answers under load."""

from __future__ import annotations

import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from walkgraph import __version__
from walkgraph.cli import completing, output
from walkgraph.cli.options import Json
from walkgraph.cli.runs import request

if TYPE_CHECKING:
    from walkgraph.cli.benching.load import Bounds, Level, Measured
    from walkgraph.client import Client

SECTION = "Runs"
INTERRUPTED = 130
SECONDS = 10.0
"""Default duration of each level, in seconds."""
_LONG = 200
"""The most characters of an input that a report shows."""

Deployment = Annotated[str, typer.Argument(help="The deployment.", autocompletion=completing.deployments)]
Task = Annotated[str, typer.Argument(help="One of its tasks.", autocompletion=completing.tasks)]
Concurrency = Annotated[str | None, typer.Option("--concurrency", "-c", help="Clients at once: `1,4,16` [default: 1].")]
Requests = Annotated[int | None, typer.Option("--requests", "-n", min=1, help="Requests per level.")]
Seconds = Annotated[
    float | None,
    typer.Option("--seconds", min=0.1, max=86_400, help="Seconds per level [default: 10].", show_default=False),
]
Rate = Annotated[str | None, typer.Option("--rate", help="Open load instead, in requests per second: `2,5`.")]
Warmup = Annotated[int, typer.Option("--warmup", min=0, max=10_000, help="Warm-up requests of each client.")]
Slo = Annotated[str | None, typer.Option("--slo", help="Goals: `ttft=300ms,itl=50ms,e2e=2s`.")]
Param = Annotated[list[str] | None, typer.Option("--param", "-p", help="A parameter, as `name=value`.")]
Out = Annotated[Path | None, typer.Option("-o", "--out", help="Folder for a report with tables and charts.")]


def command(  # noqa: PLR0913, PLR0917 - the words of a command, each by its name
    context: typer.Context,
    deployment: Deployment,
    task: Task,
    concurrency: Concurrency = None,
    requests: Requests = None,
    seconds: Seconds = None,
    rate: Rate = None,
    warmup: Warmup = 1,
    slo: Slo = None,
    param: Param = None,
    out: Out = None,
    as_json: Json = False,
) -> None:
    """Send a task's requests again and again, and report latency and throughput. Inputs and parameters are options, as
    for `run`.

    \b
    walkgraph bench shapes text_to_image --prompt 'a red circle' --concurrency 1,4 --seconds 20
    walkgraph bench shapes text_to_image --prompt 'a red circle' --rate 2,4 --slo e2e=2s -o report/
    """
    import asyncio

    from walkgraph.cli.benching import figures
    from walkgraph.cli.benching.load import Bounds
    from walkgraph.client import Client
    from walkgraph.settings import Settings

    levels = _levels(concurrency, rate)
    goals = figures.goals(slo) if slo else {}
    with Client.local(Settings()) as client:
        body = request.build(dict(client.task(deployment, task)), context.args, param or [])
        about = _about(client, deployment, task)
        bounds = Bounds(requests, seconds or (None if requests else SECONDS), warmup)
        measured = asyncio.run(_measure(client, f"/v1/tasks/{deployment}/{task}", body, levels, bounds))
    rows = [figures.row(one, goals) for one in measured]
    results = {
        "about": about,
        "request": _shortened(body),
        "slo": goals,
        "rows": rows,
        "warnings": figures.warnings(rows),
    }
    _tell(results, out, as_json=as_json)
    if any(one.interrupted for one in measured) or len(measured) < len(levels):
        raise typer.Exit(INTERRUPTED)
    raise typer.Exit(0 if all(row["completed"] for row in rows) else 1)


command.settings = {"allow_extra_args": True, "ignore_unknown_options": True}  # type: ignore[attr-defined]


def _levels(concurrency: str | None, rate: str | None) -> list[Level]:
    """The load levels. Raises typer.BadParameter."""
    from walkgraph.cli.benching.load import Level

    if concurrency is not None and rate is not None:
        raise typer.BadParameter(
            "use either `--rate` (requests come by the clock) or `--concurrency` (clients wait for their answers)"
        )
    name, text = ("--rate", rate) if rate is not None else ("--concurrency", concurrency or "1")
    try:
        numbers = [float(word) for word in text.split(",")]
    except ValueError:
        numbers = []
    most = 100_000 if rate is not None else 4096
    if not numbers or not all(0 < number <= most for number in numbers):
        raise typer.BadParameter(f"`{text}` is not a list of numbers up to {most}; write `1,4,16`", param_hint=name)
    if rate is not None:
        return [Level(rate=number) for number in numbers]
    if not all(number.is_integer() for number in numbers):
        raise typer.BadParameter("the number of clients is an integer; write `1,4,16`", param_hint=name)
    return [Level(concurrency=int(number)) for number in numbers]


async def _measure(
    client: Client, path: str, body: dict[str, Any], levels: list[Level], bounds: Bounds
) -> list[Measured]:
    """Measure the levels; after Ctrl-C, those that were finished."""
    import asyncio

    from walkgraph.cli.benching import load
    from walkgraph.cli.benching.wire import Connection
    from walkgraph.client.connection import address

    trusted = address.trusted()

    def connect() -> Connection:
        return Connection(client.url, client.token, path, trusted)

    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGINT, stop.set)
    asked = load.bodies(body)
    found: list[Measured] = []
    try:
        for level in levels:
            what = f"{level.rate:g} requests per second" if level.rate is not None else f"{level.concurrency} at once"
            bound = f"{bounds.requests} requests" if bounds.requests else f"{bounds.seconds:g} s"
            output.note(f"{what}, {bound} ...")
            found.append(await load.run(level, connect, asked, bounds, stop))
            if stop.is_set():
                output.note("interrupted; results so far:")
                break
    finally:
        loop.remove_signal_handler(signal.SIGINT)
    return found


def _tell(results: dict[str, Any], out: Path | None, *, as_json: bool) -> None:
    from walkgraph.cli.benching import report, tables

    written = report.write(out, results) if out is not None else []
    if as_json:
        output.as_json({**results, "written": written})
        return
    rows = results["rows"]
    output.table(tables.HEADERS, tables.main(rows), right=tuple(range(1, len(tables.HEADERS))))
    if results["slo"]:
        output.line()
        output.table(("LOAD", "GOOD", "SHARE", "A SECOND"), tables.goodput(rows), right=(1, 2, 3))
    if tokens := tables.tokens(rows):
        output.line()
        output.table(tables.TOKENS, tokens, right=(2, 3))
    for warning in results["warnings"]:
        output.complain(warning)
    for file in written:
        output.line(f"wrote {file}")
    if written and not report.has_pictures():
        output.note(report.EXTRA)


def _about(client: Client, deployment: str, task: str) -> dict[str, Any]:
    """The environment of the figures. It contains no secrets."""
    import platform
    import shlex
    from datetime import UTC, datetime

    from walkgraph.placement.hardware import find_hardware

    found = client.deployment(deployment)
    hardware = find_hardware()
    devices = [f"{d.name} {d.label} {output.size(d.total)}".strip() for d in hardware.devices]
    return {
        "command": shlex.join(["walkgraph", *sys.argv[1:]]),
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "deployment": deployment,
        "task": task,
        "graph": found["graph"],
        "graph digest": found.get("digest"),
        "graph etag": _etag(client, found["graph"]),
        "placement": found.get("placement"),
        "ranks": [f"{rank['rank']} on {rank['device']}" for rank in found["ranks"]],
        "walkgraph": __version__,
        "python": platform.python_version(),
        "client's machine": f"{hardware.cores} cores, {platform.platform()}",
        "its devices": devices,
    }


def _etag(client: Client, graph: str) -> str | None:
    """Etag of the stored document of that name, which may have changed since; None if there is none."""
    from walkgraph.client import ProblemError

    try:
        return client.document("graph", graph)[1]
    except ProblemError:
        return None


def _shortened(value: Any) -> Any:
    """The value without the bytes of pictures and sounds."""
    if isinstance(value, str):
        return value if len(value) <= _LONG else f"{value[:40]}… ({len(value)} characters)"
    if isinstance(value, list):
        return [_shortened(one) for one in value[:20]]
    return {key: _shortened(one) for key, one in value.items()} if isinstance(value, dict) else value
