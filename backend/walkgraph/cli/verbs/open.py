"""`walkgraph open`: let a browser into the studio."""

from __future__ import annotations

from typing import Annotated

import typer

from walkgraph.cli import output
from walkgraph.cli.options import Json


def command(
    browse: Annotated[bool, typer.Option(help="Open it in this machine's browser.")] = True, as_json: Json = False
) -> None:
    """Print an address that lets one browser into the studio, once, and open it if there is a browser."""
    from walkgraph.client import Client
    from walkgraph.settings import Settings

    with Client.local(Settings()) as client:
        address = client.studio_address()
    if as_json:
        output.as_json({"studio": address})
    else:
        output.line(address)
    if browse and not as_json:
        import webbrowser

        webbrowser.open(address)
