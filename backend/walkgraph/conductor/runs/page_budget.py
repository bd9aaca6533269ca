"""The page budget: cache pages promised to admitted runs, against those that each rank has.

A run is admitted only if its worst case fits, so that none fails midway for lack of memory.
"""

from collections import Counter

from walkgraph.ids import Rank
from walkgraph.placement.capacity.demand import PageDemand, whole_pages
from walkgraph.placement.tables import Plan
from walkgraph.wire.messages import PoolSize

Pool = tuple[Rank, int]
Demand = Counter[tuple[Rank, int]]
"""Pages by pool."""


class PageBudget:
    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._pools: dict[Rank, tuple[PoolSize, ...]] = {}
        self.promised = Demand()

    def set_pools(self, rank: Rank, pools: tuple[PoolSize, ...]) -> None:
        """Sets a rank's pools, as its worker reports them when it is ready."""
        self._pools[rank] = pools

    def pools(self, rank: Rank) -> tuple[PoolSize, ...]:
        return self._pools.get(rank, ())

    def demand(self, most: PageDemand, session: bool) -> tuple[Demand, Demand]:
        """(own, session's) pages for the most that a run keeps. Of each choice the larger branch counts, in each
        pool."""
        own, lasting = Demand(), Demand()
        for rank, states in most.always.items():
            for index, kept in states.items():
                state = self._plan.states[index]
                found = self._pool(rank, state.name)
                if found is None or not kept.tokens:
                    continue
                pages = whole_pages(kept.tokens, kept.sequences, self._pools[rank][found].page_tokens)
                (lasting if session and state.scope == "session" else own)[rank, found] += pages
        for branches in most.choices:
            demands = [self.demand(branch, session) for branch in branches]
            for total, part in ((own, 0), (lasting, 1)):
                larger = Demand()
                for demand in demands:
                    larger |= demand[part]
                total.update(larger)
        return own, lasting

    def fits(self, demand: Demand) -> bool:
        return all(self.promised[pool] + pages <= self.size(pool) for pool, pages in demand.items())

    def lacking(self, demand: Demand, coming: Demand) -> Demand:
        """Pages that are still missing after `coming` are freed."""
        missing = {pool: self.promised[pool] - coming[pool] + pages - self.size(pool) for pool, pages in demand.items()}
        return Demand({pool: pages for pool, pages in missing.items() if pages > 0})

    def never_fits(self, demand: Demand) -> Pool | None:
        """A pool that would be too small even if nothing else ran; None if all suffice."""
        return next((pool for pool, pages in demand.items() if pages > self.size(pool)), None)

    def size(self, pool: Pool) -> int:
        rank, index = pool
        return self._pools[rank][index].pages

    def bytes(self, demand: Demand) -> int:
        return sum(pages * self._pools[rank][index].page_bytes for (rank, index), pages in demand.items())

    def take(self, demand: Demand) -> None:
        self.promised.update(demand)

    def give(self, demand: Demand) -> None:
        self.promised.subtract(demand)

    def by_rank(self) -> tuple[dict[Rank, int], dict[Rank, int]]:
        """(promised, total) pages."""
        promised: dict[Rank, int] = {}
        for (rank, _), pages in self.promised.items():
            promised[rank] = promised.get(rank, 0) + pages
        return promised, {rank: sum(pool.pages for pool in pools) for rank, pools in self._pools.items()}

    def _pool(self, rank: Rank, state: str) -> int | None:
        return next((i for i, pool in enumerate(self._pools.get(rank, ())) if state in pool.states), None)
