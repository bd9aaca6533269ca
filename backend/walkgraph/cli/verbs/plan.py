"""`walkgraph plan`: plan a deployment without starting anything. Needs no service and no GPU."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from walkgraph.cli import completing, documents, output
from walkgraph.cli.options import Json

if TYPE_CHECKING:
    from walkgraph.placement.hardware import Hardware

SECTION = "Graphs"


def command(
    graph: Annotated[
        str,
        typer.Argument(help="A graph: a file, or the name of a bundled one.", autocompletion=completing.graphs_here),
    ],
    placement: Annotated[
        str | None,
        typer.Argument(
            help="A placement: a file, or a bundled name; default: all on one rank.",
            autocompletion=completing.placements_here,
        ),
    ] = None,
    gpus: Annotated[
        str | None,
        typer.Option(
            help="Plan for GPUs that need not exist here: `3x141GB`, or on several hosts `2 hosts x 3x141GB`.",
            metavar="COUNTxMEMORY",
        ),
    ] = None,
    as_json: Json = False,
) -> None:
    """Plan a graph on a placement: ranks, memory, Walks, and transfers between ranks."""
    from walkgraph.placement.routes import handed
    from walkgraph.placement.show import render
    from walkgraph.service.deployments.judging import judge
    from walkgraph.settings import Settings

    placed = documents.read(placement, "placements") if placement is not None else None
    host = None if gpus is None else _assumed(gpus)
    value = documents.read(graph, "graphs")
    known = documents.callable_from(graph, value)
    judged = judge(value, placed, (), Settings().checkpoint_roots, host, known)
    found = [*_placed("/graph", judged.graph_problems), *_placed("/placement", judged.placement_problems)]
    if as_json:
        output.as_json({"ok": judged.plan is not None, "deployable": judged.deployable, "problems": found,
                        "plan": _builtins(judged.plan)})  # fmt: skip
    elif judged.plan is None:
        output.problems(found)
    else:
        reported = (*judged.graph_problems, *judged.placement_problems)
        given = handed(judged.graph, judged.plan) if judged.graph is not None else ()
        drawn = render(judged.plan, reported, judged.copies, given, judged.hardware)
        output.line(drawn.rstrip())
    raise typer.Exit(0 if judged.plan is not None else 1)


def _assumed(text: str) -> Hardware:
    from walkgraph.errors import InvalidInput
    from walkgraph.placement.document import assume_hosts
    from walkgraph.placement.hardware import find_hardware

    try:
        return assume_hosts(find_hardware(), text)
    except InvalidInput as error:
        raise typer.BadParameter(str(error), param_hint="--gpus") from error


def _placed(prefix: str, problems: Any) -> list[dict[str, Any]]:
    return [{**vars(problem), "pointer": prefix + problem.pointer} for problem in problems]


def _builtins(plan: Any) -> Any:
    import msgspec

    return msgspec.to_builtins(plan, str_keys=True)
