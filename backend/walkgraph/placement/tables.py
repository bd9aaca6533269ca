"""The plan as data: integer tables that conductor and workers run by. Frozen, and simple enough for the wire.

Only `placement.plan.plan()` makes them, from a graph, a placement and the hardware.

How a Walk is run from its tables: every rank walks the same tables and calls only the uses that are its own. A *call*
is one use at one iteration vector (loop indices, outermost first). A value on an edge is keyed by the indices of the
loops that hold both ends (`common` of them). The source's rank applies the leaving rule, then sends; the target's rank
applies the entering rule:

    port of use at iteration t:  of the carried edges with t[common - 1] > 0, the one with the largest `common`,
                                 keyed t[:common - 1] + (t[common - 1] - 1,);
                                 otherwise the edge that isn't carried, keyed t[:common]

Several edges may take the place of one: they come from exclusive branches, so at most one of them has a value.

A choice is a use too (`choose`). Called with its value, it gives a verdict: the branch that is taken in this iteration
of the loops around the choice. Uses in a branch have `cases`; they wait for the verdicts, and where one is for another
branch they are skipped, and loops inside the branch with all of their iterations at once. A choice that is skipped
takes no branch.

A map is a loop whose head, another use (`map`), is called with its list and gives the count of its items. They are
walked side by side, up to `width` of them, in order, each as if it were alone: an item begins on a rank when fewer than
`width` of those before it are still open on any rank with uses inside. What leaves is put in the order of the items.

A Walk that a step runs `per: chunk` has its own table (`chunked`): the same body inside one more, outermost loop
`chunk`, which ends with the stream; its `@out` edges leave with `each`, except for empty values. The last chunk of a
stream may hold nothing new: in that iteration a call without a value at a required port is skipped.
"""

from typing import Literal

import msgspec

from walkgraph.checkpoints.sharding.experts import ExpertParallel
from walkgraph.ids import Rank

Scalar = bool | int | float | str
LOCAL, IN_MESSAGE, TO_CLIENT = "local", "inline", "control"
"""Transports of edges that need none: the value stays on its rank, is small enough for the message, or goes to the
client through the conductor."""
Gather = Literal["stack", "join", "list"]
"""The form in which `collect` gives the values: tensors stacked, or end to end and texts joined, or a list."""
STOP, BOUND = "stop", "bound"
"""Reasons for which a loop ends: its `until`, its `times`. Others are flags (`NodePlan.reasons`)."""
Op = Literal["call", "fork", "export", "import", "loop", "choose", "map"]
Branch = tuple[int, int]
"""A choice of the Walk, and one of its branches: a case by its position, or `otherwise` after them."""


class Table(msgspec.Struct, frozen=True, kw_only=True):
    pass


class NodePlan(Table, frozen=True):
    index: int
    name: str
    component: str
    network: str
    """The operator, as `module:Class`; empty where there is none."""
    weights: str | None
    """Key into the plan's weights; nodes with the same component, weights and literal `options` share one operator."""
    params: dict[str, Scalar]
    """Literal, or an expression with a leading `=`; component defaults are merged in."""
    defaults: dict[str, Scalar]
    """Fallback for an expression where the running task lacks a name it uses: the component's default."""
    states: dict[str, int]
    """Slot -> state index."""
    cost: Literal["compute", "memory", "launch"]
    host: bool
    required: tuple[str, ...]
    """Input ports that must hold a value at every call."""
    optional: tuple[str, ...] = ()
    """Output ports that may hold no value after a call."""
    resident: bool = False
    """Its operator has a `step`, so a loop of such nodes may run on the device."""
    inputs: dict[str, str] = {}
    """Port -> modality."""
    outputs: dict[str, str] = {}
    seconds: dict[str, float] = {}
    """Output port -> playback of a value, for those that are played as they come."""
    kept: Literal["", "own", "shared"] = ""
    """Its outputs are kept by content, for runs of the same owner or for all."""
    reasons: dict[str, tuple[str, ...]] = {}
    """Flag that may end a loop -> flags that say why."""
    task: str = ""
    """`graph/task` if the node calls a task, and the component's name if it calls a server outside: its rank asks the
    conductor instead of an operator."""


