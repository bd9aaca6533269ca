"""Prometheus metrics at `/metrics`: runs as the service sees them, the rest from telemetry packets, and the current
status of the deployments. Names and units follow vLLM's, for which dashboards exist, with our prefix.

A deployment that is gone keeps its series for a while, so that its last runs are scraped too.
"""

import time
from collections.abc import Callable, Iterable, Mapping

from prometheus_client import CollectorRegistry, ProcessCollector
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.exposition import choose_encoder

from walkgraph import __version__
from walkgraph.errors import WalkgraphError
from walkgraph.ids import RunId
from walkgraph.placement.tables import STOP
from walkgraph.service.deployments.deployments import Deployments
from walkgraph.service.deployments.managed import Managed
from walkgraph.service.observe.exporting import SpanExporter
from walkgraph.service.observe.hub import Hub
from walkgraph.service.runs.runs import Event, LiveRun
from walkgraph.telemetry import events
from walkgraph.telemetry.places import Places
from walkgraph.telemetry.sinks.prometheus import FINE, FromPackets, Histogram, Total
from walkgraph.wire import messages as m

KEEP_SECONDS = 900.0
"""How long the series of a deployment that is gone are kept."""
MAX_NAMED = 64
"""Versions whose `Places` are cached."""
LONG = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 20.0, 40.0, 80.0, 160.0, 320.0, 640.0)
"""Histogram bounds for whole runs, in seconds."""

_SERVING = ("ready", "degraded")
_CANCELLED = "cancelled"


