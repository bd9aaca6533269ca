"""Nodes, their weights, states and parameters."""

import math
from collections.abc import Mapping

from walkgraph.graph.catalogue import ANY, Component, Param, blueprint_of, is_task
from walkgraph.graph.checks.context import Context
from walkgraph.graph.document import Node
from walkgraph.graph.language import literals, shaping
from walkgraph.graph.language.expressions import Expr
from walkgraph.graph.language.ranges import Range, range_of, value_fault
from walkgraph.graph.language.syntax import Param as Name
from walkgraph.graph.problems import article
from walkgraph.graph.structure import Entry

_LISTED = 6


def check_nodes(context: Context) -> None:
    renamed: set[str] = set()
    for name, node in context.graph.nodes.items():
        component = context.catalogue.get(node.component)
        if component is None:
            if blueprint_of(node.component):
                continue  # reported where blueprints are opened
            task = is_task(node.component)
            advice = context.nearest(node.component, (one for one in context.catalogue if is_task(one) == task))
            message = f"no {'task' if task else 'component'} `{node.component}`; {advice}"
            context.add("unknown_component", ("nodes", name, "component"), message)
            continue
        if component.name != node.component and node.component not in renamed:
            # Reported once per name, however many nodes use it.
            renamed.add(node.component)
            message = f"`{node.component}` is now called `{component.name}`; both names work, but write the new one"
            context.add("former_name", ("nodes", name, "component"), message, "warning")
        if not component.available:
            message = f"`{component.name}` has no network yet: it can be drawn and planned, not deployed"
            context.add("component_unavailable", ("nodes", name, "component"), message, "warning")
        _weights(context, name, node, component)
        _states(context, name, node, component)
        _params(context, name, node, component)
        if node.kept and not component.deterministic:
            message = f"`{component.name}` may give other outputs for the same inputs, so they can't be kept"
            context.add("not_deterministic", ("nodes", name, "kept"), f"{message}; remove `kept`")


def _weights(context: Context, name: str, node: Node, component: Component) -> None:
    path = ("nodes", name, "weights")
    if node.weights is None:
        if component.weights and not context.draft.is_broken(*path):
            message = f"`{component.name}` reads {_read(component)}; set `weights` to {_entry(context, component)}"
            context.add("missing_weights", path, message)
        return
    if component.weights is None:
        message = f"`{component.name}` has no weights; remove `weights`"
        context.add("needless_weights", path, message, "warning")
        return
    weights = context.graph.weights.get(node.weights)
    if weights is None:
        if not context.draft.is_broken("weights", node.weights):
            advice = f"add an entry of the graph with family {_families(component)}"
            if context.graph.weights:
                advice = context.nearest(node.weights, context.graph.weights)
            context.add("unknown_weights", path, f"no weights `{node.weights}` in the graph; {advice}")
    elif weights.family not in component.fitting:
        message = f"`{component.name}` reads {_read(component)}, and `{node.weights}` is of family `{weights.family}`"
        context.add("wrong_family", path, f"{message}; set `weights` to {_entry(context, component)}")


def _read(component: Component) -> str:
    """A phrase for what a component reads from its weights."""
    if component.weights != ANY:
        return f"weights of family `{component.weights}`"
    return f"the {component.reads} of a family's weights" if component.reads else "a family's weights"


def _entry(context: Context, component: Component) -> str:
    """A phrase for what the node can name: an entry that exists, or else the family of one to add."""
    fitting = [name for name, weights in context.graph.weights.items() if weights.family in component.fitting]
    if fitting:
        return " or ".join(f"`{name}`" for name in fitting[:_LISTED])
    return f"an entry of the graph with family {_families(component)}"


def _families(component: Component) -> str:
    return " or ".join(f"`{family}`" for family in component.fitting[:_LISTED])


def _states(context: Context, name: str, node: Node, component: Component) -> None:
    slots = {use.slot: use for use in component.states}
    for slot, state_name in node.states.items():
        path = ("nodes", name, "states", slot)
        state = context.graph.states.get(state_name)
        if slot not in slots:
            context.add(
                "unknown_slot", path, f"`{component.name}` has no state slot `{slot}`; {context.nearest(slot, slots)}"
            )
        elif state is None:
            if not context.draft.is_broken("states", state_name):
                advice = context.nearest(state_name, context.graph.states)
                context.add("unknown_state", path, f"no state `{state_name}` in the graph; {advice}")
        elif state.kind != slots[slot].kind:
            message = (
                f"slot `{slot}` keeps a `{slots[slot].kind}`, and `{state_name}` is a `{state.kind}`; bind another"
            )
            context.add("wrong_state_kind", path, message)
    for slot, use in slots.items():
        bound = slot in node.states or context.draft.is_broken("nodes", name, "states", slot)
        if not bound and not use.optional and not context.draft.is_broken("nodes", name, "states"):
            message = f"`{component.name}` keeps a `{use.kind}` in slot `{slot}`; bind it to a state of the graph"
            context.add("missing_state", ("nodes", name, "states"), message)