class WeightsPlan(Table, frozen=True):
    family: str
    source: str


class StatePlan(Table, frozen=True):
    index: int
    name: str
    kind: Literal["paged_kv", "tensor", "rng"]
    scope: Literal["session", "run", "walk", "iteration"]
    width: str
    capacity: str | None
    """Expression over the task's parameters: the most tokens of one sequence."""


class LoopPlan(Table, frozen=True):
    index: int
    name: str
    parent: int
    """-1 for an outermost loop."""
    times: str
    """Empty for the loop `chunk`, which ends only with its stream."""
    until: tuple[int, str] | None
    """Use and boolean port; that use's rank sends the verdict to the other `ranks`."""
    stream: int | None
    """The stream that feeds and ends the loop `chunk`."""
    drop_last: bool
    ranks: tuple[Rank, ...]
    """Ranks with a use inside."""
    resident: bool = False
    """The engine of a rank runs its `core` whole; otherwise the loop is stepped, call by call."""
    core: tuple[int, ...] = ()
    """The uses of a resident loop that the engine iterates. The others follow, stepped: nothing in the core waits for
    their values."""
    why: str = ""
    """The reason for running it this way."""
    forks: tuple[int, ...] = ()
    """Forks in a resident loop that are made once, on entry: every iteration begins with the copies as they were
    then."""
    choices: tuple[int, ...] = ()
    """Choices in a resident loop that its device makes: it computes all branches, and goes on with values of the one
    that is taken."""
    within: int = -1
    """The enclosing resident loop that this one is unrolled in. For a run where it can't be unrolled, the engine
    iterates this loop's own `core`, if it has one."""
    usual: tuple[int, ...] = ()
    """Its counts in the tasks at their defaults."""
    until_else: tuple[tuple[int, str], ...] = ()
    """More uses and ports where a merge ends the loop: the one that is called gives the verdict."""
    head: int = -1
    """For a map, the use `map` that counts its items; `times` is then the most items that there may be."""
    width: str = ""
    """For a map, the most items in work at once."""

    @property
    def endings(self) -> tuple[tuple[int, str], ...]:
        """All uses and ports that may end it."""
        return () if self.until is None else (self.until, *self.until_else)


class ChoicePlan(Table, frozen=True):
    index: int
    use: int
    """The use `choose`, whose rank sends the verdict to the other `ranks`."""
    by: str
    """The source of its value, as in the document."""
    cases: tuple[str, ...]
    """The value of each branch, as text. Any other value takes the branch after them."""
    ranks: tuple[Rank, ...]
    """Ranks with a use in a branch."""


class UsePlan(Table, frozen=True):
    index: int
    name: str
    op: Op
    """`fork` copies on one rank; across ranks it is an `export` (output `state`) and an `import` (input `state`) joined
    by an edge. `choose` (input `value`) gives the verdict of a choice, `map` (input `value`) the count of a map's
    items. `loop` occurs in no plan: a worker uses it for
    all uses of a resident loop."""
    node: int
    """-1 unless `op` is `call`."""
    rank: Rank
    loops: tuple[int, ...]
    """Indices of the loops around it, outermost first."""
    when: tuple[str, ...]
    """Expressions that must all hold; otherwise the call is skipped and its outputs are absent."""
    before: tuple[int, ...]
    """Earlier uses on this rank that share a state with this one, unless both only read it; they keep body order."""
    states: tuple[int, ...]
    """`fork`: source, target. `export`/`import`: the state. Otherwise empty, as the node names them."""
    writes: tuple[int, ...] = ()
    """States that it may change."""
    cases: tuple[Branch, ...] = ()
    """The branches of choices around it, outermost first; it is called only where all of them are taken."""


