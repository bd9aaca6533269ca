"""`walkgraph components`: show the palette. Needs no service."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from walkgraph.cli import completing, output
from walkgraph.cli.options import Json

if TYPE_CHECKING:
    from walkgraph.graph.catalogue import Component

SECTION = "Graphs"


def command(
    name: Annotated[
        str | None, typer.Argument(help="One component; default: all.", autocompletion=completing.components)
    ] = None,
    as_json: Json = False,
) -> None:
    """List the components for graphs, or show one with its ports, parameters and examples."""
    from walkgraph.components import catalogue
    from walkgraph.errors import NotFound
    from walkgraph.graph.problems import nearest
    from walkgraph.service.schemas.palette import shown

    known = catalogue()
    if name is not None and name not in known:
        raise NotFound(f"there is no component `{name}`; {nearest(name, known)}")
    found = [shown(component) for key, component in known.items() if name in (None, key)]
    if as_json:
        output.as_json(found if name is None else found[0])
    elif name is None:
        rows = [(c["name"], "" if c["available"] else "unavailable", c["description"]) for c in found]
        output.table(("COMPONENT", "", "DESCRIPTION"), rows)
    else:
        _print(found[0])
        _print_examples(known[name])


def _print(component: dict[str, Any]) -> None:
    output.line(f"{component['name']}: {component['description']}")
    for side in ("inputs", "outputs"):
        output.line(f"\n{side}")
        for port in component[side]:
            optional = "optional; " if port["optional"] else ""
            output.line(f"  {port['name']:<16} {port['type']:<28} {optional}{port['description']}")
    output.line("\nparams")
    for key, param in component["params"].items():
        bounds = "" if param["min"] is None and param["max"] is None else f" {param['min']}..{param['max']}"
        output.line(f"  {key:<16} {param['type']}{bounds} = {param['default']}  {param['description']}")


def _print_examples(component: Component) -> None:
    from walkgraph.graph.language.shaping import shaped

    for example in component.examples:
        node = shaped(component, example.params)
        output.line("\nexample" + (f": {example.note}" if example.note else ""))
        for kind, name, value in example.lines(node.inputs, node.outputs):
            output.line(f"  {kind:<5} {name:<16} {value}")
