"""Explain a run's duration: from its end back to its beginning, through whatever let each step begin.

A block could begin once everything it waits for was there: an earlier block on its rank, a value from another rank, or
the run's admission, whichever came last. The time in between belongs to the block: it waits, is queued, or is handed to
the device. The pieces of the path cover the run without gaps, so the shares add up to the run's seconds.

`summary` telemetry does not report single calls, so there is no path: the shares are then estimated from what was busy
or queued at each moment.
"""

import sys
from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from typing import Literal, TypeVar

import msgspec

from walkgraph.telemetry.places import Places
from walkgraph.telemetry.profile import Profile, profile
from walkgraph.telemetry.trace import FOLDED, Lane, Trace

Key = TypeVar("Key")
Kind = Literal["admission", "queue", "launch", "compute", "transfer", "wait"]
KINDS: tuple[Kind, ...] = ("admission", "queue", "launch", "compute", "transfer", "wait")
SLACK = 1000
"""Microseconds between a block's beginning and what let it begin that the host may account for. Beyond that, the reason
may be something that the plan doesn't join to the block, because what lies between was skipped."""
TRIES = 64
"""The most candidates of a lane that are examined."""

_DOING: dict[Kind, str] = {
    "queue": "waiting for a batch",
    "launch": "being handed to the device",
    "compute": "computing",
    "transfer": "on its way between ranks",
    "wait": "waiting for what comes before",
}


class Piece(msgspec.Struct, frozen=True, kw_only=True):
    """Part of the critical path; times in microseconds from the run's beginning."""

    kind: Kind
    lane: int
    """Index into the trace's lanes; -1 for none."""
    walk: str
    block: int | None
    """Row of the trace's blocks."""
    hop: int | None
    """Row of the trace's hops."""
    rank: int
    """-1 for none."""
    began: int
    ended: int


class Bottleneck(msgspec.Struct, frozen=True, kw_only=True):
    lane: str
    """For a transfer, the name of its edge."""
    rank: int
    seconds: float
    share: float
    kind: Kind
    loop: bool = False
    """The lane is a device loop."""


class Why(msgspec.Struct, frozen=True, kw_only=True):
    run: str
    seconds: float
    shares: dict[Kind, float]
    """Seconds by kind; they add up to the run's."""
    path: tuple[Piece, ...]
    """From the run's beginning to its end, without gaps; empty without single calls in the trace."""
    bottleneck: Bottleneck | None
    says: str
    """The explanation in a few sentences."""
    profile: Profile
    """The whole request, with what the service did before and after the run."""


def why(trace: Trace, places: Places | None = None) -> Why:
    """Explain a trace. `places`: from its deployment's plan; without them, a block may have waited for any earlier one
    on its rank."""
    total = max(0, round(trace.seconds * 1e6))
    if any(kind == FOLDED for kind in trace.blocks.kind):
        shares, tops = _estimated(trace, total)
        path: tuple[Piece, ...] = ()
    else:
        path = _Path(trace, places or Places(), total).walked()
        shares, tops = Counter[Kind](), Counter[_Top]()
        for piece in path:
            shares[piece.kind] += piece.ended - piece.began
            name, loop = _named(trace, piece)
            if name is not None:
                tops[name, piece.rank, piece.kind, loop] += piece.ended - piece.began
    bottleneck = _bottleneck(tops, total)
    return Why(
        run=trace.run,
        seconds=total / 1e6,
        shares={kind: shares[kind] / 1e6 for kind in KINDS},
        path=path,
        bottleneck=bottleneck,
        says=_says(trace, total, shares, bottleneck, bool(path)),
        profile=profile(trace),
    )


_Top = tuple[str, int, Kind, bool]
"""Lane or edge, rank, kind; true if the lane is a device loop, which may share its name with a node."""
_Found = tuple[int, bool, int]
"""When it let something begin; true for a hop; its row."""


