"""Packets are counted like the naive twin at both levels, and Prometheus' parser reads the result."""

from __future__ import annotations

import random
from collections import defaultdict
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from walkgraph.ids import Rank, RunId
from walkgraph.telemetry import events as e
from walkgraph.telemetry.places import Places
from walkgraph.telemetry.sinks import prometheus
from walkgraph.telemetry.sinks.prometheus import FromPackets, Histogram, Total

RUN, OTHER, RANK = RunId("a" * 32), RunId("b" * 32), Rank(0)
PLACES = Places(
    edges={("decode", 3): "llm.next -> vae.x"},
    streams={1: "@stream.speech"},
    tokens=frozenset({("decode", "tokens", 1)}),
)


def packet(*events: e.Any, source: str = "rank 0.1", dropped: int = 0) -> e.Packet:
    return e.Packet(deployment="d v1", source=source, first=0, dropped=dropped, wall=0.0, events=events)


def sink(now: list[float] | None = None) -> FromPackets:
    clock = now or [0.0]
    return FromPackets(lambda deployment, version: PLACES if version == "v1" else None, lambda: clock[0])


def read(metrics: FromPackets) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    """Every sample of the text that a reader gets."""
    registry = CollectorRegistry()

    class Families:
        def collect(self) -> Any:
            return metrics.families()

    registry.register(Families())
    text = generate_latest(registry).decode()
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def labels(**given: str) -> tuple[tuple[str, str], ...]:
    return tuple(sorted({"deployment": "d", **given}.items()))


def forward(nodes: tuple[str, ...], ready: tuple[float, ...], started: float, finished: float) -> e.Forward:
    count = len(nodes)
    return e.Forward(
        rank=RANK, number=1, runs=(RUN,) * count, walks=("w",) * count, nodes=nodes, uses=nodes, steps=(0,) * count,
        iterations=((),) * count, ready=ready, taken=started, launched=started, started=started, finished=finished,
    )  # fmt: skip


def activity(node: str, calls: int, busy: float, queued: float = 0.0) -> e.Activity:
    return e.Activity(
        run=RUN, rank=RANK, node=node, use=node, walk="w", iteration=(), calls=calls, busy=busy, queued=queued,
        launched=0.0, finished=1.0, batch=1,
    )  # fmt: skip


def transfer(nbytes: int, edge: int = 3, stream: bool = False) -> e.Transfer:
    return e.Transfer(
        run=RUN, source=RANK, target=Rank(1), walk="decode", edge=edge, stream=stream, step=0, key=(), transport="shm",
        count=2, nbytes=nbytes, at=0.0,
    )  # fmt: skip


def gauge(rank: int = 0, free: int = 3, total: int = 4, asked: int = 0, hits: int = 0) -> e.RankGauge:
    return e.RankGauge(
        rank=Rank(rank), at=0.0, runs=2, queue=5, busy=0.75, memory_used=10, memory_total=40, pages_free=free,
        pages_total=total, prefix_tokens=asked, prefix_hits=hits, out_tickets=0, rejected=0, dropped=0,
    )  # fmt: skip


@given(seed=st.integers(0, 1000))
def test_calls_are_counted_as_one_by_one(seed: int) -> None:
    dice, metrics = random.Random(seed), sink()
    calls, seconds, waited = defaultdict[str, int](int), defaultdict[str, float](float), defaultdict[str, float](float)
    for _ in range(20):
        nodes = tuple(dice.choices(("llm", "vae"), k=dice.randrange(1, 5)))
        started = dice.uniform(1.0, 2.0)
        ready = tuple(started - dice.uniform(0.0, 0.01) for _ in nodes)
        finished = started + dice.choice((1e-4, 0.002, 9.0))
        metrics.take(packet(forward(nodes, ready, started, finished)), "d", "v1", 0)
        for node, at in zip(nodes, ready, strict=True):
            calls[node] += 1
            seconds[node] += finished - started
            waited[node] += started - at
    for node, count in calls.items():
        assert metrics.nodes.count("d", node) == metrics.queued.count("d", node) == count
        assert metrics.nodes.sum("d", node) == pytest.approx(seconds[node])
        assert metrics.queued.sum("d", node) == pytest.approx(waited[node])


def test_levels_agree_on_calls_and_seconds() -> None:
    full, summary = sink(), sink()
    times = (0.25, 0.5)
    for seconds in times:
        full.take(packet(forward(("llm", "llm"), (1.0, 1.0), 2.0, 2.0 + seconds)), "d", "v1", 0)
    summary.take(packet(*[activity("llm", 2, sum(times), 2.0) for _ in range(2)]), "d", "v1", 0)
    for metrics in (full, summary):
        assert metrics.nodes.count("d", "llm") == 4
        assert metrics.nodes.sum("d", "llm") == 1.5
        assert metrics.queued.sum("d", "llm") == 4.0


