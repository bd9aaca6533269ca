"""Streams on one rank.

Items wait on the consumer's side until the chunk policy hands them on; the producer counts what is under way.
"""

import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from walkgraph.chunking import ChunkSpec, make
from walkgraph.ids import Rank
from walkgraph.networks.base import ChunkInfo
from walkgraph.placement.tables import Itinerary, Plan, StreamPlan
from walkgraph.worker import shaping
from walkgraph.worker.events import ABSENT
from walkgraph.worker.tables import WalkTable

Place = tuple[int, ...]
"""Step and loop indices of the calls that read a chunk."""
Chunk = tuple[Any, ChunkInfo]


class Incoming:
    """The consumer's side. Items come in order from each producer; the policy's position is the chunk taken last.

    A chunk is kept until every use that reads it here has gone on to a later one, and credited by the slowest of them.
    """

    def __init__(self, plan: StreamPlan, readers: Mapping[int, int]) -> None:
        """`readers`: step -> how many of its uses read the stream here."""
        self.plan = plan
        self.consumed = 0
        """Items that no reader needs any more."""
        self._policy = make(plan)
        self._readers = readers
        self._items: dict[int, Any] = {}
        self._joined = 0
        """Items that no chunk to come holds."""
        self._available = 0
        self._count: int | None = None
        """Items in all, once the producer is done."""
        self._taken: ChunkSpec | None = None
        self._chunks: dict[Place, tuple[ChunkSpec, Chunk]] = {}
        """In the order of the stream."""
        self._at: dict[tuple[int, int], Place] = {}
        """Step and use -> what it read last."""

    @property
    def done(self) -> bool:
        return self._count is not None and self._available >= self._count

    @property
    def empty(self) -> bool | None:
        """Whether the stream has no chunk at all; None while that isn't known."""
        if self._taken is not None or self._policy.next(None, self._available, self.done) is not None:
            return False
        return True if self.done else None

    def push(self, index: int, value: Any) -> None:
        if index >= self._joined:
            self._items[index] = value
        while self._available in self._items:
            self._available += 1

    def push_many(self, index: int, values: Iterable[Any]) -> None:
        """Consecutive items; a tensor holds them along its first axis."""
        for i, value in enumerate(values):
            self.push(index + i, value)

    def finish(self, count: int) -> None:
        self._count = count

    def chunk(self, use: int, place: Place) -> tuple[bool, Chunk | None]:
        """(newly taken, the chunk of this place): the next one when a place is asked for the first time, then the
        same for all uses that ask."""
        fresh = place not in self._chunks
        if fresh:
            spec = self._policy.next(self._taken, self._available, self.done)
            if spec is None:
                ended = self._policy.ended(self._taken, self._available, self.done)
                return False, (ABSENT, ChunkInfo(index=-1, first=False, last=False, valid=0)) if ended else None
            self._chunks[place] = spec, self._take(spec)
        if self._at.get((place[0], use)) != place:
            self._at[place[0], use] = place
            self._forget(place[0])
        return fresh, self._chunks[place][1]

    def _take(self, spec: ChunkSpec) -> Chunk:
        value = ABSENT if spec.absent else shaping.join([self._items[i] for i in range(spec.start, spec.stop)])
        self._taken = spec
        self._joined = self._policy.consumed(spec)
        for index in [i for i in self._items if i < self._joined]:
            del self._items[index]
        return value, ChunkInfo(spec.index, spec.first, spec.last, spec.valid, spec.context, spec.start)

    def _forget(self, step: int) -> None:
        """What every reader of the step has left behind."""
        reached = [place for (reader, _), place in self._at.items() if reader == step]
        if len(reached) == self._readers[step]:
            slowest = min(reached)
            for place in [place for place in self._chunks if place < slowest]:
                del self._chunks[place]
            self.consumed = self._policy.consumed(self._chunks[slowest][0])


class Outgoing:
    """The producer's side: numbers the items and holds back beyond the stream's credit."""

    def __init__(self, plan: StreamPlan, feeders: frozenset[int]) -> None:
        self.plan = plan
        self.feeders = feeders
        """Steps that feed it; it is done when they are."""
        self.closed = False
        self.sent = 0
        policy = make(plan)
        self._limit = policy.items(plan.credits)
        self._step = policy.step if self._limit is not None else 0
        opening = policy.next(None, sys.maxsize, done=False)
        self._opening = opening.stop if opening is not None else 0
        self._consumed = dict.fromkeys(plan.consumers, 0)

    @property
    def open(self) -> bool:
        """Whether another item may be sent."""
        return self.room is None or self.room > 0

    @property
    def room(self) -> int | None:
        """Items that may be sent; None: any number."""
        if self._limit is None:
            return None
        return self._limit - self.sent + min(self._consumed.values(), default=self.sent)

    @property
    def pace(self) -> tuple[int, int]:
        """(items of a chunk, how many of those are there already); 0 of a stream that waits for its end."""
        return self._step, (self.sent - self._opening) % self._step if self._step else 0

    def take_numbers(self, count: int) -> int:
        """The first of so many."""
        self.sent += count
        return self.sent - count

    def credited(self, consumer: Rank, consumed: int) -> None:
        self._consumed[consumer] = max(self._consumed.get(consumer, 0), consumed)


def streams_of(
    plan: Plan, tables: Sequence[WalkTable], rank: Rank, itinerary: Itinerary
) -> tuple[dict[int, Incoming], dict[int, Outgoing]]:
    """A run's streams that this rank reads and feeds."""
    incoming: dict[int, Incoming] = {}
    outgoing: dict[int, Outgoing] = {}
    for index in itinerary.streams:
        stream = plan.streams[index]
        feeders = frozenset(s.index for s in itinerary.steps if s.walk in stream.walks)
        if rank in stream.consumers:
            read = {s.index: tables[s.walk].stream_readers.get(index, 0) for s in itinerary.steps}
            incoming[index] = Incoming(stream, read)
            if not feeders:
                incoming[index].finish(0)
        if rank in stream.producers:
            outgoing[index] = Outgoing(stream, feeders)
    return incoming, outgoing
