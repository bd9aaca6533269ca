"""Loops inside a resident loop, unrolled: which instances of its uses an iteration has, and what these feed each other.

An *instance* is a use of the core at indices of the loops inside, `()` for one that is in none of these.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from math import prod
from typing import Any, NamedTuple

from walkgraph.engine.loops.spec import LoopInput, LoopOutput

MOST = 512
"""Instances in an iteration; a loop with more has its inner ones run by themselves."""


class Instance(NamedTuple):
    place: int
    """In the core."""
    inner: tuple[int, ...]


class Link(NamedTuple):
    """A use of the core that feeds a port of another one, or of its own."""

    place: int
    port: str
    common: int = 0
    """How many of the loops inside hold both ends."""
    collect: bool = False
    """Of those that it leaves: all values; otherwise the last."""
    each: bool = False
    """Slice by slice along the first loop that it enters."""


class Port(NamedTuple):
    """An input port of a use inside, and where its value comes from."""

    name: str
    entry: str | None = None
    """The folded use's port that feeds it from outside."""
    each: bool = False
    """What comes from outside is a sequence: slice i goes to iteration i."""
    index: int | None = None
    """The loop whose index it reads: 0 for the resident one, 1 for the first inside it."""
    source: Link | None = None
    """Within an iteration."""
    carried: tuple[Link, ...] = ()
    """From an iteration before, of the innermost loop first; the last may be of the resident loop's."""
    across: bool = False
    """Another rank's part of the loop feeds it."""


def instances(inside: Sequence[tuple[int, ...]], times: Mapping[int, int]) -> list[Instance]:
    """In the order of the calls. `inside`: of each use of the core, the loops inside that hold it."""
    return list(_block(inside, times, range(len(inside)), ()))


def _block(
    inside: Sequence[tuple[int, ...]], times: Mapping[int, int], places: Sequence[int], at: tuple[int, ...]
) -> Iterator[Instance]:
    """One iteration of what is around these places: uses, and loops with all of theirs."""
    begun: set[int] = set()
    for place in places:
        loops = inside[place]
        if len(loops) == len(at):
            yield Instance(place, at)
        elif (loop := loops[len(at)]) not in begun:
            begun.add(loop)
            mine = [other for other in places if inside[other][len(at) : len(at) + 1] == (loop,)]
            for index in range(times[loop]):
                yield from _block(inside, times, mine, (*at, index))


def unrolls(inside: Sequence[tuple[int, ...]], times: Mapping[int, int]) -> bool:
    """Whether each use has an instance, and they are not too many."""
    counts = [prod(times[loop] for loop in loops) for loops in inside]
    return min(times.values(), default=1) > 0 and sum(counts) <= MOST


class Unrolled:
    """The body of an iteration. Each use inside has one instance at least."""

    def __init__(self, inside: Sequence[tuple[int, ...]], times: Mapping[int, int]) -> None:
        self.order = instances(inside, times)
        self._at: dict[int, list[int]] = {}
        """Place in the core -> those of its instances in the body."""
        for at, one in enumerate(self.order):
            self._at.setdefault(one.place, []).append(at)

    def of(self, place: int) -> list[int]:
        """Places in the body of a use's instances."""
        return self._at[place]

    def last(self, place: int) -> int:
        return self._at[place][-1]

    def outputs(self, asked: Sequence[LoopOutput]) -> list[LoopOutput]:
        """Of what is asked of uses of the core; what several instances give to be collected has a key for each."""
        found: list[LoopOutput] = []
        for out in asked:
            places = self.of(out.use)
            if out.kind == "collect" and len(places) > 1:
                found += [out._replace(key=part_key(out.key, n), use=at) for n, at in enumerate(places)]
            else:
                found.append(out._replace(use=places[-1]))
        return found

    def input(self, port: Port, one: Instance, inputs: Mapping[str, Any], active: Sequence[bool]) -> LoopInput:
        """Of an instance. `active`: of those before it, whether any iteration calls them."""
        carried = self._carried(port, one)
        if carried is not None and carried.common:
            before = (*one.inner[: carried.common - 1], one.inner[carried.common - 1] - 1)
            return self._linked(port.name, carried, one, before, active)
        found = self._plain(port, one, inputs, active)
        if carried is not None:
            return replace(found, carried=(self.last(carried.place), carried.port))
        return found

    def _carried(self, port: Port, one: Instance) -> Link | None:
        return next((link for link in port.carried if not link.common or one.inner[link.common - 1] > 0), None)

    def _plain(self, port: Port, one: Instance, inputs: Mapping[str, Any], active: Sequence[bool]) -> LoopInput:
        if port.entry is not None and port.entry in inputs:
            return LoopInput(port.name, "each" if port.each else "value", inputs[port.entry])
        if port.source is not None:
            return self._linked(port.name, port.source, one, one.inner[: port.source.common], active)
        if port.index:
            return LoopInput(port.name, "value", one.inner[port.index - 1])
        return LoopInput(port.name, "absent" if port.index is None else "index")

    def _linked(
        self, name: str, link: Link, one: Instance, under: tuple[int, ...], active: Sequence[bool]
    ) -> LoopInput:
        """What the source gave under these indices."""
        places = [at for at in self.of(link.place) if self.order[at].inner[: len(under)] == under]
        if link.collect and len(self.order[places[-1]].inner) > len(under):
            there = tuple((at, link.port) for at in places if active[at])
            return LoopInput(name, "stack", stacked=there) if there else LoopInput(name, "absent")
        part = one.inner[link.common] if link.each and len(one.inner) > link.common else None
        return LoopInput(name, "use", use=places[-1], output=link.port, part=part)


def part_key(key: str, number: int) -> str:
    """Of an output that several instances give."""
    return f"{key} #{number}"
