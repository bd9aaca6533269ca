"""Bodies of Walks: their uses, loops and bounds, conditions, forks, and states that branches share."""

from walkgraph.graph.checks.context import Context
from walkgraph.graph.checks.presence import can_be_skipped
from walkgraph.graph.document import Choose, Fork, Graph, Map, Use
from walkgraph.graph.language.expressions import Expr, constant
from walkgraph.graph.language.ranges import Range
from walkgraph.graph.language.syntax import can_be_named
from walkgraph.graph.ports import parse_type
from walkgraph.graph.problems import article
from walkgraph.graph.reading.wellformed import Path
from walkgraph.graph.structure import End, Entry, LoopAt, WalkStructure, end, segment, segments


def check_walks(context: Context) -> None:
    for name, facts in context.facts.items():
        _inputs(context, name, facts)
        _names(context, name, facts)
        for entry in facts.entries:
            path = walk_path(name, entry.pointer)
            match entry.item:
                case Use():
                    _use(context, path, entry.item)
                case Fork():
                    _fork(context, path, entry.item)
                case Choose() | Map():
                    pass  # `choices` and `maps` check them
        for loop in facts.loops:
            _loop(context, name, facts, loop)
        _conditions(context, name, facts)
        _branches(context, name, facts)
        if not facts.entries and not context.draft.has_gaps("walks", name, "body"):
            context.add("empty_walk", ("walks", name, "body"), "the body is empty; put the name of a node into it")


def walk_path(walk: str, pointer: str) -> Path:
    return ("walks", walk, *segments(pointer))


def _inputs(context: Context, name: str, facts: WalkStructure) -> None:
    for key, text in facts.walk.inputs.items():
        try:
            parse_type(text)
        except ValueError as error:
            context.add("bad_type", ("walks", name, "inputs", key), str(error))


def _names(context: Context, name: str, facts: WalkStructure) -> None:
    seen: set[str] = set()
    for entry in facts.entries:
        if entry.name and entry.name in seen:
            message = f"the body has `{entry.name}` twice; give this use another name with `as`"
            context.add("duplicate_name", walk_path(name, entry.pointer), message)
        seen.add(entry.name)
    loops: set[str] = set()
    for loop in facts.loops:
        path = (*walk_path(name, loop.pointer), "loop")
        if loop.name in loops:
            context.add("duplicate_name", path, f"the Walk has a loop `{loop.name}` twice; rename this one")
        if loop.name == "index" or not can_be_named(loop.name):
            message = f"a loop can't be named `{loop.name}`, as `@loop.{loop.name}` reads otherwise; rename it"
            context.add("bad_name", path, message)
        loops.add(loop.name)


def _use(context: Context, path: Path, use: Use) -> None:
    if use.use not in context.graph.nodes and not context.draft.is_broken("nodes", use.use):
        message = f"no node `{use.use}` in the graph; {context.nearest(use.use, context.graph.nodes)}"
        context.add("unknown_node", (*path, "use"), message)


def _fork(context: Context, path: Path, fork: Fork) -> None:
    states = context.graph.states
    for key, name in (("fork", fork.fork), ("into", fork.into)):
        if name not in states and not context.draft.is_broken("states", name):
            message = f"no state `{name}` in the graph; {context.nearest(name, states)}"
            context.add("unknown_state", (*path, key), message)
    source, target = states.get(fork.fork), states.get(fork.into)
    if fork.fork == fork.into:
        context.add("bad_fork", (*path, "into"), f"`{fork.fork}` is forked into itself; name another state")
    elif source and target and source.kind != target.kind:
        message = f"a `{source.kind}` can't be forked into a `{target.kind}`; name a state of the same kind"
        context.add("bad_fork", (*path, "into"), message)


# ── loops and conditions ────────────────────────────────────────────────────────────────────────


def _loop(context: Context, name: str, facts: WalkStructure, loop: LoopAt) -> None:
    path = walk_path(name, loop.pointer)
    if isinstance(loop.item, Map):
        for key, text in (("bound", loop.item.bound), ("width", loop.item.width)):
            if not context.draft.is_broken(*path, key):
                _times(context, name, (*path, key), loop, text)
        return
    if not context.draft.is_broken(*path, "times"):
        _times(context, name, (*path, "times"), loop, loop.item.times)
    if loop.item.until is None:
        if loop.item.drop_last and not context.draft.is_broken(*path, "until"):
            message = (
                "`drop_last` drops the values of the iteration that raised "
                "`until`, and there is no `until`; add one or remove it"
            )
            context.add("drop_without_until", (*path, "drop_last"), message)
        return
    _until(context, (*path, "until"), name, facts, loop)


