"""Sessions: the run that is active in each, the pages that its states hold between runs, and its expiry."""

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from walkgraph.conductor.runs.page_budget import Demand
from walkgraph.conductor.runs.requests import Request
from walkgraph.graph.document import SessionPolicy
from walkgraph.ids import Rank, RunId
from walkgraph.wire.questions import SessionState

KEY = "session:"
"""Prefix of a session's name where it stands for a run as the owner of states."""


@dataclass(slots=True)
class _Session:
    policy: SessionPolicy
    alternative: int
    """The alternative of the plan whose ranks have its states."""
    busy: RunId | None = None
    held: Demand = field(default_factory=Demand)
    ranks: set[Rank] = field(default_factory=set[Rank])
    """Ranks that may hold its states."""
    used: float = 0.0
    releasing: set[Rank] = field(default_factory=set[Rank])
    """Ranks that were asked to free its states and have not yet; it is gone once this is empty."""
    ended: bool = False
    """Ended by its client: its states are freed once no run is active."""

    @property
    def end(self) -> float:
        """Time at which its states are freed if no run is active."""
        return self.used if self.ended else self.used + self.policy.ttl_seconds


class Sessions:
    def __init__(self) -> None:
        self._sessions: dict[str, _Session] = {}

    def free(self, name: str) -> bool:
        """True if a run of the session may start."""
        session = self._sessions.get(name)
        return session is None or (session.busy is None and not session.ended and not session.releasing)

    def missing(self, name: str, demand: Demand) -> Demand:
        """Pages that the session needs beyond those it holds."""
        held = self.held(name)
        return Demand({pool: pages - held[pool] for pool, pages in demand.items() if pages > held[pool]})

    def held(self, name: str) -> Demand:
        """Pages that the session holds between its runs."""
        session = self._sessions.get(name)
        return Demand(session.held) if session else Demand()

    def alternative(self, name: str) -> int | None:
        """The alternative of the plan in which a session's runs go; None if there is no session yet."""
        session = self._sessions.get(name)
        return session.alternative if session else None

    def enter(self, name: str, run: RunId, request: Request, more: Demand) -> None:
        """Makes a run the active one of its session."""
        if request.session is None:
            return
        session = self._sessions.setdefault(name, _Session(request.session, request.alternative))
        session.policy, session.busy = request.session, run
        session.held.update(more)
        session.ranks |= set(request.itinerary.ranks)

    def leave(self, name: str, run: RunId, now: float) -> None:
        session = self._sessions.get(name)
        if session is not None and session.busy == run:
            session.busy, session.used = None, now

    def end(self, name: str) -> bool:
        """Ends a session once no run of it is active. Returns False if there is none."""
        session = self._sessions.get(name)
        if session is not None:
            session.ended = True
        return session is not None

    def expired(self, now: float) -> Iterator[tuple[str, set[Rank]]]:
        """Sessions that were ended, or idle for too long, with the ranks that must free their states."""
        for name, session in self._sessions.items():
            if session.busy is None and not session.releasing and now >= session.end:
                session.releasing = set(session.ranks)
                yield name, set(session.ranks)

    def released(self, name: str, rank: Rank) -> Demand | None:
        """Handles a rank's report that it freed the session's states. After the last one, returns the session's
        pages."""
        session = self._sessions.get(name)
        if session is None or rank not in session.releasing:
            return None
        session.releasing.discard(rank)
        return None if session.releasing else self._sessions.pop(name).held

    def rank_lost(self, rank: Rank) -> Iterator[tuple[str, set[Rank]]]:
        """Sessions that lost states with the rank, with the ranks that must free theirs, which are useless without
        them."""
        for name, session in self._sessions.items():
            if rank in session.ranks:
                session.ranks.discard(rank)
                session.releasing.discard(rank)
                session.releasing |= session.ranks
                yield name, set(session.releasing)

    def take_gone(self) -> list[Demand]:
        """Removes sessions that no rank holds any more; returns their pages."""
        gone = [n for n, s in self._sessions.items() if not s.ranks and not s.releasing and s.busy is None]
        return [self._sessions.pop(name).held for name in gone]

    def due(self) -> float:
        ends = (s.end for s in self._sessions.values() if s.busy is None and not s.releasing)
        return min(ends, default=float("inf"))

    def states(self, waiting: Counter[str], kept: Callable[[Demand], int], now: float) -> tuple[SessionState, ...]:
        """The sessions as the service shows them. `waiting`: queued runs by session; `kept`: bytes of pages."""
        return tuple(
            SessionState(
                name=name,
                run=session.busy,
                waiting=waiting[name],
                bytes=kept(session.held),
                idle=now - session.used if session.busy is None else 0.0,
                ttl=session.policy.ttl_seconds,
                ending=session.ended or bool(session.releasing),
            )
            for name, session in self._sessions.items()
        )

    def __len__(self) -> int:
        return len(self._sessions)
