"""`walkgraph logs`: show the service's log."""

from __future__ import annotations

import os
import select
import sys
from collections import deque
from pathlib import Path
from typing import Annotated, TextIO

import typer

from walkgraph.cli import output

LOOK_SECONDS = 0.25
"""Seconds between two reads of the file while the service lives."""


def command(
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Follow the log until the service ends or Ctrl-C.")
    ] = False,
    lines: Annotated[int, typer.Option("--lines", "-n", min=0, max=100_000, help="Lines from the end.")] = 50,
    as_json: Annotated[bool, typer.Option("--json", help="Only the lines that are JSON, unchanged.")] = False,
) -> None:
    """Show the log of the service that `walkgraph up --detach` started."""
    from walkgraph.errors import NotFound
    from walkgraph.settings import Settings

    path = Settings().home / "service.log"
    if not path.is_file():
        raise NotFound(f"there is no log in `{path.parent}`: `walkgraph up --detach` writes one, `up` alone prints it")
    with path.open(encoding="utf-8", errors="replace") as stream:
        for text in deque(stream, maxlen=lines):
            _say(text, as_json=as_json)
        if follow:
            _follow(stream, path, as_json=as_json)


def _follow(stream: TextIO, path: Path, *, as_json: bool) -> None:
    """Print new lines until the service of this home ends."""
    from walkgraph.client import read_address
    from walkgraph.settings import Settings, is_running

    settings = Settings()
    address = read_address(settings)
    if address is None or not is_running(settings):
        output.note(f"no service is running in `{path.parent}`; the log ends here")
        return
    service = os.pidfd_open(address.pid)
    rest, ended = "", False
    try:
        while not ended:
            ended = bool(select.select([service], [], [], LOOK_SECONDS)[0])
            *whole, rest = (rest + stream.read()).split("\n")
            for text in whole:
                _say(text + "\n", as_json=as_json)
    finally:
        os.close(service)


def _say(text: str, *, as_json: bool) -> None:
    if not as_json or text.startswith("{"):
        sys.stdout.write(output.clean(text))
        sys.stdout.flush()
