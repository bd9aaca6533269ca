"""States: their capacities and widths, and the nodes that keep them."""

from collections.abc import Mapping, Sequence

from walkgraph.graph.checks.context import Context
from walkgraph.graph.checks.walks import accesses, states_of
from walkgraph.graph.document import State
from walkgraph.graph.reading.wellformed import Path
from walkgraph.graph.structure import Entry

Touch = tuple[str, Entry]
"""A Walk, and a use or fork in it."""


def check_states(context: Context) -> None:
    touches = _touches(context)
    written = _written(context)
    used = {state for node in context.graph.nodes.values() for state in node.states.values()}
    for name, state in context.graph.states.items():
        path = ("states", name)
        here = touches.get(name, ())
        tasks = tuple(dict.fromkeys(task for walk, _ in here for task in context.tasks_of.get(walk, ())))
        if state.kind == "paged_kv" and state.capacity is None and not context.draft.is_broken(*path, "capacity"):
            message = (
                "a `paged_kv` needs a `capacity`: the most tokens of one sequence, from the task's parameters; add it"
            )
            context.add("missing_capacity", path, message)
        if state.kind != "paged_kv" and state.capacity is not None:
            message = f"only a `paged_kv` has a `capacity`, not a `{state.kind}`; remove it"
            context.add("needless_capacity", (*path, "capacity"), message, "warning")
        _sizes(context, path, state, tasks)
        if name not in used and not context.draft.has_gaps("nodes"):
            context.add(
                "unused_state", path, f"no node uses the state `{name}`; bind it to a slot or remove it", "warning"
            )
        elif here and state.kind == "paged_kv" and name not in written and not context.draft.broken:
            message = f"every use of `{name}` only reads it; feed a port that appends to it, or fork another into it"
            context.add("state_never_written", path, message, "warning")
        if state.scope == "iteration":
            _iteration(context, path, here)
        if state.scope == "session":
            _session(context, name, tasks)


def _touches(context: Context) -> Mapping[str, list[Touch]]:
    found: dict[str, list[Touch]] = {}
    for walk, facts in context.facts.items():
        for entry in facts.entries:
            for state in states_of(context.graph, entry):
                found.setdefault(state, []).append((walk, entry))
    return found


def _written(context: Context) -> frozenset[str]:
    """States that a use or fork writes, or may write because its component is unknown."""
    touched = (
        access
        for facts in context.facts.values()
        for entry in facts.entries
        for access in accesses(context, facts, entry)
    )
    unknown = (node for node in context.graph.nodes.values() if node.component not in context.catalogue)
    return frozenset({state for state, writes in touched if writes}).union(*(n.states.values() for n in unknown))


def _sizes(context: Context, path: Path, state: State, tasks: tuple[str, ...]) -> None:
    for key, text in (("width", state.width), ("capacity", state.capacity)):
        expr = context.expression(text, (*path, key)) if text is not None else None
        if expr is None or context.draft.is_broken(*path, key):
            continue
        if expr.loops:
            message = f"`{key}` is fixed before any loop runs; remove `@loop.{min(expr.loops)}`"
            context.add("unknown_loop", (*path, key), message)
            continue
        for task in tasks:
            missing = next((name for name in sorted(expr.names) if name not in context.ranges[task]), None)
            if missing:
                if context.knows_params(task):
                    message = (
                        f"task `{task}` has no parameter `{missing}`; {context.nearest(missing, context.ranges[task])}"
                    )
                    context.add("unknown_parameter", (*path, key), message)
                continue
            found = context.inferred(expr, task, (*path, key))
            if found and (found.kind != "integer" or found.high < 1):
                message = f"`{expr.text}` is not a whole number above 0 in task `{task}`; use `ceil`, or change it"
                context.add("bad_size", (*path, key), message)


def _iteration(context: Context, path: Path, touches: Sequence[Touch]) -> None:
    """Check a state with scope `iteration`: it lives for one iteration of the innermost loop that holds all its uses in
    a Walk."""
    keepers: dict[str, list[Entry]] = {}
    for walk, entry in touches:
        keepers.setdefault(walk, []).append(entry)
    for walk, entries in keepers.items():
        outside = next((entry.name for entry in entries if entry.name and not entry.loops), None)
        advice = "or set `scope` to `walk`"
        if outside:
            message = f"`{outside}` in Walk `{walk}` uses it outside any loop; use it inside one, {advice}"
            context.add("iteration_outside_loop", (*path, "scope"), message, "warning")
        elif len(entries) == 1 and entries[0].loops and entries[0].loops[-1] not in context.facts[walk].map_loops:
            message = f"only `{entries[0].name}` of Walk `{walk}` uses it, so it starts empty in every iteration"
            message = f"{message} of `{entries[0].loops[-1]}`; use it in the loop around that one too, {advice}"
            context.add("iteration_of_one_use", (*path, "scope"), message, "warning")


def _session(context: Context, name: str, tasks: tuple[str, ...]) -> None:
    for task in tasks:
        if context.graph.tasks[task].session is None and not context.draft.is_broken("tasks", task, "session"):
            message = f"task `{task}` has no `session` and starts with an empty `{name}` each time; add one to keep it"
            context.add("no_session", ("states", name, "scope"), message, "warning")