def test_a_launch_is_its_loops_and_no_nodes() -> None:
    full, summary = sink(), sink()
    launch = e.Launch(
        rank=RANK, number=1, loop="generate", nodes=("llm", "sampler"), uses=("llm", "sampler"), count=8,
        runs=(RUN, OTHER), walks=("w", "w"), steps=(0, 0), outer=((), ()), first=(0, 4), ready=(0.25, 1.5), taken=0.0,
        launched=0.0, started=1.0, finished=1.5,
    )  # fmt: skip
    full.take(packet(launch), "d", "v1", 0)
    for run in (RUN, OTHER):
        work = e.LoopWork(
            nodes=("llm", "sampler"), uses=("llm", "sampler"), calls=(8, 8), spans=False, busy=0.5, queued=0.375,
            began=0.0, batch=2,
        )  # fmt: skip
        ended = e.LoopEnded(
            run=run, rank=RANK, walk="w", loop="generate", step=0, iteration=(), iterations=8, reason="bound", at=0.0,
            work=work,
        )  # fmt: skip
        summary.take(packet(ended), "d", "v1", 0)
    for metrics in (full, summary):
        assert metrics.nodes.count("d", "llm") == metrics.nodes.count("d", "sampler") == 0
        assert metrics.iterations.count("d", "generate", "0") == metrics.loops_queued.count("d", "generate", "0") == 16
        assert metrics.iterations.sum("d", "generate", "0") == pytest.approx(0.5 * 2)
        waited = metrics.loops_queued.sum("d", "generate", "0")
        assert waited == pytest.approx(0.75), "the one that was ready later hasn't waited"


def test_the_text_has_names_units_and_labels() -> None:
    metrics = sink()
    ended = e.LoopEnded(
        run=RUN, rank=RANK, walk="w", loop="generate", step=0, iteration=(), iterations=50, reason="stop", at=0.0
    )
    told = (activity("llm", 2, 0.03), transfer(100), transfer(20), transfer(7, edge=1, stream=True), ended, gauge())
    metrics.take(packet(*told), "d", "v1", 0)
    metrics.take(packet(transfer(9, edge=8)), "d", "v9", 0)
    found = read(metrics)
    edge = {"edge": "llm.next -> vae.x", "transport": "shm"}
    assert found["walkgraph_edge_bytes_total", labels(**edge)] == 120
    assert found["walkgraph_edge_tensors_total", labels(**edge)] == 4
    assert found["walkgraph_edge_bytes_total", labels(edge="@stream.speech", transport="shm")] == 7
    assert found["walkgraph_edge_bytes_total", labels(edge="edge 8", transport="shm")] == 9
    name = "walkgraph_node_execution_seconds"
    assert found[f"{name}_count", labels(node="llm")] == 2
    assert found[f"{name}_sum", labels(node="llm")] == pytest.approx(0.03)
    assert found[f"{name}_bucket", labels(node="llm", le="0.01")] == 0
    assert found[f"{name}_bucket", labels(node="llm", le="0.025")] == 2
    assert found[f"{name}_bucket", labels(node="llm", le="+Inf")] == 2
    assert found["walkgraph_loop_iterations_sum", labels(loop="generate", rank="0")] == 50
    assert found["walkgraph_kv_cache_usage_perc", labels(rank="0")] == 0.25
    assert found["walkgraph_device_busy_ratio", labels(rank="0")] == 0.75
    assert found["walkgraph_device_memory_used_bytes", labels(rank="0")] == 10
    assert found["walkgraph_telemetry_dropped_total", labels(source="rank 0")] == 0