# ── parameters ──────────────────────────────────────────────────────────────────────────────────


def _params(context: Context, name: str, node: Node, component: Component) -> None:
    for key, value in node.params.items():
        path = ("nodes", name, "params", key)
        param = component.params.get(key)
        if param is None:
            advice = context.nearest(key, component.params)
            context.add("unknown_param", path, f"`{component.name}` has no parameter `{key}`; {advice}")
        elif isinstance(value, str) and value.startswith("=") and param.form:
            message = f"`{key}` is read when the node is loaded, so it must be a literal; remove the `=`"
            context.add("bad_param", path, message)
        elif isinstance(value, str) and value.startswith("=") and not param.gives:
            expr = context.expression(value[1:].strip(), path)
            if expr:
                _expression(context, name, key, param, expr)
        else:
            fault = value_fault(value, param) or shaping.fault(component, key, value)
            if fault:
                context.add("bad_param", path, f"`{key}` {fault}")
    _forms(context, name, node, component)
    for key, param in component.params.items():
        broken = context.draft.is_broken("nodes", name, "params") or context.draft.is_broken(
            "nodes", name, "params", key
        )
        if param.default is None and key not in node.params and not broken:
            message = f'`{component.name}` needs a `{key}` ({param.type}); set it, or write an expression: `"=..."`'
            context.add("missing_param", ("nodes", name, "params"), message)


def _forms(context: Context, name: str, node: Node, component: Component) -> None:
    """Literals that can't be read, also where a default doesn't suit the parameters beside it."""
    defaults = {key: param.default for key, param in component.params.items() if param.default is not None}
    values = {**defaults, **node.params}
    for key, param in component.params.items():
        value = values.get(key)
        if not param.form or value is None or value_fault(value, param) or str(value).startswith("="):
            continue
        unreadable = literals.fault(param.form, str(value), values)
        if unreadable:
            path = ("nodes", name, "params", key) if key in node.params else ("nodes", name, "params")
            context.add("bad_param", path, unreadable if key in node.params else f"`{key}`: {unreadable}")


def _expression(context: Context, node: str, key: str, param: Param, expr: Expr) -> None:
    """Check a parameter's expression. Where it names something that the running task or the Walk lacks, the component's
    default applies, so there has to be one."""
    path = ("nodes", node, "params", key)
    lacking: tuple[str, str] | None = None
    found = context.draft.has_gaps("tasks") or context.draft.has_gaps("walks")
    places = [
        (walk, entry, task) for walk, entry in context.uses_of.get(node, ()) for task in context.tasks_of.get(walk, ())
    ]
    for walk, entry, task in places:
        if not context.knows_params(task):
            found = True
            continue
        missing = _missing(expr, entry, context.ranges[task])
        if missing:
            lacking = lacking or (missing, f"task `{task}`, Walk `{walk}`")
            continue
        found = True
        inferred = context.inferred(expr, task, path)
        if inferred:
            _judge(context, path, param, expr, inferred, task)
    if lacking and (param.default is None or not found):
        missing, where = lacking
        known = {name for _, _, task in places for name in context.ranges[task]}
        advice = (
            context.nearest(missing, sorted(known)) if not missing.startswith("@") else "name a loop around the use"
        )
        if found:
            advice = f"`{key}` has no default to fall back on; {advice}"
        context.add("unknown_parameter", path, f"`{missing}` has no value in {where}; {advice}")


def _missing(expr: Expr, entry: Entry, ranges: Mapping[str, Range]) -> str | None:
    for loop in sorted(expr.loops):
        if loop not in entry.loops and not (loop == "index" and entry.loops):
            return f"@loop.{loop}"
    return next((name for name in sorted(expr.names) if name not in ranges), None)


def _judge(context: Context, path: tuple[str, ...], param: Param, expr: Expr, found: Range, task: str) -> None:
    if found.kind != param.type and (found.kind, param.type) != ("integer", "number"):
        rounds = (found.kind, param.type) == ("number", "integer")
        advice = "; use `round`, `floor` or `ceil`" if rounds else "; write another expression"
        context.add(
            "bad_param",
            path,
            f"`{expr.text}` is {article(found.kind)} in task `{task}`, not {article(param.type)}{advice}",
        )
        return
    allowed = range_of(param)
    if found.low > allowed.high or found.high < allowed.low:
        message = f"`{expr.text}` can't be {_bounds(allowed)} in task `{task}`; change it"
        context.add("bad_param", path, message)
    elif isinstance(expr.tree, Name) and (found.low < allowed.low or found.high > allowed.high):
        message = f"task `{task}` allows values of `{expr.text}` that the component refuses; keep it {_bounds(allowed)}"
        context.add("bounds_differ", path, message, "warning")


def _bounds(allowed: Range) -> str:
    if math.isinf(allowed.high):
        return f"at least {allowed.low:g}"
    return f"from {allowed.low:g} to {allowed.high:g}" if math.isfinite(allowed.low) else f"at most {allowed.high:g}"
