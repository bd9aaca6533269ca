"""The operator: the code behind a component, and everything it may see of the engine.

An operator is loaded once per (component, weights, literal options) on a rank, and shared by every node and view with
the same ones, so that one forward serves calls of several runs, Walks, iterations and views. It keeps nothing between
calls: a run's data is in its states, which the engine owns.

An operator has a `forward`, which reads its calls on the host, and may have a `step`: the same work on tensors of fixed
shapes, which the engine can capture and iterate without the host.
"""

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Protocol, Self, TypeVar

import torch
from torch import Tensor

from walkgraph.abi.calls import Call, Outputs, Scalar
from walkgraph.abi.states import CacheShape, States
from walkgraph.abi.step import StepBatch, StepOutputs, StepSpec
from walkgraph.checkpoints.sharding.experts import ExpertParallel
from walkgraph.collectives.base import WHOLE, Shard
from walkgraph.errors import Refused

T = TypeVar("T")


PRECISION = "precision"
"""The option of operators whose weights may be kept in fewer bits than the rank's type has."""
Capture = Callable[[Callable[[], None], str], Callable[[], None]]
"""(device work on tensors with fixed addresses, its description) -> a function that replays it."""


@dataclass(frozen=True, kw_only=True)
class LoadContext:
    """The inputs for loading an operator."""

    device: torch.device
    dtype: torch.dtype
    """Type of the weights and activations."""
    folder: Path | None
    """Folder of the weights (public checkpoint layout); None for a component without weights or with random ones."""
    shared: dict[Hashable, Any]
    """Network -> modules that several operators of one weight set share on this rank, such as the backbone of encoder
    and decoder."""
    options: Mapping[str, Scalar]
    """The node's literal parameters."""
    precision: str = "bf16"
    """Number format of those weights of the set that may be kept in fewer bits; `bf16`: the rank's type, whatever that
    is."""
    random: tuple[str, int] | None = None
    """(config name, seed) of a `random:` source."""
    family: str | None = None
    """Family of the weights."""
    progress: Callable[[int], None] | None = None
    """Called with the bytes of every tensor loaded."""
    capture: Capture | None = None
    """Records work of fixed shape, for operators that capture parts of their `forward`; None where nothing is
    captured."""
    shard: Shard = WHOLE
    """The rank's place in a tensor-parallel group. An operator whose component is declared `tensor_parallel` loads and
    computes its shard."""
    sequence: Shard = WHOLE
    """The rank's place in a sequence-parallel group. The `step` of an operator whose component is declared
    `sequence_parallel` computes its part of a block's tokens, and gathers the outputs."""
    expert_parallel: ExpertParallel | None = None
    """The group divides mixtures by whole experts; None: by their widths."""

    def once(self, kind: type[T], draw: Callable[[str, int], T], read: Callable[[Path], T]) -> T:
        """One of each kind per weight set, made at its first use: drawn from (config name, seed), or read from the
        folder. Raises `Refused` if the node names no weights."""
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
    """One call for warm-up, before the rank is ready."""

    inputs: Mapping[str, Any] = field(default_factory=dict[str, Any])
    params: Mapping[str, Scalar] = field(default_factory=dict[str, Scalar])


class Operator(Protocol):
    """The interface of operator classes, which derive from it; a component's `network` names one:
    `walkgraph.models.bagel.operators:Backbone`."""

    options: ClassVar[tuple[str, ...]] = ()
    """Parameters that `load` reads: they must be literal, and nodes share an operator only if these are equal."""
    pure: ClassVar[bool] = False
    """The outputs of its `forward` follow from inputs and parameters, not from states, the seed or anything outside.
    Where a deployment keeps results, such a call is not made again."""
    threaded: ClassVar[bool] = False
    """Its `forward` uses no states, and spends its time outside the interpreter lock, as decoders of pictures do. Calls
    that take long are made one by one in threads beside the engine's."""

    @classmethod
    def load(cls, context: LoadContext) -> Self:
        return cls()

    def quick(self, call: Call) -> bool:
        """True for a call of a threaded operator that surely takes less than half a millisecond: handing it to a thread
        and back would take longer."""
        return False

    def caches(self) -> Mapping[str, CacheShape]:
        """State slot -> shape, for paged slots; empty for the rest."""
        return {}

    def figures(self) -> Mapping[str, Tensor]:
        """Figure -> its tally (`layers.tally`) on the operator's device, for telemetry. The operator's work counts into
        it there, also in captured steps; the engine reads it about once a second and sets it to zero. Telemetry may be
        off, so counting must not take a launch of its own."""
        return {}

    def bucket(self, call: Call) -> Hashable:
        """Calls with equal buckets may share a forward."""
        return None

    def alike(self, call: Call) -> Hashable:
        """One of several waiting calls that agree in this is served first: the state that it leaves spares the others
        most of their work. None for a call that nothing spares."""
        return None

    def rows(self, call: Call) -> int:
        """The call's size in a batch in tokens (or the nearest measure of work), for the token budget."""
        return 1

    def split(self, call: Call, rows: int) -> Sequence[Call]:
        """Split the call into several of at most `rows` rows, served one after the other; the last one's outputs are
        the call's.

        Only for causal appends, where the parts leave the states as the whole call would. Otherwise return the call as
        it is.
        """
        return (call,)

    def defers(self, call: Call) -> bool:
        """True if a call whose outputs nothing waits for is better made with the next one on its states, in one
        forward. An operator that defers calls takes several on one state in a batch, in order."""
        return False

    def examples(self) -> Sequence[Example]:
        """Calls that together use every kernel of the forward; made one by one at load, on states of their own."""
        return ()

    def step_spec(self, inputs: Mapping[str, Any], params: Mapping[str, Scalar]) -> StepSpec | None:
        """The shapes of a `step` for a call that begins with these inputs; None if only `forward` can serve it.

        Inputs that change with the iteration, or that another use of the loop produces, are tensors of the right shape
        on the device `meta`. Before the first request, an input without an example is missing: its shape comes from a
        spec that depends only on the other inputs.
        """
        return None

    def step_inputs(self, call: Call) -> Mapping[str, Any] | None:
        """The inputs of a `step` outside a loop for this call, by the names of its spec (ports, and Python numbers
        derived from the call), and whatever else `step_spec` needs; None if `forward` must serve it."""
        return None

    def step_examples(self) -> Sequence[Mapping[str, Any]]:
        """Example inputs of an iteration: values that loops are entered with, or `step_inputs`, one for each shape and
        variant that should be prepared before the first request. If other uses of a loop read slices of results derived
        from it, only examples with as many slices are used."""
        return ()

    def step(self, batch: StepBatch) -> StepOutputs:
        """Serve a batch of one spec: device work of fixed shape, without reading a value on the host. Rows appended to
        paged slots go to `lengths` onward; the engine counts them. Required with a `step_spec`."""
        ...

    def forward(self, calls: Sequence[Call], states: States) -> list[Outputs]:
        """Serve the calls in one batch, in order. An exception fails the whole batch; the engine then finds the guilty
        call by itself."""
        ...