def _times(context: Context, walk: str, path: Path, loop: LoopAt, text: str) -> None:
    """Check a count: of a loop's iterations, or of a map's items."""
    expr, key = context.expression(text, path), path[-1]
    if expr is None:
        return
    _loop_names(context, path, expr, () if key == "width" else loop.loops[:-1])
    for task, found in _in_tasks(context, walk, path, expr):
        if found.kind != "integer":
            advice = "round it with `round`, `floor` or `ceil`" if found.kind == "number" else "write a whole number"
            context.add("bad_times", path, f"`{expr.text}` is {article(found.kind)}, and `{key}` an integer; {advice}")
        elif found.high < 0 or constant(expr) == 0:
            advice = "let the loop run at least once" if key == "times" else "let it be at least 1"
            context.add("bad_times", path, f"`{expr.text}` is never above 0; {advice}")
        elif found.low < 0:
            message = f"`{expr.text}` may be below 0 in task `{task}`; bound its parameters"
            context.add("times_may_be_negative", path, message, "warning")
        elif found.low == 0 and key == "times" and _is_awaited(context, context.facts[walk], loop):
            message = (
                f"`{expr.text}` may be 0 in task `{task}`, and then the "
                "loop has no value to hand on; bound its parameters"
            )
            context.add("times_may_be_zero", path, message, "warning")


def _is_awaited(context: Context, facts: WalkStructure, loop: LoopAt) -> bool:
    """True if a required port takes the loop's last value."""
    ports = [context.input(route.target) for route in facts.routes if loop.name in route.left]
    return any(port is not None and not port.optional for port in ports)


def _until(context: Context, path: Path, name: str, facts: WalkStructure, loop: LoopAt) -> None:
    reference = loop.item.until or ""
    named = end(reference, facts.uses, target=False)
    if named.kind == "merge" and named.name not in facts.walk.merges:
        if not context.draft.has_gaps("walks", name, "merges"):
            message = f"the Walk has no merge `{named.name}`; {context.nearest(named.name, facts.walk.merges)}"
            context.add("unknown_merge", path, message)
        return
    ports = facts.ports(reference)
    for port in ports:
        _until_port(context, path, name, facts, loop, port)
    if named.kind == "merge":
        sources = [port.entry for port in ports if port.entry is not None]
        if len(sources) == len(ports) and can_be_skipped(context, facts, sources, loop.whens, loop.cases):
            message = f"`{reference}` ends the loop, and in some iterations no branch of it may be taken"
            context.add("absent_value", path, f"{message}; add a branch for all other values (`otherwise`)")


def _until_port(context: Context, path: Path, name: str, facts: WalkStructure, loop: LoopAt, source: End) -> None:
    called = f"{source.name}.{source.port}" if source.port else loop.item.until
    if source.kind != "use":
        context.add("bad_until", path, f"`{called}` is not a port of a use; write `use.port` or `@merge.x`")
    elif source.entry is None:
        if not context.draft.has_gaps("walks", name, "body"):
            message = f"no use `{source.name}` in the body; {context.nearest(source.name, facts.uses)}"
            context.add("unknown_use", path, message)
    elif source.entry.loops[: len(loop.loops)] != loop.loops:
        message = f"`{source.name}` stands outside the loop `{loop.name}`; end the loop by a use in its body"
        context.add("bad_until", path, message)
    else:
        component = context.component(source.entry.node)
        port = component.output(source.port) if component else None
        if component and port is None:
            names = [p.name for p in component.outputs]
            message = f"`{component.name}` has no output `{source.port}`; {context.nearest(source.port, names)}"
            context.add("unknown_port", path, message)
        elif port and port.type.modality != "flag":
            message = f"`{called}` gives `{port.type}`, and only a `flag` can end a loop; name one"
            context.add("bad_until", path, message)


def _conditions(context: Context, name: str, facts: WalkStructure) -> None:
    """Check every `when` of the Walk at the item that has it: uses, forks, loops, and the lists around them."""
    for pointer, when, loops in whens(facts):
        path = (*walk_path(name, pointer), "when")
        expr = context.expression(when, path)
        if expr is None:
            continue
        _loop_names(context, path, expr, loops)
        if constant(expr) is False:
            context.add("unreachable_use", path, "the condition is never true; change it or remove the item")
        for task, found in _in_tasks(context, name, path, expr):
            if found.kind != "boolean":
                context.add(
                    "bad_when",
                    path,
                    f"`{expr.text}` is {article(found.kind)} in task `{task}`; write a comparison",
                )