class Metrics:
    """Counts telemetry packets and events of runs."""

    def __init__(
        self,
        deployments: Deployments,
        hub: Hub,
        refused_requests: Mapping[str, int],
        rejected: Callable[[], int] = lambda: 0,
        spans: SpanExporter | None = None,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        """`refused_requests`: counts by reason, kept by `admission`. `rejected`: number of malformed packets."""
        self._deployments, self._hub, self._rejected, self._spans, self._now = deployments, hub, rejected, spans, now
        self._packets = FromPackets(self._places, now)
        self._last_output: dict[RunId, float] = {}
        self._gone: dict[str, float] = {}
        """Deployments that are gone but have series, with the time at which that was noticed."""
        self._seen: set[str] = set()
        self._named: dict[str, Places] = {}
        """`Places` of versions by label."""
        self._first = Histogram(
            "walkgraph_time_to_first_token_seconds", "From a run's arrival to its first output", LONG, "task"
        )
        self._between = Histogram(
            "walkgraph_inter_token_latency_seconds", "From one output of a run to its next", FINE, "task"
        )
        self._whole = Histogram(
            "walkgraph_e2e_request_latency_seconds", "From a run's arrival to its end", LONG, "task"
        )
        self._waited = Histogram(
            "walkgraph_request_queue_time_seconds", "From a run's arrival to its start", LONG, "task"
        )
        self._success = Total(
            "walkgraph_request_success",
            "Runs that ended without an error, or were cancelled",
            "task",
            "finished_reason",
        )
        self._failure = Total("walkgraph_request_failure", "Runs that ended with an error", "task", "code")
        self._played = Total(
            "walkgraph_playback_seconds", "Seconds of sound and other values that runs gave to be played", "task"
        )
        self._underruns = Total(
            "walkgraph_playback_underruns", "Times that such a value left after its player had run dry", "task"
        )
        self._late = Total(
            "walkgraph_playback_late_seconds", "Seconds by which such values left too late for their players", "task"
        )
        self._refused = Total(
            "walkgraph_admission_rejections", "Requests and runs that were refused before they started", "reason"
        )
        self._refused_requests = refused_requests
        self._registry = CollectorRegistry()
        ProcessCollector(registry=self._registry)
        self._registry.register(self)

    # ── counting ────────────────────────────────────────────────────────────────────────────────

    def take(self, packet: events.Packet, deployment: str, version: str, nbytes: int) -> None:
        self._seen.add(deployment)
        self._packets.take(packet, deployment, version, nbytes)

    def refused(self, deployment: str, error: WalkgraphError) -> None:
        """Counts a request that did not become a run. Unknown deployments are not counted: clients could invent any
        number of names."""
        if deployment in self._deployments:
            self._seen.add(deployment)
            self._refused.add((deployment, error.code))

    def heard(self, run: LiveRun, event: Event | m.Rejected) -> None:
        """Counts an event of a run, before the run takes it."""
        self._seen.add(run.deployment)
        match event:
            case m.Accepted() | m.Asked() | m.Decided():
                pass
            case m.Rejected():
                self._refused.add((run.deployment, event.error.code))
            case m.Output():
                self._output(run)
            case m.Finished():
                self._finished(run, event)

    def _output(self, run: LiveRun) -> None:
        key, now = (run.deployment, run.task), self._now()
        before = self._last_output.get(run.id)
        if before is None:
            self._first.observe(key, run.age)
        else:
            self._between.observe(key, now - before)
        self._last_output[run.id] = now

    def _finished(self, run: LiveRun, end: m.Finished) -> None:
        key = (run.deployment, run.task)
        self._last_output.pop(run.id, None)
        self._whole.observe(key, end.seconds)
        self._waited.observe(key, end.queued)
        if (played := end.played) is not None:
            self._played.add(key, played.seconds)
            self._underruns.add(key, played.underruns)
            self._late.add(key, played.late)
        if end.error is None:
            self._success.add((*key, "stop" if all(loop.reason == STOP for loop in end.loops) else "length"))
        elif end.error.code == _CANCELLED:
            self._success.add((*key, "abort"))
        else:
            self._failure.add((*key, end.error.code))

    # ── rendering ───────────────────────────────────────────────────────────────────────────────

    def render(self, accept: str) -> tuple[bytes, str]:
        """(text, content type) of all metrics in the format that an `Accept` header asks for."""
        encode, kind = choose_encoder(accept)
        return encode(self._registry), kind

    def collect(self) -> Iterable[Metric]:
        listed = self._deployments.listed()
        self._forget({managed.id for managed in listed})
        yield _gauge("build_info", "The version that serves", ("version",), [((__version__,), 1.0)])
        yield from _of_deployments(listed)
        for series in (*self._histograms, *self._totals):
            yield series.family()
        yield from self._packets.families()
        rows = [((reason,), count) for reason, count in self._refused_requests.items()]
        yield _total("requests_refused", "Requests that their caller may not send, or not yet", ("reason",), rows)
        yield _gauge("telemetry_clients", "Clients that follow the telemetry", (), [((), float(self._hub.clients))])
        yield _total("telemetry_frames_dropped", "Frames that slow clients did not get", (), [((), self._hub.dropped)])
        yield _total("telemetry_rejected", "Malformed telemetry packets", (), [((), self._rejected())])
        if self._spans is not None:
            yield _total("traces_exported", "Traces that the collector accepted", (), [((), self._spans.exported)])
            yield _total(
                "traces_dropped", "Traces that the collector did not get or accept", (), [((), self._spans.dropped)]
            )

    @property
    def _histograms(self) -> tuple[Histogram, ...]:
        return self._first, self._between, self._whole, self._waited

    @property
    def _totals(self) -> tuple[Total, ...]:
        return self._success, self._failure, self._refused, self._played, self._underruns, self._late

    def _forget(self, there: set[str]) -> None:
        now = self._now()
        self._gone = {id_: self._gone.get(id_, now) for id_ in self._seen - there}
        for id_ in [id_ for id_, since in self._gone.items() if now - since >= KEEP_SECONDS]:
            for series in (*self._histograms, *self._totals, self._packets):
                series.forget(id_)
            self._seen.discard(id_)
            del self._gone[id_]

    def _places(self, deployment: str, version: str) -> Places | None:
        label = f"{deployment} {version}"
        found = self._named.get(label)
        if found is None:
            plan = next((known.plan for known in self._deployments.versions() if known.label == label), None)
            if plan is None:
                return None
            if len(self._named) >= MAX_NAMED:
                del self._named[next(iter(self._named))]
            found = self._named[label] = Places.of(plan)
        return found


def _of_deployments(listed: Iterable[Managed]) -> Iterable[Metric]:
    there = list(listed)
    ranks = [(managed.id, rank) for managed in there for rank in managed.serving.status.ranks]
    statuses = [(managed.id, managed.serving.status) for managed in there]
    one, each = ("deployment",), ("deployment", "rank")
    yield _gauge("num_requests_running", "Runs under way", one, [((id_,), s.running) for id_, s in statuses])
    yield _gauge("num_requests_waiting", "Runs that wait for room", one, [((id_,), s.waiting) for id_, s in statuses])
    up = [((id_,), float(status.state in _SERVING)) for id_, status in statuses]
    yield _gauge("deployment_up", "Whether a deployment serves", one, up)
    ready = [((id_, str(rank.rank)), float(rank.state == "ready")) for id_, rank in ranks]
    yield _gauge("worker_up", "Whether a rank's worker is ready", each, ready)
    restarts = [((managed.id,), managed.serving.restarts) for managed in there]
    yield _total("deployment_restarts", "Restarts of a deployment's process", one, restarts)
    again = [((id_, str(rank.rank)), rank.restarts) for id_, rank in ranks]
    yield _total("worker_restarts", "Restarts of a rank's worker", each, again)


Rows = Iterable[tuple[tuple[str, ...], float]]


def _gauge(name: str, text: str, labels: tuple[str, ...], rows: Rows) -> Metric:
    family = GaugeMetricFamily(f"walkgraph_{name}", text, labels=labels)
    for key, value in rows:
        family.add_metric(key, value)
    return family


def _total(name: str, text: str, labels: tuple[str, ...], rows: Rows) -> Metric:
    family = CounterMetricFamily(f"walkgraph_{name}", text, labels=labels)
    for key, value in rows:
        family.add_metric(key, value)
    return family
