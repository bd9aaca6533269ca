"""Written values are read back unchanged, blocks are small, and damage is reported."""

from __future__ import annotations

import random
import zlib

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.telling import A, sample
from walkgraph.telemetry.columns import MAGIC, Unreadable, decode, decode_recording, encode, encode_recording
from walkgraph.telemetry.events import Statistics
from walkgraph.telemetry.trace import (
    CALL,
    LAUNCH,
    Blocks,
    ClockError,
    Counters,
    Hops,
    KeptCall,
    Lane,
    LoopEnd,
    LoopReason,
    Shards,
    Trace,
)

INTS = st.integers(-(2**63), 2**63 - 1) | st.integers(-2, 300)
TIMES = st.integers(-(2**61), 2**61) | st.integers(-2, 300)
"""Microseconds of a hop: kept as the time under way, which has one value less than all 64-bit differences."""
RAGGED = st.lists(INTS, max_size=4).map(tuple)
FLOATS = st.floats(allow_nan=False)


def column(name: str, kind: str, rows: int):
    whole = TIMES if name in ("sent", "arrived") else INTS
    element = RAGGED if "tuple[int" in kind else st.booleans() if "bool" in kind else whole
    element = FLOATS if "float" in kind else element
    return st.lists(element, min_size=rows, max_size=rows).map(tuple)


@st.composite
def tables(draw: st.DrawFn, kind: type):
    rows = draw(st.integers(0, 12))
    kinds = {field.name: str(field.type) for field in msgspec.structs.fields(kind)}
    inner = {name: text.removeprefix("tuple[").removesuffix(", ...]") for name, text in kinds.items()}
    found = {name: draw(column(name, text, rows)) for name, text in inner.items()}
    return kind(**found)


TRACES = st.builds(
    Trace,
    run=st.just(A),
    deployment=st.text(max_size=5),
    task=st.just("draw"),
    state=st.sampled_from(("done", "failed")),
    level=st.sampled_from(("off", "summary", "full")),
    wall=FLOATS,
    seconds=FLOATS,
    phases=st.dictionaries(st.sampled_from(("queued", "finished")), INTS, max_size=2),
    error=st.none() | st.just("cancelled"),
    names=st.lists(st.text(max_size=5), max_size=3).map(tuple),
    lanes=st.just((Lane(rank=0, name="decode", nodes=("llm", "head"), loop=True),)),
    blocks=tables(Blocks),
    shards=tables(Shards),
    hops=tables(Hops),
    counters=tables(Counters),
    loops=st.just((LoopEnd(rank=0, walk="w", loop="l", iteration=(1,), iterations=2, reason="stop", at=3),)),
    ends=st.just((LoopReason(walk="w", loop="l", iterations=2, reason="derailed"),)),
    kept=st.just((KeptCall(rank=0, walk="w", node="n", use="u", step=1, iteration=(1,), at=3),)),
    hosts=st.just(("", "b")),
    clocks=st.just((ClockError(host="b", offset=-0.5, error=40),)),
    early=st.integers(0, 3),
    lost=st.integers(0, 5),
    cut=st.booleans(),
)


@settings(max_examples=40)
@given(TRACES)
def test_a_trace_comes_back_as_it_was(trace: Trace) -> None:
    assert decode(encode(trace)) == trace


@settings(max_examples=5)
@given(TRACES)
def test_a_trace_of_an_earlier_version_has_no_shards(trace: Trace) -> None:
    parts = msgspec.msgpack.decode(zlib.decompress(encode(trace)[len(MAGIC) :]))
    earlier = MAGIC + zlib.compress(msgspec.msgpack.encode(parts[:-1]))
    assert decode(earlier) == msgspec.structs.replace(trace, shards=Shards())


def test_hops_that_never_arrived_stay_so() -> None:
    rows = dict.fromkeys(Hops.__struct_fields__, (0,) * 5)
    hops = Hops(**{**rows, "key": ((),) * 5, "sent": (5, 6, 7, 8, 9), "arrived": (-1, 6, 5, 100, 7)})
    trace = Trace(
        run=A, deployment="d", task="t", state="done", level="full", wall=0.0, seconds=0.0, phases={}, hops=hops
    )
    assert decode(encode(trace)) == trace


def _lifelike(count: int) -> Blocks:
    """Iterations of a loop on a device beside calls of another node, timed with what a host's clock varies by."""
    vary = random.Random(0)
    rows: list[tuple[object, ...]] = []
    at = 0
    for number in range(count):
        looped = number % 4 != 3
        ready = at
        taken = ready + vary.randint(20, 60)
        launched = taken + vary.randint(150, 400)
        started = taken + vary.randint(30, 90)
        at = finished = started + vary.randint(3000, 3400)
        place = (LAUNCH, 0, 1, -1, 0, (number,), 1) if looped else (CALL, 1, 1, 2, 0, (), 1)
        times = (ready, taken, launched, started, finished, finished - started, started - ready)
        rows.append((*place, 1000 + number, 32, (2, 3, 4, 5), *times, 5000 - number // 16, False))
    return Blocks(**dict(zip(Blocks.__struct_fields__, zip(*rows, strict=True), strict=True)))


def test_a_block_takes_few_bytes() -> None:
    blocks = _lifelike(4000)
    about = {"run": A, "deployment": "d", "task": "t", "state": "done", "level": "full", "wall": 0.0, "seconds": 1.0}
    trace = Trace(**about, phases={}, names=("a", "b", "c", "d", "e", "f"), blocks=blocks)
    data = encode(trace)
    assert decode(data) == trace
    assert len(data) / len(blocks.kind) < 12


@pytest.mark.parametrize("data", [b"", b"nothing", MAGIC, MAGIC + b"x", MAGIC + zlib.compress(b"\x90")])
def test_what_is_no_trace_is_refused(data: bytes) -> None:
    with pytest.raises(Unreadable):
        decode(data)
    with pytest.raises(Unreadable):
        decode_recording(data)


@given(st.lists(st.lists(st.floats(allow_nan=False), max_size=5), max_size=5))
def test_a_recording_comes_back_as_it_was(picked: list[list[float]]) -> None:
    statistics = Statistics(count=4, nan=1, infinite=0, low=float("-inf"), high=2.0, mean=0.1, std=0.0, histogram=())
    told = [
        msgspec.structs.replace(sample(A, float(at), picked=tuple(numbers)), statistics=statistics)
        for at, numbers in enumerate(picked)
    ]
    assert decode_recording(encode_recording((one, one.picked) for one in told)) == tuple(told)


def test_numbers_of_a_model_are_packed_well() -> None:
    """They were 16 bits wide before they were told as 64."""
    vary = random.Random(0)
    picked = [tuple(vary.randint(-4096, 4096) / 1024 for _ in range(256)) for _ in range(20)]
    data = encode_recording((sample(A, float(at)), numbers) for at, numbers in enumerate(picked))
    assert len(data) < 20 * 256 * 3
