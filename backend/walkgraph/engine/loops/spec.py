"""A loop as the engine is handed it whole: its body, what feeds it, and what it hands out.

Uses are told by their place in the body. Loops inside are unrolled: the body has a use of theirs once for each of their
iterations, in the order of the calls. It imports no torch: what schedules loops runs without it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from walkgraph.abi.calls import Scalar, StateKey
from walkgraph.ids import Rank

if TYPE_CHECKING:
    from torch import Tensor


class Channel(NamedTuple):
    """The way of a use's values to another rank's part of a loop, or back."""

    number: int
    """Names it on both ranks."""
    rank: Rank
    """The other one."""


@dataclass(frozen=True, slots=True)
class LoopInput:
    """Where a port of a loop's use finds its value, iteration by iteration. Uses are told by place in the body."""

    port: str
    source: Literal["absent", "value", "each", "use", "stack", "index", "channel"]
    """`value`: the same in all iterations; `each`: slice i along the first axis at iteration i, absent past its end;
    `use`: the output of an earlier use in this iteration, or a `part` of it; `stack`: those of several, along a new
    first axis; `index`: the iteration's number; `channel`: what a use on another rank gives in this iteration."""
    value: Any = None
    """Of `value` and `each`."""
    use: int = -1
    output: str = ""
    """Of `use`: the port."""
    part: int | None = None
    """Of `use`: the slice of it along its first axis; None: the whole."""
    stacked: tuple[tuple[int, str], ...] = ()
    """Of `stack`: uses and ports."""
    carried: tuple[int, str] | None = None
    """Use and port whose value of the iteration before is taken from iteration 1 on, whatever `source` is."""
    channel: Channel | None = None
    """Of source `channel`. With `value` it is as `carried`, of a use on another rank."""
    comes: tuple[bool, ...] | None = None
    """Of a channel: the iterations that read a value of it, or, with `value`, would; None: all."""


@dataclass(frozen=True, slots=True)
class LoopUse:
    """One use of a loop's body, as `Call` has it."""

    node: str
    inputs: tuple[LoopInput, ...]
    params: Mapping[str, Scalar]
    varying: Mapping[str, tuple[Scalar, ...]]
    """Numeric parameters that change with the loop's index: a value for every iteration; not in `params`."""
    states: Mapping[str, StateKey]
    seed: int
    active: tuple[bool, ...] | None = None
    """Whether it is called, iteration by iteration; None: in all. What it gives is absent where it isn't."""
    name: str = ""
    """As that of `Call`."""
    inner: tuple[int, ...] = ()
    """Of a use of loops inside: their indices, outermost first."""


class Anew(NamedTuple):
    """How a state begins every iteration."""

    source: StateKey | None
    """It is a copy of this one, which the loop doesn't change; None: it is empty."""
    width: int = 1
    """Sequences of it."""


class LoopSend(NamedTuple):
    """Values of a use that go to another rank's part of the loop."""

    use: int
    port: str
    channel: Channel
    active: tuple[bool, ...] | None
    """Whether an iteration's value goes there; None: that of all. Where it is read, it goes; more may."""


class LoopOutput(NamedTuple):
    key: str
    """Names it in `Items.values` and in what the loop gives at its end."""
    use: int
    port: str
    kind: Literal["each", "last", "collect"]
    """`each`: leaves while the loop runs, in `Items`; `last`: the value of the last iteration, missing where that gave
    none; `collect`: those of all iterations, as in `Items`."""


@dataclass(slots=True)
class LoopCall:
    """A loop that the engine runs by itself, from its first iteration to its last.

    It ends after `times` iterations, or after the one whose `until` is true.
    """

    run: str
    walk: str
    step: int
    use: int
    """With `run`, `step` and `iteration` it names the loop: the index of its first use in the Walk."""
    loop: str
    iteration: tuple[int, ...]
    """Indices of the loops around it."""
    body: tuple[LoopUse, ...]
    """In the order of the calls of an iteration."""
    times: int
    """1 or more."""
    until: tuple[int, str] | None
    outputs: tuple[LoopOutput, ...]
    grain: int = 1
    """`Items` are wanted where `offset` and the iterations so far add up to a multiple of it, when the iterations reach
    `allowed`, and at the end; what has come of several at once is one of them. 0: when it suits."""
    offset: int = 0
    allowed: int | None = None
    """Iterations that may be launched, counted from the loop's start, until a greater number is told; None: all."""
    wanted: Mapping[str, tuple[bool, ...]] = field(default_factory=dict[str, tuple[bool, ...]])
    """Key of an `each` output -> whether an iteration's value is handed out; all are of one that is not in it."""
    sends: tuple[LoopSend, ...] = ()
    anew: Mapping[StateKey, Anew] = field(default_factory=dict[StateKey, Anew])
    """States that forget at the end of an iteration what it has appended."""
    widths: Mapping[StateKey, int] = field(default_factory=dict[StateKey, int])
    """Of other states that may have several sequences: how many there are of one that holds nothing yet."""
    usual: tuple[int, ...] = ()
    """Counts of iterations that loops like this one are likeliest to have."""
    leads: bool = True
    """Of a loop with parts on several ranks: the others' parts launch what this one launches, in its order."""
    priority: int = 0
    ready_at: float = 0.0

    @property
    def reads(self) -> list[tuple[int, LoopInput, Channel]]:
        """Ports that channels feed: use, input, channel."""
        return [(at, i, i.channel) for at, use in enumerate(self.body) for i in use.inputs if i.channel is not None]

    @property
    def used(self) -> list[Channel]:
        """Channels that something comes by, in the order of `reads`; both ends know which these are."""
        return [channel for _, port, channel in self.reads if port.comes is None or any(port.comes)]

    @property
    def sent(self) -> list[LoopSend]:
        """Channels that something goes out by."""
        return [send for send in self.sends if send.active is None or any(send.active)]

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