class _Path:
    def __init__(self, trace: Trace, places: Places, total: int) -> None:
        self._trace, self._blocks, self._hops = trace, trace.blocks, trace.hops
        self._places, self._total = places, total
        self._admitted = _admitted(trace, total)
        self._cursor = total
        self._pieces: list[Piece] = []
        self._finished = _sorted(self._blocks.lane, self._blocks.finished)
        self._arrived = _sorted(
            list(zip(self._hops.target, self._hops.walk, self._hops.edge, strict=True)), self._hops.arrived
        )
        self._lanes: dict[int, list[int]] = defaultdict(list)
        for lane in self._finished:
            self._lanes[trace.lanes[lane].rank].append(lane)
        self._edges: dict[int, list[tuple[int, int, int]]] = defaultdict(list)
        for key in self._arrived:
            self._edges[key[0]].append(key)
        self._linked: dict[tuple[int, int], bool] = {}

    def walked(self) -> tuple[Piece, ...]:
        found = self._last()
        after: int | None = None
        seen: set[tuple[bool, int]] = set()
        while found is not None and self._cursor > self._admitted and found[1:] not in seen:
            _, hop, row = found
            seen.add((hop, row))
            found, after = self._through_hop(row, after) if hop else self._through_block(row, after)
        self._add("wait", self._admitted, block=after)
        self._pieces.reverse()
        if self._admitted > 0:
            first = Piece(
                kind="admission", lane=-1, walk="", block=None, hop=None, rank=-1, began=0, ended=self._admitted
            )
            return (first, *self._pieces)
        return tuple(self._pieces)

    # ── pieces ──────────────────────────────────────────────────────────────────────────────────

    def _through_block(self, row: int, after: int | None) -> tuple[_Found | None, int]:
        blocks = self._blocks
        self._add("wait", blocks.finished[row], block=after)
        self._add("compute", blocks.started[row], block=row)
        found = self._before_block(row)
        since = found[0] if found else self._admitted
        self._add("launch", max(since, blocks.taken[row]), block=row)
        self._add("queue", max(since, blocks.ready[row]), block=row)
        return found, row

    def _through_hop(self, row: int, after: int | None) -> tuple[_Found | None, int | None]:
        self._add("wait", self._hops.arrived[row], block=after)
        self._add("transfer", self._hops.sent[row], hop=row)
        return self._before_hop(row), after

    def _add(self, kind: Kind, began: int, *, block: int | None = None, hop: int | None = None) -> None:
        """Add a piece to the path; for a wait, `block` is the one that waits."""
        began = min(max(began, self._admitted), self._cursor)
        if began == self._cursor:
            return
        lane = -1 if block is None else self._blocks.lane[block]
        walk = self._blocks.walk[block] if block is not None else self._hops.walk[hop] if hop is not None else -1
        rank = self._trace.lanes[lane].rank if lane >= 0 else self._hops.target[hop] if hop is not None else -1
        name = self._trace.names[walk] if walk >= 0 else ""
        piece = Piece(kind=kind, lane=lane, walk=name, block=block, hop=hop, rank=rank, began=began, ended=self._cursor)
        self._pieces.append(piece)
        self._cursor = began

    # ── what let it begin ───────────────────────────────────────────────────────────────────────

    def _last(self) -> _Found | None:
        return max(
            ((self._blocks.finished[entries[-1][1]], False, entries[-1][1]) for entries in self._finished.values()),
            default=None,
        )

    def _before_block(self, row: int) -> _Found | None:
        blocks = self._blocks
        rank = self._trace.lanes[blocks.lane[row]].rank
        place = (blocks.step[row], blocks.iteration[row])
        found = self._latest(row, rank, place, blocks.started[row], self._waits)
        if found is None or blocks.ready[row] - found[0] > SLACK:
            other = self._latest(row, rank, place, blocks.ready[row], None)
            if other is not None and (found is None or other[0] > found[0]):
                return other
        return found

    def _latest(
        self,
        row: int,
        rank: int,
        place: tuple[int, tuple[int, ...]],
        limit: int,
        linked: Callable[[int, int], bool] | None,
    ) -> _Found | None:
        """The latest among blocks on the rank and hops to it that precede this place and are done by this time."""
        lane, (step, _) = self._blocks.lane[row], place
        found: _Found | None = None
        for other in self._lanes[rank]:
            for at, candidate in _before(self._finished[other], limit):
                here = (self._blocks.step[candidate], self._blocks.iteration[candidate])
                fits = candidate != row and _not_after(here, place)
                # A long call is served in parts, one after the other.
                part = other == lane and here == place
                if fits and (linked is None or here[0] != step or part or linked(lane, other)):
                    found = max(found, (at, False, candidate)) if found else (at, False, candidate)
                    break
        for key in self._edges[rank]:
            if linked is not None and not self._reads(lane, key):
                continue
            for at, candidate in _before(self._arrived[key], limit):
                if _not_after((self._hops.step[candidate], self._hops.key[candidate]), place):
                    found = max(found, (at, True, candidate)) if found else (at, True, candidate)
                    break
        return found

    def _before_hop(self, row: int) -> _Found | None:
        hops, names = self._hops, self._trace.names
        writers = self._places.writers.get((names[hops.walk[row]], names[hops.edge[row]]))
        place = (hops.step[row], hops.key[row])
        found: _Found | None = None
        for lane in self._lanes[hops.source[row]]:
            if writers is not None and writers.isdisjoint(self._trace.lanes[lane].nodes):
                continue
            for at, candidate in _before(self._finished[lane], hops.sent[row]):
                if _not_after((self._blocks.step[candidate], self._blocks.iteration[candidate]), place):
                    found = max(found, (at, False, candidate)) if found else (at, False, candidate)
                    break
        return found

    def _waits(self, lane: int, other: int) -> bool:
        """True if work in a lane can wait for work in the other."""
        follows = self._places.follows
        if follows is None or (lane == other and self._trace.lanes[lane].loop):
            return True
        if (lane, other) not in self._linked:
            one, two = self._trace.lanes[other].nodes, self._trace.lanes[lane].nodes
            self._linked[lane, other] = any((a, b) in follows for a in one for b in two)
        return self._linked[lane, other]

    def _reads(self, lane: int, key: tuple[int, int, int]) -> bool:
        names = self._trace.names
        readers = self._places.readers.get((names[key[1]], names[key[2]]))
        return readers is None or not readers.isdisjoint(self._trace.lanes[lane].nodes)


