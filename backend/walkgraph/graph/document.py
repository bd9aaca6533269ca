"""The graph document as frozen data: the contents of `graphs/*.json` once they are well-formed.

This is the normal form. The JSON form has three shorthands, which `graph.codec` expands and contracts: `"llm"` for
`{"use": "llm"}`, a list for `{"sequence": [...]}`, and `["a.x", "b.y"]` for an edge without flags. `graph.check` judges
a document. Nothing in it can name code or a path: components are registry keys, parameters are typed.

References inside a Walk
    source  `use.port`, `@in.x` (Walk input), `@loop.index` (innermost loop), `@loop.NAME` (a named loop around),
            `@stream.x`, `@merge.x` (the one value of exclusive branches)
    target  `use.port` or `@out.x` (to the client)
Bindings of a task step
    `@task.x` (an input or a parameter of the task, `@task.seed` included), `@part` (inside `for: parts`), `@turn.x`
    (inside `for: turns`: `role`, `index`, `last`, `calls`, `call_id`), `@loop.index` (inside a loop of steps), both
    also in conditions of steps, `walk.result` (the latest run of a step of that Walk, or with that `as` name; in a
    loop, of the pass before if it comes later), `name.approved`, `name.note` (said at that `approve`), or a literal
Expressions: the closed grammar of `graph.expressions`, over the task's parameters and loop indices.
"""

from collections.abc import Iterable, Mapping
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Discriminator, Field, Tag

FORMAT = "walkgraph/graph@1"

Name = Annotated[str, Field(pattern=r"^[A-Za-z][A-Za-z0-9_\-]{0,63}$")]
Reference = Annotated[
    str, Field(pattern=r"^(@[a-z]+|[A-Za-z][A-Za-z0-9_\-]*)\.[A-Za-z][A-Za-z0-9_\-]*$", max_length=160)
]
Expression = Annotated[str, Field(min_length=1, max_length=400)]
Case = Annotated[str, Field(pattern=r"^[^\x00-\x1f]{1,160}$")]
"""The value that takes a branch, as text: `true`, `false`, a whole number in decimal, or the text itself."""
Literals = bool | int | float | str
StepResult = Annotated[str, Field(pattern=r"^[A-Za-z][A-Za-z0-9_\-]*\.[A-Za-z][A-Za-z0-9_\-]*$", max_length=160)]
"""A result of a step, `walk.result`."""
Collect = Literal[False, True, "join", "list"]
"""How the values of all iterations leave a loop. `true`: texts as one text, tensors of one shape stacked on a new first
axis, encoded media as a list. `join`: texts as one text, tensors end to end on their first axis. `list`: as is."""


class Record(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True, allow_inf_nan=False)


# ── states, weights, nodes ──────────────────────────────────────────────────────────────────────


class State(Record):
    kind: Literal["paged_kv", "tensor", "rng"]
    scope: Literal["session", "run", "walk", "iteration"] = "run"
    width: Expression = "1"
    """Sequences kept together, such as CEM's samples."""
    capacity: Expression | None = None
    """The most tokens one sequence can hold, from the task's parameters. A `paged_kv` needs it; the pages are reserved
    at admission."""


class Weights(Record):
    family: Name
    source: Annotated[str, Field(pattern=r"^(starter:[\w\-.]+|checkpoint:[\w\-.]+|random:[\w\-.]+:\d{1,18})$")]


class Node(Record):
    component: Annotated[
        str,
        Field(
            pattern=r"^([a-z0-9_]+\.[a-z0-9_]+|blueprint\.[A-Za-z][A-Za-z0-9_\-]{0,63}"
            r"|[A-Za-z][A-Za-z0-9_\-]{0,63}/[A-Za-z][A-Za-z0-9_\-]{0,63})$"
        ),
    ]
    """A registered component, a task that the node calls (`graph/task`), or a blueprint of the graph that the node
    stands for (`blueprint.NAME`)."""
    weights: Name | None = None
    """For a blueprint: instead of the weights of that family inside."""
    states: dict[Name, Name] = Field(default_factory=dict)
    """The component's state slot -> the graph's state. For a blueprint: a state inside -> the graph's state that it
    is."""
    params: dict[Name, Literals] = Field(default_factory=dict)
    """A literal, or an expression with a leading `=` (`"=cfg_text_scale"`). An expression takes the component's
    default, if there is one, where it names a parameter that the running task lacks or a loop that isn't around the
    use."""
    kept: Literal["own", "shared"] | None = None
    """Keep its outputs by the contents of its inputs, so that the same call isn't made again: `own` gives them to runs
    of the same access key, `shared` to all runs of the deployment. Only for a deterministic component."""


