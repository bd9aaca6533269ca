"""Checks the declarations of a task: its inputs and parameters, their defaults and bounds."""

from walkgraph.graph.catalogue import Scalar
from walkgraph.graph.checks.context import Context
from walkgraph.graph.conversation import MESSAGES
from walkgraph.graph.document import Literals, Task, TaskInput, TaskParam
from walkgraph.graph.language.ranges import range_of_value
from walkgraph.graph.language.syntax import can_be_named
from walkgraph.graph.ports import MEDIA, MODALITIES
from walkgraph.graph.problems import article, nearest
from walkgraph.graph.reading.wellformed import Path


def check_declarations(context: Context, path: Path, task: Task) -> None:
    for key, declared in task.inputs.items():
        if declared.modality not in MODALITIES:
            message = f"`{declared.modality[:80]}` is not a modality; {context.nearest(declared.modality, MODALITIES)}"
            context.add("unknown_modality", (*path, "inputs", key, "modality"), message)
        if declared.modality == MESSAGES and declared.many:
            message = "a conversation has many turns already; remove `many`"
            context.add("many_conversations", (*path, "inputs", key, "many"), message)
        _default(context, (*path, "inputs", key), declared)
        if key in task.params or key == "seed":
            context.add("duplicate_name", (*path, "inputs", key), f"`{key}` is also a parameter; rename one")
    for key, param in task.params.items():
        where = (*path, "params", key)
        if not can_be_named(key):
            context.add("bad_name", where, f"expressions can't read `{key}`; name it with letters, digits and `_`")
        if key == "seed":
            context.add("bad_name", where, "`seed` is always available; remove this parameter")
        _param(context, where, param)


def _default(context: Context, path: Path, declared: TaskInput) -> None:
    if declared.default is None or context.draft.is_broken(*path, "default"):
        return
    if declared.optional:
        context.add("bad_value", (*path, "optional"), "an input with a default is never absent; remove `optional`")
    fault = _default_fault(declared.modality, declared.default)
    if fault:
        context.add("bad_value", (*path, "default"), f"the default {fault}")


def _default_fault(modality: str, value: Literals | tuple[int | float, ...]) -> str | None:
    if modality in MEDIA:
        return f"can't be `{modality}`; texts and numbers have defaults, so remove it"
    if isinstance(value, str) != (modality == "text"):
        return "is no text; change it" if modality == "text" else "is a text; give a number or a list of numbers"
    if isinstance(value, bool) != (modality == "flag"):
        return "is no flag; give `true` or `false`" if modality == "flag" else "is a flag; give a number"
    if isinstance(value, tuple) and modality == "scalar":
        return "is a list; give one number"
    return None


def _param(context: Context, path: Path, param: TaskParam) -> None:
    if param.min is not None and param.max is not None and param.min > param.max:
        context.add("bad_bounds", (*path, "max"), f"`max` {param.max:g} is below `min` {param.min:g}; swap them")
        return
    if param.type in ("boolean", "string") and (param.min is not None or param.max is not None):
        message = f"{article(param.type)} has no bounds; remove `min` and `max`"
        context.add("bad_bounds", (*path, "max" if param.min is None else "min"), message)
    for i, choice in enumerate(param.choices):
        fault = _value_fault(choice, param)
        if fault:
            context.add("bad_value", (*path, "choices", str(i)), f"the choice {fault}")
    if param.default is not None and not context.draft.is_broken(*path, "default"):
        fault = _value_fault(param.default, param)
        if fault is None and param.choices and param.default not in param.choices:
            fault = f"is not one of the choices; {nearest(str(param.default), map(str, param.choices))}"
        if fault:
            context.add("bad_value", (*path, "default"), f"the default {fault}")


def _value_fault(value: Scalar, param: TaskParam) -> str | None:
    kind = range_of_value(value).kind
    if kind != param.type and (kind, param.type) != ("integer", "number"):
        return f"is {article(kind)}, not {article(param.type)}; change it"
    if not isinstance(value, str) and param.min is not None and value < param.min:
        return f"is below `min` {param.min:g}; raise it"
    if not isinstance(value, str) and param.max is not None and value > param.max:
        return f"is above `max` {param.max:g}; lower it"
    return None
