"""Every chunk policy against a twin that sees the whole list at once, under any pattern of arrivals."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import asdict

from walkgraph import plugins
from walkgraph.chunking import ChunkSpec, Policy, make
from walkgraph.errors import InvalidInput, NotFound
from walkgraph.placement.tables import StreamPlan
from walkgraph.simulation.reference.naive_chunks import NaiveChunk, naive_chunks

DRAWN = Path(__file__).parents[3] / "editor" / "frontend" / "tests" / "panels" / "chunks.golden.json"


def stream(policy: str, continue_after_done: bool = False, **settings: int) -> StreamPlan:
    return StreamPlan(
        index=0, name="s", walks=(0,), policy=policy, settings=settings, continue_after_done=continue_after_done,
        credits=4, producers=(), consumers=(),
    )  # fmt: skip


@st.composite
def plans(draw: st.DrawFn) -> StreamPlan:
    policy = draw(st.sampled_from(plugins.names("walkgraph.chunking")))
    size = draw(st.integers(1, 9))
    settings = {
        "fixed": {"size": size},
        "sliding": {"window": size, "stride": draw(st.integers(1, size))},
        "left_context": {"chunk": size, "context": draw(st.integers(0, 6))},
        "whole": {},
    }[policy]
    if policy != "whole" and draw(st.booleans()):
        settings["first"] = draw(st.integers(1, size))
    return stream(policy, draw(st.booleans()), **settings)


@dataclass
class Consumer:
    """Takes every chunk as soon as there is one."""

    policy: Policy
    available: int = 0
    done: bool = False
    previous: ChunkSpec | None = None

    def __post_init__(self) -> None:
        self.chunks: list[ChunkSpec] = []

    def take(self) -> None:
        while (chunk := self.policy.next(self.previous, self.available, self.done)) and not chunk.absent:
            assert chunk.stop <= self.available
            needed = self.policy.needs(self.previous)
            assert chunk.last if needed is None else chunk.stop == needed or self.done
            assert chunk.start >= self.policy.consumed(self.previous), "an item was given up that was still needed"
            self.previous = chunk
            self.chunks.append(chunk)


def told(consumer: Consumer) -> list[NaiveChunk]:
    """The chunks that a consumer gets of a stream of 0, 1, 2 ..."""
    return [
        NaiveChunk(tuple(range(chunk.start, chunk.stop)), chunk.context, chunk.first, chunk.last)
        for chunk in consumer.chunks
    ]


@given(plans(), st.lists(st.integers(0, 7), max_size=12), st.booleans())
def test_any_pattern_of_arrivals_gives_the_chunks_of_the_whole_list(
    plan: StreamPlan, arrivals: list[int], end_is_late: bool
) -> None:
    consumer = Consumer(make(plan))
    for arrival in arrivals:
        consumer.available += arrival
        if end_is_late or arrival is not arrivals[-1]:
            consumer.take()
    consumer.done = True
    consumer.take()
    count, chunks = sum(arrivals), consumer.chunks
    assert told(consumer) == naive_chunks(plan.policy, plan.settings, range(count))
    assert [c.index for c in chunks] == list(range(len(chunks)))
    assert [i for c in chunks for i in range(c.start + c.context, c.stop)] == list(range(count)), "lost or out of order"
    assert [c.last for c in chunks] == [False] * (len(chunks) - 1) + [True]
    assert [c.first for c in chunks] == [True] + [False] * (len(chunks) - 1)
    assert consumer.policy.consumed(chunks[-1]) == count


@given(plans(), st.integers(0, 40))
def test_a_chunk_is_there_once_its_items_are_and_no_sooner(plan: StreamPlan, count: int) -> None:
    consumer = Consumer(make(plan), available=count)
    consumer.take()
    needed = consumer.policy.needs(consumer.previous)
    assert needed is None or needed > count
    for more in range(8):
        there = consumer.policy.next(consumer.previous, count + more, done=False) is not None
        assert there == (needed is not None and needed <= count + more)


@given(plans(), st.integers(0, 4))
def test_a_stream_that_ends_on_a_border_always_has_a_closing_chunk(plan: StreamPlan, more: int) -> None:
    """It has the context that a full chunk would have there, and no new items."""
    policy = make(plan)
    full = Consumer(policy, available=1000)
    full.take()
    borders = [0, *(chunk.stop for chunk in full.chunks[: more + 1])]
    for count in borders if plan.policy != "whole" else borders[:1]:
        for known in (True, False):
            consumer = Consumer(policy, available=count, done=known)
            consumer.take()
            consumer.done = True
            consumer.take()
            closing = consumer.chunks[-1]
            assert (closing.closing, closing.stop, closing.context) == (True, count, min(count, context_of(plan)))
            assert not any(chunk.last for chunk in consumer.chunks[:-1])


def context_of(plan: StreamPlan) -> int:
    return plan.settings.get("window", plan.settings.get("context", 0))


@given(plans(), st.integers(0, 30))
def test_after_the_end_nothing_or_absent_chunks_for_ever(plan: StreamPlan, count: int) -> None:
    consumer = Consumer(make(plan), available=count, done=True)
    consumer.take()
    policy = consumer.policy
    assert policy.ended(consumer.previous) is not plan.continue_after_done
    following = [policy.next(consumer.previous, count, True)]
    if not plan.continue_after_done:
        assert following == [None]
        return
    for _ in range(3):
        following.append(policy.next(following[-1], count, True))
    assert all(chunk and chunk.absent and not chunk.valid and not chunk.first and not chunk.last for chunk in following)
    begin = len(consumer.chunks)
    assert [chunk.index for chunk in following if chunk] == list(range(begin, begin + 4))


@given(plans(), st.integers(1, 4), st.integers(0, 60))
def test_a_producer_that_keeps_to_its_credit_never_starves_the_consumer(
    plan: StreamPlan, chunks: int, count: int
) -> None:
    consumer = Consumer(make(plan))
    room = consumer.policy.items(chunks)
    while consumer.available < count:
        under_way = consumer.available - consumer.policy.consumed(consumer.previous)
        assert room is None or under_way < room, "the producer waits for credit and the consumer for items"
        consumer.available += 1
        consumer.take()
    consumer.done = True
    consumer.take()
    assert sum(chunk.new for chunk in consumer.chunks) == count


@pytest.mark.parametrize("case", json.loads(DRAWN.read_text()), ids=lambda case: f"{case['policy']} of {case['items']}")
def test_the_editor_draws_these_chunks(case: dict[str, Any]) -> None:
    """Eight at most."""
    policy = make(stream(**case["policy"]))
    chunks: list[ChunkSpec] = []
    while len(chunks) < 8 and (chunk := policy.next(chunks[-1] if chunks else None, case["items"], done=True)):
        chunks.append(chunk)
    assert [asdict(chunk) for chunk in chunks] == case["chunks"]


def test_a_smaller_first_chunk_comes_early() -> None:
    consumer = Consumer(make(stream("left_context", chunk=25, context=10, first=4)), available=30)
    consumer.take()
    assert [(c.start, c.stop, c.context) for c in consumer.chunks] == [(0, 4, 0), (0, 29, 4)]


def test_sliding_windows_overlap_exactly() -> None:
    consumer = Consumer(make(stream("sliding", window=28, stride=7)), available=45, done=True)
    consumer.take()
    assert [(c.start, c.stop, c.context) for c in consumer.chunks] == [
        (0, 28, 0), (7, 35, 21), (14, 42, 21), (17, 45, 25)
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("policy", "settings"),
    [
        ("fixed", {"size": 4, "first": 5}),
        ("sliding", {"window": 4, "stride": 5}),
        ("left_context", {"chunk": 4, "context": 9, "first": 0}),
    ],
)
def test_numbers_that_cannot_be_met_are_refused(policy: str, settings: dict[str, int]) -> None:
    with pytest.raises(InvalidInput):
        make(stream(policy, **settings))


def test_an_unknown_policy_is_refused_by_name() -> None:
    with pytest.raises(NotFound, match="did you mean `sliding`"):
        make(stream("slidin"))
