"""`walkgraph validate`: list every problem of a document. Needs no service."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from walkgraph.cli import completing, documents, output
from walkgraph.cli.options import Json

SECTION = "Graphs"


def command(
    document: Annotated[
        str,
        typer.Argument(
            help="A graph or placement: a file, or the name of a bundled graph.", autocompletion=completing.graphs_here
        ),
    ],
    as_json: Json = False,
) -> None:
    """Check a graph or a placement."""
    value = documents.read(document, "graphs")
    found = _placement(value) if _is_placement(value) else _graph(document, value)
    ok = not any(problem["severity"] == "error" for problem in found)
    if as_json:
        output.as_json({"ok": ok, "problems": found})
    else:
        output.problems(found)
        output.line("ok" if ok else f"{len(found)} problems")
    raise typer.Exit(0 if ok else 1)


def _is_placement(value: Any) -> bool:
    return isinstance(value, dict) and str(value.get("format", "")).startswith("walkgraph/placement")


def _graph(document: str, value: Any) -> list[dict[str, Any]]:
    from walkgraph.service.deployments.judging import check_here
    from walkgraph.service.outward.reachable import unreachable
    from walkgraph.settings import Settings

    known, settings = documents.callable_from(document, value), Settings()
    report = check_here(value, settings.checkpoint_roots, known)
    more = unreachable(report.graph, known.catalogue, settings) if report.graph is not None else ()
    return [dict(vars(problem)) for problem in (*report.problems, *more)]


def _placement(value: Any) -> list[dict[str, Any]]:
    from walkgraph.placement.document import faults

    return [
        {"severity": "error", "pointer": pointer, "code": "malformed", "message": message}
        for pointer, message in faults(value)
    ]