class EdgeSource(Table, frozen=True):
    kind: Literal["use", "input", "loop", "stream"]
    use: int = -1
    port: str = ""
    """Port of the use, or name of the Walk's input."""
    index: int = -1
    """Loop (kind `loop`) or stream (kind `stream`)."""


class Target(Table, frozen=True):
    kind: Literal["use", "out", "result", "stream"]
    use: int = -1
    port: str = ""
    """Port of the use, name of the output to the client, or name of the result."""
    index: int = -1
    """Stream index."""
    modality: str = ""
    """Modality of an output to the client: that of its source port, where the component is known."""
    chosen: bool = False
    """An output that several ranks send, from exclusive branches: an absent value is sent too, so that they can be put
    in order. A result by which a step is chosen: it is read back to the host."""
    host: bool = False
    """A result that the CPU reads in a later Walk."""


class EdgePlan(Table, frozen=True):
    index: int
    source: EdgeSource
    target: Target
    common: int
    """The number of loops that hold both ends; 0 for inputs, outputs and results."""
    carried: bool = False
    leave: Literal["none", "last", "each", "collect", "pieces"] = "none"
    """How values leave the source's loops beyond `common`. `pieces`: to the client, each value as the called task sends
    it."""
    gather: Gather = "stack"
    enter_each: bool = False
    """The value is a sequence: slice i goes to iteration i of the first loop entered, or of a later one."""
    skipped: int = 0
    """For `enter_each`: the number of loops entered before that one."""
    transport: str = LOCAL
    """Name of a transport, or `local`, `inline`, `control`. Workers for whom it is refused on this machine take the
    next one."""
    on_device: bool = False
    """Its transport moves tensors from GPU to GPU."""
    parts: bool = False
    """It carries a state that leaves in parts while it grows: those before the last one don't wait for the Walk."""
    merged: str = ""
    """The merge that it belongs to: one of several edges from exclusive branches into one place."""

    @property
    def sliced(self) -> int:
        """For `enter_each`: the number of loops around the one whose iterations get the slices."""
        return self.common + self.skipped


class WalkPlan(Table, frozen=True):
    index: int
    name: str
    chunked: bool
    inputs: tuple[str, ...]
    uses: tuple[UsePlan, ...]
    """In body order."""
    loops: tuple[LoopPlan, ...]
    edges: tuple[EdgePlan, ...]
    ranks: tuple[Rank, ...]
    state_scopes: dict[int, int]
    """State index -> number of leading loop indices that key it. Only for states of scope `walk` (0) and `iteration`;
    for the latter, the loops that hold all its uses."""
    choices: tuple[ChoicePlan, ...] = ()
    modalities: dict[str, str] = {}
    """Input -> its modality."""
    usual: tuple[dict[str, Scalar], ...] = ()
    """The distinct parameter sets of its tasks at their defaults. They hold the parameters that counts of loops and
    widths of states read, and those of nodes in loops that aren't fractions."""


class StreamPlan(Table, frozen=True):
    index: int
    name: str
    walks: tuple[int, ...]
    """Producing Walks."""
    policy: Literal["fixed", "sliding", "left_context", "whole"]
    settings: dict[str, int]
    """The policy's numbers: size, window, stride, chunk, context, first."""
    continue_after_done: bool
    credits: int
    producers: tuple[Rank, ...]
    consumers: tuple[Rank, ...]
    seconds: float = 0.0
    """Playback of an item; 0 if it is not played as it comes."""


