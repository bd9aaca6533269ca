"""The parts of a Walk that belong to each of its uses, gathered in one pass: a body may have thousands of uses."""

from collections import defaultdict

from walkgraph.placement.tables import ChoicePlan, EdgePlan, LoopPlan, Plan, UsePlan, WalkPlan

Streams = frozenset[int] | None
"""The streams that a value reaches, if all that follows from it goes there; None if anything else needs it."""


class UseEnds:
    """Edges, later uses, choices and maps of a Walk by use. A use that has none is not in the mapping."""

    def __init__(self, plan: Plan, walk: WalkPlan) -> None:
        self.entering: defaultdict[int, list[EdgePlan]] = defaultdict(list)
        self.leaving: defaultdict[int, list[EdgePlan]] = defaultdict(list)
        self.followers: defaultdict[int, list[UsePlan]] = defaultdict(list)
        """Uses of the same rank that wait for it."""
        self.decides: dict[int, ChoicePlan] = {}
        """The choice that it makes."""
        self.counts: dict[int, LoopPlan] = {}
        """The map whose items it counts."""
        self.plays: dict[int, EdgePlan] = {}
        """The edge from the first timed stream of which it is the first use."""
        for edge in walk.edges:
            if edge.target.kind == "use":
                self.entering[edge.target.use].append(edge)
            if edge.source.kind == "use":
                self.leaving[edge.source.use].append(edge)
        timed = [e for e in walk.edges if e.source.kind == "stream" and plan.streams[e.source.index].seconds]
        # Of several edges of a stream to its first use, the last in the Walk stands for all.
        firsts = {e.source.index: e for e in sorted(timed, key=lambda e: -e.target.use)}
        for edge in firsts.values():
            self.plays.setdefault(edge.target.use, edge)
        for later in walk.uses:
            for earlier in later.before:
                if walk.uses[earlier].rank == later.rank:
                    self.followers[earlier].append(later)
        for choice in walk.choices:
            self.decides.setdefault(choice.use, choice)
        for loop in walk.loops:
            if loop.width:
                self.counts.setdefault(loop.head, loop)
        self._plan, self._walk = plan, walk
        self._behind: dict[int, Streams] = {}
        """Use -> the streams that all it makes reaches. Edges that aren't carried lead to later uses."""
        for use in reversed(walk.uses):
            self._behind[use.index] = self._reached(use)

    def reached(self, edge: EdgePlan) -> Streams:
        """The streams that an edge's value reaches: itself, or in what a call makes of it that can do without."""
        if edge.target.kind == "stream":
            return frozenset({edge.target.index})
        if edge.target.kind != "use" or edge.carried:
            return None
        use = self._walk.uses[edge.target.use]
        if use.op != "call" or edge.target.port in self._plan.nodes[use.node].required:
            return None
        return self._behind.get(use.index)

    def _reached(self, use: UsePlan) -> Streams:
        if use.op != "call" or self._plan.nodes[use.node].states:
            return None
        if any(by == use.index for index in use.loops for by, _ in self._walk.loops[index].endings):
            return None
        if use.index in self.decides or use.index in self.counts:
            return None
        found = [self.reached(edge) for edge in self.leaving.get(use.index, ())]
        return frozenset[int]().union(*(one for one in found if one is not None)) if None not in found else None
