"""Declarations of components as data: the palette offers them, checks and plans read them.

Only workers import a component's code, which `network` names. `check` and `plan` get the catalogue as a mapping, so
neither imports the components.
"""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal

from walkgraph.errors import Conflict
from walkgraph.graph.ports import PortType, parse_type

ParamKind = Literal["integer", "number", "boolean", "string"]
Scalar = bool | int | float | str
Shown = Scalar | Sequence["Shown"]
"""A value of an example, as in JSON."""
StateKind = Literal["paged_kv", "tensor", "rng"]
CostClass = Literal["compute", "memory", "launch"]
Positions = Literal["per_token", "per_block", "axes"]
Category = Literal[
    "Text",
    "Picture",
    "Sound",
    "Video",
    "Files",
    "Numbers",
    "Control",
    "Calls",
    "Agent",
    "Model",
    "Flow matching",
    "Action",
    "World",
    "Testing",
    "Tasks",
    "Other",
]
Form = Literal["", "literal", "pattern", "path", "sizes", "shape", "constant", "find", "replacement", "group", "alike"]
"""`literal`: any literal. `pattern`: a regular expression of RE2. `path`: one into JSON. `sizes`, `shape`: sizes with
commas between, of a shape one may be -1. `constant`: a value of the type that the parameter `type` names. `find`,
`replacement`: texts, or a regular expression and what may name its groups where `regex` is set. `group`: the number of
a group of `pattern`. `alike`: ports of the type that the parameter `type` names."""
ANY = "any"
"""As a component's `weights`: any family that fits."""


BLUEPRINT = "blueprint."
"""Begins the `component` of a node that stands for a blueprint of the graph."""


@dataclass(frozen=True, kw_only=True)
class Param:
    """One typed parameter of a component; a graph sets it to a literal or to an expression (`"=steps - 1"`)."""

    type: ParamKind
    default: Scalar | None = None
    """None: the graph must set it."""
    min: float | None = None
    max: float | None = None
    choices: tuple[Scalar, ...] = ()
    description: str = ""
    long: bool = False
    """A text of several lines."""
    gives: Literal["", "type", "ports", "holes"] = ""
    """Ports get their type from it, or follow from it; it is then a literal text (`graph.language.shaping`)."""
    form: Form = ""
    """Read when a node is loaded, so that it must be a literal, and one of this form (`graph.language.literals`)."""


@dataclass(frozen=True)
class Port:
    name: str
    type: PortType
    optional: bool = False
    description: str = ""
    of: str = ""
    """The parameter that gives its type, or the ports that it stands for."""
    like: str = ""
    """The parameter that gives the type of the ports that it stands for, where they have none of their own."""
    seconds: float = 0.0
    """Playback of one item of a stream at this port: a frame of codes is 80 ms of sound. 0: it is not played as it
    comes."""


def port(
    name: str,
    written: str,
    *,
    optional: bool = False,
    description: str = "",
    of: str = "",
    like: str = "",
    seconds: float = 0.0,
) -> Port:
    """`written`: its type, as `modality: dtype[shape]`. `of`, `like`: the parameters that it follows from. `seconds`:
    playback of an item."""
    return Port(name, parse_type(written), optional, description, of, like, seconds)


@dataclass(frozen=True, kw_only=True)
class Example:
    """A call of a component with its answer, for its help. Tests run it, unless one of its inputs is described.

    A value is a text, a number, a flag, or a tensor or list as a nested list. A port of another type than text may have
    a text instead: a description of the value, such as `a photo of 640x480`.
    """

    params: Mapping[str, Scalar] = field(default_factory=dict[str, Scalar])
    """Others have their defaults."""
    inputs: Mapping[str, Shown] = field(default_factory=dict[str, Shown])
    outputs: Mapping[str, Shown] = field(default_factory=dict[str, Shown])
    note: str = ""
    """A sentence on what it shows."""
    runs: bool = True
    """False for a call that needs the network, a person or another task."""

    def lines(self, inputs: Iterable[Port], outputs: Iterable[Port]) -> Iterator[tuple[str, str, str]]:
        """(`param`, `in` or `out`; name; value as JSON or its description) of each value, for a component with these
        ports."""
        yield from (("param", name, _json(value)) for name, value in self.params.items())
        for side, values, ports in (("in", self.inputs, inputs), ("out", self.outputs, outputs)):
            types = {port.name: port.type for port in ports}
            for name, value in values.items():
                yield side, name, str(value) if is_described(types.get(name), value) else _json(value)


def is_described(port: PortType | None, value: Shown) -> bool:
    """True if an example describes a port's value in words instead of giving it."""
    return isinstance(value, str) and port is not None and (port.many or port.modality != "text")


def _json(value: Shown) -> str:
    return json.dumps(value, ensure_ascii=False)


@dataclass(frozen=True, kw_only=True)
class Append:
    """How feeding `port` changes a paged state."""

    port: str
    positions: Positions = "per_token"
    """How the position counter advances: once per token, once for the whole block, or along several axes."""
    scratch: bool = False
    """The block is attended and then dropped: the state is only read."""


