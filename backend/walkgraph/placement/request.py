"""Check a client's request against its task: fill in parameters, name values, put parts in order."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Protocol, cast

from walkgraph.errors import InvalidInput, NotFound
from walkgraph.graph.conversation import MESSAGES, Role, calls_text
from walkgraph.graph.document import Graph, Task, TaskParam
from walkgraph.graph.problems import nearest
from walkgraph.graph.steps import bindings_of, expressions_of, is_needed
from walkgraph.placement.tables import Scalar

SEED = TaskParam(type="integer", min=0, description="Seeds everything that is drawn at random.")
MAX_SEED = 2**63 - 1


class InputPart(Protocol):
    @property
    def modality(self) -> str: ...

    @property
    def value(self) -> Any: ...


class InputTurn(Protocol):
    @property
    def role(self) -> Role: ...

    @property
    def parts(self) -> Sequence[InputPart]: ...

    @property
    def tool_calls(self) -> Sequence[Any]: ...

    @property
    def tool_call_id(self) -> str | None: ...


@dataclass(frozen=True, slots=True)
class TurnAt:
    """A turn of a conversation, as steps inside `for: turns` see it."""

    role: Role
    index: int
    last: bool
    calls: str
    """Its tool calls as JSON; empty if it has none."""
    call_id: str
    """The call that it answers; empty if it answers none."""

    @property
    def values(self) -> dict[str, Scalar]:
        """`@turn.x` -> its value."""
        return {f"@turn.{name}": value for name, value in asdict(self).items()}


@dataclass(frozen=True, slots=True)
class Given:
    """One input value of a request, or a part of a conversation's turn."""

    name: str
    """Its own name: `prompt.0`, `part.3`; `chat.0.2.1` for part 1 of turn 2 of `chat.0`."""
    input: str
    """The task's input that it belongs to."""
    modality: str
    pointer: str
    value: Any
    """If `listed`, a tuple of all values of the input."""
    turn: int | None = None
    """The turn that it is a part of."""
    turns: tuple[TurnAt, ...] = ()
    """The turns of a conversation."""
    listed: bool = False
    """A step takes all values of the input as a list."""

    @property
    def values(self) -> tuple[Any, ...]:
        return cast(tuple[Any, ...], self.value) if self.listed else (self.value,)


def task_of(graph: Graph, name: str) -> Task:
    """Find a task by name. Raises NotFound with the nearest match."""
    task = graph.tasks.get(name)
    if task is None:
        raise NotFound(f"the graph `{graph.name}` has no task `{name[:80]}`; {nearest(name, graph.tasks)}", "/task")
    return task


def declared_params(task: Task) -> dict[str, TaskParam]:
    """The task's parameters, `seed` included."""
    return {**task.params, "seed": task.params.get("seed", SEED)}


# ── parameters ──────────────────────────────────────────────────────────────────────────────────


def fill_params(task: Task, given: Mapping[str, Scalar]) -> dict[str, Scalar]:
    """All parameters with their values; `seed` must be given. Raises InvalidInput for the first one that is wrong."""
    declared = declared_params(task)
    for name in given:
        if name not in declared:
            raise InvalidInput(f"the task has no parameter `{name[:80]}`; {nearest(name, declared)}", _at(name))
    filled: dict[str, Scalar] = {}
    for name, param in declared.items():
        value = given.get(name, param.default)
        if value is None:
            raise InvalidInput(f"`{name}` is missing; give {_kind(param)}", _at(name))
        _check(name, param, value)
        filled[name] = value
    return filled


def _check(name: str, param: TaskParam, value: Scalar) -> None:
    if not _fits(param, value):
        raise InvalidInput(f"`{name}` must be {_kind(param)}", _at(name))
    if param.choices and value not in param.choices:
        choices = ", ".join(f"`{choice}`" for choice in param.choices[:20])
        raise InvalidInput(f"`{name}` must be one of {choices}", _at(name))
    if isinstance(value, str | bool):
        return
    if param.min is not None and value < param.min:
        raise InvalidInput(f"`{name}` is {value} and must be {param.min:g} or more", _at(name))
    if param.max is not None and value > param.max:
        raise InvalidInput(f"`{name}` is {value} and must be {param.max:g} or less", _at(name))


def _fits(param: TaskParam, value: Scalar) -> bool:
    match param.type:
        case "integer":
            return isinstance(value, int) and not isinstance(value, bool) and abs(value) <= MAX_SEED
        case "number":
            return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
        case "boolean":
            return isinstance(value, bool)
        case "string":
            return isinstance(value, str)


def _kind(param: TaskParam) -> str:
    kinds = {"integer": "an integer", "number": "a finite number", "boolean": "true or false", "string": "a text"}
    return kinds[param.type]


def _at(name: str) -> str:
    return "/params/" + name[:80].replace("~", "~0").replace("/", "~1")


