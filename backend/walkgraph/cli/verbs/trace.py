"""`walkgraph trace`: show what a run did and where its time went, a deployment's statistics, or its live activity."""

from __future__ import annotations

import json
import shutil
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from walkgraph.cli import completing, output
from walkgraph.cli.options import Json
from walkgraph.cli.runs.naming import HELP, run_named
from walkgraph.errors import InvalidInput

if TYPE_CHECKING:
    from walkgraph.client import Client

SECTION = "Runs"

REDRAWN = 4
"""Redraws per second while a deployment is followed."""

Run = Annotated[str | None, typer.Argument(help=HELP, show_default=False, autocompletion=completing.runs)]
Deployment = Annotated[
    str | None,
    typer.Option(
        "--deployment",
        "-d",
        help="List its traces and the durations of its nodes.",
        show_default=False,
        autocompletion=completing.deployments,
    ),
]
File = Annotated[
    str | None,
    typer.Option("--perfetto", metavar="FILE", help="Write the trace for ui.perfetto.dev; `-` for standard output."),
]
Spans = Annotated[
    str | None,
    typer.Option(
        "--otlp", metavar="FILE", help="Write the trace as OpenTelemetry spans in OTLP JSON; `-` for standard output."
    ),
]
Why = Annotated[
    bool,
    typer.Option(
        "--why", help="Show only where the time of the request went, from its first byte to the last of its answer."
    ),
]
Follow = Annotated[
    bool, typer.Option("--follow", "-f", help="With `--deployment`: show its live activity until Ctrl-C.")
]
Task = Annotated[str | None, typer.Option("--task", help="With `--deployment`: only this task.")]
Limit = Annotated[int, typer.Option("--limit", "-n", min=1, max=1000, help="The most traces listed.")]


def command(  # noqa: PLR0913, PLR0917 - the words of a command, each by its name
    run: Run = None,
    deployment: Deployment = None,
    perfetto: File = None,
    otlp: Spans = None,
    why: Why = False,
    follow: Follow = False,
    task: Task = None,
    limit: Limit = 20,
    as_json: Json = False,
) -> None:
    """Show what a run did: its phases, its nodes, the work of each rank over time, and why it took so long.

    \b
    walkgraph trace last            the newest run
    walkgraph trace last --why      the share of host, decode, queue, launch, device, encode, socket
    walkgraph trace 3f2a            the run whose id starts so
    walkgraph trace -d shapes       the runs of a deployment, and what its nodes take
    walkgraph trace -d shapes -f    the deployment as it runs
    """
    from walkgraph.client import Client
    from walkgraph.settings import Settings

    _check(run, deployment, files=(perfetto, otlp), why=why, follow=follow, task=task)
    with Client.local(Settings()) as client:
        if run is None and deployment is not None:
            if follow:
                _follow(client, deployment, as_json=as_json)
            else:
                _list(client, deployment, task, limit, as_json=as_json)
            return
        id_ = run_named(client, run or "", deployment)
        if perfetto is not None:
            _write(perfetto, client.trace_file(id_, "perfetto"))
        if otlp is not None:
            _write(otlp, client.trace_file(id_, "otlp"))
        if why:
            _show_profile(client, id_, as_json=as_json)
        elif perfetto is None and otlp is None:
            _show(client, id_, as_json=as_json)


def _check(
    run: str | None,
    deployment: str | None,
    *,
    files: tuple[str | None, ...],
    why: bool,
    follow: bool,
    task: str | None,
) -> None:
    """Raise typer.BadParameter for options that exclude each other."""
    if run is None and deployment is None:
        raise typer.BadParameter("name a run, `last`, or a deployment with `--deployment`")
    if run is not None and (follow or task):
        raise typer.BadParameter("`--follow` and `--task` work only with `--deployment`, without a run")
    if run is None and any(file is not None for file in files):
        raise typer.BadParameter("name the run to write, or use `last`")
    if run is None and why:
        raise typer.BadParameter("`--why` explains one run: name it, or use `last`")