# ── walks ───────────────────────────────────────────────────────────────────────────────────────


class Use(Record):
    use: Name
    """The node."""
    as_: Name | None = Field(default=None, alias="as")
    when: Expression | None = None

    @property
    def name(self) -> str:
        return self.as_ or self.use


class Parallel(Record):
    parallel: tuple["Item", ...] = Field(min_length=1)
    when: Expression | None = None


class Sequence(Record):
    """A list of items, one after the other; inside `parallel` it is one branch."""

    sequence: tuple["Item", ...] = Field(min_length=1)
    when: Expression | None = None


class Loop(Record):
    loop: Name
    times: Expression
    until: Reference | None = None
    """A boolean port of a use in the body, or a merge of such ports; the iteration that raises it is the last."""
    drop_last: bool = False
    """Suppress the `each` and `collect` values, to the client, to streams and to later uses and steps, of this loop's
    own uses in the iteration that raised `until`. Values of loops inside have already left."""
    when: Expression | None = None
    """Judged once, before the loop; `@loop.index` belongs to the loop around it."""
    body: tuple["Item", ...] = Field(min_length=1)


class Map(Record):
    """Runs its body for every item of a list, up to `width` items at once. The items are independent: nothing is
    carried from one to the next, and no state is shared that one of them writes. What leaves is collected in the order
    of the items, or goes to the client in that order."""

    map: Reference
    """The list: `use.port`, `@in.x` or `@merge.x`; a `list of` values, or a tensor with its slices along the first
    axis. An edge into the body with `each` brings item i. An absent value has no items."""
    as_: Name | None = Field(default=None, alias="as")
    """The name by which `@loop.NAME` reads the item's index; `items` if it has none."""
    bound: Expression
    """The most items; a run with a longer list fails."""
    width: Expression = "1"
    """The most items in work at once."""
    when: Expression | None = None
    """Judged once, before the map; `@loop.index` belongs to the loop around it."""
    body: tuple["Item", ...] = Field(min_length=1)

    @property
    def loop(self) -> str:
        """The name, as that of a loop."""
        return self.as_ or "items"

    @property
    def times(self) -> str:
        """The most iterations."""
        return self.bound

    @property
    def until(self) -> None:
        """Nothing ends it early."""
        return

    @property
    def drop_last(self) -> bool:
        return False


class Fork(Record):
    """Copy-on-write: `into` becomes a copy of `fork`, position counter included."""

    fork: Name
    into: Name
    when: Expression | None = None


class Choose(Record):
    """Takes at most one branch: the case that equals the value, otherwise `otherwise`. The branches exclude each
    other."""

    choose: Reference
    """`use.port`, `@in.x` or `@merge.x`: a flag, a whole number or a text. An absent value takes `otherwise`."""
    cases: dict[Case, tuple["Item", ...]] = Field(min_length=1)
    """Value, as text -> the items to run."""
    otherwise: tuple["Item", ...] = ()
    """Runs for any other value."""
    when: Expression | None = None
    """If it doesn't hold, no branch is taken."""

    @property
    def branches(self) -> tuple[tuple["Item", ...], ...]:
        """The items of each branch: the cases in order, then `otherwise`."""
        return (*self.cases.values(), self.otherwise)


def _item_kind(value: Any) -> str | None:
    return _first_key(value, ("use", "parallel", "sequence", "loop", "fork", "choose", "map"))


