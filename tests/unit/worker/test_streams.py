"""The consumer's side of a stream: uses of one rank read the same chunks, each at its own pace."""

import random

import pytest
from msgspec.structs import replace

from walkgraph.ids import Rank
from walkgraph.placement.tables import StreamPlan
from walkgraph.worker.walk.run_streams import Feeder, Incoming, Outgoing

STREAM = StreamPlan(
    index=0,
    name="s",
    walks=(0,),
    policy="fixed",
    settings={"size": 2},
    continue_after_done=False,
    credits=4,
    producers=(Rank(0),),
    consumers=(Rank(0),),
)


def pushed(items: int, readers: int) -> Incoming:
    stream = Incoming(STREAM, [Feeder(0, Rank(0))], {7: readers})
    for index in range(items):
        stream.push(0, index, [index])
    return stream


def test_a_slow_reader_gets_what_a_fast_one_has_left_behind() -> None:
    stream = pushed(6, readers=2)
    fast = [stream.chunk(0, (7, i)) for i in range(3)]
    assert [fresh for fresh, _ in fast] == [True] * 3
    assert stream.consumed == 0
    for i in range(3):
        assert stream.chunk(1, (7, i)) == (False, fast[i][1])
        assert stream.consumed == 2 * (i + 1)


def test_a_reader_may_ask_again_where_it_stands() -> None:
    stream = pushed(4, readers=1)
    first = stream.chunk(0, (7, 0))
    assert [stream.chunk(0, (7, 0)) for _ in range(3)] == [(False, first[1])] * 3
    assert stream.consumed == 2


def test_what_comes_after_the_last_reader_has_left_is_dropped() -> None:
    stream = Incoming(STREAM, [Feeder(0, Rank(0)), Feeder(1, Rank(2))], {3: 0, 7: 1, 9: 1})
    stream.push(0, 0, [0])
    assert not stream.leave(3)
    assert not stream.leave(7)
    assert not stream.left
    assert stream.leave(9)
    assert not stream.leave(9)
    stream.push(0, 1, [1])
    assert stream._items == {}
    assert stream.producers == [0, 2]


def test_a_stream_that_has_ended_is_left_without_a_word() -> None:
    stream = pushed(3, readers=1)
    stream.finish(0, 3)
    assert not stream.leave(7)


def test_nothing_waits_for_a_consumer_that_has_left() -> None:
    stream = Outgoing(replace(STREAM, consumers=(Rank(0), Rank(1))), [5])
    stream.take_numbers(5, 8)
    stream.credited(Rank(0), 2)
    assert not stream.open
    stream.left(Rank(1))
    assert stream.free == 2
    stream.left(Rank(0))
    stream.credited(Rank(0), 0)
    assert stream.free == 8


@pytest.mark.parametrize("chunks", [1, 2, 3, 4, 7, 8, 64])
@pytest.mark.parametrize(("size", "first"), [(1, 1), (3, 1), (3, 3)])
def test_credits_that_go_out_together_never_leave_the_producer_waiting(chunks: int, size: int, first: int) -> None:
    plan = replace(STREAM, settings={"size": size, "first": first}, credits=chunks)
    outgoing, incoming = Outgoing(plan, [0]), Incoming(plan, [Feeder(0, Rank(0))], {7: 1})
    taken = sent = told = 0
    while taken < 200:
        while outgoing.open:
            incoming.push(0, outgoing.take_numbers(0, 1), [sent])
            sent += 1
        before = taken
        while incoming.chunk(0, (7, taken))[1] is not None:
            taken += 1
            credited = incoming.credits()
            told += len(credited)
            for rank, consumed in credited:
                outgoing.credited(rank, consumed)
        assert taken > before, "both wait for each other"
    assert told <= taken // max(1, chunks // 4) + 1


def test_any_order_of_three_readers_gives_each_all_chunks_and_keeps_few() -> None:
    chance = random.Random(3)
    stream = pushed(0, readers=3)
    at, seen, sent = [0, 0, 0], [[], [], []], 0
    while min(at) < 50:
        if sent < stream.consumed + 8:  # the producer's credit
            stream.push(0, sent, [sent])
            sent += 1
        use = chance.randrange(3)
        _, chunk = stream.chunk(use, (7, at[use]))
        if chunk is not None:
            seen[use].append(chunk[0].tolist())
            at[use] += 1
        assert len(stream._chunks) <= 5
    for chunks in seen:
        assert chunks[:50] == [[2 * i, 2 * i + 1] for i in range(50)]
