"""A device loop as data: the part that is lowered once, and the part that each entry of a run adds.

    LoopSpec (frozen, kept while the deployment lives) + LoopCall (values, parameters, masks, seeds of one entry)

Uses are named by their index in the loop. Inner loops are unrolled: the spec has one use for each of their iterations,
in the order of the calls. Nothing here imports torch, because the scheduler of loops runs without it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from walkgraph.abi.calls import Scalar, StateKey, Timed
from walkgraph.ids import Rank

if TYPE_CHECKING:
    from torch import Tensor

Place = tuple[int, str]
"""A use of the loop, and one of its ports."""
Mask = tuple[bool, ...]
"""A bool for each iteration."""

# ── what is lowered once ────────────────────────────────────────────────────────────────────────


class Channel(NamedTuple):
    """Carries a use's values to another rank's part of the loop, or back."""

    number: int
    """Names it on both ranks."""
    rank: Rank
    """The rank at the other end."""


@dataclass(frozen=True, slots=True)
class LoopSource:
    """The source of a use's input, iteration by iteration."""

    kind: Literal["entering", "each", "item", "internal", "stack", "carried", "index", "channel", "behind"]
    """`entering`: the same value in all iterations; `each`: slice i of a value at iteration i, absent past its end;
    `item`: integer i of a stream at iteration i, which comes while the loop runs, and -1 past its end;
    `internal`: an output of an earlier use in this iteration, or a `part` of it; `stack`: those of several, along a new
    first axis; `carried`: an output in the iteration before; `index`: the iteration's number; `channel`: what a use on
    another rank gives in this iteration; `behind`: what one gave in the iteration before."""
    place: Place | None = None
    """For `internal` and `carried`: the output that is read."""
    first: LoopSource | None = None
    """For `carried`: the source of iteration 0, if the loop isn't entered with a value for it."""
    entry: str | None = None
    """Name of the entering value of `entering` and `each`; for `carried` and `behind`, of the value for iteration 0."""
    constant: int | None = None
    """Takes the place of an entering value: the index of an unrolled loop."""
    sliced: bool = False
    """True if the entering value is a sequence: `each` reads a slice of it, `carried` begins with its first one."""
    channel: int = -1
    """For `channel` and `behind`: its index among the channels that are read."""
    part: int | None = None
    """For `internal`: the index of the slice along the value's first axis that is read; None for all of it."""
    places: tuple[Place, ...] = ()
    """For `stack`: the outputs that are its slices."""

    @property
    def enters(self) -> bool:
        """True if it reads a value that the loop is entered with."""
        return self.entry is not None or self.constant is not None

    @property
    def begins(self) -> bool:
        """True if it has a value in iteration 0."""
        return self.kind not in ("carried", "behind") or self.enters or self.first is not None

    def given(self, values: Mapping[str, Any]) -> Any:
        """Its own among these entering values; None if there is none."""
        return self.constant if self.entry is None else values.get(self.entry)

    @property
    def now(self) -> tuple[Place, ...]:
        """Outputs of the same iteration without which it has no value."""
        return (self.place,) if self.kind == "internal" and self.place else self.places

    @property
    def needs(self) -> tuple[Place, ...]:
        """Outputs of the same iteration that it reads."""
        return self.now if self.first is None else (*self.now, *self.first.needs)

    @property
    def key(self) -> tuple[object, ...]:
        """Equal for sources that the device reads alike, whatever names the entering value."""
        first = self.first.key if self.first is not None else None
        return self.kind, self.place, first, self.channel, self.part, self.places


class DeviceChoice(NamedTuple):
    """A choice that the device makes: all branches are computed, and the values of one are taken."""

    by: Place
    """The output that chooses: a flag or an integer."""
    values: tuple[int, ...]
    """The value of each branch, flags as 0 and 1. Any other value takes the branch after them."""

    def taken(self, value: int) -> int:
        """The branch that a value takes."""
        return self.values.index(value) if value in self.values else len(self.values)


class LoopMerge(NamedTuple):
    """An output that is taken from one of the branches of a choice."""

    port: str
    """Its port, of the last use that may give it."""
    choice: DeviceChoice
    places: tuple[Place, ...]
    """The output of each branch."""

    @property
    def place(self) -> Place:
        return max(use for use, _ in self.places), self.port