def _admitted(trace: Trace, total: int) -> int:
    """The time of admission; the start of the run if unknown, or the end if it was only queued."""
    waits = "queued" in trace.phases and not trace.blocks.kind
    return min(max(0, trace.phases.get("started", total if waits else 0)), total)


def _sorted(keys: Sequence[Key], times: Sequence[int]) -> dict[Key, list[tuple[int, int]]]:
    """(time, row) pairs by key, sorted; rows without a time are left out."""
    found: dict[Key, list[tuple[int, int]]] = defaultdict(list)
    for row, (key, time) in enumerate(zip(keys, times, strict=True)):
        if time >= 0:
            found[key].append((time, row))
    for entries in found.values():
        entries.sort()
    return dict(found)


def _before(entries: Sequence[tuple[int, int]], limit: int) -> Iterator[tuple[int, int]]:
    """Entries up to the limit, latest first."""
    end = bisect_right(entries, (limit, sys.maxsize))
    for at in range(end - 1, max(-1, end - 1 - TRIES), -1):
        yield entries[at]


def _not_after(one: tuple[int, tuple[int, ...]], other: tuple[int, tuple[int, ...]]) -> bool:
    """Compare steps, then the indices of the loops around both; -1 is an unknown step."""
    if -1 in (one[0], other[0]):
        return True
    if one[0] != other[0]:
        return one[0] < other[0]
    both = min(len(one[1]), len(other[1]))
    return one[1][:both] <= other[1][:both]


# ── estimates without single calls ──────────────────────────────────────────────────────────────


def _estimated(trace: Trace, total: int) -> tuple[Counter[Kind], Counter[_Top]]:
    """Estimate the shares at each moment: compute counts as far as blocks were busy; of the rest, queueing as far as
    calls were queued; of the rest, transfers; the remainder is unknown."""
    admitted = _admitted(trace, total)
    changes: list[tuple[int, int, float]] = [(total, 0, 0.0)]
    tops = Counter[_Top]()
    for began, ended, which, amount in _spans(trace):
        began, ended = min(max(began, admitted), total), min(max(ended, admitted), total)
        if ended > began:
            changes += [(began, which, amount), (ended, which, -amount)]
    for lane, busy, queued in zip(trace.blocks.lane, trace.blocks.busy, trace.blocks.queued, strict=True):
        name, rank, loop = trace.lanes[lane].name, trace.lanes[lane].rank, trace.lanes[lane].loop
        tops[name, rank, "compute", loop] += busy
        tops[name, rank, "queue", loop] += queued
    level = [0.0, 0.0, 0.0]
    spent = [0.0, 0.0, 0.0]
    at = admitted
    for time, which, amount in sorted(changes):
        room = 1.0
        for kind in range(3):
            taken = min(room, max(0.0, level[kind]))
            spent[kind] += taken * (time - at)
            room -= taken
        level[which] += amount
        at = time
    compute, queue, transfer = map(round, spent)
    shares = Counter[Kind]({"admission": admitted, "compute": compute, "queue": queue, "transfer": transfer})
    shares["wait"] = total - shares.total()
    if shares["wait"] < 0:
        # A rounding error of up to a microsecond.
        shares["compute"], shares["wait"] = shares["compute"] + shares["wait"], 0
    return shares, tops