def _first_key(value: Any, kinds: tuple[str, ...]) -> str | None:
    """The tag of a union member: the first of `kinds` that is a key of a JSON object or a field of a model."""
    keys: Iterable[Any] = type(value).model_fields if isinstance(value, BaseModel) else value
    return next((kind for kind in kinds if kind in keys), None) if isinstance(keys, Mapping) else None


Item = Annotated[
    Annotated[Use, Tag("use")]
    | Annotated[Parallel, Tag("parallel")]
    | Annotated[Sequence, Tag("sequence")]
    | Annotated[Loop, Tag("loop")]
    | Annotated[Fork, Tag("fork")]
    | Annotated[Choose, Tag("choose")]
    | Annotated[Map, Tag("map")],
    Discriminator(_item_kind),
]


class Edge(Record):
    from_: Reference = Field(alias="from")
    to: Reference
    each: bool = False
    """Entering a loop or a map: slice i goes to iteration i. Leaving one: every iteration's value leaves as it comes,
    of a map in the order of the items (to `@out` only). From a called task to `@out`: every value leaves as the task
    sends it."""
    collect: Collect = False
    """Leaving a loop or a map: the values of all iterations, but for those that `drop_last` drops. `true` stacks
    tensors and joins texts; `join` puts tensors end to end; `list` keeps them apart."""


class Result(Record):
    """A Walk's named value for later steps. From a use in a loop it is the last value, or all of them (`collect`)."""

    from_: Reference = Field(alias="from")
    collect: Collect = False


Merged = Annotated[tuple[Reference, ...], Field(min_length=1, max_length=64)]


class Walk(Record):
    label: str = ""
    inputs: dict[Name, str] = Field(default_factory=dict)
    """Name -> port type (`tokens`, `latents: float[n, 64]`)."""
    body: tuple[Item, ...]
    merges: dict[Name, Merged] = Field(default_factory=dict)
    """Name -> ports of uses in different branches of a choice. `@merge.NAME` is the value of the branch that was
    taken."""
    edges: tuple[Edge, ...] = ()
    results: dict[Name, Result] = Field(default_factory=dict)


# ── streams ─────────────────────────────────────────────────────────────────────────────────────


class Fixed(Record):
    policy: Literal["fixed"]
    size: int = Field(ge=1)
    continue_after_done: bool = False
    """After the end, deliver an explicit absent value for as long as the consumer goes on."""
    first: int | None = Field(default=None, ge=1)


class Sliding(Record):
    policy: Literal["sliding"]
    window: int = Field(ge=1)
    stride: int = Field(ge=1)
    first: int | None = Field(default=None, ge=1)


class LeftContext(Record):
    policy: Literal["left_context"]
    chunk: int = Field(ge=1)
    context: int = Field(ge=0)
    first: int | None = Field(default=None, ge=1)


class Whole(Record):
    policy: Literal["whole"]


ChunkPolicy = Annotated[Fixed | Sliding | LeftContext | Whole, Field(discriminator="policy")]


class Stream(Record):
    """Joins two partitions. The consumer reads it as `@stream.NAME` in an edge of its Walk: one whole chunk per Walk
    where the step says `per: chunk`, one chunk per iteration where the edge enters a loop with `each`."""

    name: Name
    from_: Reference = Field(alias="from")
    """`use.port` or `@merge.x`; inside a loop, every iteration's value is an item."""
    walks: tuple[Name, ...] = Field(min_length=1)
    """The producer's Walks whose values are items of this stream; the stream is done when the last of them is."""
    chunks: ChunkPolicy
    credits: int = Field(default=64, ge=1, le=4096)
    """The most chunks in flight; the producer waits beyond that."""


# ── tasks ───────────────────────────────────────────────────────────────────────────────────────


class TaskInput(Record):
    modality: str
    many: bool = False
    optional: bool = False
    default: Literals | tuple[int | float, ...] | None = None
    """Taken if a request doesn't give it: a text, a number, a flag, or numbers of a tensor with one axis."""
    description: str = ""