@dataclass(frozen=True, kw_only=True)
class StateUse:
    """A slot that a graph binds to one of its states."""

    slot: str
    kind: StateKind
    access: Literal["read", "write"] = "write"
    """For `paged_kv` the connected append ports decide: the access is a read only if all of them are scratch."""
    appends: tuple[Append, ...] = ()
    optional: bool = False
    token_bytes: int = 0
    """Bytes per token of a paged state, for a component without weights; otherwise its family's sizes give them."""

    def only_reads(self, fed: Callable[[str], bool]) -> bool:
        """True if a use only reads the state; `fed(port)` is true for ports with an edge in the Walk."""
        connected = [append for append in self.appends if fed(append.port)]
        return all(append.scratch for append in connected) if connected else self.access == "read"


@dataclass(frozen=True, kw_only=True)
class Component:
    """A typed, registered unit of compute. Shapes and dtypes describe one call of one run, without a batch axis."""

    name: str
    """`family.role`, the key that a graph's node names. It should tell somebody who has not read the code what a node
    does. Of a task of a graph, `graph/task`."""
    former: tuple[str, ...] = ()
    """Earlier names of this component; documents that use them still work."""
    category: Category = "Other"
    """The component's subject, by which the palette groups it."""
    description: str
    inputs: tuple[Port, ...] = ()
    outputs: tuple[Port, ...] = ()
    params: Mapping[str, Param] = field(default_factory=dict[str, Param])
    states: tuple[StateUse, ...] = ()
    cost: CostClass = "compute"
    network: str | None = None
    """The operator's class: `walkgraph.models.bagel.operators:Vit`, or `edges.operators:Sobel` of a plug-in. None:
    declared but unavailable."""
    weights: str | None = None
    """The weight family it reads (`bagel`); `any` for each of `families`; None for a component without weights."""
    reads: str | None = None
    """The part that it reads of weights of `any` family: `tokenizer`. None: whatever is there."""
    families: tuple[str, ...] = ()
    """The families that fit where `weights` is `any`. The catalogue fills them in from what families declare."""
    host: bool = False
    """Runs on the CPU of its rank whatever the rank's device is (tokenizers, codecs)."""
    deterministic: bool = False
    """Its outputs follow from its inputs, its parameters and its weights alone, so that they may be kept; its operator
    is `pure`."""
    resident: bool = False
    """Its operator has a `step`, so loops of such components may run whole on the device."""
    tensor_parallel: bool = False
    """Its operator loads and computes a shard of its network (`LoadContext.shard`), so that several ranks may hold it
    together."""
    sequence_parallel: bool = False
    """Its `step` computes a part of a block's tokens (`LoadContext.sequence`), so that several ranks may share one."""
    reasons: Mapping[str, tuple[str, ...]] = field(default_factory=dict[str, tuple[str, ...]])
    """Flag that may end a loop -> flags that say why, if it was not the usual end: the loop's end has the name of the
    first one that is true."""
    itemwise: tuple[str, ...] = ()
    """Optional inputs `int[1]` that its step takes from a stream too, one item an iteration; -1 once that has ended."""
    task: bool = False
    """It is a task of a graph: the service runs it, and the rank waits for its outputs."""
    outside: bool = False
    """It calls a server outside: the service does, and the rank waits for the answer."""
    served: bool = False
    """It is about all runs of a deployment: the service serves its calls, and the rank waits for the outputs."""
    calls: tuple[str, ...] = ()
    """The tasks that a called task calls itself."""
    asks: bool = False
    """It is a task that waits for a person."""
    examples: tuple[Example, ...] = ()
    """Shown in its help, the simplest one first."""

    @property
    def available(self) -> bool:
        return self.network is not None or self.by_service

    @property
    def by_service(self) -> bool:
        """True if the service serves its calls, not its rank."""
        return self.task or self.outside or self.served

    @property
    def fitting(self) -> tuple[str, ...]:
        """The families whose weights it can read."""
        return self.families if self.weights == ANY else (self.weights,) if self.weights else ()

    def input(self, name: str) -> Port | None:
        return self._inputs.get(name)

    def output(self, name: str) -> Port | None:
        return self._outputs.get(name)

    @cached_property
    def _inputs(self) -> Mapping[str, Port]:
        return {port.name: port for port in self.inputs}

    @cached_property
    def _outputs(self) -> Mapping[str, Port]:
        return {port.name: port for port in self.outputs}


Catalogue = Mapping[str, Component]


def is_task(component: str) -> bool:
    """True if a node's `component` names a task of a graph."""
    return "/" in component


def blueprint_of(component: str) -> str:
    """The blueprint that a node's `component` names; empty if it names none."""
    return component.removeprefix(BLUEPRINT) if component.startswith(BLUEPRINT) else ""


class Palette(Mapping[str, Component]):
    """Components by name, sorted. Lookup also finds former names, which are not listed."""

    def __init__(self, components: Iterable[Component]) -> None:
        """Raises Conflict where a former name belongs to another component."""
        self._listed = {component.name: component for component in sorted(components, key=lambda one: one.name)}
        self._known = dict(self._listed)
        for component in self._listed.values():
            for name in component.former:
                if self._known.setdefault(name, component) is not component:
                    raise Conflict(f"`{component.name}` can't list `{name}` as a former name: another component has it")

    def __getitem__(self, name: str) -> Component:
        return self._known[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._listed)

    def __len__(self) -> int:
        return len(self._listed)