def whens(facts: WalkStructure) -> list[tuple[str, str, tuple[str, ...]]]:
    """(pointer of the item, its condition, the loops around it)."""
    found: list[tuple[str, str, tuple[str, ...]]] = []
    stack = [(item, f"/body/{i}", ()) for i, item in enumerate(facts.walk.body)]
    pending: list[tuple[object, str, tuple[str, ...]]] = list(reversed(stack))
    while pending:
        item, pointer, loops = pending.pop()
        when = getattr(item, "when", None)
        if isinstance(when, str):
            found.append((pointer, when, loops))
        lists: list[tuple[str, tuple[object, ...]]] = [
            (key, getattr(item, key, ())) for key in ("parallel", "sequence", "body")
        ]
        if isinstance(item, Choose):
            lists = [*((f"cases/{segment(case)}", items) for case, items in item.cases.items())]
            lists.append(("otherwise", item.otherwise))
        for key, children in reversed(lists):
            inside = (*loops, str(getattr(item, "loop", ""))) if key == "body" else loops
            pending.extend((child, f"{pointer}/{key}/{i}", inside) for i, child in reversed(list(enumerate(children))))
    return found


def _loop_names(context: Context, path: Path, expr: Expr, loops: tuple[str, ...]) -> None:
    for loop in sorted(expr.loops):
        if loop not in loops and not (loop == "index" and loops):
            advice = context.nearest(loop, ("index", *loops)) if loops else "there is no loop around it"
            context.add("unknown_loop", path, f"`@loop.{loop}` has no value here; {advice}")


def _in_tasks(context: Context, walk: str, path: Path, expr: Expr) -> list[tuple[str, Range]]:
    """Type and bounds of the expression in each task that uses the Walk; adds a problem for names that a task lacks."""
    found: list[tuple[str, Range]] = []
    for task in context.tasks_of.get(walk, ()):
        ranges = context.ranges[task]
        missing = next((name for name in sorted(expr.names) if name not in ranges), None)
        if missing is None:
            inferred = context.inferred(expr, task, path)
            found.extend([(task, inferred)] if inferred else [])
        elif context.knows_params(task):
            message = f"task `{task}` has no parameter `{missing}`; {context.nearest(missing, ranges)}"
            context.add("unknown_parameter", path, message)
    return found


# ── states that branches of a parallel share ────────────────────────────────────────────────────


def _branches(context: Context, name: str, facts: WalkStructure) -> None:
    """Check states that two branches share: both may read, but a writer needs the state to itself."""
    touched: dict[tuple[int, str], list[tuple[int, bool, Entry]]] = {}
    for entry in facts.entries:
        if not entry.branches:
            continue
        for state, writes in accesses(context, facts, entry):
            for parallel, branch in entry.branches:
                others = touched.setdefault((parallel, state), [])
                rival = next((e for b, w, e in others if b != branch and (w or writes)), None)
                if rival:
                    message = f"{called(entry)} and {called(rival)} touch state `{state}` in two branches of one"
                    advice = "`parallel`, and one writes it; put them in a `sequence`, or give one a state of its own"
                    context.add("conflicting_state", walk_path(name, entry.pointer), f"{message} {advice}")
                others.append((branch, writes, entry))


def called(entry: Entry) -> str:
    """The words for a use or a fork in a message."""
    return f"`{entry.name}`" if entry.name else "the fork"


def states_of(graph: Graph, entry: Entry) -> tuple[str, ...]:
    """States that a use or a fork binds in the document."""
    if isinstance(entry.item, Fork):
        return entry.item.fork, entry.item.into
    node = graph.nodes.get(entry.node)
    return tuple(dict.fromkeys(node.states.values())) if node else ()


def accesses(context: Context, facts: WalkStructure, entry: Entry) -> list[tuple[str, bool]]:
    """(state, True if it is written) for each state of a use or fork, given the ports connected in this Walk."""
    if isinstance(entry.item, Fork):
        return [(entry.item.fork, False), (entry.item.into, True)]
    component = context.component(entry.node)
    if component is None:
        return []
    bound = context.graph.nodes[entry.node].states
    return [
        (bound[use.slot], not use.only_reads(lambda port: (entry.name, port) in facts.feeds))
        for use in component.states
        if use.slot in bound
    ]