def test_running_totals_of_sources_add_up_over_their_starts() -> None:
    metrics = sink()
    for source, dropped, asked in (("rank 0.1", 3, 10), ("rank 0.1", 5, 30), ("rank 0.2", 1, 4), ("rank 1.1", 2, 1)):
        rank = int(source[5])
        metrics.take(packet(gauge(rank, asked=asked, hits=asked // 2), source=source, dropped=dropped), "d", "v1", 0)
    metrics.take(packet(gauge(asked=7, hits=7), source="rank 0.1"), "d", "v2", 0)
    assert metrics.dropped.value("d", "rank 0") == 5 + 1
    assert metrics.dropped.value("d", "rank 1") == 2
    assert metrics.asked.value("d", "0") == 30 + 4 + 7
    assert metrics.hits.value("d", "0") == 15 + 2 + 7


def test_tokens_are_counted_once_and_only_of_loops_that_make_them() -> None:
    metrics = sink()

    def ended(walk: str, loop: str, rank: int, iterations: int) -> e.LoopEnded:
        fields = {"run": RUN, "step": 0, "iteration": (), "reason": "stop", "at": 1.0}
        return e.LoopEnded(rank=Rank(rank), walk=walk, loop=loop, iterations=iterations, **fields)

    told = [ended("decode", "tokens", 0, 40), ended("decode", "tokens", 1, 40), ended("draw", "denoise", 1, 50)]
    metrics.take(packet(*told, ended("decode", "tokens", 1, 2), gauge(asked=30, hits=16)), "d", "v1", 0)
    metrics.take(packet(gauge(asked=35, hits=16)), "d", "v1", 0)
    metrics.take(packet(gauge(1, asked=4), source="rank 1.1"), "d", "v1", 0)
    found = read(metrics)
    assert found["walkgraph_generation_tokens_total", labels()] == 42
    assert found["walkgraph_prompt_tokens_total", labels()] == 39
    # A version that is gone has no places.
    metrics.take(packet(*told), "d", "v0", 0)
    assert metrics.generated.value("d") == 42


def test_figures_of_nodes_add_up_and_their_largest_is_the_latest() -> None:
    now = [0.0]
    metrics = sink(now)
    for count, total, most in ((4, 30, 9), (2, 12, 7)):
        figure = e.NodeFigure(nodes=("llm", "view"), name="distinct_experts", count=count, total=total, most=most)
        metrics.take(packet(msgspec.structs.replace(gauge(), figures=(figure,))), "d", "v1", 0)
    for node in ("llm", "view"):
        where = labels(rank="0", node=node, figure="distinct_experts")
        found = read(metrics)
        assert found["walkgraph_node_figure_count_total", where] == 6
        assert found["walkgraph_node_figure_sum_total", where] == 42
        assert found["walkgraph_node_figure_max", where] == 7
    metrics.take(packet(gauge()), "d", "v1", 0)
    assert not any(name == "walkgraph_node_figure_max" for name, _ in read(metrics))
    assert read(metrics)["walkgraph_node_figure_sum_total", where] == 42


def test_a_rank_that_is_silent_is_not_shown_as_it_was() -> None:
    now = [0.0]
    metrics = sink(now)
    metrics.take(packet(gauge()), "d", "v1", 0)
    metrics.take(packet(gauge(1, total=0)), "d", "v1", 0)
    assert ("walkgraph_kv_cache_usage_perc", labels(rank="1")) not in read(metrics)
    assert ("walkgraph_rank_queue", labels(rank="1")) in read(metrics)
    now[0] = prometheus.GAUGE_SECONDS + 1.0
    assert not any(name == "walkgraph_rank_queue" for name, _ in read(metrics))


def test_what_is_forgotten_is_one_deployment() -> None:
    metrics = sink()
    for deployment in ("d", "other"):
        metrics.take(packet(activity("llm", 1, 0.1), transfer(5), gauge(asked=3), dropped=2), deployment, "v1", 0)
    metrics.forget("d")
    assert {dict(where)["deployment"] for _, where in read(metrics)} == {"other"}


def test_series_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prometheus, "MAX_SERIES", 3)
    total, histogram = Total("t", "t", "x"), Histogram("h", "h", (1.0,), "x")
    for i in range(9):
        total.add(("d", str(i % 5)))
        histogram.observe(("d", str(i % 5)), 0.5)
    assert [total.value("d", str(i)) for i in range(5)] == [2, 2, 2, 0, 0]
    assert [histogram.count("d", str(i)) for i in range(5)] == [2, 2, 2, 0, 0]


@given(st.lists(st.tuples(st.floats(0.0, 10.0), st.integers(1, 5)), max_size=40))
def test_buckets_are_those_of_a_naive_count(values: list[tuple[float, int]]) -> None:
    bounds = (0.5, 1.0, 5.0)
    histogram = Histogram("h", "h", bounds)
    for value, times in values:
        histogram.observe(("d",), value, times)
    if not values:
        assert histogram.family().samples == []
        return
    found = {s.labels["le"]: s.value for s in histogram.family().samples if s.name == "h_bucket"}
    for name, bound in (("0.5", 0.5), ("1", 1.0), ("5", 5.0), ("+Inf", float("inf"))):
        assert found[name] == sum(times for value, times in values if value <= bound)
