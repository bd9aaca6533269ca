"""The body of a loop as the engine iterates it, and what it is made of iteration by iteration.

A body has *forms*: conditions leave uses out of some iterations, of two uses that would do the same one is called, and
not every value is wanted by someone. What is captured is one form of a body.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise
from typing import NamedTuple

from torch import Tensor

from walkgraph.abi.operator import Operator
from walkgraph.abi.step import Row, StepSpec
from walkgraph.engine.loops.spec import LoopSource, Place

SKIPPED = -1


@dataclass(frozen=True, kw_only=True)
class UseStep:
    node: str
    operator: Operator
    spec: StepSpec
    sources: Mapping[str, LoopSource]
    states: Mapping[str, str]
    """Slot -> state."""
    ints: tuple[str, ...]
    floats: tuple[str, ...]
    series: tuple[str, ...]
    """Parameters that change with the iteration."""
    inner: tuple[int, ...] = ()
    """Its indices in the loops inside, outermost first."""

    @cached_property
    def grows(self) -> set[str]:
        """Caches that it appends to."""
        return {self.states[slot] for slot in self.paged if self.spec.appends[slot]}

    @cached_property
    def paged(self) -> list[str]:
        """Slots of caches."""
        return [slot for slot in self.spec.appends if slot in self.states]


class Form(NamedTuple):
    """What iterations do that are alike."""

    runs: tuple[int, ...]
    """Of each use: itself where it is called, an earlier use whose outputs are its own, or `SKIPPED`."""
    told: tuple[Place, ...]
    """Outputs that are read on the host."""
    comes: tuple[int, ...] = ()
    """Channels by which something comes in the iteration itself."""
    sends: tuple[int, ...] = ()
    """Channels by which something goes out."""

    def calls(self, use: int) -> bool:
        return self.runs[use] == use

    def gives(self, place: Place) -> bool:
        return self.runs[place[0]] != SKIPPED


class Grown(NamedTuple):
    """What was appended to a cache."""

    tokens: int
    positions: int


class Forms:
    """Of every iteration of one loop."""

    def __init__(self, found: Sequence[Form]) -> None:
        """Of each iteration; one alone is that of all."""
        self._found = tuple(found) if len(set(found)) > 1 else found[:1]
        ends = [k + 1 for k, (one, two) in enumerate(pairwise(self._found)) if one != two]
        self._ends = [*ends, len(self._found)]

    def at(self, iteration: int) -> Form:
        return self._found[min(iteration, len(self._found) - 1)]

    def alike(self, iteration: int, most: int) -> int:
        """Iterations from this one on that have its form; `most` at most."""
        if len(self._found) == 1 or iteration >= len(self._found):
            return most
        end = next(end for end in self._ends if end > iteration)
        return most if end == len(self._found) else min(most, end - iteration)

    def kinds(self, first: int, end: int) -> dict[Form, int]:
        """Forms of iterations `first` to `end`, each with one of these."""
        if len(self._found) == 1:
            return {self._found[0]: first} if end > first else {}
        return {self.at(k): k for k in range(first, end)}

    def calls(self, use: int, first: int, end: int) -> int:
        """How often a use is called in iterations `first` to `end`."""
        if len(self._found) == 1:
            return (end - first) * self._found[0].calls(use)
        return sum(self.at(k).calls(use) for k in range(first, end))


@dataclass(frozen=True, kw_only=True)
class Body:
    uses: tuple[UseStep, ...]
    until: Place | None
    each: tuple[Place, ...]
    """Outputs that are read on the host, of some iterations at least."""
    last: tuple[Place, ...]
    """Outputs of which the last value is kept in the row."""
    steps: int
    """Iterations that a row's series and sequences have room for; 0 without any."""
    sends: tuple[Place, ...] = ()
    """Outputs that go out by channels."""
    widths: Mapping[str, int] = field(default_factory=dict[str, int])
    """Cache -> its sequences, where it has not one."""
    anew: frozenset[str] = frozenset()
    """States that begin every iteration as they were when the loop was entered."""

    @property
    def whole(self) -> Form:
        comes = tuple(source.channel for _, source in self.reads if source.kind == "channel")
        return Form(tuple(range(len(self.uses))), self.each, comes, tuple(range(len(self.reads), self.channels)))

    @cached_property
    def reads(self) -> list[tuple[Place, LoopSource]]:
        """What channels feed, in their order."""
        found = [((at, port), s) for at, use in enumerate(self.uses) for port, s in use.sources.items()]
        return sorted(((p, s) for p, s in found if s.channel >= 0), key=lambda one: one[1].channel)

    @cached_property
    def channels(self) -> int:
        return len(self.reads) + len(self.sends)

    def output(self, place: Place) -> Row:
        return self.uses[place[0]].spec.outputs[place[1]]

    def width(self, state: str) -> int:
        return self.widths.get(state, 1)

    def grown(self, form: Form) -> tuple[list[dict[str, Grown]], dict[str, Grown]]:
        """By state: what an iteration has appended before each use, and in all."""
        so_far: dict[str, Grown] = {}
        before: list[dict[str, Grown]] = []
        for index, use in enumerate(self.uses):
            before.append(dict(so_far))
            for slot in use.paged if form.calls(index) else ():
                tokens, state = use.spec.appends[slot], use.states[slot]
                had = so_far.get(state, Grown(0, 0))
                so_far[state] = Grown(had.tokens + tokens, had.positions + use.spec.advances.get(slot, tokens))
        return before, so_far

    def groups(self, form: Form) -> list[tuple[int, ...]]:
        """The uses that a form calls, in their order; those of one group are one batch of their operator."""
        groups: list[list[int]] = []
        for index, use in enumerate(self.uses):
            if not form.calls(index):
                continue
            needs = {form.runs[place[0]] for source in use.sources.values() for place in source.needs}
            states = set(use.states.values())
            needs |= {at for at in range(index) if form.calls(at) and self.uses[at].grows & states}
            fits = self._joins(groups, index, form)
            if fits is not None and not any(needs & set(later) for later in groups[fits:]):
                groups[fits].append(index)
            else:
                groups.append([index])
        return [tuple(group) for group in groups]

    def _joins(self, groups: Sequence[Sequence[int]], index: int, form: Form) -> int | None:
        """The group of uses like this one, which keep nothing."""
        use = self.uses[index]
        if not use.spec.together or use.spec.tensors or any(use.spec.appends.values()):
            return None
        if any(source.kind == "channel" for source in use.sources.values()):
            return None  # what it waits for may wait for a use between
        return next((at for at, group in enumerate(groups) if self._alike(self.uses[group[0]], use, form)), None)

    def _alike(self, one: UseStep, other: UseStep, form: Form) -> bool:
        if one.operator is not other.operator or one.spec.key != other.spec.key:
            return False
        names = (one.ints, one.floats, one.series) == (other.ints, other.floats, other.series)
        fed = fed_ports(one, form) == fed_ports(other, form)
        slots = one.paged == other.paged
        return (
            names and fed and slots and all(self.width(one.states[s]) == self.width(other.states[s]) for s in one.paged)
        )


