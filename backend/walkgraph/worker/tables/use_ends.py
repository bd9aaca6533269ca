"""The parts of a Walk that belong to each of its uses, gathered in one pass: a body may have thousands of uses."""

from collections import defaultdict

from walkgraph.placement.tables import ChoicePlan, EdgePlan, LoopPlan, UsePlan, WalkPlan


class UseEnds:
    """Edges, later uses, choices and maps of a Walk by use. A use that has none is not in the mapping."""

    def __init__(self, walk: WalkPlan) -> None:
        self.entering: defaultdict[int, list[EdgePlan]] = defaultdict(list)
        self.leaving: defaultdict[int, list[EdgePlan]] = defaultdict(list)
        self.followers: defaultdict[int, list[UsePlan]] = defaultdict(list)
        """Uses of the same rank that wait for it."""
        self.decides: dict[int, ChoicePlan] = {}
        """The choice that it makes."""
        self.counts: dict[int, LoopPlan] = {}
        """The map whose items it counts."""
        for edge in walk.edges:
            if edge.target.kind == "use":
                self.entering[edge.target.use].append(edge)
            if edge.source.kind == "use":
                self.leaving[edge.source.use].append(edge)
        for later in walk.uses:
            for earlier in later.before:
                if walk.uses[earlier].rank == later.rank:
                    self.followers[earlier].append(later)
        for choice in walk.choices:
            self.decides.setdefault(choice.use, choice)
        for loop in walk.loops:
            if loop.width:
                self.counts.setdefault(loop.head, loop)
