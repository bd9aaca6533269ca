"""The critical path of schedules with known reasons; its shares add up to the run's seconds for any events."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.telling import A
from walkgraph.telemetry.critical import KINDS, Why, why
from walkgraph.telemetry.places import Places
from walkgraph.telemetry.trace import CALL, FOLDED, LAUNCH, Blocks, Hops, Lane, Trace

NAMES = ("walk",)


def traced(
    lanes: list[tuple[str, int]],
    blocks: list[dict[str, Any]],
    hops: list[dict[str, Any]],
    total: int,
    *,
    started: int = 0,
    names: tuple[str, ...] = NAMES,
) -> Trace:
    return Trace(
        run=A,
        deployment="d",
        task="t",
        state="done",
        level="full",
        wall=0.0,
        seconds=total / 1e6,
        phases={"queued": 0, "started": started, "finished": total},
        names=names,
        lanes=tuple(Lane(rank=rank, name=name, nodes=(name,), loop=False) for name, rank in lanes),
        blocks=Blocks(**{name: tuple(row[name] for row in blocks) for name in Blocks.__struct_fields__}),
        hops=Hops(**{name: tuple(row[name] for row in hops) for name in Hops.__struct_fields__}),
    )


def block(lane: int, ready: int, taken: int, started: int, finished: int, **other: Any) -> dict[str, Any]:
    found = {
        "kind": CALL,
        "lane": lane,
        "walk": 0,
        "use": -1,
        "step": 0,
        "iteration": (),
        "count": 1,
        "number": 0,
        "batch": 1,
        "mates": (),
    }
    found |= {"ready": ready, "taken": taken, "launched": started, "started": started, "finished": finished}
    found |= {"busy": finished - started, "queued": started - ready, "pages_free": -1, "failed": False}
    return {**found, **other}


def hop(source: int, target: int, edge: int, sent: int, arrived: int, **other: Any) -> dict[str, Any]:
    found = {
        "source": source,
        "target": target,
        "walk": 0,
        "edge": edge,
        "step": 0,
        "key": (),
        "transport": 0,
        "count": 1,
        "nbytes": 1,
    }
    return {**found, "sent": sent, "arrived": arrived, **other}


class Schedule:
    """A loop over nodes that wait for each other, on ranks that do one thing at a time, after a step that begins it."""

    def __init__(self, seed: int, nodes: int, ranks: int, iterations: int) -> None:
        self.vary = random.Random(seed)
        self.rank = [self.vary.randrange(ranks) for _ in range(nodes + 1)]
        self.needs = [
            [],
            [],
            *[self.vary.sample(range(1, i), min(i - 1, self.vary.randint(1, 2))) for i in range(2, nodes + 1)],
        ]
        self.free = [0] * ranks
        self.rows: list[dict[str, Any]] = []
        self.hops: list[dict[str, Any]] = []
        self.reasons: list[tuple[int, int | None, int | None]] = []
        """For each block: when its last cause was there, that block, and the hop between."""
        self.edges: dict[str, int] = {}
        self.admitted = self.vary.randint(0, 50_000)
        begin = self.call(0, [], 0, ())
        latest = begin
        for k in range(iterations):
            made: dict[int, int] = {}
            for node in range(1, nodes + 1):
                before = [made[need] for need in self.needs[node]]
                made[node] = self.call(node, before or [latest], 1, (k,))
            latest = made[nodes]
        self.last = max(range(len(self.rows)), key=lambda row: self.rows[row]["finished"])
        self.total = self.rows[self.last]["finished"] + self.vary.randint(0, 3000)

    def call(self, node: int, before: list[int], step: int, iteration: tuple[int, ...]) -> int:
        rank, draw = self.rank[node], self.vary.randint
        reasons = [self.brought(one, node, step, iteration) for one in before]
        at, reason, through = max(reasons, default=(self.admitted, None, None), key=lambda found: found[0])
        ready = at + draw(0, 50)
        taken = max(ready, self.free[rank]) + draw(0, 200)
        started = taken + draw(0, 1000)
        finished = self.free[rank] = started + draw(1, 100_000)
        self.rows.append(block(node, ready, taken, started, finished, step=step, iteration=iteration))
        self.reasons.append((at, reason, through))
        return len(self.rows) - 1

    def brought(self, one: int, node: int, step: int, iteration: tuple[int, ...]) -> tuple[int, int, int | None]:
        row = self.rows[one]
        if self.rank[row["lane"]] == self.rank[node]:
            return row["finished"], one, None
        edge = 1 + self.edges.setdefault(f"n{row['lane']} -> n{node}", len(self.edges))
        sent = row["finished"] + self.vary.randint(0, 300)
        arrived = sent + self.vary.randint(1, 20_000)
        ranks = (self.rank[row["lane"]], self.rank[node])
        self.hops.append(hop(*ranks, edge, sent, arrived, step=row["step"], key=row["iteration"]))
        return arrived, one, len(self.hops) - 1

    def trace(self) -> Trace:
        """In an order in which the reasons can't be read off."""
        lanes = [(f"n{node}", rank) for node, rank in enumerate(self.rank)]
        names = (*NAMES, *self.edges)
        blocks = sorted(self.rows, key=lambda row: row["started"])
        return traced(lanes, blocks, self.hops, self.total, started=self.admitted, names=names)

    def places(self) -> Places:
        count = len(self.rank)
        pairs = {(need, node) for node in range(2, count) for need in self.needs[node]} | {(0, 1), (count - 1, 1)}
        ends = [(name, *name.split(" -> ")) for name in self.edges]
        return Places(
            follows=frozenset((f"n{one}", f"n{two}") for one, two in pairs),
            readers={("walk", name): frozenset((to,)) for name, _, to in ends},
            writers={("walk", name): frozenset((of,)) for name, of, _ in ends},
        )

    def truth(self) -> Counter[str]:
        """Microseconds by kind, as the reasons were when it was made."""
        found = Counter[str]({"wait": self.total - self.rows[self.last]["finished"], "admission": self.admitted})
        at: int | None = self.last
        while at is not None:
            row, (since, before, through) = self.rows[at], self.reasons[at]
            found["compute"] += row["finished"] - row["started"]
            found["launch"] += row["started"] - row["taken"]
            found["queue"] += row["taken"] - row["ready"]
            found["wait"] += row["ready"] - since
            if through is not None and before is not None:
                found["transfer"] += self.hops[through]["arrived"] - self.hops[through]["sent"]
                found["wait"] += self.hops[through]["sent"] - self.rows[before]["finished"]
            at = before
        return found


