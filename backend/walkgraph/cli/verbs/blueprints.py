"""`walkgraph blueprints`: the library of blueprints, and copies of them in graphs."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from walkgraph.cli import documents, output
from walkgraph.cli.options import Json
from walkgraph.cli.show.spans import moment
from walkgraph.errors import InvalidInput

SECTION = "Graphs"
_Out = Annotated[Path | None, typer.Option("-o", "--out", help="File. [default: standard output]")]
_Name = Annotated[str, typer.Argument(help="A blueprint of the library.")]

command = typer.Typer(
    help="List, store and share blueprints, and copy them into graphs.",
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
)


@command.command("list")
def show(as_json: Json = False) -> None:
    """List the library."""
    from walkgraph.client import Client
    from walkgraph.settings import Settings

    with Client.local(Settings()) as client:
        found = client.blueprints()
    if as_json:
        output.as_json(found)
        return
    output.table(
        ("NAME", "CHANGED", "DESCRIPTION"), [(d["name"], moment(d["updated_at"]), d["description"]) for d in found]
    )


@command.command("get")
def get(name: _Name, out: _Out = None, as_json: Json = False) -> None:
    """Write a blueprint as a file."""
    from walkgraph.client import Client
    from walkgraph.settings import Settings

    with Client.local(Settings()) as client:
        _write(client.blueprint(name), out, as_json=as_json)


@command.command("put")
def put(file: Annotated[Path, typer.Argument(help="A blueprint as a file.")], as_json: Json = False) -> None:
    """Store a file in the library, under its own name. What was stored there stays as a version."""
    from walkgraph.client import Client
    from walkgraph.graph.blueprints.library import read
    from walkgraph.settings import Settings

    value = _file(file)
    name, _ = read(value)
    with Client.local(Settings()) as client:
        known = {document["name"]: document["etag"] for document in client.blueprints()}
        stored = client.put_document("blueprint", name, value, known.get(name))
        client.keep_version("blueprint", name)
    if as_json:
        output.as_json(stored)
    else:
        output.line(f"stored `{name}`")


@command.command("delete")
def delete(name: _Name, as_json: Json = False) -> None:
    """Delete a blueprint of the library. Copies in graphs stay."""
    from walkgraph.client import Client
    from walkgraph.settings import Settings

    with Client.local(Settings()) as client:
        client.delete_document("blueprint", name)
    if as_json:
        output.as_json({"deleted": name})
    else:
        output.line(f"deleted `{name}`")


@command.command("take")
def take(
    graph: Annotated[str, typer.Argument(help="A graph: a file, or a name that the service knows.")],
    blueprint: Annotated[str, typer.Argument(help="A file, or a name of the library.")],
    replaces: Annotated[
        str | None, typer.Option(help="The blueprint of the graph to update; its wires stay where they still fit.")
    ] = None,
    out: _Out = None,
    as_json: Json = False,
) -> None:
    """Copy a blueprint into a graph, or update a copy, and write the graph."""
    from walkgraph.client import Client
    from walkgraph.settings import Settings

    given = _file(Path(blueprint)) if Path(blueprint).is_file() else blueprint
    with Client.local(Settings()) as client:
        _write(client.take(documents.name_or_value(graph, "graphs"), given, replaces), out, as_json=as_json)


@command.command("make")
def make(
    graph: Annotated[str, typer.Argument(help="A graph: a file, or a name that the service knows.")],
    blueprint: Annotated[str | None, typer.Option(help="A blueprint of the graph.")] = None,
    walk: Annotated[str | None, typer.Option(help="A Walk of the graph, which becomes a blueprint.")] = None,
    out: _Out = None,
    as_json: Json = False,
) -> None:
    """Write a blueprint of a graph, or one of its Walks, as a file."""
    from walkgraph.client import Client
    from walkgraph.settings import Settings

    if (blueprint is None) == (walk is None):
        raise InvalidInput("give either `--blueprint` or `--walk`")
    with Client.local(Settings()) as client:
        _write(
            client.entry(documents.name_or_value(graph, "graphs"), blueprint=blueprint, walk=walk), out, as_json=as_json
        )


def _file(path: Path) -> Any:
    from walkgraph.graph.reading.guard import read_json

    try:
        return read_json(path.read_bytes())
    except OSError as error:
        raise InvalidInput(f"`{path}` can't be read: {error.strerror}") from None


def _write(document: Any, out: Path | None, *, as_json: bool) -> None:
    from walkgraph.graph.codec import pretty

    text = pretty(document) + "\n"
    if out is None:
        sys.stdout.write(text)
        return
    try:
        out.write_text(text, encoding="utf-8")
    except OSError as error:
        raise InvalidInput(f"`{out}` can't be written: {error.strerror}") from None
    if as_json:
        output.as_json({"file": str(out)})
    else:
        output.line(f"wrote {out}")