# ── inputs ──────────────────────────────────────────────────────────────────────────────────────


def name_inputs(task: Task, inputs: Mapping[str, Sequence[Any]], parts: Sequence[InputPart] = ()) -> tuple[Given, ...]:
    """Name the request's values, in the order in which parts are read: values of the inputs as the task declares them,
    then `parts`. A part becomes a value of the first input of its modality that still takes one. Raises
    InvalidInput."""
    for name in inputs:
        if name not in task.inputs:
            raise InvalidInput(
                f"the task has no input `{name[:80]}`; {nearest(name, task.inputs)}", f"/inputs/{name[:80]}"
            )
    found = [
        given
        for name, declared in task.inputs.items()
        for i, value in enumerate(inputs.get(name, ()))
        for given in _named(name, i, declared.modality, value)
    ]
    counts = {name: len(inputs.get(name, ())) for name in task.inputs}
    for i, part in enumerate(parts):
        name = _input_for(task, counts, part.modality, f"/parts/{i}")
        counts[name] += 1
        found.append(Given(f"part.{i}", name, part.modality, f"/parts/{i}", part.value))
    for name, declared in task.inputs.items():
        if counts[name] > 1 and not declared.many:
            raise InvalidInput(f"`{name}` takes one value and {counts[name]} are given", f"/inputs/{name}")
        if counts[name] == 0 and is_needed(declared):
            raise InvalidInput(f"`{name}` is missing; give {_article(declared.modality)}", f"/inputs/{name}")
    bound = by_name(task) if any(declared.many for declared in task.inputs.values()) else frozenset[str]()
    lists = frozenset(name for name in bound if task.inputs[name].many)
    return tuple(_together(found, lists)) if lists else tuple(found)


def _together(found: Sequence[Given], lists: frozenset[str]) -> Iterator[Given]:
    """The values, where all those of an input that steps take as a list are one, a tuple."""
    begun: set[str] = set()
    for one in found:
        if one.input not in lists:
            yield one
        elif one.input not in begun:
            begun.add(one.input)
            values = tuple(other.value for other in found if other.input == one.input)
            yield replace(one, name=f"{one.input}.0", pointer=f"/inputs/{one.input}", value=values, listed=True)


def _named(name: str, number: int, modality: str, value: Any) -> Iterator[Given]:
    """A value, and behind a conversation the parts of its turns."""
    if modality != MESSAGES:
        yield Given(f"{name}.{number}", name, modality, f"/inputs/{name}/{number}", value)
        return
    turns: Sequence[InputTurn] = getattr(value, "turns", ())
    if not turns:
        raise InvalidInput(f"`{name}` has no turns; give a conversation of at least one", f"/inputs/{name}")
    at = [
        TurnAt(turn.role, i, i == len(turns) - 1, calls_text(turn.tool_calls), turn.tool_call_id or "")
        for i, turn in enumerate(turns)
    ]
    yield Given(f"{name}.{number}", name, modality, f"/inputs/{name}", value, turns=tuple(at))
    for i, turn in enumerate(turns):
        for k, part in enumerate(turn.parts):
            where = f"/inputs/{name}/{i}/content" + (f"/{k}" if len(turn.parts) > 1 else "")
            yield Given(f"{name}.{number}.{i}.{k}", name, part.modality, where, part.value, turn=i)


def by_name(task: Task) -> frozenset[str]:
    """Inputs that a step binds by name (`@task.x`); these are not read as parts."""
    bindings = map(str, bindings_of(task))
    return frozenset(b.removeprefix("@task.") for b in bindings if b.startswith("@task.")) & task.inputs.keys()


def takes_whole(task: Task) -> bool:
    """True if a step takes a conversation whole."""
    return any(task.inputs[name].modality == MESSAGES for name in by_name(task))


def reads_calls(task: Task) -> bool:
    """True if a step reads the tool calls of turns, or takes a conversation whole."""
    if takes_whole(task):
        return True
    return "@turn.calls" in bindings_of(task) or any("@turn.calls" in text for text in expressions_of(task))


def _input_for(task: Task, counts: Mapping[str, int], modality: str, pointer: str) -> str:
    fitting = [name for name, declared in task.inputs.items() if declared.modality == modality]
    for name in fitting:
        if task.inputs[name].many or counts[name] == 0:
            return name
    if fitting:
        raise InvalidInput(f"the task takes no more parts of modality `{modality[:80]}`", pointer)
    taken = ", ".join(f"`{kind}`" for kind in dict.fromkeys(i.modality for i in task.inputs.values())) or "none"
    raise InvalidInput(f"the task takes no part of modality `{modality[:80]}`; it takes {taken}", pointer)


def _article(modality: str) -> str:
    return f"{'an' if modality[:1] in 'aeiou' else 'a'} `{modality}` value"
