"""`walkgraph down`: stop the service of this home."""

from __future__ import annotations

import os
import select
import signal
from typing import Annotated

import typer

from walkgraph.cli import output
from walkgraph.cli.options import Json

STOP_SECONDS = 30
"""Seconds that processes get to end once the runs are done."""
SECOND_SECONDS = 0.5
"""Seconds between the signals of `--now`."""
QUIET_SECONDS = 4.0
"""Seconds in which most services stop."""


def command(
    now: Annotated[bool, typer.Option("--now", help="End runs at once.")] = False, as_json: Json = False
) -> None:
    """Stop the service once its runs are done. Its deployments start again with it."""
    from walkgraph.client import Unreachable, read_address
    from walkgraph.settings import Settings, is_running

    settings = Settings()
    address = read_address(settings)
    if address is None or not is_running(settings):
        raise Unreachable(f"no Walkgraph service is running in `{settings.home}`")
    handle = os.pidfd_open(address.pid)
    try:
        signal.pidfd_send_signal(handle, signal.SIGTERM)
        patience = settings.drain_timeout + STOP_SECONDS
        if now:
            # Two signals that come together are delivered as one.
            ended, _, _ = select.select([handle], [], [], SECOND_SECONDS)
            if not ended:
                signal.pidfd_send_signal(handle, signal.SIGTERM)
        ended, _, _ = select.select([handle], [], [], min(QUIET_SECONDS, patience))
        if not ended:
            output.note("waiting for its runs to finish; `walkgraph down --now` ends them")
            ended, _, _ = select.select([handle], [], [], patience - QUIET_SECONDS)
    finally:
        os.close(handle)
    if as_json:
        output.as_json({"stopped": bool(ended), "pid": address.pid})
    elif ended:
        output.line("stopped")
    else:
        output.complain(f"process {address.pid} is still running after {patience:.0f} s; try `walkgraph down --now`")
    raise typer.Exit(0 if ended else 1)
