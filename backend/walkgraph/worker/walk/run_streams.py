"""Streams on one rank.

Items wait on the consumer's side until the chunk policy hands them out; producers count the items in flight. A stream
that several steps feed has the items of the first step, then those of the second, and so on, wherever the steps run.
"""

import sys
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from walkgraph.abi.calls import ChunkInfo
from walkgraph.chunking import ChunkSpec, make
from walkgraph.ids import Rank, RunId
from walkgraph.placement.tables import EdgePlan, Itinerary, Plan, StreamPlan
from walkgraph.wire import messages as m
from walkgraph.worker.events import ABSENT
from walkgraph.worker.tables.walk_tables import WalkTable
from walkgraph.worker.walk import shaping

Place = tuple[int, ...]
"""Step and loop indices of the calls that read a chunk."""
Chunk = tuple[Any, ChunkInfo]
Sender = Callable[[Rank, m.BetweenWorkers, Any, str], None]
"""Sends a message to a rank, perhaps this one, with its value and the transport for it."""


class Feeder(NamedTuple):
    step: int
    rank: Rank
    """The rank of the use that gives the items."""


class Joined:
    """Joins the items of a stream's feeders into one sequence in the order of the feeders, whenever they arrive."""

    def __init__(self, feeders: Sequence[Feeder]) -> None:
        self.available = 0
        """The number of items without a gap from the start."""
        self._feeders = feeders
        self._turn = 0
        """Index of the feeder whose item is next."""
        self._starts = [0]
        """Index of the first item of each feeder, up to that one."""
        self._early: dict[int, dict[int, Any]] = {feeder.step: {} for feeder in feeders}
        """Step -> items that came before the ones ahead of them."""
        self._counts: dict[int, int] = {}
        """Steps that have finished -> how many items they gave."""

    @property
    def done(self) -> bool:
        return self._turn == len(self._feeders)

    def push(self, step: int, index: int, values: Iterable[Any]) -> list[Any]:
        """Add consecutive items; returns the items that have become available."""
        early = self._early[step]
        if early or step in self._counts or self.done or self._feeders[self._turn].step != step:
            early.update(enumerate(values, index))
            return self._advance()
        found = list(values)
        if index != self.available - self._starts[-1]:
            early.update(enumerate(found, index))
            return []
        self.available += len(found)
        return found

    def finish(self, step: int, count: int) -> list[Any]:
        self._counts[step] = count
        return self._advance()

    def shares(self, items: int) -> Counter[Rank]:
        """How many of the first `items` items each rank gave."""
        ends = [*self._starts[1:], self.available]
        found: Counter[Rank] = Counter()
        for feeder, start, end in zip(self._feeders, self._starts, ends, strict=False):
            found[feeder.rank] += max(0, min(items, end) - start)
        return found

    def _advance(self) -> list[Any]:
        found: list[Any] = []
        while not self.done:
            step = self._feeders[self._turn].step
            early, index = self._early[step], self.available + len(found) - self._starts[-1]
            while index in early:
                found.append(early.pop(index))
                index += 1
            if self._counts.get(step) == index:
                self._turn += 1
                if not self.done:
                    self._starts.append(self._starts[-1] + index)
            else:
                break
        self.available += len(found)
        return found