class RankPlan(Table, frozen=True):
    rank: Rank
    device: str
    """`cpu` or `cuda:N`."""
    nodes: tuple[int, ...]
    kv_bytes: int
    """Bytes for all paged states on this rank."""
    budget: tuple[tuple[str, int], ...]
    """Entry (`weights bagel`, `kv main`, `arena`, `workspace`, `margin` ...) -> bytes."""
    arenas: dict[str, int] = {}
    """Transport -> bytes of its GPU for tensors on their way to other GPUs."""
    shards: tuple[Rank, ...] = ()
    """For a rank of a tensor-parallel or sequence-parallel group, the ranks that each hold a shard of the same nodes,
    this one among them. Walks name the first, which serves; the others repeat what it does."""
    sequence_parallel: bool = False
    """The shards have whole weights, and divide the tokens of flow steps; false: they divide weights."""
    expert_parallel: ExpertParallel | None = None
    """The shards hold whole experts; None: a part of each."""
    host: str = ""
    """Empty: the host that plans."""
    unpinned: bool = False
    """The placement leaves its host to the plan (`any`), which may choose another one once this is lost."""

    @property
    def serving(self) -> Rank:
        """The rank whose work it does: itself, or the first of its shards."""
        return self.shards[0] if self.shards else self.rank

    @property
    def repeats(self) -> bool:
        """True if another rank serves, and this one repeats what that does."""
        return self.serving != self.rank

    @property
    def weight_shards(self) -> int:
        """The number of parts into which weights and caches are divided."""
        return 1 if self.sequence_parallel else len(self.shards) or 1

    @property
    def arena_bytes(self) -> int:
        return sum(self.arenas.values())


class Alternative(Table, frozen=True):
    """The tables for one choice of replicas, in which every node is on one rank in a Walk. A run goes through those of
    one alternative alone."""

    index: int
    replicas: dict[int, int]
    """Number of replicas of groups -> the one of them that is taken, counted from 0. Groups with equally many take the
    same one."""
    walks: tuple[int, ...]
    """Walks in the order of `Plan.walks`: the document's, chunked twins, state moves."""
    ranks: tuple[Rank, ...]


class Plan(Table, frozen=True):
    graph: str
    digest: str
    """SHA-256 of graph and placement."""
    nodes: tuple[NodePlan, ...]
    weights: dict[str, WeightsPlan]
    states: tuple[StatePlan, ...]
    walks: tuple[WalkPlan, ...]
    """The document's Walks, then `chunked` twins, once for each alternative; then state moves (`move:main:0>1`: an
    export and an import), which alternatives share."""
    streams: tuple[StreamPlan, ...]
    """The document's streams, once for each alternative."""
    ranks: tuple[RankPlan, ...]
    alternatives: tuple[Alternative, ...]
    """One, unless groups have replicas."""
    transport: str = ""
    """The transport of all tensors between ranks; empty: each edge has the cheapest, and what that refuses takes the
    next one."""

    def walks_of(self, alternative: int = 0) -> tuple[WalkPlan, ...]:
        return tuple(self.walks[index] for index in self.alternatives[alternative].walks)

    def streams_of(self, alternative: int = 0) -> tuple[StreamPlan, ...]:
        each = len(self.streams) // len(self.alternatives)
        return self.streams[alternative * each : (alternative + 1) * each]

    @property
    def replicated(self) -> frozenset[Rank]:
        """Ranks that some alternatives do without."""
        used = [rank for one in self.alternatives for rank in one.ranks]
        return frozenset(rank for rank in used if used.count(rank) < len(self.alternatives))


# ── itineraries ────────────────────────────────────────────────────────────


class FromInput(msgspec.Struct, frozen=True, tag="input"):
    name: str
    """Name in the run's `inputs`, once parts have names of their own (`part.0`)."""


class FromStep(msgspec.Struct, frozen=True, tag="step"):
    step: int
    result: str


def flag_beside(result: str, flag: str) -> str:
    """The result of a Walk for a flag that says why another result ended a loop of steps (`NodePlan.reasons`)."""
    return f"{result}.{flag}"


