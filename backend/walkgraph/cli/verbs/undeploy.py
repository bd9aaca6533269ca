"""`walkgraph undeploy`: stop a deployment and forget it."""

from __future__ import annotations

from typing import Annotated

import typer

from walkgraph.cli import completing, output
from walkgraph.cli.options import Json

SECTION = "Deployments"


def command(
    deployment: Annotated[str, typer.Argument(help="Its name.", autocompletion=completing.deployments)],
    grace: Annotated[float, typer.Option(min=0, max=600, help="Seconds that its runs get to finish.")] = 5.0,
    as_json: Json = False,
) -> None:
    """Stop a deployment and forget it."""
    from walkgraph.client import Client
    from walkgraph.settings import Settings

    with Client.local(Settings()) as client:
        client.undeploy(deployment, grace)
    if as_json:
        output.as_json({"undeployed": deployment})
    else:
        output.line(f"{deployment} is undeployed")
