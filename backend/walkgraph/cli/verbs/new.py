"""`walkgraph new`: begin a graph of one's own from a bundled one, or a component of one's own."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from walkgraph.cli import completing, documents, output
from walkgraph.cli.options import Json

SECTION = "Graphs"
COMPONENT = "component"


def command(
    name: Annotated[str, typer.Argument(help="Name of the new graph and its file; or the word `component`.")],
    component: Annotated[
        str | None, typer.Argument(help="After `component`: its name, `photo.sharpen`, or one word.")
    ] = None,
    template: Annotated[
        str, typer.Option("--from", help="A bundled graph, or a file.", autocompletion=completing.graphs_here)
    ] = "shapes",
    python: Annotated[bool, typer.Option("--python", help="Write a Python program that makes it.")] = False,
    folder: Annotated[
        Path | None, typer.Option("--in", help="Where a component's folder goes; default: here.", file_okay=False)
    ] = None,
    as_json: Json = False,
) -> None:
    """Write a graph to start from, or with `new component NAME` a plug-in of one function."""
    from walkgraph.errors import InvalidInput

    if component is None:
        _graph(name, template, python=python, as_json=as_json)
    elif name == COMPONENT:
        _plugin(component, folder or Path(), as_json=as_json)
    else:
        raise InvalidInput(f"`walkgraph new {name}` takes one name; a component is `walkgraph new component {name}`")


def _graph(name: str, template: str, *, python: bool, as_json: bool) -> None:
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


def _plugin(given: str, parent: Path, *, as_json: bool) -> None:
    from walkgraph import plugins
    from walkgraph.errors import Conflict
    from walkgraph.functions.template import files, named

    name = named(given)
    if name.plugin in plugins.names(plugins.MODELS):
        raise Conflict(f"`{name.plugin}` is one of Walkgraph's own families; choose another name before the dot")
    folder = parent / name.plugin
    if folder.exists():
        raise Conflict(f"`{folder}` exists already; choose another name, or remove it")
    for path, text in files(name).items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(text, encoding="utf-8")
    code = folder / name.package / "__init__.py"
    if as_json:
        output.as_json({"folder": str(folder), "file": str(code), "component": name.component})
        return
    output.line(f"wrote {folder}: the component `{name.component}` is the function in {code}")
    output.line(f"  walkgraph plugins add {folder}")
    output.line(f"  walkgraph deploy {folder / f'{name.function}.json'}")