def micros(found: Why) -> dict[str, int]:
    return {kind: round(found.shares[kind] * 1e6) for kind in KINDS}


def check_whole(found: Why, total: int) -> None:
    assert sum(micros(found).values()) == total
    if found.path:
        assert (found.path[0].began, found.path[-1].ended) == (0, total)
        assert all(one.ended == two.began for one, two in zip(found.path, found.path[1:], strict=False))
        assert all(piece.began < piece.ended for piece in found.path)


@settings(max_examples=300)
@given(st.integers(0, 2**32), st.integers(1, 6), st.integers(1, 3), st.integers(1, 6))
def test_the_path_is_the_one_that_was_scheduled(seed: int, nodes: int, ranks: int, iterations: int) -> None:
    made = Schedule(seed, nodes, ranks, iterations)
    found = why(made.trace(), made.places())
    check_whole(found, made.total)
    truth = made.truth()
    assert micros(found) == {kind: truth[kind] for kind in KINDS}


@st.composite
def anything(draw: st.DrawFn) -> Trace:
    moments = st.integers(0, 100)
    blocks: list[dict[str, Any]] = []
    for _ in range(draw(st.integers(0, 8))):
        times = sorted(draw(st.lists(moments, min_size=4, max_size=4)))
        kind = draw(st.sampled_from((CALL, LAUNCH, FOLDED)))
        place = {"step": draw(st.integers(-1, 2)), "iteration": tuple(draw(st.lists(st.integers(0, 3), max_size=2)))}
        busy = draw(moments)
        blocks.append(block(draw(st.integers(0, 3)), *times, kind=kind, busy=busy, queued=draw(moments), **place))
    hops = [
        hop(draw(st.integers(0, 1)), draw(st.integers(0, 1)), 1, draw(moments), draw(st.integers(-1, 100)))
        for _ in range(draw(st.integers(0, 5)))
    ]
    blocks.sort(key=lambda row: row["started"])
    lanes = [("a", 0), ("b", 0), ("a", 1), ("c", 1)]
    return traced(lanes, blocks, hops, draw(moments), started=draw(moments), names=("walk", "a.x -> b.y"))


@settings(max_examples=200)
@given(anything(), st.booleans())
def test_shares_are_the_runs_seconds_whatever_was_told(trace: Trace, planned: bool) -> None:
    places = Places(follows=frozenset({("a", "b"), ("b", "c")})) if planned else None
    found = why(trace, places)
    check_whole(found, round(trace.seconds * 1e6))
    assert found.says
    assert not found.path or FOLDED not in trace.blocks.kind


