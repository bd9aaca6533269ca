"""The goldens that are made from bundled data, and the command that writes them.

python -m tests.golden.listing
"""

from collections.abc import Iterator
from pathlib import Path

from walkgraph.components import catalogue
from walkgraph.graph import codec
from walkgraph.graph.catalogue import Component, Param, Port, StateUse
from walkgraph.graph.document import Graph
from walkgraph.graph.mermaid import draw
from walkgraph.resources import bundled

FOLDER = Path(__file__).resolve().parent


def listing() -> str:
    """Every component of the palette, a line for each port, parameter and state."""
    return "\n".join(line for component in catalogue().values() for line in _component(component))


def _component(component: Component) -> Iterator[str]:
    facts = [f"cost {component.cost}", *(["on the host"] if component.host else [])]
    facts.append(f"weights {component.weights}" if component.weights else "no weights")
    runs = component.network or ("by the service" if component.by_service else "unavailable")
    yield f"{component.name}  ({', '.join(facts)}; {runs})"
    yield f"    {component.description}"
    yield from (f"    in     {_port(port)}" for port in component.inputs)
    yield from (f"    out    {_port(port)}" for port in component.outputs)
    yield from (f"    param  {_param(name, param)}" for name, param in component.params.items())
    yield from (f"    state  {_state(use)}" for use in component.states)
    yield ""


def _port(port: Port) -> str:
    return f"{port.name}: {port.type}{' (optional)' if port.optional else ''}"


def _param(name: str, param: Param) -> str:
    low = "" if param.min is None else f" from {param.min:g}"
    high = "" if param.max is None else f" to {param.max:g}"
    choices = f" of {', '.join(map(str, param.choices))}" if param.choices else ""
    default = "must be set" if param.default is None else f"default {param.default}"
    return f"{name}: {param.type}{low}{high}{choices}, {default}"


def _state(use: StateUse) -> str:
    appends = [f"{a.port} {a.positions}{' scratch' if a.scratch else ''}" for a in use.appends]
    optional = " (optional)" if use.optional else ""
    return "; ".join([f"{use.slot}: {use.kind}, {use.access}{optional}", *appends])


def drawing(graph: Graph) -> str:
    """A page with the component graph and every Walk."""
    pages = [f"# {graph.name}", graph.description, _block(draw(graph))]
    for name, walk in graph.walks.items():
        pages += [f"## {name}: {walk.label}", _block(draw(graph, name))]
    return "\n\n".join(pages) + "\n"


def _block(mermaid: str) -> str:
    return f"```mermaid\n{mermaid}```"


def goldens() -> dict[str, str]:
    """File name -> text."""
    graphs = {name: codec.load(path.read_bytes()) for name, path in bundled("graphs").items()}
    drawings = {f"graph_{name}.md": drawing(graph) for name, graph in graphs.items()}
    return {"catalogue.txt": listing(), **drawings}


if __name__ == "__main__":
    for name, text in goldens().items():
        (FOLDER / name).write_text(text)
