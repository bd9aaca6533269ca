"""`walkgraph examples`: list the bundled graphs and how to try them. Needs no service."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from walkgraph.cli import completing, documents, output
from walkgraph.cli.options import Json
from walkgraph.cli.runs.request import MEDIA

SECTION = "Graphs"
_WIDTH = 80


def command(
    name: Annotated[
        str | None, typer.Argument(help="One graph; default: all.", autocompletion=completing.graphs_here)
    ] = None,
    as_json: Json = False,
) -> None:
    """List the bundled graphs, or show one with its tasks and how to run them."""
    from walkgraph import resources

    names = list(resources.stored_as_graphs()) if name is None else [name]
    found = [_example(each) for each in names]
    if as_json:
        output.as_json(found if name is None else found[0])
    elif name is None:
        output.table(("GRAPH", "TASKS", ""), [(e["graph"], len(e["tasks"]), _short(e["description"])) for e in found])
        output.line(
            "\n`walkgraph examples GRAPH` shows one with its tasks, `walkgraph new NAME --from GRAPH` copies it"
        )
    else:
        _print(found[0])


def _example(name: str) -> dict[str, Any]:
    from walkgraph import resources
    from walkgraph.graph.codec import load

    graph = load(documents.read(name, "graphs"))
    tasks = {
        key: {
            "label": task.label,
            "inputs": list(task.inputs),
            "outputs": list(task.outputs),
            "run": _words(graph.name, key, task),
        }
        for key, task in graph.tasks.items()
    }
    placements = [found for found in resources.bundled("placements") if found.startswith(f"{graph.name}_")]
    return {"graph": graph.name, "description": graph.description, "tasks": tasks, "placements": placements}


def _words(graph: str, name: str, task: Any) -> str:
    from walkgraph.graph.steps import is_needed

    needed = [f"--{key} {_stands(given.modality)}" for key, given in task.inputs.items() if is_needed(given)]
    return " ".join(["walkgraph run", graph, name, *needed])


def _stands(modality: str) -> str:
    return {"text": "TEXT", **dict.fromkeys(MEDIA, "FILE")}.get(modality, "'0.1 0.2'")


def _short(text: str) -> str:
    return text if len(text) <= _WIDTH else text[: _WIDTH - 3].rstrip() + "..."


def _print(example: dict[str, Any]) -> None:
    output.line(f"{example['graph']}: {example['description']}\n")
    output.line(f"  walkgraph deploy {example['graph']}")
    for task in example["tasks"].values():
        output.line(f"  {task['run']}    {task['label']}".rstrip())
    if example["placements"]:
        output.line(f"\nplacements: {', '.join(example['placements'])}")
