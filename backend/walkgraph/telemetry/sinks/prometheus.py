"""Packets as Prometheus metrics: counters, gauges and histograms by deployment.

Series are plain dictionaries, written by one thread and turned into the client library's families on request. The
library's own types lock at every step and can't count several observations at once, and packets come by the thousand.

The first label of every series is its deployment, so that the series of a removed deployment can be removed.
"""

import time
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterable, Sequence

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric

from walkgraph.telemetry import events as e
from walkgraph.telemetry.places import Places

MAX_SERIES = 4096
"""The most series of one family; further ones are not counted."""
GAUGE_SECONDS = 60.0
"""Seconds after its last gauge in which a rank is still shown."""
MAX_SOURCES = 4096

FINE = (1e-4, 2.5e-4, 5e-4, 1e-3, 2.5e-3, 5e-3, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0)
"""Buckets in seconds for single calls."""
ITERATIONS = tuple(float(2**power) for power in range(0, 15, 2))

Key = tuple[str, ...]


class Total:
    """A counter."""

    def __init__(self, name: str, text: str, *labels: str) -> None:
        """`name`: without `_total`, which the client library adds."""
        self._name, self._text, self._labels = name, text, ("deployment", *labels)
        self._values: dict[Key, float] = {}

    def add(self, key: Key, amount: float = 1.0) -> None:
        values = self._values
        if key in values:
            values[key] += amount
        elif len(values) < MAX_SERIES:
            values[key] = amount

    def value(self, *key: str) -> float:
        return self._values.get(key, 0.0)

    def forget(self, deployment: str) -> None:
        self._values = {key: value for key, value in self._values.items() if key[0] != deployment}

    def family(self) -> Metric:
        family = CounterMetricFamily(self._name, self._text, labels=self._labels)
        for key, value in self._values.items():
            family.add_metric(key, value)
        return family


class Histogram:
    def __init__(self, name: str, text: str, bounds: Sequence[float], *labels: str) -> None:
        """`bounds`: ascending upper bounds of the buckets; one more bucket takes everything above."""
        self._name, self._text, self._labels = name, text, ("deployment", *labels)
        self._bounds = tuple(bounds)
        self._series: dict[Key, list[float]] = {}
        """Counts of the buckets, then the sum."""

    def observe(self, key: Key, value: float, times: int = 1) -> None:
        found = self._series.get(key)
        if found is None:
            if len(self._series) >= MAX_SERIES:
                return
            found = self._series[key] = [0.0] * (len(self._bounds) + 2)
        found[bisect_left(self._bounds, value)] += times
        found[-1] += value * times

    def count(self, *key: str) -> float:
        return sum(self._series.get(key, [0.0])[:-1])

    def sum(self, *key: str) -> float:
        return self._series.get(key, [0.0])[-1]

    def forget(self, deployment: str) -> None:
        self._series = {key: found for key, found in self._series.items() if key[0] != deployment}

    def family(self) -> Metric:
        family = HistogramMetricFamily(self._name, self._text, labels=self._labels)
        names = [*(format(bound, "g") for bound in self._bounds), "+Inf"]
        for key, found in self._series.items():
            below, buckets = 0.0, list[tuple[str, float]]()
            for name, count in zip(names, found[:-1], strict=True):
                below += count
                buckets.append((name, below))
            family.add_metric(key, buckets, found[-1])
        return family


