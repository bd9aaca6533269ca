"""Parts of the document that nothing uses: warnings only, as a draft may be unfinished."""

from collections.abc import Iterable, Iterator

from walkgraph.graph.checks.context import Context
from walkgraph.graph.checks.walks import states_of, walk_path, whens
from walkgraph.graph.document import Use
from walkgraph.graph.language.expressions import parse
from walkgraph.graph.language.syntax import ExpressionError, can_be_named
from walkgraph.graph.steps import bindings_of, choices_of, expressions_of
from walkgraph.graph.structure import WalkStructure


def check_unused(context: Context) -> None:
    gaps = context.draft.has_gaps("walks")
    for name in context.graph.nodes:
        if name not in context.uses_of and not gaps:
            message = f"no Walk uses `{name}`; put it into a body, or remove it"
            context.add("unused_node", ("nodes", name), message, "warning")
    read_weights = {node.weights for node in context.graph.nodes.values()}
    for name in context.graph.weights:
        if name not in read_weights and not context.draft.has_gaps("nodes"):
            context.add("unused_weights", ("weights", name), f"no node reads `{name}`; remove it", "warning")
    for name, facts in context.facts.items():
        if name not in context.tasks_of and not context.draft.has_gaps("tasks"):
            message = f"no task uses the Walk `{name}`; add it to a task's steps, or remove it"
            context.add("unused_walk", ("walks", name), message, "warning")
        if context.draft.has_gaps("walks", name):
            continue
        read = {route.source.name for route in facts.taken if route.source.kind == "in"}
        for key in facts.walk.inputs:
            if key not in read:
                message = f"no edge takes `@in.{key}`; draw one, or remove the input"
                context.add("unused_input", ("walks", name, "inputs", key), message, "warning")
        _effects(context, name)
        _merges(context, name, facts)
    _parameters(context)


def _effects(context: Context, walk: str) -> None:
    """Report a use whose outputs nobody reads and that keeps no state: its computation has no effect."""
    facts = context.facts[walk]
    read = {route.source.name for route in (*facts.routes, *facts.results) if route.source.kind == "use"}
    read |= {route.source.name for head in (*facts.choices, *facts.maps) for route in head.routes}
    read |= {port.name for loop in facts.loops for port in facts.ports(loop.item.until or "")}
    read |= {p.name for stream in context.graph.streams if walk in stream.walks for p in facts.ports(stream.from_)}
    for entry in facts.entries:
        component = context.component(entry.node) if isinstance(entry.item, Use) else None
        if component and component.outputs and not component.states and entry.name not in read:
            if context.draft.is_offered(walk, entry.name):
                continue
            message = f"nothing reads the outputs of `{entry.name}`; draw an edge from it, or remove it"
            context.add("no_effect", walk_path(walk, entry.pointer), message, "warning")


def _merges(context: Context, walk: str, facts: WalkStructure) -> None:
    taken = {*(edge.from_ for edge in facts.walk.edges), *(result.from_ for result in facts.walk.results.values())}
    taken |= {choice.item.choose for choice in facts.choices} | {at.item.map for at in facts.maps}
    taken |= {loop.item.until for loop in facts.loops}
    taken |= {stream.from_ for stream in context.graph.streams if walk in stream.walks}
    for name in facts.walk.merges:
        if f"@merge.{name}" not in taken:
            message = f"nothing takes `@merge.{name}`; draw an edge from it, or remove it"
            context.add("unused_merge", ("walks", walk, "merges", name), message, "warning")


def _parameters(context: Context) -> None:
    """Report task parameters that nothing reads. Silent where a broken piece may be the reader."""
    if context.draft.broken:
        return
    reads = {name: frozenset(_names(_walk_texts(context, facts))) for name, facts in context.facts.items()}
    for name, task in context.graph.tasks.items():
        steps = context.steps[name]
        read = set(_names(expressions_of(task)))
        read |= {str(value).removeprefix("@task.") for value in bindings_of(task)}
        read |= {at.step.choose.removeprefix("@task.") for at in choices_of(task)}
        read = read.union(*(reads.get(walk, ()) for walk in {at.step.walk for at in steps}))
        for key in task.params:
            if key not in read and can_be_named(key) and key not in task.inputs:
                message = f"nothing in the task's Walks reads `{key}`; use it in an expression, or remove it"
                context.add("unused_parameter", ("tasks", name, "params", key), message, "warning")


def _walk_texts(context: Context, facts: WalkStructure) -> Iterator[str | None]:
    """Every expression that a Walk depends on: its own, its nodes' parameters, its states' sizes."""
    graph = context.graph
    yield from (loop.item.times for loop in facts.loops)
    yield from (at.item.width for at in facts.maps)
    yield from (when for _, when, _ in whens(facts))
    for node in {entry.node for entry in facts.entries if entry.node in graph.nodes}:
        values = graph.nodes[node].params.values()
        yield from (value[1:] for value in values if isinstance(value, str) and value.startswith("="))
    for state in {state for entry in facts.entries for state in states_of(graph, entry)}:
        if state in graph.states:
            yield from (graph.states[state].width, graph.states[state].capacity)


def _names(texts: Iterable[str | None]) -> Iterator[str]:
    for text in texts:
        try:
            yield from parse(text).names if text is not None else ()
        except ExpressionError:
            continue  # reported at the expression itself
