"""The profile of a request: each instant belongs to one share, as a twin finds that samples every microsecond."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support import traces
from tests.support.telling import WALL
from tests.unit.telemetry.test_critical import block, hop, traced
from walkgraph.telemetry import socket_times
from walkgraph.telemetry.profile import WORDS, Layer, Profile, Span, divided, profile
from walkgraph.telemetry.socket_times import ServiceTimes, SocketTimes
from walkgraph.telemetry.trace import FOLDED, Lane, RankPart, Served, Trace

SPANS = st.lists(
    st.builds(Span, st.sampled_from(Layer), st.integers(-20, 120), st.integers(-20, 120)),
    max_size=12,
)
SHARE = {
    Layer.COMPUTE: "device",
    Layer.DECODER: "decode",
    Layer.ENCODER: "encode",
    Layer.LAUNCH: "launch",
    Layer.TRANSFER: "transfer",
    Layer.CALL: "call",
    Layer.QUEUE: "queue",
    Layer.READ: "socket",
    Layer.PARSED: "decode",
    Layer.WRITTEN: "encode",
    Layer.SENT: "socket",
}


def sampled(spans: list[Span], began: int, ended: int) -> Counter[str]:
    """The twin: looks at every microsecond."""
    found = Counter[str]()
    for at in range(began, ended):
        going = [span.layer for span in spans if span.began <= at < span.ended]
        found[SHARE.get(min(going), "host") if going else "other"] += 1
    return found


def us(found: Profile) -> dict[str, int]:
    """Microseconds of the shares that there are."""
    return {row.share: round(row.seconds * 1e6) for row in found.shares if row.seconds}


@given(spans=SPANS, began=st.integers(-20, 60), length=st.integers(0, 100))
def test_each_instant_belongs_to_the_first_layer_that_is_there(spans: list[Span], began: int, length: int) -> None:
    found = divided(spans, began, began + length)
    assert found == sampled(spans, began, began + length)
    assert sum(found.values()) == length


@given(spans=SPANS, seed=st.integers(0, 99))
def test_the_order_of_spans_does_not_matter(spans: list[Span], seed: int) -> None:
    mixed = random.Random(seed).sample(spans, len(spans))
    assert divided(mixed, 0, 100) == divided(spans, 0, 100)


OPTIONAL = st.none() | st.integers(-5000, 90_000)


@given(
    seed=st.integers(0, 300),
    folded=st.booleans(),
    state=st.sampled_from(("done", "failed", "running")),
    phases=st.sets(st.sampled_from(("queued", "started", "first_output", "finished"))),
    served=st.none()
    | st.builds(
        Served,
        received=OPTIONAL,
        read=OPTIONAL,
        submitted=st.integers(-5000, 10),
        ended=OPTIONAL,
        answering=OPTIONAL,
        first_sent=OPTIONAL,
        last_sent=OPTIONAL,
        sending=st.integers(0, 9000),
    ),
    parts=st.lists(
        st.builds(RankPart, rank=st.integers(0, 2), received=st.integers(0, 9000), done=st.integers(0, 90_000))
    ),
)
def test_shares_add_up_to_the_whole_whatever_is_missing(
    seed: int, *, folded: bool, state: str, phases: set[str], served: Served | None, parts: list[RankPart]
) -> None:
    whole = traces.trace(seed, folded=folded, state=state, served=served, parts=tuple(parts))
    trace = msgspec.structs.replace(whole, phases={name: at for name, at in whole.phases.items() if name in phases})
    found = profile(trace)
    assert [row.share for row in found.shares] == list(WORDS)
    assert all(row.seconds >= 0 for row in found.shares)
    assert sum(row.seconds for row in found.shares) == pytest.approx(found.seconds, abs=1e-9)
    assert found.seconds >= trace.seconds
    assert sum(row.part for row in found.shares) == pytest.approx(1.0)
    assert max(row.seconds for row in found.shares) == next(
        row.seconds for row in found.shares if row.share == found.largest
    )
    assert [moment.at for moment in found.moments] == sorted(moment.at for moment in found.moments)
    assert found.exact != folded


def request(**fields: Any) -> Trace:
    """A request of 20 ms: a picture is decoded, a model computes twice, a picture is encoded."""
    lanes = [("picture_in", 0), ("model", 0), ("picture_out", 0)]
    blocks = [
        block(0, 1600, 1600, 1600, 2600),
        block(1, 2700, 2800, 3300, 7000, launched=3000),
        block(1, 7000, 7000, 7400, 12_000, launched=7600),
        block(2, 12_100, 12_100, 12_100, 13_000),
    ]
    whole = traced(lanes, blocks, [], 13_500, started=1200)
    does = ("decode", "compute", "encode")
    named = {
        "lanes": tuple(Lane(rank=0, name=name, nodes=(name,), loop=False, does=role) for (name, _), role in
                       zip(lanes, does, strict=True)),
        "parts": (RankPart(rank=0, received=1500, done=13_200),),
        "served": Served(received=-1500, read=-1100, submitted=-100, ended=13_700, answering=13_900, first_sent=14_500,
                         last_sent=18_500, sending=3000),
    }  # fmt: skip
    return msgspec.structs.replace(whole, **{**named, **fields})


def test_a_request_is_followed_from_its_first_byte_to_the_last_of_its_answer() -> None:
    found = profile(request())
    assert found.seconds == 0.02
    assert us(found) == {
        "socket": 400 + 3000,
        "decode": 1000 + 1000,
        # Admission, the wait for the batch, and for the device after all was handed over.
        "queue": 1200 + 100 + 300,
        "host": 100 + 400 + 100 + 100 + 500 + 200 + 200,
        # Until the device began, if that was before all was handed over.
        "launch": 200 + 400,
        "device": 3700 + 4600,
        "encode": 900 + 1600,
    }
    assert found.largest == "device"
    assert [(round(moment.at * 1e6), moment.what) for moment in found.moments] == [
        (0, "service received the request"),
        (400, "its bytes were read"),
        (1400, "inputs were decoded"),
        (1500, "conductor received it"),
        (2700, "admitted"),
        (3000, "rank 0 received it"),
        (4300, "first launch prepared"),
        (4800, "device began"),
        (13_500, "device ended"),
        (14_700, "rank 0 was done"),
        (15_000, "conductor ended it"),
        (15_200, "service heard of the end"),
        (15_400, "encoding of the answer began"),
        (16_000, "first byte sent"),
        (20_000, "last byte sent"),
    ]


def test_what_no_event_explains_is_a_share_of_its_own() -> None:
    # The events of the rank were lost.
    lost = profile(traced([], [], [], 9000, started=1000))
    assert us(lost) == {"queue": 1000, "other": 8000}
    # Its own event was lost, and its calls are known.
    assert us(profile(request(parts=())))["other"] == 400 + 100 + 100 + 500
    assert "other" not in us(profile(request()))


def test_values_between_ranks_and_calls_of_tasks_have_shares() -> None:
    lanes, hops = [("one", 0), ("two", 1)], [hop(0, 1, 0, 1000, 1800), hop(0, 1, 0, 1500, -1)]
    whole = traced(lanes, [block(0, 0, 0, 0, 1000), block(1, 1800, 1800, 1800, 3000)], hops, 3000)
    roles = ("compute", "call")
    named = tuple(Lane(rank=rank, name=name, nodes=(name,), loop=False, does=does) for (name, rank), does in
                  zip(lanes, roles, strict=True))  # fmt: skip
    found = profile(msgspec.structs.replace(whole, lanes=named))
    assert us(found) == {"device": 1000, "transfer": 800, "call": 1200}


def test_sums_of_calls_lie_behind_each_other_at_the_end_of_their_time() -> None:
    blocks = [block(0, 1000, 1000, 1000, 5000, kind=FOLDED, busy=2500, queued=500)]
    trace = traced([("model", 0)], blocks, [], 6000)
    part = RankPart(rank=0, received=500, done=5500)
    found = profile(msgspec.structs.replace(trace, parts=(part,)))
    assert us(found) == {"queue": 500, "device": 2500, "host": 3000}
    assert not found.exact


def test_bytes_that_are_sent_while_the_run_goes_on_do_not_count() -> None:
    times = ServiceTimes(WALL + 0.002)
    times.socket = SocketTimes(WALL)
    times.socket.read = WALL + 0.001
    times.socket.sent(WALL + 0.011, WALL + 0.014)
    assert times.told(WALL) == Served(
        received=0, read=1000, submitted=2000, first_sent=11_000, last_sent=14_000, ended=None, sending=0
    )
    times.answer(WALL + 0.0145)
    times.end(WALL + 0.015)
    times.answer(WALL + 0.016)
    times.answer(WALL + 0.022)
    times.socket.sent(WALL + 0.017, WALL + 0.021)
    times.socket.sent(WALL + 0.023, WALL + 0.027)
    told = times.told(WALL)
    assert (told.first_sent, told.last_sent, told.sending) == (11_000, 27_000, 8000)
    assert (told.ended, told.answering) == (15_000, 16_000), "an answer that goes on before the end is none of it"


def test_who_follows_a_run_after_its_request_was_answered_does_not_count() -> None:
    times = ServiceTimes(WALL)
    times.socket = SocketTimes(WALL)
    times.socket.sent(WALL + 0.001, WALL + 0.002)
    times.end(WALL + 0.015)
    times.answer(WALL + 3600)
    assert times.told(WALL).answering is None


def test_a_run_that_no_request_started_has_no_times_on_a_socket() -> None:
    times = ServiceTimes(1.0)
    assert times.told(0.5) == Served(submitted=500_000)
    found = profile(request(served=times.told(1.0)))
    assert found.seconds == 0.0135
    assert "socket" not in us(found)


def test_a_connection_keeps_the_times_of_its_latest_request() -> None:
    scope: dict[str, Any] = {}
    assert socket_times.of(scope) is None
    first = socket_times.begin(scope, 1.0)
    assert socket_times.of(scope) is first
    assert socket_times.begin(scope, 2.0) is not first
