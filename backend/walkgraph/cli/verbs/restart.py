"""`walkgraph restart`: start a deployment anew, with the code of plug-ins as it is now."""

from __future__ import annotations

from typing import Annotated

import typer

from walkgraph.cli import completing
from walkgraph.cli.options import Json
from walkgraph.cli.show import changes

SECTION = "Deployments"


def command(
    deployment: Annotated[str, typer.Argument(help="Its name.", autocompletion=completing.deployments)],
    wait: Annotated[bool, typer.Option(help="Wait until the new version serves or has failed.")] = True,
    as_json: Json = False,
) -> None:
    """Restart a deployment without a pause; changed code of plug-ins is read."""
    from walkgraph.client import Client
    from walkgraph.settings import Settings

    with Client.local(Settings()) as client:
        found = client.restart(deployment)
        if wait:
            found = changes.awaited(client, found)
    changes.tell(found, as_json=as_json)