class TaskParam(Record):
    type: Literal["integer", "number", "boolean", "string"]
    default: Literals | None = None
    """None: the client must give it."""
    min: int | float | None = None
    max: int | float | None = None
    choices: tuple[Literals, ...] = ()
    description: str = ""


class WalkStep(Record):
    walk: Name
    as_: Name | None = Field(default=None, alias="as")
    with_: dict[Name, Literals] = Field(default_factory=dict, alias="with")
    when: Expression | None = None
    per: Literal["chunk"] | None = None


class ForStep(Record):
    """Goes through what a request gives, one after the other, with the steps for its kind. What has no steps is refused
    when the request comes in."""

    @property
    def branches(self) -> dict[str, tuple["Step", ...]]:
        """Modality of a part, or role of a turn -> its steps."""
        found = {kind: getattr(self, kind) for kind in type(self).model_fields if kind != "for_"}
        return {kind: steps for kind, steps in found.items() if steps is not None}


class PartsStep(ForStep):
    """Goes through the interleaved input parts in order; inside `for: turns`, through the parts of the turn."""

    for_: Literal["parts"] = Field(alias="for")
    text: tuple["Step", ...] | None = None
    image: tuple["Step", ...] | None = None
    audio: tuple["Step", ...] | None = None
    video: tuple["Step", ...] | None = None
    state: tuple["Step", ...] | None = None
    actions: tuple["Step", ...] | None = None


class TurnsStep(ForStep):
    """Goes through the turns of the task's `messages` input in order, with the steps for each turn's role."""

    for_: Literal["turns"] = Field(alias="for")
    system: tuple["Step", ...] | None = None
    user: tuple["Step", ...] | None = None
    assistant: tuple["Step", ...] | None = None
    tool: tuple["Step", ...] | None = None


class FirstStep(Record):
    """Takes the first step whose `when` holds; a step without `when` always does."""

    first: tuple[WalkStep, ...] = Field(min_length=1)


class ChooseStep(Record):
    """Takes at most one branch by a value, as an item of a body does. Steps in different branches may share an `as`
    name: the one that was taken is meant."""

    choose: Annotated[str, Field(pattern=r"^(@task|[A-Za-z][A-Za-z0-9_\-]*)\.[A-Za-z][A-Za-z0-9_\-]*$", max_length=160)]
    """`@task.x` (a parameter) or an earlier step's result, `walk.result`."""
    cases: dict[Case, tuple["Step", ...]] = Field(min_length=1)
    """Value, as text -> the steps to run."""
    otherwise: tuple["Step", ...] = ()
    """Runs for any other value."""

    @property
    def branches(self) -> tuple[tuple["Step", ...], ...]:
        """The steps of each branch: the cases in order, then `otherwise`."""
        return (*self.cases.values(), self.otherwise)


class LoopStep(Record):
    """Runs its steps pass after pass: `times` passes, or up to the one whose result `until` is true."""

    loop: tuple["Step", ...] = Field(min_length=1)
    times: Expression
    """The most passes, from the task's parameters; at least 1."""
    until: StepResult | None = None
    """A flag that a step inside gives in every pass; the pass in which it is true is the last one."""
    start: dict[StepResult, Literals] = Field(default_factory=dict)
    """A result of a step inside, `walk.result` -> the binding that it stands for until that step has run in this
    loop."""
    as_: Name | None = Field(default=None, alias="as")
    """Its name where a run tells why it ended; without it, the step that `until` names."""


class ApproveStep(Record):
    """Waits until a person approves or refuses what it shows. Only the shown results and those that later steps take
    are kept meanwhile, so that the run holds no memory and outlives a restart of the service."""

    approve: tuple[StepResult, ...] = Field(min_length=1, max_length=8)
    """Results of earlier steps, `walk.result`: what the person is shown."""
    label: str = Field(default="", max_length=400)
    """The question to the person."""
    within: int = Field(default=86_400, ge=1, le=2_592_000)
    """Seconds in which the person may answer; after them the run ends as not approved."""
    as_: Name | None = Field(default=None, alias="as")
    """Gives the answer to later steps, as `name.approved` (a flag) and `name.note` (the person's text), so that a
    refused run goes on. Without it, a refused run ends."""