@dataclass(frozen=True, slots=True)
class LoopUseSpec:
    """One use of a device loop."""

    node: str
    name: str
    """The name of the use, as in `Call`."""
    sources: Mapping[str, LoopSource]
    """Input port -> its source; a port that never has a value is not in it."""
    states: Mapping[str, str]
    """Slot -> state, by its name in the spec."""
    varying: tuple[str, ...] = ()
    """Numeric parameters that change with the loop's index."""
    inner: tuple[int, ...] = ()
    """Its indices in the inner loops, outermost first."""
    branch: tuple[DeviceChoice, int] | None = None
    """The branch of a choice that it is in: its numbers may be anything where another one is taken."""


class ChannelPort(NamedTuple):
    """A port that a channel feeds, or whose values leave by one."""

    use: int
    port: str
    channel: Channel


class LoopOutput(NamedTuple):
    key: str
    """Names it in `Items.values` and in the outputs at the loop's end."""
    use: int
    port: str
    kind: Literal["each", "last", "collect"]
    """`each`: handed out in `Items` while the loop runs. `last`: the value of the last iteration, missing if that gave
    none. `collect`: the values of all iterations, at the end."""
    drops: bool = False
    """`collect`: without the value of the iteration that raised `until`."""


class SpecKey:
    """Compares specs. Its hash is computed once, because every entry of a run looks it up."""

    __slots__ = ("_hash", "_parts")

    def __init__(self, parts: tuple[object, ...]) -> None:
        self._parts, self._hash = parts, hash(parts)

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        return self is other or (isinstance(other, SpecKey) and self._parts == other._parts)


@dataclass(frozen=True, eq=False)
class LoopSpec:
    """The part of a loop that is the same for all runs which enter it with equal sizes."""

    walk: str
    use: int
    """Names the loop in its Walk: the index of its first use."""
    loop: str
    uses: tuple[LoopUseSpec, ...]
    """Uses, in the order of the calls of an iteration."""
    until: Place | None
    """The output that ends the loop when it is true."""
    outputs: tuple[LoopOutput, ...]
    reasons: tuple[tuple[str, str], ...] = ()
    """(reason, key of the `last` output that is true if the loop was ended for it)."""
    reads: tuple[ChannelPort, ...] = ()
    """Ports fed by parts on other ranks; a source's `channel` is an index into these."""
    sends: tuple[ChannelPort, ...] = ()
    """Ports whose values go to parts on other ranks."""
    merges: tuple[LoopMerge, ...] = ()
    """Outputs taken from branches of choices."""
    usual: tuple[int, ...] = ()
    """Iteration counts that entries are most likely to have."""
    leads: bool = True
    """True if this part leads. In a loop with parts on several ranks, the other parts repeat the leader's launches in
    its order."""

    @cached_property
    def each(self) -> tuple[str, ...]:
        """Keys of the outputs that are handed out while it runs."""
        return tuple(out.key for out in self.outputs if out.kind == "each")

    @cached_property
    def collects(self) -> tuple[LoopOutput, ...]:
        """Outputs whose values of all iterations leave at its end."""
        return tuple(out for out in self.outputs if out.kind == "collect")

    @cached_property
    def states(self) -> tuple[str, ...]:
        """The states of its uses."""
        return tuple(dict.fromkeys(state for use in self.uses for state in use.states.values()))

    @cached_property
    def key(self) -> SpecKey:
        """Equal for loops that do the same work on the device, whatever their names: views of one model, other
        Walks."""
        return SpecKey(
            (
                tuple(
                    (
                        tuple((port, source.key) for port, source in use.sources.items()),
                        tuple(use.states.items()),
                        use.varying,
                        use.inner,
                        use.branch,
                    )
                    for use in self.uses
                ),
                self.merges,
                self.until,
                self.outputs,
                tuple((send.use, send.port) for send in self.sends),
                self.leads,
            )
        )


def state_name(index: int) -> str:
    """Name of a state in a spec, by the order in which uses name states, so that views of one loop have equal names."""
    return f"state {index}"


# ── what a run adds ─────────────────────────────────────────────────────────────────────────────


class LoopUse(NamedTuple):
    """The part of an entry that concerns one use."""

    params: Mapping[str, Scalar]
    varying: Mapping[str, tuple[Scalar, ...]]
    """Parameters that change with the loop's index: one value per iteration. They are not in `params`."""
    seed: int
    active: Mask | None = None
    """The iterations in which it is called; None for all. In others it gives no outputs."""


class Anew(NamedTuple):
    """How a state begins every iteration."""

    source: StateKey | None
    """Each iteration begins with a copy of this state, which the loop doesn't change; None: with an empty state."""
    width: int = 1
    """Number of its sequences."""