class FromLatest(msgspec.Struct, frozen=True, tag="latest"):
    """The result of the last of these steps that is taken."""

    steps: tuple[FromStep, ...]
    otherwise: str = ""
    """The input that is taken where none of them is; empty for none."""


class FromLiteral(msgspec.Struct, frozen=True, tag="literal"):
    value: Scalar


Binding = FromInput | FromStep | FromLatest | FromLiteral


class StepPlan(Table, frozen=True):
    index: int
    walk: int
    partition: int
    """Each rank runs the steps of one partition in order; partitions run side by side."""
    bindings: dict[str, Binding]
    """Walk input -> the source of its value; an unbound optional input is absent."""
    cases: tuple[Branch, ...] = ()
    """The branches of choices around it, outermost first; it is taken only where all of them are."""
    passes: tuple[int, ...] = ()
    """The pass of each loop of steps around it, outermost first."""


class StepChoice(Table, frozen=True):
    """A choice among steps by a result. The rank of the result gives the verdict to all ranks of the run."""

    index: int
    sources: tuple[FromStep, ...]
    """The result of the last of these steps that is taken."""
    cases: tuple[str, ...]
    """The value of each branch, as text. Any other value, and none, takes the branch after them."""
    otherwise: int = -1
    """The branch where none of the steps is taken; -1: that after the cases."""
    reasons: tuple[str, ...] = ()
    """Flags beside the result (`flag_beside`) of a choice that ends a loop by its first branch: they say why. The first
    that is set gives the verdict: its number, after the branches."""


class KeptResult(Table, frozen=True):
    """A result that is kept while a person is asked: a rank sends it to the conductor at the end of the leg."""

    name: str
    """The input as which the run gets it when it goes on."""
    sources: tuple[FromStep, ...]
    """The result of the last of these steps that is taken."""
    otherwise: str = ""
    """The input that is kept on where none of them is; empty for none."""


class Decision(Table, frozen=True):
    """A person's answer to an approval."""

    approved: bool
    note: str = ""


LegAnswer = int | Decision
"""The answer that decides on the next leg: the verdict of a choice (-1 for none), or a person's decision."""


class SendOrder(Table, frozen=True):
    """Steps of one partition that send one output from several ranks; the client gets their values in this order."""

    output: str
    steps: tuple[int, ...]
    ranks: tuple[Rank, ...]
    """The sending rank of each step."""


class Itinerary(Table, frozen=True):
    steps: tuple[StepPlan, ...]
    outputs: tuple[str, ...]
    """Outputs that the client waits for."""
    ranks: tuple[Rank, ...]
    """Ranks that take part."""
    streams: tuple[int, ...]
    """Streams whose consumer is among the steps."""
    send_orders: tuple[SendOrder, ...] = ()
    choices: tuple[StepChoice, ...] = ()
    more: bool = False
    """These are the steps of the first leg, and other legs follow."""
    by: int = -1
    """The choice whose verdict decides on the next leg."""
    later: tuple[int, ...] = ()
    """The Walks of all legs, if others follow."""
    keep: tuple[KeptResult, ...] = ()
    """Results that are sent to the conductor at the end of the first leg."""

    @property
    def walks(self) -> frozenset[int]:
        """The Walks that it may run."""
        return frozenset({*self.later, *(step.walk for step in self.steps)})


class Leg(Table, frozen=True):
    """Steps of a run that its ranks get once all of them have ended those before."""

    steps: tuple[StepPlan, ...]
    """Numbered on from those before."""
    choices: tuple[StepChoice, ...]
    send_orders: tuple[SendOrder, ...]
    more: bool
    """Other legs follow."""
    by: int
    """The choice whose verdict decides on the next leg: a branch, or whether a loop goes on. -1: none does."""
    kept: tuple[int, ...]
    """The earlier steps whose results this leg or a later one may take."""
    keep: tuple[KeptResult, ...] = ()
    """Results that are sent to the conductor at the end of the leg."""