class FromPackets:
    """A sink of packets that counts the work of nodes, loops, edges and ranks."""

    def __init__(self, places: Callable[[str, str], Places | None], now: Callable[[], float] = time.monotonic) -> None:
        """`places`: the names for a deployment's version, for its edges and the loops that generate tokens."""
        self._places, self._now = places, now
        self.nodes = Histogram(
            "walkgraph_node_execution_seconds",
            "Time of a node's call on its device, with its batch; calls in device loops are not included",
            FINE,
            "node",
        )
        self.queued = Histogram(
            "walkgraph_node_queue_seconds", "From a call's inputs being there to its start", FINE, "node"
        )
        self.loops = Histogram(
            "walkgraph_loop_iterations", "Iterations of a loop on the device, at its end", ITERATIONS, "loop", "rank"
        )
        self.iterations = Histogram(
            "walkgraph_loop_iteration_seconds",
            "Time of a device loop's iteration, with its batch and its waits for other ranks",
            FINE,
            "loop",
            "rank",
        )
        self.loops_queued = Histogram(
            "walkgraph_loop_queue_seconds",
            "Time that a device loop waited for a slot or a launch, per iteration",
            FINE,
            "loop",
            "rank",
        )
        self.bytes = Total("walkgraph_edge_bytes", "Bytes of tensors sent from rank to rank", "edge", "transport")
        self.sent = Total("walkgraph_edge_tensors", "Tensors sent from rank to rank", "edge", "transport")
        self.asked = Total("walkgraph_prefix_cache_queries", "Tokens looked up in the prefix cache", "rank")
        self.hits = Total("walkgraph_prefix_cache_hits", "Tokens found in the prefix cache", "rank")
        self.prompts = Total(
            "walkgraph_prompt_tokens",
            "Tokens of prompts and pictures that were looked up in the prefix cache: all of them, but none in "
            "batch-invariant mode",
        )
        self.generated = Total(
            "walkgraph_generation_tokens",
            "Iterations of the device loops that generate tokens, counted at a loop's end, including the token that "
            "ends a text; stepped loops are not counted",
        )
        self.counted = Total(
            "walkgraph_node_figure_count", "Numbers counted for a figure of a node", "node", "figure", "rank"
        )
        self.summed = Total(
            "walkgraph_node_figure_sum", "Sum of the numbers of a figure of a node", "node", "figure", "rank"
        )
        self.dropped = Total("walkgraph_telemetry_dropped", "Events that were never sent", "source")
        self._edges: dict[tuple[str, str, str, int, bool], str] = {}
        self._gauges: dict[tuple[str, int], tuple[float, e.RankGauge]] = {}
        self._told: dict[tuple[str, ...], int] = {}
        """Running total of a source -> the part of it that is counted already."""

    def take(self, packet: e.Packet, deployment: str, version: str, nbytes: int) -> None:
        kind = packet.source.partition(".")[0]
        source = (deployment, version, packet.source)
        self._count(self.dropped, (deployment, kind), source, "dropped", packet.dropped)
        for event in packet.events:
            match event:
                case e.Activity():
                    self._activity(event, deployment)
                case e.Forward():
                    self._forward(event, deployment)
                case e.Launch():
                    self._launch(event, deployment)
                case e.LoopEnded():
                    self._loop_ended(event, deployment, version)
                case e.Transfer():
                    self._transfer(event, deployment, version)
                case e.RankGauge():
                    self._gauge(event, deployment, source)
                case _:
                    pass

    def forget(self, deployment: str) -> None:
        for series in (*self._histograms, *self._totals):
            series.forget(deployment)
        self._gauges = {key: shown for key, shown in self._gauges.items() if key[0] != deployment}
        self._edges = {key: name for key, name in self._edges.items() if key[0] != deployment}
        self._told = {key: shown for key, shown in self._told.items() if key[0] != deployment}

    def families(self) -> Iterable[Metric]:
        for series in (*self._histograms, *self._totals):
            yield series.family()
        yield from self._rank_families()

    @property
    def _histograms(self) -> tuple[Histogram, ...]:
        return self.nodes, self.queued, self.loops, self.iterations, self.loops_queued

    @property
    def _totals(self) -> tuple[Total, ...]:
        return self.bytes, self.sent, self.asked, self.hits, self.prompts, self.generated, *self._figures, self.dropped

    @property
    def _figures(self) -> tuple[Total, Total]:
        return self.counted, self.summed

    # ── events ──────────────────────────────────────────────────────────────────────────────────

    def _activity(self, event: e.Activity, deployment: str) -> None:
        """Count added-up calls: each counts as their mean."""
        if event.calls:
            key = (deployment, event.node)
            self.nodes.observe(key, event.busy / event.calls, event.calls)
            self.queued.observe(key, event.queued / event.calls, event.calls)

    def _forward(self, event: e.Forward, deployment: str) -> None:
        seconds = event.finished - event.started
        for node, calls in Counter(event.nodes).items():
            self.nodes.observe((deployment, node), seconds, calls)
        for node, ready in zip(event.nodes, event.ready, strict=True):
            self.queued.observe((deployment, node), max(0.0, event.started - ready))

    def _launch(self, event: e.Launch, deployment: str) -> None:
        """Count one iteration's share of the launch; the times of its nodes are unknown."""
        if not event.count:
            return
        key = (deployment, event.loop, str(event.rank))
        self.iterations.observe(key, (event.finished - event.started) / event.count, event.count * len(event.runs))
        for ready in event.ready:
            self.loops_queued.observe(key, max(0.0, event.started - ready) / event.count, event.count)

    def _loop_ended(self, event: e.LoopEnded, deployment: str, version: str) -> None:
        key = (deployment, event.loop, str(event.rank))
        self.loops.observe(key, event.iterations)
        if event.work is not None and event.iterations:
            self.iterations.observe(key, event.work.busy / event.iterations, event.iterations)
            self.loops_queued.observe(key, event.work.queued / event.iterations, event.iterations)
        places = self._places(deployment, version)
        # Each rank of a loop on several ranks reports the loop's end.
        if places is not None and (event.walk, event.loop, event.rank) in places.tokens:
            self.generated.add((deployment,), event.iterations)

    def _transfer(self, event: e.Transfer, deployment: str, version: str) -> None:
        place = (deployment, version, event.walk, event.edge, event.stream)
        name = self._edges.get(place)
        if name is None:
            places = self._places(deployment, version) or Places()
            name = places.hop(event.walk, event.edge, event.stream)
            if len(self._edges) < MAX_SERIES:
                self._edges[place] = name
        key = (deployment, name, event.transport)
        self.bytes.add(key, event.nbytes)
        self.sent.add(key, event.count)

    def _gauge(self, event: e.RankGauge, deployment: str, source: Key) -> None:
        self._gauges[deployment, event.rank] = (self._now(), event)
        key = (deployment, str(event.rank))
        self._count(self.asked, key, source, "asked", event.prefix_tokens)
        self._count(self.hits, key, source, "hits", event.prefix_hits)
        self._count(self.prompts, (deployment,), source, "prompts", event.prefix_tokens)
        for figure in event.figures:
            for node in figure.nodes:
                of = (deployment, node, figure.name, str(event.rank))
                self.counted.add(of, figure.count)
                self.summed.add(of, figure.total)

    def _count(self, total: Total, key: Key, source: Key, what: str, value: int) -> None:
        """Add the growth of a source's running total; a restarted source has another name."""
        place = (*source, what)
        before = self._told.pop(place, 0)
        # Keep the sources that reported last.
        self._told[place] = max(before, value)
        if len(self._told) > MAX_SOURCES:
            del self._told[next(iter(self._told))]
        if value > before or total.value(*key) == 0.0:
            total.add(key, max(0, value - before))

    def _rank_families(self) -> Iterable[Metric]:
        shown = {key: gauge for key, (at, gauge) in self._gauges.items() if self._now() - at <= GAUGE_SECONDS}
        for name, text, value in _RANK_GAUGES:
            family = GaugeMetricFamily(f"walkgraph_{name}", text, labels=("deployment", "rank"))
            for (deployment, rank), gauge in shown.items():
                found = value(gauge)
                if found is not None:
                    family.add_metric((deployment, str(rank)), found)
            yield family
        family = GaugeMetricFamily(
            "walkgraph_node_figure_max",
            "Largest number of a figure of a node in the last second",
            labels=("deployment", "node", "figure", "rank"),
        )
        for (deployment, rank), gauge in shown.items():
            for figure in gauge.figures:
                for node in figure.nodes:
                    family.add_metric((deployment, node, figure.name, str(rank)), figure.most)
        yield family


def _pages_used(gauge: e.RankGauge) -> float | None:
    return 1.0 - gauge.pages_free / gauge.pages_total if gauge.pages_total else None


_RANK_GAUGES: tuple[tuple[str, str, Callable[[e.RankGauge], float | None]], ...] = (
    ("kv_cache_usage_perc", "Share of the pages of keys and values in use, 0 to 1", _pages_used),
    ("rank_queue", "Calls and loops that wait for a batch or a slot", lambda gauge: gauge.queue),
    ("rank_runs", "Runs that a rank takes part in", lambda gauge: gauge.runs),
    ("device_busy_ratio", "Share of the last second in which a device had work, 0 to 1", lambda gauge: gauge.busy),
    ("device_memory_used_bytes", "Memory of a rank's device in use", lambda gauge: gauge.memory_used),
    ("device_memory_total_bytes", "Memory of a rank's device", lambda gauge: gauge.memory_total),
)
