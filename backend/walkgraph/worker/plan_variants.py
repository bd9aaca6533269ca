"""Variants of the plan that runs may follow: loops on the device as planned, all loops stepped, or loops on the device
but not unrolled.

All ranks of a run choose the same variant, because they read the same plan, itinerary and parameters. Chains of small
nodes are one call only in the first one, and only for runs that nobody watches; that is each rank's own affair.
"""

from collections.abc import Callable, Mapping

from walkgraph.graph.language.expressions import ExpressionError
from walkgraph.ids import Rank
from walkgraph.placement.compiler.loop_decisions import apart, stepped
from walkgraph.placement.tables import Plan, WalkPlan
from walkgraph.worker.events import Started
from walkgraph.worker.loops.lowering import unrolls
from walkgraph.worker.tables.rank_tables import fused_tables, walk_tables
from walkgraph.worker.tables.walk_tables import Evaluator, Params, WalkTable, evaluator

Walked = tuple[Plan, tuple[WalkTable, ...]]


class _Nest:
    """A device loop with loops inside."""

    def __init__(self, walk: WalkPlan, root: int) -> None:
        loops = [walk.uses[use].loops for use in walk.loops[root].core]
        self._inside = [around[around.index(root) + 1 :] for around in loops]
        self._times: Mapping[int, Evaluator] = {
            loop: evaluator(walk.loops[loop].times) for inner in self._inside for loop in inner
        }

    def unrolls(self, params: Params) -> bool:
        try:
            return unrolls(self._inside, {loop: int(times(params, {})) for loop, times in self._times.items()})
        except ExpressionError:  # reported when the run gets to the loop
            return False


class Variants:
    def __init__(self, plan: Plan, rank: Rank, *, fused: bool = False) -> None:
        """`fused`: chains of small nodes may be one call."""
        self.plan, self._rank = plan, rank
        self.tables = walk_tables(plan, rank)
        self._fused = fused_tables(plan, rank, self.tables) if fused else self.tables
        self._others: dict[Callable[[Plan], Plan], Walked] = {}
        """The other variants, made when a run first needs one."""
        self._nests = [
            [_Nest(walk, root) for root in sorted({loop.within for loop in walk.loops} - {-1})] for walk in plan.walks
        ]
        """Nested device loops, for each Walk."""

    def of(self, event: Started, *, watched: bool = False) -> Walked:
        """The variant for a run that begins. `watched`: there are taps or breakpoints."""
        if event.stepped:
            return self._other(stepped)
        nests = (nest for walk in event.itinerary.walks for nest in self._nests[walk])
        if not all(nest.unrolls(event.params) for nest in nests):
            return self._other(apart)
        return self.plan, self.tables if watched else self._fused

    def _other(self, change: Callable[[Plan], Plan]) -> Walked:
        if change not in self._others:
            plan = change(self.plan)
            self._others[change] = plan, walk_tables(plan, self._rank)
        return self._others[change]