class Incoming:
    """The consumer's side of a stream. The policy's position is the chunk taken last.

    A chunk is kept until every use that reads it here has gone on to a later one; credit follows the slowest of them.
    """

    def __init__(self, plan: StreamPlan, feeders: Sequence[Feeder], readers: Mapping[int, int]) -> None:
        """`feeders`: in the order of the steps. `readers`: step -> how many of its uses read the stream here."""
        self.plan = plan
        self.consumed = 0
        """The number of items that no reader needs any more."""
        self._policy = make(plan)
        self._readers = readers
        self._joined = Joined(feeders)
        self._items: dict[int, Any] = {}
        """Items that a later chunk may need."""
        self._oldest = 0
        """The lowest item that one may need."""
        self._taken: ChunkSpec | None = None
        self._needs = self._policy.needs(None)
        """Items that the chunk after that needs; None: the stream must have ended."""
        self._chunks: dict[Place, tuple[ChunkSpec, Chunk]] = {}
        """Chunks by place, in the order of the stream."""
        self._at: dict[tuple[int, int], Place] = {}
        """(step, use) -> the place it read last."""
        self._credited: Counter[Rank] = Counter()
        self._reading = {step for step, uses in readers.items() if uses}
        """Steps that may still read it."""
        self._due = 0
        """Consumed items from which on credits are due. They go out for a quarter of the stream's credit at once: a
        producer that has so much can always send another chunk."""
        self._at_once = max(1, plan.credits // 4 * self._policy.step)
        self.left = False
        """True once no step reads it any more although it goes on."""
        self.producers = sorted({feeder.rank for feeder in feeders})

    @property
    def ready(self) -> bool:
        """True if a chunk may be there that nobody has asked for."""
        return self._joined.done or (self._needs is not None and self._joined.available >= self._needs)

    def leave(self, step: int) -> bool:
        """Note that a step is over. True if that was the last to read the stream, which goes on."""
        if step not in self._reading:
            return False
        self._reading.discard(step)
        self.left = not (self._reading or self._joined.done)
        if self.left:
            self._items.clear()
        return self.left

    def push(self, step: int, index: int, values: Sequence[Any]) -> None:
        """Add consecutive items of a step. What nobody reads is dropped."""
        if self.left:
            return
        self._append(self._joined.push(step, index, values))

    def finish(self, step: int, count: int) -> None:
        """Note that a step gives no more than `count` items."""
        self._append(self._joined.finish(step, count))

    def credits(self) -> list[tuple[Rank, int]]:
        """The credits to send, if some are due: each producer of whose items more are consumed than it knows, with the
        number."""
        if self.consumed < self._due:
            return []
        self._due = self.consumed + self._at_once
        shares = self._joined.shares(self.consumed)
        found = [(rank, count) for rank, count in shares.items() if count > self._credited[rank]]
        self._credited = shares
        return found

    def chunk(self, use: int, place: Place) -> tuple[bool, Chunk | None]:
        """(newly taken, the chunk of this place). The first request for a place takes the next chunk; all later ones
        get the same."""
        known = self._chunks.get(place)
        fresh = known is None
        if known is None:
            if not self.ready:
                return False, None
            spec = self._policy.next(self._taken, self._joined.available, self._joined.done)
            if spec is None:
                ended = self._policy.ended(self._taken)
                return False, (ABSENT, ChunkInfo(index=-1, first=False, last=False, valid=0)) if ended else None
            known = self._chunks[place] = spec, self._take(spec)
        if self._at.get((place[0], use)) != place:
            self._at[place[0], use] = place
            self._forget(place[0])
        return fresh, known[1]

    def _append(self, values: Sequence[Any]) -> None:
        self._items.update(enumerate(values, self._joined.available - len(values)))

    def _take(self, spec: ChunkSpec) -> Chunk:
        value = ABSENT if spec.absent else shaping.join([self._items[i] for i in range(spec.start, spec.stop)])
        self._taken, self._needs = spec, self._policy.needs(spec)
        kept = self._policy.consumed(spec)
        for index in range(self._oldest, kept):
            self._items.pop(index, None)
        self._oldest = kept
        return value, ChunkInfo(spec.index, spec.first, spec.last, spec.valid, spec.context, spec.start)

    def _forget(self, step: int) -> None:
        """Drop chunks that every reader of the step has passed."""
        reached = [place for (reader, _), place in self._at.items() if reader == step]
        if len(reached) == self._readers[step]:
            slowest = min(reached)
            for place in [place for place in self._chunks if place < slowest]:
                del self._chunks[place]
            self.consumed = self._policy.consumed(self._chunks[slowest][0])


class Outgoing:
    """The producer's side of a stream: numbers the items of its steps and keeps within the stream's credit."""

    def __init__(self, plan: StreamPlan, feeders: Iterable[int]) -> None:
        """`feeders`: steps that feed it from here."""
        self.plan = plan
        self.sent = 0
        self._given = dict.fromkeys(feeders, 0)
        """Step -> its items so far."""
        policy = make(plan)
        self._limit = policy.items(plan.credits)
        self._step = policy.step if self._limit is not None else 0
        opening = policy.next(None, sys.maxsize, done=False)
        self._opening = opening.stop if opening is not None else 0
        self._consumed = dict.fromkeys(plan.consumers, 0)

    @property
    def open(self) -> bool:
        """True if another item may be sent."""
        return self.free is None or self.free > 0

    @property
    def free(self) -> int | None:
        """The number of items that may be sent; None for any number."""
        if self._limit is None:
            return None
        return self._limit - self.sent + min(self._consumed.values(), default=self.sent)

    @property
    def pace(self) -> tuple[int, int]:
        """(items in a chunk, how many of them are already sent); 0 for a stream that waits for its end."""
        return self._step, (self.sent - self._opening) % self._step if self._step else 0

    def take_numbers(self, step: int, count: int) -> int:
        """Number the next `count` items of a step; returns the first number."""
        self.sent += count
        self._given[step] += count
        return self._given[step] - count

    def given(self, step: int) -> int | None:
        """The number of items that the step has given; None if it doesn't feed the stream from here."""
        return self._given.get(step)

    def credited(self, consumer: Rank, consumed: int) -> None:
        if consumer in self._consumed:
            self._consumed[consumer] = max(self._consumed[consumer], consumed)

    def left(self, consumer: Rank) -> None:
        """Note that a consumer reads no more: nothing waits for it."""
        self._consumed.pop(consumer, None)


class Streams:
    """The streams that one run reads and feeds on this rank."""

    def __init__(
        self, plan: Plan, tables: Sequence[WalkTable], rank: Rank, run: RunId, itinerary: Itinerary, send: Sender
    ) -> None:
        self.outgoing: dict[int, Outgoing] = {}
        self._incoming: dict[int, Incoming] = {}
        self._rank, self._run, self._send = rank, run, send
        self._listening: list[set[int]] = []
        for index in itinerary.streams:
            stream = plan.streams[index]
            feeders = _feeders(plan, itinerary, stream)
            if rank in stream.consumers:
                read = {s.index: tables[s.walk].stream_readers.get(index, 0) for s in itinerary.steps}
                self._incoming[index] = Incoming(stream, feeders, read)
            if rank in stream.producers:
                self.outgoing[index] = Outgoing(stream, (feeder.step for feeder in feeders if feeder.rank == rank))

    def changes(self) -> set[int]:
        """A new set that gets every stream for which something comes that its readers or feeders can use; its owner
        clears it."""
        self._listening.append(set())
        return self._listening[-1]

    def take(self, message: m.StreamItem | m.StreamDone | m.Credit, value: Any) -> None:
        index = message.stream
        match message:
            case m.StreamItem() if index in self._incoming:
                self._come(index, message.step, message.index, (value,) if message.count == 1 else list(value))
                return
            case m.StreamDone() if index in self._incoming:
                self._incoming[index].finish(message.step, message.count)
            case m.Credit(left=True) if index in self.outgoing:
                self.outgoing[index].left(message.rank)
            case m.Credit() if index in self.outgoing:
                self.outgoing[index].credited(message.rank, message.consumed)
            case _:
                return
        self._change(index)

    def give(self, step: int, edge: EdgePlan, values: Sequence[Any]) -> None:
        """Give items to a stream, if anybody reads it. They go to another rank in one message."""
        index = edge.target.index
        outgoing = self.outgoing.get(index)
        if outgoing is None:
            return
        count = len(values)
        first = outgoing.take_numbers(step, count)
        for rank in outgoing.plan.consumers:
            if rank == self._rank:
                self._come(index, step, first, values)
            else:
                item = m.StreamItem(run=self._run, stream=index, step=step, index=first, value=m.Absent(), count=count)
                self._send(rank, item, values[0] if count == 1 else shaping.together(values), edge.transport)

    def close(self, step: int) -> None:
        """Report that a step gives no more items."""
        for index, stream in self.outgoing.items():
            count = stream.given(step)
            for rank in stream.plan.consumers if count is not None else ():
                self._send(
                    rank, m.StreamDone(run=self._run, stream=index, step=step, count=count or 0), ABSENT, "inline"
                )

    def leave(self, step: int) -> None:
        """Note that a step is over. The producers of a stream that nobody reads to its end here wait no more for it."""
        for index, incoming in self._incoming.items():
            for rank in incoming.producers if incoming.leave(step) else ():
                left = m.Credit(run=self._run, stream=index, rank=self._rank, consumed=incoming.consumed, left=True)
                self._send(rank, left, ABSENT, "inline")

    def chunk(self, use: int, stream: int, place: Place) -> tuple[bool, Chunk | None]:
        """Like `Incoming.chunk`, and sends credits to the producers."""
        incoming = self._incoming[stream]
        consumed = incoming.consumed
        found = incoming.chunk(use, place)
        for rank, count in incoming.credits() if incoming.consumed > consumed else ():
            self._send(rank, m.Credit(run=self._run, stream=stream, rank=self._rank, consumed=count), ABSENT, "inline")
        return found

    def _come(self, stream: int, step: int, first: int, values: Sequence[Any]) -> None:
        """Take consecutive items of a stream that is read here."""
        incoming = self._incoming[stream]
        incoming.push(step, first, values)
        if incoming.ready:
            self._change(stream)

    def _change(self, stream: int) -> None:
        for changes in self._listening:
            changes.add(stream)

    def open(self, edges: Iterable[EdgePlan]) -> bool:
        """True if all streams that these edges feed may take another item."""
        fed = (self.outgoing.get(edge.target.index) for edge in edges if edge.target.kind == "stream")
        return all(stream is None or stream.open for stream in fed)


def _feeders(plan: Plan, itinerary: Itinerary, stream: StreamPlan) -> list[Feeder]:
    """The steps that feed a stream. A Walk has at most one edge into it."""
    found: list[Feeder] = []
    for step in itinerary.steps:
        if step.walk in stream.walks:
            walk = plan.walks[step.walk]
            into = (e.source for e in walk.edges if e.target.kind == "stream" and e.target.index == stream.index)
            found.append(Feeder(step.index, walk.uses[next(into).use].rank))
    return found