def _write(file: str, data: bytes) -> None:
    if file == "-":
        sys.stdout.write(data.decode() + "\n")
        return
    try:
        Path(file).write_bytes(data)
    except OSError as error:
        raise InvalidInput(f"`{file}` can't be written: {error.strerror}") from None
    output.note(f"wrote {file}")


# ── a run ───────────────────────────────────────────────────────────────────────────────────────


def _show(client: Client, run: str, *, as_json: bool) -> None:
    import msgspec

    from walkgraph.cli.show import timelines
    from walkgraph.telemetry.trace import Trace

    found, why = client.trace(run), client.why(run)
    if as_json:
        output.as_json({"trace": found, "why": why})
        return
    trace = msgspec.convert(found, Trace)
    for line in timelines.heading(trace):
        output.line(line)
    if not trace.blocks.lane:
        output.line("\nthere is no telemetry of its nodes: the level was off, or they have not been called yet")
        return
    output.line()
    output.table(timelines.NODE_HEADERS, timelines.nodes(trace), right=timelines.NODE_RIGHT)
    output.line()
    for line in timelines.called(trace):
        output.line(line)
    for line in timelines.timeline(trace, shutil.get_terminal_size().columns):
        output.line(line)
    output.line()
    for line in timelines.why(why):
        output.line(line)


def _show_profile(client: Client, run: str, *, as_json: bool) -> None:
    from walkgraph.cli.show import profiles, timelines

    found = client.why(run)["profile"]
    if as_json:
        output.as_json(found)
        return
    output.line(f"{run}: {timelines.duration(found['seconds'])} from its request to the last byte of its answer\n")
    output.table(profiles.HEADERS, profiles.shares(found), right=(1, 2))
    output.line()
    for line in profiles.advice(found):
        output.line(line)
    output.line()
    output.table(profiles.MOMENTS, profiles.moments(found), right=(0, 1))


# ── a deployment ────────────────────────────────────────────────────────────────────────────────


def _list(client: Client, deployment: str, task: str | None, limit: int, *, as_json: bool) -> None:
    from walkgraph.cli.show import timelines

    traces = client.traces(deployment, limit, task)
    statistics = client.statistics(deployment, task)
    if as_json:
        output.as_json({"traces": traces, "statistics": statistics})
        return
    if not traces:
        output.line(f"no traces of `{deployment}` are kept yet; run a task, then try `walkgraph trace last`")
        return
    rows = [
        (
            found["run"],
            found["task"],
            found["state"],
            time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(found["at"])),
            timelines.duration(found["seconds"]),
            found["level"],
            found["blocks"],
            "yes" if found["recorded"] else "",
        )
        for found in traces
    ]
    output.table(("RUN", "TASK", "STATE", "BEGAN", "TOOK", "LEVEL", "BLOCKS", "RECORDED"), rows, right=(4, 6))
    output.line(f"\nover {statistics['runs']} runs:")
    output.table(timelines.STATISTICS, timelines.statistics(statistics), right=tuple(range(1, 11)))


def _follow(client: Client, deployment: str, *, as_json: bool) -> None:
    """Follow until the service or the user ends it. Raises NotFound for an unknown deployment."""
    from walkgraph.cli.show.following import Board

    client.deployment(deployment)
    if as_json:
        for frame in client.telemetry(deployment):
            if frame is not None:
                sys.stdout.write(json.dumps(frame, ensure_ascii=False) + "\n")
                sys.stdout.flush()
        return
    board = Board(deployment)
    if sys.stdout.isatty():
        _follow_live(client, deployment, board)
    else:
        for frame in client.telemetry(deployment):
            for line in board.take(frame, time.monotonic()) if frame is not None else ():
                output.line(line)


def _follow_live(client: Client, deployment: str, board: Any) -> None:
    """Redraw one picture on a terminal."""
    from rich.console import Console
    from rich.live import Live
    from rich.text import Text

    drawn = 0.0
    with Live(console=Console(highlight=False), auto_refresh=False, transient=False) as live:
        for frame in client.telemetry(deployment, 1 / REDRAWN):
            now = time.monotonic()
            if frame is not None:
                list(board.take(frame, now))
            if now - drawn >= 1 / REDRAWN:
                drawn = now
                live.update(Text(output.clean("\n".join(board.lines(now)))), refresh=True)
