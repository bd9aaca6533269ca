"""A device loop as data: what is lowered of it once, and what a run adds when it enters it.

    LoopSpec (frozen, kept while the deployment lives) + LoopCall (values, parameters, masks, seeds of one entry)

Uses are named by their place in the loop. Loops inside are unrolled: the spec has one use for each of their iterations,
in the order of the calls. Nothing here imports torch: what schedules loops runs without it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from walkgraph.abi.calls import Scalar, StateKey
from walkgraph.ids import Rank

if TYPE_CHECKING:
    from torch import Tensor

Place = tuple[int, str]
"""A use of the loop, and one of its ports."""
Mask = tuple[bool, ...]
"""Iteration by iteration."""

# ── what is lowered once ────────────────────────────────────────────────────────────────────────


class Channel(NamedTuple):
    """Carries a use's values to another rank's part of the loop, or back."""

    number: int
    """Names it on both ranks."""
    rank: Rank
    """The other one."""


@dataclass(frozen=True, slots=True)
class LoopSource:
    """Where an input of a use takes its value from, iteration by iteration."""

    kind: Literal["entering", "each", "internal", "stack", "carried", "index", "channel", "behind"]
    """`entering`: the same value in all iterations; `each`: slice i of a value at iteration i, absent past its end;
    `internal`: an output of an earlier use in this iteration, or a `part` of it; `stack`: those of several, along a new
    first axis; `carried`: an output in the iteration before; `index`: the iteration's number; `channel`: what a use on
    another rank gives in this iteration; `behind`: what one gave in the iteration before."""
    place: Place | None = None
    """Of `internal` and `carried`: the output."""
    first: LoopSource | None = None
    """Of `carried`: what gives iteration 0 its value, where the loop isn't entered with it."""
    entry: str | None = None
    """Names the value that a run enters with: of `entering` and `each`; of `carried` and `behind` for iteration 0."""
    constant: int | None = None
    """Stands for an entering value: the index of an unrolled loop."""
    sliced: bool = False
    """The entering value is a sequence: `each` reads a slice of it, `carried` begins with its first one."""
    channel: int = -1
    """Of `channel` and `behind`: its place among the channels that are read."""
    part: int | None = None
    """Of `internal`: the slice along the value's first axis that is read; None: all of it."""
    places: tuple[Place, ...] = ()
    """Of `stack`: the outputs that give its slices."""

    @property
    def enters(self) -> bool:
        """Whether it reads a value that the loop is entered with."""
        return self.entry is not None or self.constant is not None

    @property
    def begins(self) -> bool:
        """Whether it has a value in iteration 0."""
        return self.kind not in ("carried", "behind") or self.enters or self.first is not None

    def given(self, values: Mapping[str, Any]) -> Any:
        """Of these entering values, its own; None where there is none."""
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


@dataclass(frozen=True, slots=True)
class LoopUseSpec:
    """One use of a device loop."""

    node: str
    name: str
    """As that of `Call`."""
    sources: Mapping[str, LoopSource]
    """Input port -> its source; a port that never has a value is not in it."""
    states: Mapping[str, str]
    """Slot -> state, by its name in the spec."""
    varying: tuple[str, ...] = ()
    """Numeric parameters that change with the loop's index."""
    inner: tuple[int, ...] = ()
    """Its indices in the loops inside, outermost first."""


class ChannelPort(NamedTuple):
    """A port that a channel feeds, or whose values go out by one."""

    use: int
    port: str
    channel: Channel


class LoopOutput(NamedTuple):
    key: str
    """Names it in `Items.values` and in what the loop gives at its end."""
    use: int
    port: str
    kind: Literal["each", "last", "collect"]
    """`each`: leaves while the loop runs, in `Items`; `last`: the value of the last iteration, missing where that gave
    none; `collect`: those of all iterations, as in `Items`."""


class SpecKey:
    """Compares specs. It is hashed once, as every entry of a run looks it up."""

    __slots__ = ("_hash", "_parts")

    def __init__(self, parts: tuple[object, ...]) -> None:
        self._parts, self._hash = parts, hash(parts)

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        return self is other or (isinstance(other, SpecKey) and self._parts == other._parts)


@dataclass(frozen=True, eq=False)
class LoopSpec:
    """What is the same for all runs that enter a loop with equal sizes."""

    walk: str
    use: int
    """Names the loop in its Walk: the index of its first use there."""
    loop: str
    uses: tuple[LoopUseSpec, ...]
    """In the order of the calls of an iteration."""
    until: Place | None
    """The output that ends the loop when it is true."""
    outputs: tuple[LoopOutput, ...]
    reads: tuple[ChannelPort, ...] = ()
    """Fed by other ranks' parts; the source of each has its place here."""
    sends: tuple[ChannelPort, ...] = ()
    """Whose values go to other ranks' parts."""
    usual: tuple[int, ...] = ()
    """Counts of iterations that entries are likeliest to have."""
    leads: bool = True
    """Of a loop with parts on several ranks: the others' parts launch what this one launches, in its order."""

    @cached_property
    def states(self) -> tuple[str, ...]:
        """Those of its uses."""
        return tuple(dict.fromkeys(state for use in self.uses for state in use.states.values()))

    @cached_property
    def key(self) -> SpecKey:
        """Loops share it that do the same work on the device, whatever their names: views of one model, other Walks."""
        return SpecKey(
            (
                tuple(
                    (
                        tuple((port, source.key) for port, source in use.sources.items()),
                        tuple(use.states.items()),
                        use.varying,
                        use.inner,
                    )
                    for use in self.uses
                ),
                self.until,
                self.outputs,
                tuple((send.use, send.port) for send in self.sends),
                self.leads,
            )
        )


