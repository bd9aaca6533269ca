"""A request selects from its outputs: which values of a stream leave for the client, and in which dtype.

    "outputs": ["image"]                                        all values of these outputs
    "outputs": {"features": {"dtype": "float16", "every": 5}}   the values of iterations 0, 5, 10 ..., as float16
    "outputs": {"film": {"last": true}}                         the last value alone

A selection is read and checked here, against the task's declaration. The ranks that make a value apply it, before the
value leaves its device.
"""

from collections.abc import Callable, Sequence
from typing import Any, Literal, NamedTuple, cast, get_args

from walkgraph.errors import InvalidInput
from walkgraph.graph.catalogue import Catalogue
from walkgraph.graph.document import Graph, Task
from walkgraph.graph.language.shaping import component_of
from walkgraph.graph.ports import MEDIA, PortType
from walkgraph.graph.problems import nearest
from walkgraph.graph.steps import steps_of
from walkgraph.graph.structure import Route, structure
from walkgraph.placement.tables import Table

FloatDtype = Literal["float32", "float16", "bfloat16"]
FLOAT_DTYPES: tuple[str, ...] = get_args(FloatDtype)
MOST_EVERY = 1_000_000

KEYS = ("dtype", "every", "last")
_JOINED = ("text", "audio")
"""Modalities whose values are pieces of one."""
_ENCODED = ("text", *MEDIA)
_WHOLE = ("tokens", "codes", "flag")
"""Modalities whose numbers are never floats."""


class Selection(Table, frozen=True):
    """All values leave as they are, unless a field says otherwise."""

    dtype: FloatDtype | None = None
    """The dtype in which floats leave; other values are not converted."""
    every: int = 1
    """The values of every n-th iteration leave, beginning with the first; a value outside of loops always does."""
    last: bool = False
    """Only the last value leaves, at the end."""

    def skips(self, place: tuple[int, ...]) -> bool:
        """True if the value from this place, which is the iteration of each loop around it, doesn't leave."""
        return bool(place) and place[-1] % self.every != 0


ALL = Selection()
"""Everything, as it is."""


class OutputSource(NamedTuple):
    """An edge over which a task's output leaves."""

    type: PortType | None
    """The type of its values; None if it isn't known."""
    many: bool
    """Several values may leave over it."""


Sources = Callable[[str], Sequence[OutputSource]]
"""Finds the sources of an output of a task."""


def sources_in(graph: Graph, task: Task, components: Catalogue, name: str) -> list[OutputSource]:
    found: list[OutputSource] = []
    for at in steps_of(task):
        for route in structure(graph.walks[at.step.walk], at.step.walk).routes:
            if (route.target.kind, route.target.name) == ("out", name):
                many = route.leave == "each" or at.step.per == "chunk" or bool(at.loops)
                found.append(OutputSource(_type(graph, route, components), many))
    return found


def read_outputs(given: Any, task: Task, sources: Sources) -> tuple[tuple[str, ...] | None, dict[str, Selection]]:
    """The names of the wanted outputs (None for all), and what is selected of them. Raises InvalidInput, with a pointer
    into the request."""
    if given is None:
        return None, {}
    if not isinstance(given, dict):
        return _names(cast(list[Any], given) if isinstance(given, list) else [], task), {}
    named = cast(dict[str, Any], given)
    _names(list(named), task)
    found: dict[str, Selection] = {}
    for name, selected in named.items():
        found[name] = _selection(selected, f"/outputs/{name}")
        _check(name, found[name], sources(name))
    return tuple(found), {name: one for name, one in found.items() if one != ALL}


def schema(task: Task) -> dict[str, Any]:
    """The JSON Schema of a request's `outputs`."""
    names = {"type": "array", "minItems": 1, "items": {"enum": list(task.outputs)}}
    selected: dict[str, Any] = {
        "type": "object",
        "additionalProperties": False,
        "properties": {
            "dtype": {"enum": list(FLOAT_DTYPES), "description": "Floats are converted to it."},
            "every": {
                "type": "integer",
                "minimum": 1,
                "maximum": MOST_EVERY,
                "description": "Of an output that a loop sends, the values of every n-th iteration, from the first.",
            },
            "last": {"type": "boolean", "description": "Of an output with many values, only the last."},
        },
    }
    each = {"type": "object", "minProperties": 1, "additionalProperties": False}
    return {"anyOf": [names, {**each, "properties": dict.fromkeys(task.outputs, selected)}]}


def _names(given: list[Any], task: Task) -> tuple[str, ...]:
    if not given or any(name not in task.outputs for name in given):
        known = ", ".join(f"`{name}`" for name in task.outputs)
        raise InvalidInput(f"name some of {known}, in a list or as keys, or leave it out for all", "/outputs")
    return tuple(dict.fromkeys(given))


def _selection(given: Any, pointer: str) -> Selection:
    if not isinstance(given, dict):
        raise InvalidInput('this must be an object, such as `{"dtype": "float16", "every": 5}`', pointer)
    fields = cast(dict[str, Any], given)
    unknown = next((key for key in fields if key not in KEYS), None)
    if unknown is not None:
        raise InvalidInput(f"this key is not known here; {nearest(unknown, KEYS)}", f"{pointer}/{unknown[:80]}")
    dtype, every, last = fields.get("dtype"), fields.get("every", 1), fields.get("last", False)
    if dtype is not None and dtype not in FLOAT_DTYPES:
        raise InvalidInput(f"this must be one of {', '.join(f'`{d}`' for d in FLOAT_DTYPES)}", f"{pointer}/dtype")
    if type(every) is not int or not 1 <= every <= MOST_EVERY:
        raise InvalidInput(f"this must be an integer from 1 to {MOST_EVERY}", f"{pointer}/every")
    if not isinstance(last, bool):
        raise InvalidInput("this must be true or false", f"{pointer}/last")
    if last and every > 1:
        raise InvalidInput("`last` is one value; leave `every` out", f"{pointer}/every")
    return Selection(dtype=dtype, every=every, last=last)


def _check(name: str, selected: Selection, sources: Sequence[OutputSource]) -> None:
    """Raises InvalidInput if the output can't be selected from like that."""
    types = [source.type for source in sources if source.type is not None]
    if selected.dtype is not None and types and not any(map(_floats, types)):
        what = "encoded" if types[0].modality in _ENCODED else "no float"
        raise InvalidInput(f"`{name}` is {what} (`{types[0]}`), so it has no `dtype`", f"/outputs/{name}/dtype")
    if selected.every == 1 and not selected.last:
        return
    key = "last" if selected.last else "every"
    if any(found.modality in _JOINED for found in types):
        raise InvalidInput(
            f"`{name}` is one {types[0].modality} in pieces; leave `{key}` out", f"/outputs/{name}/{key}"
        )
    if not any(source.many for source in sources):
        raise InvalidInput(f"`{name}` is a single value, no stream; leave `{key}` out", f"/outputs/{name}/{key}")


def _floats(found: PortType) -> bool:
    return found.modality not in (*_ENCODED, *_WHOLE) and found.dtype in (None, "float")


def _type(graph: Graph, route: Route, components: Catalogue) -> PortType | None:
    entry = route.source.entry
    component = component_of(components, graph.nodes[entry.node]) if entry is not None else None
    port = component.output(route.source.port) if component is not None else None
    return port.type if port is not None else None
