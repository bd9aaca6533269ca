"""What an operator is: the code behind a component, and all that it may see of the engine.

An operator is loaded once per (component, weights, literal options) on a rank; every node and view that shares these
shares it, so that one forward serves calls of several runs, Walks, iterations and views. It keeps nothing between
calls: what a run keeps is in its states, which only the engine owns.

An operator has a `forward`, which reads its calls on the host, and may have a `step`: the same work on tensors of fixed
shapes alone, which the engine can capture, and iterate without the host.
"""

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from operator import itemgetter
from pathlib import Path
from typing import Any, ClassVar, Literal, NamedTuple, Protocol, Self, TypeVar

import torch
from torch import Tensor

from walkgraph.errors import Refused

T = TypeVar("T")
Scalar = bool | int | float | str


class StateKey(NamedTuple):
    """Names one state of one run; `scope` holds the step and loop indices that a narrower scope starts anew with."""

    run: str
    state: str
    scope: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class ChunkInfo:
    """Where a value read from a stream stands in it."""

    index: int
    first: bool
    last: bool
    valid: int
    """Items in it, context included; 0 for an absent chunk, and for a closing one without context."""
    context: int = 0
    """Leading items that an earlier chunk held too."""
    start: int = 0
    """Items of the stream before it."""

    @property
    def closing(self) -> bool:
        """It tells the end of the stream, and holds nothing new."""
        return self.last and self.valid == self.context


@dataclass(slots=True)
class Call:
    """One use of a node at one iteration of one run. Tensors have no batch axis and live on the operator's device."""

    run: str
    node: str
    walk: str
    step: int
    use: int
    iteration: tuple[int, ...]
    inputs: dict[str, Any]
    """Port -> Tensor, str, bytes, bool, int, float; a port that is absent is not in it."""
    params: Mapping[str, Scalar]
    states: Mapping[str, StateKey]
    seed: int
    """63 bits, of the run's seed and the node's weights-independent name: views of one node that must agree share a run
    seed, not this."""
    chunks: dict[str, ChunkInfo] = field(default_factory=dict[str, ChunkInfo])
    priority: int = 0
    ready_at: float = 0.0
    """Monotonic seconds; for the queueing figure."""
    name: str = ""
    """Of the use in its Walk, for who watches."""
    host: dict[str, Tensor] = field(default_factory=dict[str, Tensor], init=False)
    """Inputs of whole numbers `[n]` that came from the host's memory, as they are there; filled by the engine when it
    brings them to the device."""

    def numbers(self, port: str) -> list[int] | None:
        """The whole numbers `[n]` of an input, if reading them doesn't wait for a device; None if it would."""
        value = self.host.get(port, self.inputs.get(port))
        if not isinstance(value, Tensor) or value.device.type != "cpu" or value.is_floating_point() or value.dim() != 1:
            return None
        return value.tolist()


Outputs = dict[str, Any]
"""Port -> value; a missing optional output is absent."""

FINITE = "@finite"
"""No port: under this name a forward may tell by a bool tensor `[]` whether its call's numbers are all finite, where
its outputs, whole numbers, can't show it. A call of which it is false fails as one that gave NaN."""


class CallFailed(Exception):
    """Raised by an operator for one call of a batch that can't be served; the message is the client's."""

    def __init__(
        self, message: str, port: str | None = None, *, code: Literal["node_error", "invalid_input"] = "node_error"
    ) -> None:
        super().__init__(message)
        self.port = port
        self.code: Literal["node_error", "invalid_input"] = code
        """`invalid_input` where the client's own value is at fault (a picture that is none)."""


@dataclass(frozen=True, slots=True)
class Segment:
    """New rows of one sequence in a batch.

    `rows[i]` is the batch row of the segment's i-th token; rows of several segments may interleave.
    """

    state: StateKey
    rows: Tensor
    """int64 [n]"""
    mode: Literal["causal", "block"]
    """`causal`: each row sees the past and the rows up to itself; `block`: each sees the past and the whole block."""
    keep: bool = True
    """False: attended, never stored (noised latents)."""
    advance: int = 1
    """What the position counter grows by when the segment is kept."""
    sequence: int = 0
    """Which of the state's sequences, where it has a width."""
    tokens: Sequence[int] | None = None
    """Of a causal segment that is kept and advances by a position for each row: numbers `[n]` which, with those before
    them and the operator, decide its keys and values. Other sequences that begin alike may then `reuse` its pages."""