def state_name(index: int) -> str:
    """Of a state in a spec, by the order in which its uses name them: views of one loop have equal ones."""
    return f"state {index}"


# ── what a run adds ─────────────────────────────────────────────────────────────────────────────


class LoopUse(NamedTuple):
    """What an entry gives to one use."""

    params: Mapping[str, Scalar]
    varying: Mapping[str, tuple[Scalar, ...]]
    """Parameters that change with the loop's index: a value for every iteration; not in `params`."""
    seed: int
    active: Mask | None = None
    """Whether it is called, iteration by iteration; None: in all. What it gives is absent where it isn't."""


class Anew(NamedTuple):
    """How a state begins every iteration."""

    source: StateKey | None
    """It is a copy of this one, which the loop doesn't change; None: it is empty."""
    width: int = 1
    """Sequences of it."""


@dataclass(slots=True)
class LoopCall:
    """A loop that a run enters, and that the engine runs by itself from its first iteration to its last.

    It ends after `times` iterations, or after the one whose `until` is true.
    """

    spec: LoopSpec
    run: str
    step: int
    iteration: tuple[int, ...]
    """Indices of the loops around it."""
    times: int
    """1 or more."""
    uses: tuple[LoopUse, ...]
    """Of each use of the spec."""
    values: Mapping[str, Any]
    """Entering values, by the `entry` of their sources."""
    states: Mapping[str, StateKey]
    """Those of the spec, by their names there."""
    comes: tuple[Mask | None, ...] = ()
    """Of each channel of the spec's `reads`: the iterations that read a value of it (of one that is `behind`: would);
    None: all."""
    goes: tuple[Mask | None, ...] = ()
    """Of each of its `sends`: whether an iteration's value goes there; None: that of all. Where it is read, it goes;
    more may."""
    grain: int = 1
    """`Items` are wanted where `offset` and the iterations so far add up to a multiple of it, when the iterations reach
    `allowed`, and at the end; what has come of several at once is one of them. 0: when it suits."""
    offset: int = 0
    allowed: int | None = None
    """Iterations that may be launched, counted from the loop's start, until a greater number is told; None: all."""
    wanted: Mapping[str, Mask] = field(default_factory=dict[str, Mask])
    """Key of an `each` output -> whether an iteration's value is handed out; all are of one that is not in it."""
    anew: Mapping[StateKey, Anew] = field(default_factory=dict[StateKey, Anew])
    """States that forget at the end of an iteration what it has appended."""
    widths: Mapping[StateKey, int] = field(default_factory=dict[StateKey, int])
    """Of other states that may have several sequences: how many there are of one that holds nothing yet."""
    priority: int = 0
    ready_at: float = 0.0

    @property
    def walk(self) -> str:
        return self.spec.walk

    @property
    def use(self) -> int:
        """With `run`, `step` and `iteration` it names the entry."""
        return self.spec.use

    @property
    def loop(self) -> str:
        return self.spec.loop

    @property
    def used(self) -> list[Channel]:
        """Channels that something comes by, in the order of `reads`; both ends know which these are."""
        pairs = zip(self.spec.reads, self.comes, strict=True)
        return [read.channel for read, comes in pairs if comes is None or any(comes)]

    @property
    def sent(self) -> list[ChannelPort]:
        """Channels that something goes out by."""
        pairs = zip(self.spec.sends, self.goes, strict=True)
        return [send for send, goes in pairs if goes is None or any(goes)]

    @property
    def spans(self) -> bool:
        """Whether its launches wait on the device for parts on other ranks."""
        return bool(self.sent or self.used)

    @property
    def peers(self) -> tuple[Rank, ...]:
        """Ranks of the parts that this one hands values to, or takes them from."""
        return tuple(sorted({send.channel.rank for send in self.sent} | {channel.rank for channel in self.used}))


class Items(NamedTuple):
    """What iterations `first` to `first + count` of a loop hand out, in order and without gaps."""

    call: LoopCall
    first: int
    count: int
    values: Mapping[str, Tensor | Sequence[Any]]
    """Key of an `each` output -> tensor `[count, *shape]`, or `count` values, None for an iteration without one."""
    stopped: bool = False
    """The last of these iterations raised `until`."""
