"""Loops on their way through rows: those that wait for one, those that have one, those that may have none."""

from bisect import insort
from collections.abc import Callable, Iterator, Mapping, MutableMapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch
from torch import Tensor

from walkgraph.abi.calls import Outputs
from walkgraph.engine.device.clocks import Timing
from walkgraph.engine.loops.body import Form, Place
from walkgraph.engine.loops.entering import Entered
from walkgraph.engine.loops.spanning import Rides, key_of
from walkgraph.engine.loops.spec import LoopCall
from walkgraph.errors import ErrorInfo


class Waiting(NamedTuple):
    """A loop that has no row. The earliest `due` gets the next one."""

    due: float
    """Ready time, moved forward by a second for each level of priority."""
    number: int
    """Of arrival: breaks ties."""
    call: LoopCall
    rider: "Rider | None" = None
    """Of one that had a row before."""


@dataclass(slots=True, eq=False)
class Rider:
    """A loop in a row."""

    call: LoopCall
    row: int
    entered: Entered
    queued: float
    """Seconds until it had its first row."""
    place: Waiting
    """Where it waited, and will wait if it leaves its row."""
    launched: int = 0
    done: int = 0
    handed: int = 0
    """Iterations whose values were handed out."""
    over: bool = False
    leaving: bool = False
    """It leaves its row once nothing is under way for it."""
    cells: MutableMapping[Place, Tensor] | None = None
    """What its row held, while it has none."""
    pieces: list[tuple[Mapping[str, Tensor], int, int]] = field(default_factory=list[Any])
    """For each iteration that was not handed out: the values of a launch that has any, its iteration there, its row
    there."""
    busy: float = 0.0
    batch: int = 0
    waited: float = 0.0
    """Seconds for another row, after it left one."""
    since: float = 0.0
    """Its last launch was over, or it was allowed more after that."""
    linked: bool = True
    """False: it is not known yet where what it sends to other ranks goes."""
    rides: Rides | None = None
    """What it follows."""

    @property
    def wants(self) -> bool:
        """Whether another iteration may be launched. What a leader has launched must be, though the run is held."""
        leaving = self.leaving and self.rides is None
        return not self.over and not leaving and self.linked and self.reach > 0

    @property
    def ready(self) -> float:
        """Since when nothing but a row, and the launches of others, kept its next iteration waiting."""
        return max(self.since, self.call.ready_at)

    @property
    def form(self) -> Form:
        """Of the iteration that is launched next."""
        return self.entered.forms.at(self.launched)

    @property
    def reach(self) -> int:
        """Iterations that may be launched."""
        allowed = self.entered.times if self.call.allowed is None else self.call.allowed
        if self.rides is not None:
            allowed = min(allowed, self.rides.upto(key_of(self.call)))
        return min(allowed, self.entered.times) - self.launched

    def alike(self, most: int) -> int:
        """Of the next iterations, how many do the same; `most` at most."""
        return self.entered.forms.alike(self.launched, most)


class LoopDone(NamedTuple):
    call: LoopCall
    outputs: Outputs | None
    error: ErrorInfo | None
    """Exactly one of the two is None."""
    iterations: int
    stopped: bool
    """By its `until`."""
    busy: float
    """Seconds of its launches, shared with the other rows of each."""
    queued: float
    """Seconds that it waited for rows."""
    batch: int
    """Rows of its last launch."""
    began: float = 0.0
    """When it had its first row; 0 for one that had none."""


class Stepped(NamedTuple):
    """A launch that is over."""

    riders: Sequence[Rider]
    """The loops in it, as they are after it."""
    first: Sequence[int]
    """Of each, its first iteration in the launch."""
    ready: Sequence[float]
    """Of each, since when that could have been launched."""
    uses: tuple[int, ...]
    """That took part, by their places in the body."""
    iterations: int
    timing: Timing


def stepped(riders: Sequence[Rider], uses: tuple[int, ...], iterations: int, timing: Timing) -> Stepped:
    """Of a launch that is over, before its riders have gone on. Those that left them meanwhile are not in it."""
    riding = [rider for rider in riders if not rider.over]
    first, ready = [rider.done for rider in riding], [rider.ready for rider in riding]
    return Stepped(riding, first, ready, uses, iterations, timing)


class Queue:
    """Loops without a row, in the order in which they get one; those of held runs get none, but where they owe."""

    def __init__(self, owes: Callable[[LoopCall], bool] = lambda call: False) -> None:
        """`owes`: whether others wait for what it is to launch, though its run is held."""
        self._owes = owes
        self._waiting: list[Waiting] = []
        self._held: dict[str, list[Waiting]] = {}
        self._arrivals = 0

    def __len__(self) -> int:
        """Loops that may get a row."""
        return len(self._waiting)

    def add(self, call: LoopCall) -> None:
        self._arrivals += 1
        self.put(Waiting(call.ready_at - call.priority, self._arrivals, call))

    def put(self, one: Waiting) -> None:
        held = self._held.get(one.call.run)
        if held is None or self._owes(one.call):
            insort(self._waiting, one)
        else:
            held.append(one)

    def take(self) -> list[Waiting]:
        """All that may get a row: what doesn't is to be `put` back."""
        waiting, self._waiting = self._waiting, []
        return waiting

    def hold(self, run: str) -> None:
        self._held.setdefault(run, [])
        for one in self.take():
            self.put(one)

    def call_up(self) -> None:
        """Held ones that have come to owe may get a row."""
        for held in self._held.values():
            for one in [one for one in held if self._owes(one.call)]:
                held.remove(one)
                insort(self._waiting, one)

    def holds(self, run: str) -> bool:
        return run in self._held

    def release(self, run: str) -> None:
        for one in self._held.pop(run, ()):
            self.put(one)

    def cancel(self, run: str) -> None:
        self._held.pop(run, None)
        self._waiting = [one for one in self._waiting if one.call.run != run]

    def held(self, run: str) -> Iterator[Waiting]:
        yield from self._held.get(run, ())

    def calls(self) -> Iterator[LoopCall]:
        """Held or not."""
        for waiting in (self._waiting, *self._held.values()):
            for one in waiting:
                yield one.call


def to_leave(riders: list[Rider], short: list[Waiting]) -> list[Rider]:
    """Riders that make room for loops which find no row: for each that more are not leaving for already, the last of
    those that have a lower priority and would have come after it. So a loop of low priority is late, never starved."""
    here = [rider for rider in riders if not rider.leaving]
    lowest = min((rider.call.priority for rider in here), default=0)
    found: list[Rider] = []
    for one in [one for one in short if one.call.priority > lowest][len(riders) - len(here) :]:
        after = [r for r in here if r.call.priority < one.call.priority and r.place[:2] > one[:2]]
        if after:
            found.append(max(after, key=lambda rider: rider.place[:2]))
            here.remove(found[-1])
    return found


def row_of(pieces: Sequence[tuple[Mapping[str, Tensor], int, int]], key: str) -> Tensor | list[Tensor | None]:
    """The values of one output, None where an iteration gave none."""
    found = [given[key][k, place] if key in given else None for given, k, place in pieces]
    there = [one for one in found if one is not None]
    return torch.stack(there) if len(there) == len(found) else found
