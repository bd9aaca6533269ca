"""Chooses a run's replicas: the alternative of the plan in which it goes.

A run goes where the longest beginning of its inputs has been read before, so that it finds pages; of equal ones, where
least is left to do. Where much more is left to do than elsewhere it doesn't go. Sessions stay where they began.
"""

from collections.abc import Callable, Mapping, Sequence
from itertools import chain

from walkgraph.conductor.itinerary_cache import CachedItinerary, ItineraryCache
from walkgraph.conductor.replicas.beginnings import Beginning, Beginnings, beginnings_of
from walkgraph.conductor.runs.page_budget import Demand, PageBudget
from walkgraph.conductor.runs.records import RunRecord
from walkgraph.conductor.runs.requests import Request, resolve
from walkgraph.conductor.runs.sessions import Sessions
from walkgraph.ids import Rank

BUSIER = 2
"""A replica that has read a run's beginning doesn't get the run if it has more than this many times the work of the
least busy one, and the run's own."""


class ReplicaChoice:
    def __init__(
        self, itineraries: ItineraryCache, pages: PageBudget, sessions: Sessions, ready: Callable[[Rank], bool]
    ) -> None:
        self._itineraries, self._pages, self._sessions, self._ready = itineraries, pages, sessions, ready
        self._alternatives = tuple(one.index for one in itineraries.plan.alternatives)
        self._replicated = itineraries.plan.replicated
        self._replicas_of: dict[tuple[Rank, ...], Sequence[Rank]] = {}
        """Those among the ranks of an itinerary. There are no more of them than ways through the plan."""
        self._beginnings = Beginnings()

    def chosen(self, run: RunRecord, work: Mapping[Rank, int]) -> Request | None:
        """The request in the alternative where a run goes if it starts now; None if it can start in none, because ranks
        are lost or load. `work`: tokens that admitted runs may yet keep, by rank."""
        kept = self._sessions.alternative(run.session) if run.session is not None else None
        allowed = self._alternatives if kept is None else (kept,)
        places = {index: found for index in allowed if self._can_take(run, found := self._in(run, index))}
        if not places:
            return None
        best = next(iter(places)) if len(places) == 1 else self._best(run, places, work)
        if best == run.request.alternative:
            return run.request
        return resolve(self._itineraries, run.request.asked, best)

    def begins(self, run: RunRecord) -> None:
        """Notes that a run begins to read."""
        for rank in self._replicas(run.request.itinerary.ranks):
            if self._pages.pools(rank):
                self._beginnings.remember(rank, self._of(run))

    def lost(self, rank: Rank) -> None:
        self._beginnings.forget(rank)

    def has_another(self, run: RunRecord, lost: Rank) -> bool:
        """True if a run that loses a rank may go elsewhere: no rank that has held it takes part there."""
        others = (self._in(run, index) for index in self._alternatives if index != run.request.alternative)
        held = run.holding | run.left | {lost}
        return any(held.isdisjoint(one.expanded.itinerary.ranks) and self._can_take(run, one) for one in others)

    # ── inside ──

    def _in(self, run: RunRecord, index: int) -> CachedItinerary:
        """The run's itinerary in an alternative."""
        return self._itineraries.of(run.request.asked, index)

    def _can_take(self, run: RunRecord, found: CachedItinerary) -> bool:
        ranks = found.expanded.itinerary.ranks
        return run.left.isdisjoint(ranks) and all(map(self._ready, ranks))

    def _best(self, run: RunRecord, places: Mapping[int, CachedItinerary], work: Mapping[Rank, int]) -> int:
        """The alternative that a run likes best of those that have its pages free, or will have."""
        liked = self._by_liking(run, places, work)
        needs = {index: self._needed(run, places[index]) for index in liked[:1]}
        if self._pages.fits(needs[liked[0]]):
            return liked[0]
        needs |= {index: self._needed(run, places[index]) for index in liked[1:]}
        fitting = (index for index in liked if self._pages.fits(needs[index]))
        waiting = (index for index in liked if self._pages.never_fits(needs[index]) is None)
        return next(chain(fitting, waiting, liked))

    def _by_liking(
        self, run: RunRecord, places: Mapping[int, CachedItinerary], work: Mapping[Rank, int]
    ) -> Sequence[int]:
        """Alternatives, the best one first, whether the run has room there or not."""
        replicas = {index: self._replicas(found.expanded.itinerary.ranks) for index, found in places.items()}
        left = {index: sum(work.get(rank, 0) for rank in ranks) for index, ranks in replicas.items()}
        most = BUSIER * min(left.values()) + sum(run.request.work.values())
        beginnings = self._of(run)

        def liking(index: int) -> tuple[bool, int, int, int, int]:
            """The better, the larger."""
            found = sum(self._beginnings.known(rank, beginnings) for rank in replicas[index])
            # What is new goes where less has been read, so that the pages of all replicas are used.
            read = sum(self._beginnings.count(rank) for rank in replicas[index])
            return left[index] <= most, found, -left[index], -read, -index

        return sorted(places, key=liking, reverse=True)

    def _needed(self, run: RunRecord, found: CachedItinerary) -> Demand:
        own, lasting = self._pages.demand(found.tokens, run.session is not None)
        return own + lasting

    def _replicas(self, ranks: tuple[Rank, ...]) -> Sequence[Rank]:
        found = self._replicas_of.get(ranks)
        if found is None:
            found = self._replicas_of[ranks] = tuple(rank for rank in ranks if rank in self._replicated)
        return found

    def _of(self, run: RunRecord) -> Sequence[Beginning]:
        if run.beginnings is None:
            run.beginnings = beginnings_of(run.submit)
        return run.beginnings