def _step_kind(value: Any) -> str | None:
    if (kind := _first_key(value, ("walk", "for", "for_", "first", "choose", "loop", "approve"))) in ("for", "for_"):
        over = value.for_ if isinstance(value, PartsStep | TurnsStep) else value.get("for", value.get("for_"))
        return "turns" if over == "turns" else "parts"
    return kind


Step = Annotated[
    Annotated[WalkStep, Tag("walk")]
    | Annotated[PartsStep, Tag("parts")]
    | Annotated[TurnsStep, Tag("turns")]
    | Annotated[FirstStep, Tag("first")]
    | Annotated[ChooseStep, Tag("choose")]
    | Annotated[LoopStep, Tag("loop")]
    | Annotated[ApproveStep, Tag("approve")],
    Discriminator(_step_kind),
]


Steps = Annotated[
    Annotated[tuple[Step, ...], Tag("list")] | Annotated[dict[Name, tuple[Step, ...]], Tag("lanes")],
    Discriminator(lambda value: "lanes" if isinstance(value, Mapping) else "list"),
]


class SessionPolicy(Record):
    queue: Literal["fifo", "latest"] = "fifo"
    ttl_seconds: int = Field(default=600, ge=1, le=86_400)
    max_bytes: int | None = Field(default=None, ge=1)
    """Bytes that the session's states may fill in cache pages; a request that could exceed them is refused."""


class Task(Record):
    label: str = ""
    inputs: dict[Name, TaskInput] = Field(default_factory=dict)
    outputs: tuple[Name, ...]
    """Names of `@out.x`; the modality is that of the port where the edge starts."""
    params: dict[Name, TaskParam] = Field(default_factory=dict)
    """`seed` (integer, drawn if absent) is always available."""
    steps: Steps
    """One list, or where the graph has streams one list per partition, under names of the author's choice."""
    session: SessionPolicy | None = None


# ── blueprints ──────────────────────────────────────────────────────────────────────────────────


class Origin(Record):
    """The entry of the library that a blueprint is a copy of."""

    name: Name
    version: Annotated[str, Field(pattern=r"^[0-9a-f]{32}$")]
    """The etag of the entry when it was copied."""


class Blueprint(Record):
    """A Walk as a component, with nodes of its own: each node with the component `blueprint.NAME` stands for a copy."""

    description: str = ""
    origin: Origin | None = None
    inputs: dict[Name, str] = Field(default_factory=dict)
    """Name -> port type."""
    outputs: dict[Name, Result] = Field(default_factory=dict)
    params: dict[Name, TaskParam] = Field(default_factory=dict)
    """The parameters that its expressions read; a node sets them as a component's."""
    weights: dict[Name, Weights] = Field(default_factory=dict)
    states: dict[Name, State] = Field(default_factory=dict)
    """Each node that stands for the blueprint has its own, unless it binds them."""
    nodes: dict[Name, Node] = Field(default_factory=dict)
    body: tuple[Item, ...]
    merges: dict[Name, Merged] = Field(default_factory=dict)
    edges: tuple[Edge, ...] = ()
    layout: dict[str, Any] = Field(default_factory=dict)
    """Belongs to the editor, as the graph's."""


# ── the document ────────────────────────────────────────────────────────────────────────────────


class Graph(Record):
    format: Literal["walkgraph/graph@1"] = FORMAT
    name: Name
    description: str = ""
    weights: dict[Name, Weights] = Field(default_factory=dict)
    states: dict[Name, State] = Field(default_factory=dict)
    nodes: dict[Name, Node] = Field(default_factory=dict)
    walks: dict[Name, Walk] = Field(default_factory=dict)
    streams: tuple[Stream, ...] = ()
    tasks: dict[Name, Task] = Field(default_factory=dict)
    blueprints: dict[Name, Blueprint] = Field(default_factory=dict)
    layout: dict[str, Any] = Field(default_factory=dict)
    """Belongs to the editor; the runtime never reads it."""