@dataclass(slots=True)
class LoopCall:
    """A loop that a run enters, and that the engine runs by itself from the first iteration to the last.

    It ends after `times` iterations, or after the one whose `until` is true.
    """

    spec: LoopSpec
    run: str
    step: int
    iteration: tuple[int, ...]
    """Indices of the loops around it."""
    times: int
    """Iterations; at least 1."""
    uses: tuple[LoopUse, ...]
    """One for each use of the spec."""
    values: Mapping[str, Any]
    """Entering values, by the `entry` of their sources."""
    states: Mapping[str, StateKey]
    """The states of the spec, by their names there."""
    comes: tuple[Mask | None, ...] = ()
    """For each channel in the spec's `reads`, the iterations that read its value (for `behind`: that would read it);
    None for all."""
    goes: tuple[Mask | None, ...] = ()
    """For each of its `sends`, the iterations whose value is sent; None for all. Every value that is read is sent;
    more may be."""
    grain: int = 1
    """`Items` are due when `offset` plus the iterations so far is a multiple of this, when the iterations reach
    `allowed`, and at the end; iterations that come back together are joined in one. 0: whenever it suits."""
    offset: int = 0
    allowed: int | None = None
    """Iterations that may be launched, counted from the loop's start, until more are allowed; None for all."""
    fed: int | None = None
    """Iterations whose items of streams have come, counted from the loop's start: no later one is launched before its
    items have come. Nobody waits for values between two grains, so those of the last one stay here. None if it reads
    none, or no more come."""
    wanted: Mapping[str, Mask] = field(default_factory=dict[str, Mask])
    """Key of an `each` output -> the iterations whose value is handed out; an output that is not in it hands out
    all."""
    anew: Mapping[StateKey, Anew] = field(default_factory=dict[StateKey, Anew])
    """States that lose at the end of each iteration what it appended."""
    widths: Mapping[StateKey, int] = field(default_factory=dict[StateKey, int])
    """Other states that may have several sequences -> how many, if the state is still empty."""
    priority: int = 0
    ready_at: float = 0.0
    timed: Timed | None = None
    """The playback of an iteration's values; None if they are not played as they come."""
    sent_as: Mapping[str, str] = field(default_factory=dict[str, str])
    """Key of an output that only leaves for the client -> the dtype in which its floats do."""

    def dtypes(self) -> Mapping[Place, str]:
        """The dtypes in which the values of iterations leave, of places whose values all leave in one."""
        found: dict[Place, set[str | None]] = {}
        for out in self.spec.outputs if self.sent_as else ():
            if out.kind != "last":
                found.setdefault((out.use, out.port), set()).add(self.sent_as.get(out.key))
        alone = ((place, dtypes.pop()) for place, dtypes in found.items() if len(dtypes) == 1)
        return {place: dtype for place, dtype in alone if dtype is not None}

    @property
    def walk(self) -> str:
        return self.spec.walk

    @property
    def use(self) -> int:
        """Together with `run`, `step` and `iteration`, names the entry."""
        return self.spec.use

    @property
    def loop(self) -> str:
        return self.spec.loop

    @property
    def used(self) -> list[Channel]:
        """Channels that bring values, in the order of `reads`. Both ends know which they are."""
        pairs = zip(self.spec.reads, self.comes, strict=True)
        return [read.channel for read, comes in pairs if comes is None or any(comes)]

    @property
    def sent(self) -> list[ChannelPort]:
        """Ports whose values leave by channels."""
        pairs = zip(self.spec.sends, self.goes, strict=True)
        return [send for send, goes in pairs if goes is None or any(goes)]

    @property
    def spans(self) -> bool:
        """True if it exchanges values with parts on other ranks: its launches may wait for these on the device."""
        return bool(self.sent or self.used)

    @property
    def peers(self) -> tuple[Rank, ...]:
        """Ranks that this part exchanges values with."""
        return tuple(sorted({send.channel.rank for send in self.sent} | {channel.rank for channel in self.used}))


class StreamItems(NamedTuple):
    """Consecutive items of a stream for a loop that runs."""

    place: Place
    """The use and the port that read them."""
    first: int
    """The iteration that reads the first one."""
    values: Tensor
    """Integers `[n]`."""


class Items(NamedTuple):
    """The values of iterations `first` to `first + count` of a loop, in order and without gaps."""

    call: LoopCall
    first: int
    count: int
    values: Mapping[str, Sequence[Any]]
    """Key of an `each` output -> `count` values, None for an iteration without one."""
    stopped: bool = False
    """True if the last of these iterations raised `until`."""
