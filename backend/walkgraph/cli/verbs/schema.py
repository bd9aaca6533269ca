"""`walkgraph schema`: print the published JSON Schemas."""

from __future__ import annotations

from typing import Annotated, Literal

import typer

from walkgraph.cli import output
from walkgraph.cli.options import Json

SECTION = "Graphs"


def command(
    document: Annotated[Literal["graph", "placement"], typer.Argument(help="The kind of document.")] = "graph",
    as_json: Json = True,
) -> None:
    """Print the JSON Schema of graphs or placements."""
    if document == "graph":
        from walkgraph.graph.schema import schema
    else:
        from walkgraph.placement.document import schema
    output.as_json(schema())
