"""The choices that a device loop makes: their values, branches and merges, by the loop's uses."""

from collections.abc import Callable, Iterator, Mapping

from walkgraph.engine.loops.spec import DeviceChoice, LoopMerge, Place
from walkgraph.placement.tables import LoopPlan, WalkPlan

MERGED = "@merge."
"""Prefix of the port of an output that is taken from branches."""
_FLAGS = {"true": 1, "false": 0}


class DeviceChoices:
    """The choices that a device loop makes, by the indices of its uses."""

    def __init__(self, walk: WalkPlan, loop: LoopPlan, place: Mapping[int, int]) -> None:
        """`place`: use -> its index in the loop."""
        self._choices = [walk.choices[index] for index in loop.choices]
        self.heads = {choice.use for choice in self._choices}
        """The uses `choose`."""
        self._by = {
            edge.target.use: (place[edge.source.use], edge.source.port)
            for edge in walk.edges
            if edge.target.kind == "use" and edge.target.use in self.heads and edge.source.use in place
        }
        self.branches = {
            place[use.index]: (choice.index, branch)
            for choice in self._choices
            for use in walk.uses
            for number, branch in use.cases
            if number == choice.index and use.index in place
        }
        """Use -> the choice and the branch that it is in."""
        self.merges: dict[str, dict[int, Place]] = {}
        """Merge -> branch -> the output that it takes."""
        for edge in walk.edges:
            source = place.get(edge.source.use, -1)
            if edge.merged and edge.source.kind == "use" and source in self.branches:
                self.merges.setdefault(edge.merged, {})[self.branches[source][1]] = (source, edge.source.port)

    def last(self, merge: str) -> int:
        """The last of the uses that a merge takes a value of."""
        return max(use for use, _ in self.merges[merge].values())

    def of(self, index: int, unrolled: Callable[[int], int]) -> DeviceChoice:
        """`unrolled`: the index of a use in an unrolled iteration."""
        choice = next(one for one in self._choices if one.index == index)
        use, port = self._by[choice.use]
        return DeviceChoice(
            (unrolled(use), port), tuple(_FLAGS[case] if case in _FLAGS else int(case) for case in choice.cases)
        )

    def branch(self, use: int, unrolled: Callable[[int], int]) -> tuple[DeviceChoice, int] | None:
        found = self.branches.get(use)
        return None if found is None else (self.of(found[0], unrolled), found[1])

    def lowered(self, unrolled: Callable[[int], int]) -> Iterator[LoopMerge]:
        for name, outputs in self.merges.items():
            choice = self.of(self.branches[self.last(name)][0], unrolled)
            places = tuple((unrolled(use), port) for _, (use, port) in sorted(outputs.items()))
            yield LoopMerge(MERGED + name, choice, places)
