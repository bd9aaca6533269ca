"""Tasks as components: the declaration of a node that calls a task, derived from the graph that has the task.

    {"component": "shapes/text_to_image"}     ports: the task's inputs, parameters and `seed`; its outputs

A parameter of the task is both: set it in the node's `params`, or feed the port of its name, which goes first.
"""

from collections.abc import Iterator, Mapping
from typing import Any, cast

from walkgraph.graph.catalogue import Catalogue, Component, Param, Port, is_task
from walkgraph.graph.checks.context import Context
from walkgraph.graph.codec import dump
from walkgraph.graph.document import Graph, Task, TaskParam
from walkgraph.graph.ports import PortType, parse_type
from walkgraph.graph.reading.wellformed import Draft
from walkgraph.graph.steps import approvals_of, is_needed

MOST_DEEP = 4
"""The most calls below a client's request: a task that calls one that calls one ..."""
SEED = "seed"
_TYPES = {
    "integer": PortType("scalar", "int"),
    "number": PortType("scalar"),
    "boolean": PortType("flag"),
    "string": PortType("text"),
}


class WithTasks(Mapping[str, Component]):
    """A catalogue with the tasks of some graphs. Tasks are derived when they are looked up."""

    def __init__(self, components: Catalogue, graphs: Mapping[str, Any]) -> None:
        """`graphs`: documents by name, of any quality; a task that can't be read is not there."""
        self._components, self._graphs = components, graphs
        self._read: dict[str, Context] = {}
        self._found: dict[str, Component | None] = {}

    def over(self, name: str, document: Any) -> "WithTasks":
        """The same catalogue, with this document as the graph of that name."""
        return WithTasks(self._components, {**self._graphs, name: document})

    def __getitem__(self, name: str) -> Component:
        if not is_task(name):
            return self._components[name]
        if name not in self._found:
            # While it is derived it is unknown, so that tasks in a circle end.
            self._found[name] = None
            self._found[name] = self._derived(name)
        found = self._found[name]
        if found is None:
            raise KeyError(name)
        return found

    def __iter__(self) -> Iterator[str]:
        yield from self._components
        for graph in sorted(self._graphs):
            yield from (f"{graph}/{task}" for task in self._context(graph).graph.tasks)

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def _context(self, graph: str) -> Context:
        if graph not in self._read:
            document = self._graphs[graph]
            self._read[graph] = Context(Draft(dump(document) if isinstance(document, Graph) else document), self)
        return self._read[graph]

    def _derived(self, name: str) -> Component | None:
        graph, _, task = name.partition("/")
        if graph not in self._graphs:
            return None
        context = self._context(graph)
        declared = context.graph.tasks.get(task)
        return _component(name, context, task, declared) if declared is not None else None


def with_own(catalogue: Catalogue, graph: Graph, document: Any = None) -> Catalogue:
    """The catalogue with the tasks of this graph itself, where a node calls one. `document`: the graph as it was
    given."""
    own = f"{graph.name}/"
    groups = (graph.nodes, *(blueprint.nodes for blueprint in graph.blueprints.values()))
    if not any(node.component.startswith(own) for nodes in groups for node in nodes.values()):
        return catalogue
    known = catalogue if isinstance(catalogue, WithTasks) else WithTasks(catalogue, {})
    return known.over(graph.name, graph if document is None else document)


def called_graphs(document: Any) -> frozenset[str]:
    """The graphs whose tasks the nodes of a document call, whatever its quality."""
    groups = [document, *_entries(_entries(document).get("blueprints")).values()]
    nodes = (node for group in groups for node in _entries(_entries(group).get("nodes")).values())
    named = (_entries(node).get("component") for node in nodes)
    return frozenset(name.partition("/")[0] for name in named if isinstance(name, str) and is_task(name))


def _entries(value: Any) -> Mapping[str, Any]:
    return cast(Mapping[str, Any], value) if isinstance(value, Mapping) else {}


def _component(name: str, context: Context, task: str, declared: Task) -> Component:
    inputs = [
        Port(key, parse_type(given.modality), not is_needed(given), given.description)
        for key, given in declared.inputs.items()
        if _readable(given.modality)
    ]
    params = {key: param for key, param in declared.params.items() if key != SEED}
    fed = [Port(key, _TYPES[param.type], True, param.description) for key, param in params.items()]
    seed = Port(SEED, _TYPES["integer"], True, "by default it follows from the run's seed, the node and the iteration")
    sent = _sent(context, task)
    return Component(
        name=name,
        category="Tasks",
        description=declared.label or f"Calls the task `{task}` of the graph `{context.graph.name}`.",
        inputs=(*inputs, *fed, seed),
        outputs=tuple(Port(key, sent[key]) for key in declared.outputs if key in sent),
        params={key: _param(param) for key, param in params.items()},
        host=True,
        task=True,
        calls=_calls(context, task),
        asks=bool(approvals_of(declared)),
    )


def _readable(modality: str) -> bool:
    try:
        parse_type(modality)
    except ValueError:
        return False
    return True


def _param(param: TaskParam) -> Param:
    return Param(
        type=param.type,
        default=param.default,
        min=param.min,
        max=param.max,
        choices=param.choices,
        description=param.description,
    )


def _sent(context: Context, task: str) -> Mapping[str, PortType]:
    """Output of a task -> its type without sizes, which are those of one run; outputs whose type can't be known are
    missing."""
    found: dict[str, PortType] = {}
    for at in context.steps[task]:
        for name, kind in context.sent.get(at.step.walk, {}).items():
            if kind is not None:
                found.setdefault(name, PortType(kind.modality))
    return found


def _calls(context: Context, task: str) -> tuple[str, ...]:
    walks = {at.step.walk for at in context.steps[task]}
    called = (
        node.component
        for name, node in context.graph.nodes.items()
        if is_task(node.component) and any(walk in walks for walk, _ in context.uses_of.get(name, ()))
    )
    return tuple(dict.fromkeys(called))
