"""`walkgraph up`: start the control service, with its editor, and keep it running."""

from __future__ import annotations

import gc
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from walkgraph.cli import output
from walkgraph.cli.options import Json

if TYPE_CHECKING:
    from walkgraph.launch import Started
    from walkgraph.settings import Settings

START_SECONDS = 60


def command(
    port: Annotated[int | None, typer.Option(help="Port to listen on; 0 for any free one.")] = None,
    host: Annotated[str | None, typer.Option(help="Address to listen on.")] = None,
    detach: Annotated[
        bool, typer.Option("--detach", "-d", help="Return once it runs; the log goes to its home.")
    ] = False,
    deploy: Annotated[bool, typer.Option(help="Deploy the starter graph on the first start.")] = True,
    browse: Annotated[bool, typer.Option("--open", help="Open the studio in a browser.")] = False,
    as_json: Json = False,
    ready_fd: Annotated[int | None, typer.Option(hidden=True)] = None,
) -> None:
    """Start the service here; Ctrl-C stops it once its runs are done."""
    settings = _settings(host, port)
    if detach:
        raise typer.Exit(_detached(settings, deploy=deploy, browse=browse, as_json=as_json))
    output.without_waiting()
    # Nothing that the start allocates is garbage; looking for some takes a fifth of the start.
    gc.disable()
    from walkgraph.launch import serve

    def announce(started: Started) -> None:
        _tell(_told(started), as_json=as_json, browse=browse, ready_fd=ready_fd)

    raise typer.Exit(serve(settings, starter=deploy, announce=announce))


def _settings(host: str | None, port: int | None) -> Settings:
    from walkgraph.settings import Settings

    given: dict[str, Any] = {key: value for key, value in (("host", host), ("port", port)) if value is not None}
    if sys.stderr.isatty():
        given["log_format"] = "text"
    return Settings(**given)


def _told(started: Started) -> dict[str, Any]:
    return {**asdict(started), "token_file": str(started.token_file), "pid": os.getpid()}


def _tell(status: dict[str, Any], *, as_json: bool, browse: bool, ready_fd: int | None = None) -> None:
    if ready_fd is not None:
        import json

        with os.fdopen(ready_fd, "w") as pipe:
            pipe.write(json.dumps(status))
        return
    output.hand_over(output.json_text(status) if as_json else output.clean("\n".join(_lines(status))))
    if browse and status["studio"]:
        import webbrowser

        webbrowser.open(status["studio"])


def program() -> str:
    """The command, as a shell in this folder finds it."""
    if shutil.which("walkgraph"):
        return "walkgraph"
    path = Path(sys.executable).with_name("walkgraph")
    return str(path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path)


def _lines(status: dict[str, Any]) -> Iterator[str]:
    command = program()
    if status["behind"]:
        yield f"Walkgraph stands by: {status['behind']} has the database. What is sent to {status['url']} goes there."
        return
    yield "Walkgraph is running.\n"
    yield f"  studio   {status['studio'] or 'not installed: pip install walkgraph-editor'}"
    yield f"  API      {status['url']}/v1   token in {status['token_file']}"
    if status["starter"]:
        yield f"  deploying the starter graph `{status['starter']}`: see `{command} status`, then try"
        yield f"           {command} run {status['starter']} text_to_image --prompt 'a red circle' -o circle.png"
    if status["starter_problem"]:
        yield f"  the starter graph is not deployed: {status['starter_problem']}"
    if status["studio"]:
        yield f"\nThe studio's address works once, for one browser; `{command} open` makes another."


def _detached(settings: Settings, *, deploy: bool, browse: bool, as_json: bool) -> int:
    """Start the service as a separate process, and wait until it reports that it runs, or ends."""
    import json

    from walkgraph.errors import Conflict
    from walkgraph.settings import is_running, prepare_home

    prepare_home(settings)
    if is_running(settings):
        raise Conflict(f"a Walkgraph service is already running in `{settings.home}`; see `walkgraph status`")
    reading, writing = os.pipe()
    arguments = ["up", "--host", settings.host, "--port", str(settings.port), "--ready-fd", str(writing)]
    log = settings.home / "service.log"
    log.touch(mode=0o600)
    before = log.stat().st_size
    with log.open("ab") as stream:
        process = subprocess.Popen(
            [sys.executable, "-m", "walkgraph.cli.main", *arguments, "--deploy" if deploy else "--no-deploy"],
            stdin=subprocess.DEVNULL,
            stdout=stream,
            stderr=stream,
            pass_fds=(writing,),
            start_new_session=True,
        )
    os.close(writing)
    with os.fdopen(reading) as pipe:
        said = pipe.read()
    if not said:
        output.complain(
            f"the service did not start; the end of `{log}`:",
            log.read_bytes()[before:].decode(errors="replace").splitlines()[-5:],
        )
        return process.wait(START_SECONDS) or 1
    _tell(json.loads(said), as_json=as_json, browse=browse)
    return 0