def fed_ports(use: UseStep, form: Form) -> list[str]:
    """Input ports that have a value in iterations of a form."""

    def fed(source: LoopSource) -> bool:
        if source.kind == "channel":
            return source.channel in form.comes
        return all(form.gives(place) for place in source.now)

    return [port for port, source in use.sources.items() if fed(source)]


@dataclass(frozen=True, kw_only=True)
class Entry:
    """What a row begins with."""

    times: int
    first: int
    """The iteration that comes next: 0, but for a loop that goes on after it had left its row."""
    seeds: Sequence[int]
    """Of each use."""
    ints: Sequence[int]
    """In the order of the uses and their `ints`; floats and series likewise."""
    floats: Sequence[float]
    series: Sequence[Sequence[float]]
    cells: Mapping[Place, Tensor]
    """Entering values, by the use and port that read them; or all that `cells_of` gave."""
    paged: Mapping[str, tuple[Sequence[Sequence[int]], int, int]]
    """State -> the pages of its sequences, and what all of these have: their length, their position."""
    tensors: Mapping[str, Tensor | None]


class Columns(NamedTuple):
    """Where a use's parameters begin in the tables."""

    ints: int
    """Its seed, then those of its `ints`."""
    floats: int
    series: int


def columns_of(uses: Sequence[UseStep]) -> list[Columns]:
    found = [Columns(0, 0, 0)]
    for use in uses:
        at = found[-1]
        found.append(Columns(at.ints + 1 + len(use.ints), at.floats + len(use.floats), at.series + len(use.series)))
    return found