def test_without_calls_told_apart_shares_are_estimated_and_said_to_be() -> None:
    rows = [
        block(0, 100, 100, 100, 300, kind=FOLDED, busy=150, queued=10),
        block(1, 200, 200, 200, 400, kind=FOLDED, busy=200, queued=0),
    ]
    found = why(traced([("llm", 0), ("vae", 1)], rows, [], 500, started=100))
    # 75 % of 100 to 200, then all, though both were busy.
    assert micros(found) == {"admission": 100, "compute": 275, "queue": 5, "launch": 0, "transfer": 0, "wait": 120}
    assert found.path == ()
    assert found.bottleneck is not None
    assert (found.bottleneck.lane, found.bottleneck.kind) == ("vae", "compute")
    assert "estimates" in found.says


def test_the_bottleneck_is_named_where_it_is() -> None:
    rows = [block(0, 10, 20, 30, 1030), block(1, 1240, 1700, 1710, 1730)]
    hops = [hop(0, 1, 1, 1040, 1240)]
    found = why(traced([("llm", 0), ("vae", 1)], rows, hops, 1740, names=("walk", "llm.x -> vae.y")))
    assert found.bottleneck is not None
    assert (found.bottleneck.lane, found.bottleneck.rank, found.bottleneck.seconds) == ("llm", 0, 0.001)
    assert found.says.startswith("Of its 1.7 ms, 1.0 ms (57 %) was `llm` on rank 0 computing.")
    assert "For 470 µs (27 %) it waited for batches." in found.says
    assert [piece.kind for piece in found.path].count("transfer") == 1


@pytest.mark.parametrize("skipped", [False, True])
def test_what_was_skipped_does_not_hide_the_reason(skipped: bool) -> None:
    """`c` waits for `b`, which waits for `a`; where `b` was skipped, only `a` can have been the reason."""
    middle = [] if skipped else [block(1, 20_000, 20_000, 20_000, 29_000, iteration=(1,))]
    rows = [
        block(1, 0, 0, 0, 1000, iteration=(0,)),
        block(0, 1000, 1000, 1000, 20_000, iteration=(1,)),
        *middle,
        block(2, 29_010, 29_010, 29_010, 30_000, iteration=(1,)),
    ]
    if skipped:
        rows[-1] = block(2, 20_010, 20_010, 20_010, 30_000, iteration=(1,))
    places = Places(follows=frozenset({("a", "b"), ("b", "c"), ("b", "a")}))
    found = why(traced([("a", 0), ("b", 0), ("c", 0)], rows, [], 30_000), places)
    computed = [piece.lane for piece in found.path if piece.kind == "compute"]
    assert computed == ([1, 0, 2] if skipped else [1, 0, 1, 2])


def test_a_run_of_which_nothing_was_told_has_no_reason() -> None:
    found = why(traced([], [], [], 1000, started=400))
    assert micros(found)["admission"] == 400
    assert micros(found)["wait"] == 600
    assert found.bottleneck is None
    assert "not known" in found.says
    waits = msgspec.structs.replace(traced([], [], [], 1000), phases={"queued": 0})
    assert micros(why(waits))["admission"] == 1000
    off = msgspec.structs.replace(waits, phases={}, level="off")
    assert micros(why(off))["wait"] == 1000
    assert "telemetry was off" in why(off).says


def test_what_comes_later_in_a_loop_is_no_reason() -> None:
    """`b` of the first iteration waits for its rank while `a` of the next one computes there."""
    rows = [
        block(0, 0, 0, 0, 10_000, iteration=(0,)),
        block(0, 10_000, 10_000, 10_000, 20_000, iteration=(1,)),
        block(1, 10_000, 20_000, 20_000, 30_000, iteration=(0,)),
    ]
    places = Places(follows=frozenset({("a", "b"), ("a", "a")}))
    found = why(traced([("a", 0), ("b", 0)], rows, [], 30_000), places)
    assert [(piece.kind, piece.block) for piece in found.path] == [("compute", 0), ("queue", 2), ("compute", 2)]


def test_parts_of_a_call_follow_each_other() -> None:
    rows = [block(0, 0, 0, 0, 500), block(0, 500, 550, 550, 900)]
    found = why(traced([("llm", 0)], rows, [], 900), Places(follows=frozenset()))
    assert [(piece.kind, piece.block) for piece in found.path] == [("compute", 0), ("queue", 1), ("compute", 1)]
