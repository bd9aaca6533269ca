"""`walkgraph export`: write a graph as Python and back, or a run as a folder."""

from __future__ import annotations

import re
import runpy
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from walkgraph.cli import completing, documents, output
from walkgraph.cli.options import Json

if TYPE_CHECKING:
    from walkgraph.graph.document import Graph

SECTION = "Graphs"
_RUN = re.compile(r"last|[0-9a-f]{4,32}\Z")
_PRINTS = """
if __name__ == "__main__":
    import sys

    from walkgraph.graph.codec import dumps

    sys.stdout.write(dumps(graph))
"""


def command(
    what: Annotated[
        str,
        typer.Argument(
            help="A graph (a file or a name), a Python program that "
            "makes one, or a run (the start of its id, or `last`).",
            autocompletion=completing.graphs_and_runs,
        ),
    ],
    out: Annotated[
        Path | None, typer.Option("-o", "--out", help="File, or folder for a run; default: standard output, run-ID/.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Write a graph as a Python program, a program as the graph, or everything kept of a run as a folder.

    \b
    walkgraph export shapes -o shapes.py        a program that prints the same document
    walkgraph export shapes.py -o shapes.json   and back; this executes the program
    walkgraph export last -o run/               to attach to a bug report; contains no secrets
    """
    if what.endswith(".py"):
        from walkgraph.graph.codec import dumps

        graph = _made(Path(what))
        _write(graph.name, dumps(graph), out, as_json=as_json)
    elif _is_run(what):
        _run(what, out, as_json=as_json)
    else:
        from walkgraph.graph.codec import load
        from walkgraph.graph.export import to_python

        graph = load(_document(what))
        _write(graph.name, to_python(graph) + "\n" + _PRINTS, out, as_json=as_json)


def _is_run(what: str) -> bool:
    from walkgraph import resources

    return bool(_RUN.match(what)) and not Path(what).exists() and what not in resources.stored_as_graphs()


def _document(what: str) -> Any:
    """The document from a file, from a bundled name, or from a name that the service knows. Raises NotFound."""
    from walkgraph import resources
    from walkgraph.client import Client, ProblemError, Unreachable
    from walkgraph.settings import Settings

    if not Path(what).is_file() and what not in resources.stored_as_graphs():
        try:
            with Client.local(Settings()) as client:
                return client.graph(what)
        except (Unreachable, ProblemError):
            pass  # `documents.read` explains what was looked for
    return documents.read(what, "graphs")


def _made(path: Path) -> Graph:
    """The graph named `graph` of a person's own program. Raises NotFound, InvalidInput."""
    from walkgraph.errors import InvalidInput, NotFound, WalkgraphError
    from walkgraph.graph.document import Graph

    if not path.is_file():
        raise NotFound(f"there is no file `{path}`")
    try:
        found = runpy.run_path(str(path)).get("graph")
    except WalkgraphError:
        raise
    except Exception as error:  # noqa: BLE001 (of a program that isn't ours)
        raise InvalidInput(f"`{path}` fails with {type(error).__name__}: {error}") from None
    if not isinstance(found, Graph):
        raise InvalidInput(f"`{path}` must define a graph named `graph`: end it with `graph = g.build()`")
    return found


def _write(name: str, text: str, out: Path | None, *, as_json: bool) -> None:
    from walkgraph.errors import InvalidInput

    if out is None and not as_json:
        sys.stdout.write(text)
        return
    if out is not None:
        try:
            out.write_text(text, encoding="utf-8")
        except OSError as error:
            raise InvalidInput(f"`{out}` can't be written: {error.strerror}") from None
    if as_json:
        output.as_json({"graph": name, **({"file": str(out)} if out is not None else {"text": text})})
    else:
        output.line(f"wrote {out}")


def _run(named: str, out: Path | None, *, as_json: bool) -> None:
    from walkgraph.cli.runs.exporting import export_run
    from walkgraph.cli.runs.naming import run_named
    from walkgraph.client import Client
    from walkgraph.settings import Settings

    with Client.local(Settings()) as client:
        run = run_named(client, named)
        written = export_run(client, run, out or Path(f"run-{run[:8]}"))
    if as_json:
        output.as_json(written)
        return
    output.line(f"wrote {written['folder']}: {', '.join(written['files'])}")
    for what, why in written["missing"].items():
        output.note(f"without {what}: {why}")