def reused(call: Call, port: str, slot: str, states: "States") -> tuple[int, Sequence[int] | None]:
    """How many of the token ids `[n]` at a port are appended to a state already, as others have computed them, and the
    `tokens` of the segment of the rest. For token ids that alone decide what the operator keeps of them."""
    tokens = call.numbers(port)
    if tokens is None:
        return 0, None
    there = states.reuse(call.states[slot], tokens)
    return there, tokens[there:]


class CausalRows(NamedTuple):
    """Where the rows of a forward go, and what they see: their sequence up to themselves, or their whole block."""

    k: Sequence[Tensor]
    """The pool's layers, each `[S, G, D]`; `v` likewise."""
    v: Sequence[Tensor]
    slots: Tensor
    """int64 `[R]`, in the order of the batch's rows."""
    spare: int
    """A slot that nobody reads."""
    counts: Sequence[int]
    """Rows of each sequence."""
    before: Sequence[int]
    """Tokens of each sequence before them."""
    pages: Sequence[Sequence[int]]
    """Of each sequence, those of its rows among them."""


class Placed(Protocol):
    """Rows whose keys and values a network writes itself: those of a layer to `k[layer][slots]` and `v[layer][slots]`,
    before it attends them."""

    k: Sequence[Tensor]
    """Per layer `[S, G, D]`."""
    v: Sequence[Tensor]
    slots: Tensor
    """int64 `[R]`"""

    def __call__(self, layer: int, q: Tensor) -> Tensor:
        """q `[R, H, D]` -> `[R, H, D]`; scaled by D^-0.5."""
        ...