def with_seeds(uses: Sequence[UseStep], entry: Entry) -> list[int]:
    """The row's numbers: for each use its seed, then its parameters."""
    ints = iter(entry.ints)
    return [n for use, seed in zip(uses, entry.seeds, strict=True) for n in (seed, *(next(ints) for _ in use.ints))]


def same(one: UseStep, other: UseStep) -> bool:
    """Whether two uses would do the same, if inputs, numbers and states were the same: they keep nothing."""
    return (
        one.spec.pure
        and not one.grows
        and not one.spec.tensors
        and one.operator is other.operator
        and one.spec.key == other.spec.key
        and list(one.sources) == list(other.sources)
    )


Equal = Callable[[int, int], bool]
"""Whether what two uses of a loop are entered with is the same."""


class Asked(NamedTuple):
    """What an iteration is to do."""

    active: tuple[bool, ...]
    """Whether a use is called."""
    told: tuple[Place, ...]
    """Outputs that are wanted on the host."""
    comes: tuple[int, ...]
    sends: tuple[int, ...]


def form_of(body: Body, asked: Asked, equal: Equal) -> Form:
    runs: list[int] = []
    for index, use in enumerate(body.uses):
        mine = index if asked.active[index] else SKIPPED
        for earlier in range(index) if asked.active[index] and use.spec.pure else ():
            other = body.uses[earlier]
            alike = runs[earlier] == earlier and same(other, use) and _fed_alike(other, use, runs)
            if alike and _stand_alike(body, earlier, index, runs) and equal(earlier, index):
                mine = earlier
                break
        runs.append(mine)
    told = tuple(place for place in asked.told if runs[place[0]] != SKIPPED)
    reads = len(body.reads)
    sends = tuple(at for at in asked.sends if runs[body.sends[at - reads][0]] != SKIPPED)
    comes = tuple(
        source.channel for (use, _), source in body.reads if source.channel in asked.comes and runs[use] == use
    )
    return Form(tuple(runs), told, comes, sends)


def _stand_alike(body: Body, one: int, other: int, runs: Sequence[int]) -> bool:
    """Whether the caches of two uses, which the loop was entered with alike, are still alike when it comes to them."""
    first, second = body.uses[one], body.uses[other]
    between = [body.uses[at].grows for at in range(one, other) if runs[at] == at]
    for slot in first.paged:
        mine, its = first.states[slot], second.states[slot]
        if mine == its and any(mine in grows for grows in between):
            return False
        if mine != its and any({mine, its} & use.grows for use in body.uses):
            return False
    return True


def _fed_alike(one: UseStep, other: UseStep, runs: Sequence[int]) -> bool:
    """Entering values are the caller's to compare."""

    def read(source: LoopSource | None) -> object:
        if source is None or source.kind in ("entering", "each"):
            return source and source.kind
        now = [(runs[use], port) for use, port in source.now]
        carried = source.place if source.kind == "carried" else None
        return source.kind, now, source.part, carried, source.channel, read(source.first)

    return all(read(source) == read(other.sources[port]) for port, source in one.sources.items())