def _spans(trace: Trace) -> Iterator[tuple[int, int, int, float]]:
    """(from, to, 0 busy, 1 queued or 2 in transit, share of the time)."""
    b, h = trace.blocks, trace.hops
    for row, kind in enumerate(b.kind):
        began, ended = b.started[row], b.finished[row]
        if kind == FOLDED:
            length = max(1, ended - began)
            yield began, ended, 0, min(1.0, b.busy[row] / length)
            yield began, ended, 1, min(1.0, b.queued[row] / length)
        else:
            yield began, ended, 0, 1.0
            yield b.ready[row], began, 1, 1.0
    for sent, arrived in zip(h.sent, h.arrived, strict=True):
        yield sent, arrived, 2, 1.0


# ── words ───────────────────────────────────────────────────────────────────────────────────────


def _named(trace: Trace, piece: Piece) -> tuple[str | None, bool]:
    if piece.hop is not None:
        return trace.names[trace.hops.edge[piece.hop]], False
    if piece.lane < 0:
        return None, False
    lane = trace.lanes[piece.lane]
    return lane.name, lane.loop


def _bottleneck(tops: Counter[_Top], total: int) -> Bottleneck | None:
    if not total or not tops:
        return None
    (lane, rank, kind, loop), spent = max(tops.items(), key=lambda item: (item[1], item[0]))
    if not spent:
        return None
    spent = min(spent, total)
    return Bottleneck(lane=lane, rank=rank, seconds=spent / 1e6, share=spent / total, kind=kind, loop=loop)


def _says(trace: Trace, total: int, shares: Counter[Kind], bottleneck: Bottleneck | None, exact: bool) -> str:
    if not total:
        return "It took no time that could be measured."
    sentences: list[str] = []
    if not trace.blocks.kind:
        off = "telemetry was off" if trace.level == "off" else "its calls were not reported"
        sentences.append(f"Where its {_seconds(total)} went is not known: {off}.")
    elif bottleneck is not None:
        on = f" on rank {bottleneck.rank}" if bottleneck.kind != "transfer" else ""
        share = _share(round(bottleneck.seconds * 1e6), total)
        loop = _loop(trace, bottleneck)
        name = f"the loop `{bottleneck.lane}`" if loop is not None else f"`{bottleneck.lane}`"
        sentences.append(f"Of its {_seconds(total)}, {share} was {name}{on} {_DOING[bottleneck.kind]}.")
        if loop is not None:
            sentences += _inside(loop)
    others: list[tuple[Kind, str]] = [
        ("admission", "waited to be admitted"),
        ("queue", "waited for batches"),
        ("transfer", "values were on their way between ranks"),
        ("launch", "the host prepared work for the devices"),
        ("wait", "nothing of it was running, queued or on its way"),
    ]
    for kind, words in others:
        if trace.blocks.kind and shares[kind] * 10 >= total and (bottleneck is None or bottleneck.kind != kind):
            subject = "it " if kind in ("admission", "queue") else ""
            sentences.append(f"For {_share(shares[kind], total)} {subject}{words}.")
    if trace.blocks.kind and not exact:
        sentences.append("These are estimates: only level `full` reports single calls and the critical path.")
    if trace.lost or trace.cut:
        sentences.append("Part of its trace is missing; missing time counts as waiting.")
    return " ".join(sentences)


def _loop(trace: Trace, bottleneck: Bottleneck) -> Lane | None:
    """The bottleneck's lane if it is a device loop."""
    if not bottleneck.loop:
        return None
    found = (lane for lane in trace.lanes if lane.loop and (lane.name, lane.rank) == (bottleneck.lane, bottleneck.rank))
    return next(found, None)


def _inside(loop: Lane) -> Iterator[str]:
    if len(loop.nodes) > 1:
        nodes = ", ".join(f"`{node}`" for node in loop.nodes)
        yield f"It runs whole on its device, so the times of {nodes} in it are unknown."
    if loop.spans:
        yield "It has parts on other ranks; their waits for each other are included in that time."


def _share(spent: int, total: int) -> str:
    return f"{_seconds(spent)} ({round(100 * spent / total)} %)"


def _seconds(microseconds: int) -> str:
    if microseconds >= 1_000_000:
        return f"{microseconds / 1e6:.2f} s"
    if microseconds >= 1000:
        return f"{microseconds / 1e3:.1f} ms"
    return f"{microseconds} µs"
