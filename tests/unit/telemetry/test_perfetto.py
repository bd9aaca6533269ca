"""Every trace becomes a file that opens: slices of a thread nest or are apart, arrows have two ends inside slices, and
what is drawn adds up to what was told."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from itertools import pairwise

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support import traces
from tests.support.chrome import Event, faults
from walkgraph.telemetry.sinks import perfetto
from walkgraph.telemetry.trace import Blocks, ClockError, Counters, Hops, Lane, Shards, Trace
from walkgraph.telemetry.tracks import spread

spans = st.lists(st.tuples(st.integers(0, 30), st.integers(0, 9)).map(lambda p: (p[0], p[0] + p[1])), max_size=30)


def blocks_of(events: list[Event], trace: Trace) -> Counter[tuple[int, str, int, int]]:
    """(rank, lane, start, end) of every block that was drawn."""
    kinds = ("call", "launch", "folded")
    return Counter(
        (e["pid"] - perfetto.RANKS_FROM, e["args"].get("node", e["name"]), e["ts"], (e["ts"] + e["dur"]))
        for e in events
        if e["ph"] == "X" and e["cat"] in kinds
    )


@pytest.mark.parametrize("folded", [False, True])
@given(seed=st.integers(0, 10_000), ranks=st.integers(1, 3))
def test_any_trace_nests_and_adds_up(folded: bool, seed: int, ranks: int) -> None:
    trace = traces.trace(seed, ranks=ranks, batches=8, folded=folded)
    events = perfetto.events(trace)
    assert faults(events) == []
    blocks = trace.blocks
    told = Counter(
        (trace.lanes[lane].rank, trace.lanes[lane].name, blocks.started[row], blocks.finished[row])
        for row, lane in enumerate(blocks.lane)
    )
    assert blocks_of(events, trace) == told
    sent = sum(e["args"].get("bytes", 0) for e in events if e.get("cat") == "transfer")
    assert sent == sum(trace.hops.nbytes)
    [run] = [e for e in events if e.get("cat") == "run"]
    assert run["dur"] == round(trace.seconds * 1e6)


@given(seed=st.integers(0, 10_000))
def test_batches_are_drawn_once_and_lead_to_their_calls(seed: int) -> None:
    trace = traces.trace(seed, batches=8)
    events = perfetto.events(trace)
    numbers = {
        (trace.lanes[lane].rank, number) for lane, number in zip(trace.blocks.lane, trace.blocks.number, strict=True)
    }
    drawn = [(e["pid"] - perfetto.RANKS_FROM, e["args"]["number"]) for e in events if e.get("cat") == "device"]
    assert sorted(drawn) == sorted(numbers)
    arrived = sum(at >= 0 for at in trace.hops.arrived)
    assert sum(e["ph"] == "s" and e["name"] == "hop" for e in events) == arrived


@given(seed=st.integers(0, 10_000))
def test_parts_of_shards_are_on_their_own_devices(seed: int) -> None:
    trace = traces.trace(seed, ranks=1, batches=8)
    numbers = sorted(set(trace.blocks.number))
    places = [trace.blocks.number.index(number) for number in numbers]
    began = tuple(trace.blocks.started[place] + 7 for place in places)
    others = tuple(rank for rank in (1, 2) for _ in numbers)
    shards = Shards(
        rank=others,
        of=(0,) * len(others),
        number=(*numbers, *numbers),
        started=(*began, *began),
        finished=tuple(at + 90 for at in (*began, *began)),
    )
    events = perfetto.events(msgspec.structs.replace(trace, shards=shards))
    assert faults(events) == []
    drawn = [e for e in events if e["name"] == "shard"]
    assert [e["pid"] - perfetto.RANKS_FROM for e in drawn] == list(others)
    assert sorted(e["args"]["number"] for e in drawn) == sorted(shards.number)
    assert blocks_of(events, trace) == blocks_of(perfetto.events(trace), trace), "work is drawn once"


def test_ranks_on_other_hosts_are_named_and_labelled() -> None:
    clock = ClockError(host="b", offset=5.0, error=40)
    trace = traces.trace(2, ranks=2, hosts=("", "b"), clocks=(clock,))
    events = perfetto.events(trace)
    assert faults(events) == []
    args = {(event["name"], event["pid"]): event["args"] for event in events if event["ph"] == "M"}
    assert args["process_name", 2] == {"name": "rank 0 (cuda:0)"}
    assert args["process_name", 3] == {"name": "rank 1 (cuda:1, host b)"}
    assert args["process_labels", 3] == {"labels": "times may be 40 us off"}
    assert ("process_labels", 2) not in args
    other = json.loads(perfetto.encode(trace))["otherData"]
    assert (other["clocks"], other["early_hops"]) == ([{"host": "b", "offset": 5.0, "error": 40}], 0)


def test_what_the_checker_finds() -> None:
    def cut(ts: int, dur: int, tid: int = 1) -> Event:
        return {"ph": "X", "name": "x", "cat": "x", "ts": ts, "dur": dur, "pid": 1, "tid": tid}

    name = {"ph": "M", "name": "thread_name", "pid": 1, "tid": 1, "ts": 0}
    assert faults([name, cut(0, 10), cut(0, 10), cut(2, 3), cut(5, 5), cut(10, 0)]) == []
    assert len(faults([name, cut(0, 10), cut(5, 6)])) == 1
    assert len(faults([cut(0, 10)])) == 1
    arrow = {"name": "v", "cat": "v", "id": 1, "pid": 1, "tid": 1}
    assert faults([name, cut(0, 10), {**arrow, "ph": "s", "ts": 1}, {**arrow, "ph": "f", "ts": 9}]) == []
    assert len(faults([name, cut(0, 10), {**arrow, "ph": "s", "ts": 1}])) == 1
    assert len(faults([name, cut(0, 10), {**arrow, "ph": "s", "ts": 1}, {**arrow, "ph": "f", "ts": 11}])) == 1


def test_a_run_of_two_ranks_by_hand() -> None:
    """A call on rank 0, its value to rank 1, the call there, which shares its batch with another run."""
    trace = Trace(
        run=traces.RUN, deployment="d", task="t", state="done", level="full", wall=0.0, seconds=0.001,
        phases={"queued": 0, "started": 100, "finished": 1000}, devices=("cuda:0", "cuda:1"), names=traces.NAMES,
        lanes=tuple(Lane(rank=rank, name=name, nodes=(name,), loop=False) for rank, name in enumerate(("llm", "vae"))),
        blocks=Blocks(
            kind=(0, 0), lane=(0, 1), walk=(0, 0), use=(5, 7), step=(0, 0), iteration=((), ()), count=(1, 1),
            number=(5, 9), batch=(1, 2), mates=((), (4,)), ready=(100, 420), taken=(110, 430), launched=(120, 440),
            started=(130, 450), finished=(400, 800), busy=(270, 350), queued=(30, 30), pages_free=(-1, -1),
            failed=(False, False),
        ),
        hops=Hops(
            source=(0,), target=(1,), walk=(0,), edge=(2,), step=(0,), key=((),), transport=(3,), count=(1,),
            nbytes=(64,), sent=(405,), arrived=(415,),
        ),
        counters=Counters(
            rank=(0,), at=(500,), busy=(0.5,), queue=(3,), runs=(2,), memory_used=(77,), pages_used=(4,),
            pages_total=(10,),
        ),
    )  # fmt: skip
    events = perfetto.events(trace)
    assert faults(events) == []
    process = {e["pid"]: e["args"]["name"] for e in events if e["name"] == "process_name"}
    assert process == {1: "run 0af76519", 2: "rank 0 (cuda:0)", 3: "rank 1 (cuda:1)"}
    thread = {(e["pid"], e["tid"]): e["args"]["name"] for e in events if e["name"] == "thread_name"}

    def where(event: Event) -> tuple[str, int]:
        return thread[event["pid"], event["tid"]], event["ts"]

    arrows = defaultdict[int, list[tuple[str, int]]](list)
    for event in events:
        if event["ph"] in "sf":
            arrows[event["id"]].append(where(event))
    assert sorted(arrows.values()) == [
        [("host", 110), ("device", 130)],
        [("host", 430), ("device", 450)],
        [("llm", 130), ("sends", 405)],
        [("receives", 415), ("vae", 450)],
        [("sends", 405), ("receives", 415)],
    ]
    on_run = [(e["name"], e["ts"], e["dur"]) for e in events if e["ph"] == "X" and where(e)[0] == "run"]
    assert on_run == [("t", 0, 1000), ("queued", 0, 100), ("running", 100, 900), ("prefill #0", 130, 670)]
    [vae] = [e for e in events if e["name"] == "again"]
    assert (vae["args"]["with"], vae["args"]["node"]) == (["b" * 32], "vae")
    counted = {e["name"]: e["args"] for e in events if e["ph"] == "C"}
    assert counted["KV pages"] == {"used": 4, "free": 6}
    assert counted["busy"] == {"share": 0.5}


def test_a_run_that_has_not_begun_is_a_file_too() -> None:
    trace = traces.trace(1, batches=0, ranks=1, phases={"queued": 0}, state="running", seconds=0.25)
    file = json.loads(perfetto.encode(trace))
    assert file["otherData"]["run"] == traces.RUN
    assert file["traceEvents"] == perfetto.events(trace)
    assert faults(file["traceEvents"]) == []
    assert [e["name"] for e in file["traceEvents"] if e["ph"] == "X"] == ["draw", "queued"]


@given(ordered=spans.map(sorted))
def test_spans_of_one_line_are_apart_and_lines_are_few(ordered: list[tuple[int, int]]) -> None:
    lines = spread(ordered)
    for line in set(lines):
        mine = [span for span, its in zip(ordered, lines, strict=True) if its == line]
        assert all(before[1] <= after[0] for before, after in pairwise(mine))
    # As many as are open at once somewhere, an instant beside what has begun already counting as open.
    most = max((sum(s <= at < e or s == at for s, e in ordered) for at, _ in ordered), default=0)
    assert len(set(lines)) <= most
    assert sorted(set(lines)) == list(range(len(set(lines))))


def test_the_file_is_the_same_for_what_was_kept() -> None:
    trace = traces.trace(3)
    kept = msgspec.json.decode(msgspec.json.encode(trace), type=Trace)
    assert json.loads(perfetto.encode(trace))["traceEvents"] == perfetto.events(trace)
    assert perfetto.encode(kept) == perfetto.encode(trace)
