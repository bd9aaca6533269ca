"""`walkgraph new`: begin a graph of one's own from a bundled one."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from walkgraph.cli import completing, documents, output
from walkgraph.cli.options import Json

SECTION = "Graphs"


def command(
    name: Annotated[str, typer.Argument(help="Name of the new graph and its file.")],
    template: Annotated[
        str, typer.Option("--from", help="A bundled graph, or a file.", autocompletion=completing.graphs_here)
    ] = "shapes",
    python: Annotated[bool, typer.Option("--python", help="Write a Python program that makes it.")] = False,
    as_json: Json = False,
) -> None:
    """Write a graph to start from: a copy of a bundled one under a new name."""
    from walkgraph.errors import Conflict
    from walkgraph.graph.codec import dumps, load
    from walkgraph.graph.export import to_python

    graph = load({**documents.read(template, "graphs"), "name": name})
    path = Path(f"{name}.py" if python else f"{name}.json")
    if path.exists():
        raise Conflict(f"`{path}` exists already; choose another name, or remove it")
    path.write_text(to_python(graph) if python else dumps(graph), encoding="utf-8")
    if as_json:
        output.as_json({"file": str(path), "graph": name, "from": template})
        return
    output.line(f"wrote {path}, a copy of `{template}`")
    if python:
        output.line(
            f"  walkgraph export {path} -o {name}.json    makes the document, which is then checked and deployed:"
        )
    output.line(f"  walkgraph validate {name}.json")
    output.line(f"  walkgraph deploy {name}.json")
