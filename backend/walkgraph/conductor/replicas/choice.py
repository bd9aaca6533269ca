"""Chooses a run's replicas: the alternative of the plan in which it goes.

A run goes where the longest beginning of its inputs has been read before, so that it finds pages; of equal ones, where
least is left to do. Where much more is left to do than elsewhere it doesn't go. Sessions stay where they began.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence

from walkgraph.conductor.itinerary_cache import ItineraryCache
from walkgraph.conductor.replicas.beginnings import Beginning, Beginnings, beginnings_of
from walkgraph.conductor.runs.page_budget import PageBudget
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
        self._beginnings = Beginnings()

    def chosen(self, run: RunRecord, runs: Iterable[RunRecord]) -> Request | None:
        """The request in the alternative where a run goes if it starts now; None if it can start in none, because ranks
        are lost or load. `runs`: all unfinished ones."""
        kept = self._sessions.alternative(run.session) if run.session is not None else None
        allowed = self._alternatives if kept is None else (kept,)
        requests = [request for index in allowed if self._can_take(run, request := self._in(run, index))]
        return requests[0] if len(requests) == 1 else self._best(run, requests, self._work(runs)) if requests else None

    def begins(self, run: RunRecord) -> None:
        """Notes that a run begins to read."""
        for rank in self._reading(run.request):
            self._beginnings.remember(rank, self._of(run))

    def lost(self, rank: Rank) -> None:
        self._beginnings.forget(rank)

    def has_another(self, run: RunRecord, lost: Rank) -> bool:
        """True if a run that loses a rank may go elsewhere: no rank that has held it takes part there."""
        others = (self._in(run, index) for index in self._alternatives if index != run.request.alternative)
        held = run.holding | run.left | {lost}
        return any(held.isdisjoint(one.itinerary.ranks) and self._can_take(run, one) for one in others)

    # ── inside ──

    def _in(self, run: RunRecord, index: int) -> Request:
        """The request in an alternative."""
        if index == run.request.alternative:
            return run.request
        found = run.elsewhere.get(index)
        if found is None:
            seed = int(run.request.params["seed"])
            found = resolve(self._itineraries.graph, self._itineraries, run.submit, seed, index)
            run.elsewhere[index] = found
        return found

    def _can_take(self, run: RunRecord, request: Request) -> bool:
        ranks = request.itinerary.ranks
        return run.left.isdisjoint(ranks) and all(map(self._ready, ranks))

    def _best(self, run: RunRecord, requests: Sequence[Request], work: Counter[Rank]) -> Request:
        left = {one.alternative: sum(work[rank] for rank in self._replicas(one)) for one in requests}
        most = BUSIER * min(left.values()) + sum(run.request.work.values())

        def standing(one: Request) -> tuple[bool, bool, bool, int, int, int, int]:
            """The better, the larger."""
            own, lasting = self._pages.demand(one.tokens, run.session is not None)
            needed, reading = own + lasting, self._reading(one)
            found = sum(self._beginnings.known(rank, self._of(run)) for rank in reading)
            return (
                self._pages.fits(needed),
                self._pages.never_fits(needed) is None,
                left[one.alternative] <= most,
                found,
                -left[one.alternative],
                # What is new goes where less has been read, so that the pages of all replicas are used.
                -sum(self._beginnings.count(rank) for rank in reading),
                -one.alternative,
            )

        return max(requests, key=standing)

    def _work(self, runs: Iterable[RunRecord]) -> Counter[Rank]:
        """Tokens that admitted runs may yet keep, by rank."""
        found = Counter[Rank]()
        for run in runs:
            if run.admitted:
                found.update(run.request.work)
        return found

    def _replicas(self, request: Request) -> Sequence[Rank]:
        return [rank for rank in request.itinerary.ranks if rank in self._replicated]

    def _reading(self, request: Request) -> Sequence[Rank]:
        """Replicas of nodes that keep pages."""
        return [rank for rank in self._replicas(request) if self._pages.pools(rank)]

    def _of(self, run: RunRecord) -> Sequence[Beginning]:
        if run.beginnings is None:
            run.beginnings = beginnings_of(run.submit)
        return run.beginnings