class Attention(Protocol):
    """One forward's view of the caches: `Attend` of `walkgraph.layers.attention`, made by `States.attend`."""

    def __call__(self, layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor: ...

    def causal(self) -> CausalRows | None:
        """For causal segments that are kept, in the order of the rows; otherwise None."""
        ...

    def begun(self) -> CausalRows | None:
        """For blocks that are kept and begin their sequences, in the order of the rows; otherwise None."""
        ...

    def placed(self) -> Placed:
        """In place of a call for every layer, for segments that are kept, in the order of the rows, and of one mode
        where they are of several rows."""
        ...


class States(Protocol):
    """The engine's states as an operator sees them. Keys come from `Call.states`."""

    def position(self, key: StateKey, sequence: int = 0) -> int:
        """The rope position of the next token."""
        ...

    def length(self, key: StateKey, sequence: int = 0) -> int:
        """Tokens kept."""
        ...

    def reuse(self, key: StateKey, tokens: Sequence[int]) -> int:
        """How many of the `tokens` that are to be appended, as a segment of this operator's would name them, are there
        already: others have computed them. They are appended by this; the last token never is. To be asked before
        `attend`; 0 for a state whose tokens so far have no names."""
        ...

    def attend(self, segments: Sequence[Segment]) -> Attention:
        """Reserve slots for the kept rows. They count only after `commit`, so a forward that raises leaves no trace.

        Segments share one cache shape, and no two are of one sequence. `rows` are never written into afterwards.
        """
        ...

    def commit(self, attention: Attention) -> None: ...

    def tensor(self, key: StateKey) -> Tensor | None: ...

    def put(self, key: StateKey, value: Tensor) -> None:
        """Replace the tensor. It is never written into: forks share it."""
        ...


@dataclass(frozen=True, kw_only=True)
class CacheShape:
    """What one token of a paged state takes: `2 * layers * kv_heads * head_dim * itemsize` bytes."""

    layers: int
    kv_heads: int
    head_dim: int
    dtype: torch.dtype


Capture = Callable[[Callable[[], None], str], Callable[[], None]]
"""Device work on tensors that stay where they are, and what it is -> what replays it."""


@dataclass(frozen=True, kw_only=True)
class LoadContext:
    """What an operator is made from."""

    device: torch.device
    dtype: torch.dtype
    """Of the weights and activations."""
    folder: Path | None
    """Of the weights (public checkpoint layout); None for a component without weights or random ones."""
    shared: dict[Hashable, Any]
    """Modules that several operators of one weight set share on this rank (the backbone of encoder and decoder), by
    network."""
    options: Mapping[str, Scalar]
    """The node's literal parameters."""
    random: tuple[str, int] | None = None
    """(config name, seed) of a `random:` source."""
    progress: Callable[[int], None] | None = None
    """To be called with the bytes of every tensor that was loaded."""
    capture: Capture | None = None
    """Records work of fixed shape for operators that capture parts of their `forward`; None where nothing is."""

    def once(self, kind: type[T], draw: Callable[[str, int], T], read: Callable[[Path], T]) -> T:
        """One of each kind per weight set, at its first use: drawn (config name, seed) or read. Raises `Refused` where
        the node names no weights."""
        if kind not in self.shared:
            if self.random is not None:
                self.shared[kind] = draw(*self.random)
            elif self.folder is not None:
                self.shared[kind] = read(self.folder)
            else:
                raise Refused("a node of this component needs weights; name a set of the graph's `weights` in it")
        return self.shared[kind]


@dataclass(frozen=True, kw_only=True)
class Example:
    """One call to warm up with, before the rank is ready."""

    inputs: Mapping[str, Any] = field(default_factory=dict[str, Any])
    params: Mapping[str, Scalar] = field(default_factory=dict[str, Scalar])


class Row(NamedTuple):
    """What one run has of a tensor that a batch holds as `[B, *shape]`."""

    shape: tuple[int, ...]
    dtype: torch.dtype


@dataclass(frozen=True, kw_only=True)
class StepSpec:
    """The fixed shapes of an operator's `step`; calls of equal specs may share a batch."""

    inputs: Mapping[str, Row] = field(default_factory=dict[str, Row])
    outputs: Mapping[str, Row] = field(default_factory=dict[str, Row])
    params: Mapping[str, torch.dtype] = field(default_factory=dict[str, torch.dtype])
    """Those that a step reads: float32 or int64."""
    tensors: Mapping[str, Row] = field(default_factory=dict[str, Row])
    """Slots of `tensor` states that are kept as rows of a table; zeros where a run has none yet."""
    appends: Mapping[str, int] = field(default_factory=dict[str, int])
    """Paged slot -> tokens that a step appends; 0 for one that is only read."""
    advances: Mapping[str, int] = field(default_factory=dict[str, int])
    """Paged slot -> what the position counter grows by in a step."""
    scratch: Mapping[str, int] = field(default_factory=dict[str, int])
    """Paged slot -> tokens of a block which a step attends with the whole context, and which is not kept. Such a slot
    appends nothing."""
    contexts: Mapping[str, int] = field(default_factory=dict[str, int])
    """Slot of `scratch` -> tokens that its state likeliest has: steps over so many are made ready."""
    variant: Hashable = None
    """What else decides the work and is the same for a whole batch; the step finds it in its batch."""
    sizes: tuple[int, ...] | None = None
    """Batches that are captured; a larger one is served in parts. None: those of the engine."""
    pure: bool = False
    """Its outputs follow from inputs, parameters and states alone, not from the seed or the iteration: of two calls
    where these are equal, one is made."""
    together: bool = False
    """Uses of one iteration that don't wait for each other are one batch: they share its reads of the weights."""
    invariant: bool = False
    """Under `layers.invariance` a row's numbers are equal to the last bit whatever rows are beside it. Loops with any
    other step have one row a launch there."""

    @cached_property
    def key(self) -> Hashable:
        parts = (self.inputs, self.outputs, self.params, self.tensors, self.appends, self.advances, self.scratch)
        return (self.variant, *(tuple(sorted(part.items(), key=itemgetter(0))) for part in parts))


class PagedRows(NamedTuple):
    """Where the sequences of a batch stand, on the device. T rows of the table, B of the batch, P pages of a row."""

    rows: Tensor
    """int32 `[B]`: the batch's rows of the tables; a padded batch repeats rows that nobody reads. Of a state of w
    sequences `[B * w]`: those of a run follow each other."""
    pages: Tensor
    """int32 `[T, P]`"""
    lengths: Tensor
    """int32 `[T]`: tokens kept before this step."""
    positions: Tensor
    """int32 `[T]`: rope position of the step's first token."""


class Block(Placed, Protocol):
    """The blocks of a batch that are attended and not kept: n tokens for each of B rows, row by row: R = B * n. Each
    sees its row's context, which lies in `k` and `v` already, and its whole block."""

    positions: Tensor
    """int64 `[B]`: rope position of the row's next token."""


class PagedSlot(NamedTuple):
    """A paged state of a batch: the pool's layers, each `[S, G, D]` with S = pages * PAGE slots, and its rows."""

    k: Sequence[Tensor]
    v: Sequence[Tensor]
    rows: PagedRows
    block: Block | None = None
    """Where the spec names the slot in `scratch`."""


@dataclass(frozen=True, kw_only=True)
class StepBatch:
    """What a `step` sees; all on the operator's device."""

    rows: Tensor
    """int32 `[B]`, into `tensors`."""
    inputs: Mapping[str, Tensor]
    """Port -> `[B, *shape]`."""
    params: Mapping[str, Tensor]
    """Parameter of the spec -> `[B]`."""
    seed: Tensor
    """int64 `[B]`, of each row's call."""
    iteration: Tensor
    """int64 `[B]`: index in the innermost loop."""
    paged: Mapping[str, PagedSlot] = field(default_factory=dict[str, PagedSlot])
    tensors: Mapping[str, Tensor] = field(default_factory=dict[str, Tensor])
    """Slot -> the whole table `[T, *shape]`; a step reads and writes its `rows` in place."""
    variant: Hashable = None
    """The spec's."""


class StepOutputs(NamedTuple):
    ports: Mapping[str, Tensor]
    """Port -> `[B, *shape]`, as the spec says."""
    finite: Tensor | None = None
    """bool `[B]`: false for a row whose numbers are NaN or infinite; None where the float outputs tell."""


class Operator(Protocol):
    """`network` of a component names a class of this shape, derived from this one: `operators_bagel:Backbone`."""

    options: ClassVar[tuple[str, ...]] = ()
    """Parameters that `load` reads: they must be literal, and nodes share an operator only where these are equal."""

    @classmethod
    def load(cls, context: LoadContext) -> Self:
        return cls()

    def caches(self) -> Mapping[str, CacheShape]:
        """State slot -> shape, for paged slots; empty for the rest."""
        return {}

    def bucket(self, call: Call) -> Hashable:
        """Calls with equal buckets may share a forward."""
        return None

    def rows(self, call: Call) -> int:
        """What the call adds to a batch, in tokens (or the nearest measure of work), for the token budget."""
        return 1

    def split(self, call: Call, rows: int) -> Sequence[Call]:
        """The call as several of at most `rows` rows, made one after the other; the last one's outputs are its own.

        For causal appends, where the parts leave the states as the whole would. Otherwise the call as it is.
        """
        return (call,)

    def examples(self) -> Sequence[Example]:
        """Calls that touch every kernel of the forward; made one after the other at load, on states of their own."""
        return ()

    def step_spec(self, inputs: Mapping[str, Any], params: Mapping[str, Scalar]) -> StepSpec | None:
        """The shapes of a `step` for a call that begins with these inputs; None where only `forward` can serve it.

        Of an input that changes with the iteration, or that another use of the loop gives, there is a tensor of its
        shape on the device `meta`. Before there is a request, an input that no example has is missing: a spec that
        follows from the others alone tells its shape."""
        return None

    def step_inputs(self, call: Call) -> Mapping[str, Any] | None:
        """What a `step` outside a loop reads for this call, by the names of its spec (ports, and numbers that follow
        from the call, as Python's), and what else `step_spec` must know; None where `forward` must serve it."""
        return None

    def step_examples(self) -> Sequence[Mapping[str, Any]]:
        """What an iteration reads of the values that loops are entered with, or `step_inputs`: one of each shape and
        variant that is worth making ready before the first request. Where other uses of a loop read slices of what
        follows from it, only those are that have as many."""
        return ()

    def step(self, batch: StepBatch) -> StepOutputs:
        """Serve a batch of one spec: device work of fixed shape, without reading a value on the host. What it appends
        to paged slots lies at `lengths` onward; the engine counts it. Whoever has a `step_spec` has it."""
        ...

    def forward(self, calls: Sequence[Call], states: States) -> list[Outputs]:
        """Serve the calls in one batch, in their order. Raises for the whole batch; the engine then finds the guilty
        call by itself."""
        ...
