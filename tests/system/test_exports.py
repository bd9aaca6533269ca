"""A run over three ranks, exported for other tools: a Perfetto file, spans at a collector, Prometheus' text."""

from __future__ import annotations

import base64
import io
import json
import queue
import threading
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

import httpx
import pytest
from PIL import Image
from prometheus_client.parser import text_string_to_metric_families

from tests.support.chrome import faults
from tests.support.serving import Service, service
from tests.support.yardstick import patience
from walkgraph.telemetry import traceparent

CALLER = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
KINDS = ("call", "launch")
SECONDS = 3.0
"""Minimum duration of the examined run, so that the client's overhead is small compared with a SHARE of it."""
SHARE = 0.02
FEW_STEPS, MOST_STEPS = 20, 200
ATTEMPTS = 10
"""Another process may come between the service and its client in any single one."""


class Spans(HTTPServer):
    """A collector: keeps what it is sent."""

    def __init__(self) -> None:
        self.bodies: queue.Queue[Any] = queue.Queue()
        super().__init__(("127.0.0.1", 0), _Answer)


class _Answer(BaseHTTPRequestHandler):
    server: Spans

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"]))
        self.server.bodies.put((self.path, json.loads(body)))
        self.send_response(200)
        self.send_header("content-length", "0")
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Nobody reads it."""


@dataclass
class Ran:
    """A run, as its client saw it."""

    running: Service
    spans: Spans
    seconds: float = 0.0
    results: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    """Results of all its client's runs; this run is the last."""
    answered: str = ""
    """`traceparent`."""
    trace: dict[str, Any] = field(default_factory=dict[str, Any])
    why: dict[str, Any] = field(default_factory=dict[str, Any])
    perfetto: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    path: str = ""
    body: dict[str, Any] = field(default_factory=dict[str, Any])
    """The body that the collector received."""

    @property
    def result(self) -> dict[str, Any]:
        return self.results[-1]

    def edit(self, http: httpx.Client, steps: int) -> None:
        """By a picture and words: all three ranks take part."""
        file = io.BytesIO()
        Image.new("RGB", (64, 64), "red").save(file, "PNG")
        picture = {"type": "image", "data": base64.b64encode(file.getvalue()).decode()}
        body = {
            "inputs": {"parts": [picture, {"type": "text", "text": "make it blue"}]},
            "params": {"steps": steps, "seed": 3, "cfg_img_scale": 2.0},
        }
        began = time.monotonic()
        answer = http.post("/v1/tasks/shapes/edit", json=body)
        self.seconds = time.monotonic() - began
        assert answer.status_code == 200, answer.text
        self.results.append(answer.json())
        self.answered = answer.headers["traceparent"]
        self.path, self.body = self.spans.bodies.get(timeout=patience(10))


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ran]:
    spans = Spans()
    thread = threading.Thread(target=spans.serve_forever)
    thread.start()
    endpoint = f"http://127.0.0.1:{spans.server_port}"
    try:
        home = tmp_path_factory.mktemp("exports") / "home"
        with service(home, studio="false", telemetry="full", otlp_endpoint=endpoint) as running:
            running.up("--no-deploy")
            with running.client() as client:
                client.deploy("shapes", "shapes_cfg3_cpu")
                running.wait_ready("shapes")
                done = Ran(running, spans)
                headers = {"Authorization": f"Bearer {running.token}", "traceparent": CALLER}
                url = running.told["url"]
                with httpx.Client(base_url=url, headers=headers, timeout=300, trust_env=False) as http:
                    done.edit(http, FEW_STEPS)
                    steps = round(FEW_STEPS * min(max(1.0, 1.2 * SECONDS / done.seconds), MOST_STEPS / FEW_STEPS))
                    for _ in range(ATTEMPTS):
                        done.edit(http, steps)
                        done.trace = whole(running, done.result["run"])
                        if done.seconds - done.trace["seconds"] < SHARE * done.seconds:
                            break
                done.why = client.why(done.result["run"])
                done.perfetto = json.loads(client.trace_file(done.result["run"], "perfetto"))["traceEvents"]
            yield done
    finally:
        spans.shutdown()
        thread.join()
        spans.server_close()


def whole(running: Service, run: str) -> dict[str, Any]:
    """The trace once all ranks have told what they did: it is kept from then on."""
    limit = time.monotonic() + patience(10)
    with running.client() as client:
        while not any(found["run"] == run for found in client.traces("shapes")):
            assert time.monotonic() < limit, "the trace was never kept"
        return client.trace(run)


def test_perfetto_nests_and_its_sums_are_those_of_the_clients_clock(ran: Ran) -> None:
    events, slack = ran.perfetto, SHARE * ran.seconds
    assert faults(events) == []
    [run] = [event for event in events if event.get("cat") == "run"]
    assert run["dur"] / 1e6 == pytest.approx(ran.seconds, abs=slack)
    phases = [event["dur"] for event in events if event.get("cat") == "phase"]
    assert sum(phases) / 1e6 == pytest.approx(ran.seconds, abs=slack)
    names = {event["pid"]: event["args"]["name"] for event in events if event["name"] == "process_name"}
    assert sorted(names.values())[:3] == ["rank 0 (cpu)", "rank 1 (cpu)", "rank 2 (cpu)"]
    busy = Counter[str]()
    for row in ran.result["times"]:
        busy[f"rank {row['rank']} (cpu)"] += row["busy"]
    for pid, name in names.items():
        worked = [event for event in events if event.get("cat") == "device" and event["pid"] == pid]
        if name.startswith("rank"):
            # Its batches don't overlap, and lie within the run; its workers have counted the same.
            assert sum(event["dur"] for event in worked) / 1e6 == pytest.approx(busy[name], abs=slack)
            assert max(event["ts"] + event["dur"] for event in worked) / 1e6 <= ran.seconds + slack
            assert min(event["ts"] for event in worked) >= 0


def test_the_critical_path_is_the_time_on_the_clients_clock(ran: Ran) -> None:
    slack, path = SHARE * ran.seconds, ran.why["path"]
    assert sum(ran.why["shares"].values()) == pytest.approx(ran.seconds, abs=slack)
    assert sum(piece["ended"] - piece["began"] for piece in path) / 1e6 == pytest.approx(ran.seconds, abs=slack)
    assert [piece["began"] for piece in path] == [0, *(piece["ended"] for piece in path[:-1])]
    for rank in range(3):
        computed = sum(p["ended"] - p["began"] for p in path if (p["rank"], p["kind"]) == (rank, "compute"))
        busy = sum(row["busy"] for row in ran.result["times"] if row["rank"] == rank)
        assert 0 < computed / 1e6 <= busy + slack


def test_the_profile_is_the_time_on_the_clients_clock_and_has_every_border(ran: Ran) -> None:
    found = ran.why["profile"]
    spent = {row["share"]: row["seconds"] for row in found["shares"]}
    assert found["exact"]
    assert sum(spent.values()) == pytest.approx(found["seconds"])
    assert ran.trace["seconds"] < found["seconds"]
    assert found["seconds"] == pytest.approx(ran.seconds, abs=SHARE * ran.seconds)
    # The picture is decoded, and the answer has one.
    assert all(spent[share] > 0 for share in ("socket", "decode", "queue", "host", "device", "transfer", "encode"))
    assert found["largest"] == "device"
    # Every rank, the conductor and the service have told when they had the run.
    assert ran.trace["lost"] or spent["other"] == 0
    told = [moment["what"] for moment in found["moments"]]
    way = ["service received the request", "its bytes were read", "inputs were decoded", "conductor received it",
           "admitted", "rank 0 received it", "device began", "device ended", "conductor ended it",
           "service heard of the end", "encoding of the answer began",
           "first byte sent", "last byte sent"]  # fmt: skip
    assert [what for what in told if what in way] == way
    assert {f"rank {rank} {what}" for rank in range(3) for what in ("received it", "was done")} <= set(told)


def test_perfetto_has_all_calls_and_the_arrows_between_ranks(ran: Ran) -> None:
    """A call is told by the forward that it was in; its run's own sums count the same."""
    drawn: Counter[tuple[int, str]] = Counter()
    for event in ran.perfetto:
        if event.get("cat") in KINDS:
            for node in event["args"].get("nodes", [event["name"]]):
                drawn[event["pid"] - 2, node] += event["args"]["count"]
    told = {(row["rank"], row["node"]): row["calls"] for row in ran.result["times"]}
    assert {key: calls for key, calls in drawn.items() if key in told} == {
        key: calls for key, calls in told.items() if key in drawn
    }
    assert {(1, "llm_cfg_text"), (2, "llm_cfg_img")} <= drawn.keys()
    hops = [event for event in ran.perfetto if event.get("cat") == "hop" and event["ph"] == "s"]
    assert len(hops) == sum(at >= 0 for at in ran.trace["hops"]["arrived"]) > 0
    assert any(event["ph"] == "C" and event["name"] == "queue" for event in ran.perfetto)


@pytest.mark.safety("S15")
def test_the_collector_has_the_run_below_its_caller(ran: Ran) -> None:
    assert ran.path == "/v1/traces"
    spans = ran.body["resourceSpans"][0]["scopeSpans"][0]["spans"]
    own = traceparent.parse(ran.answered)
    assert own is not None
    assert (spans[0]["traceId"], spans[0]["spanId"]) == (own.trace, own.span)
    assert f"{own.trace}-{spans[0]['parentSpanId']}" in CALLER
    ids = {span["spanId"] for span in spans}
    assert all(span["parentSpanId"] in ids for span in spans[1:])
    ranks = {a["value"]["intValue"] for s in spans for a in s["attributes"] if a["key"] == "walkgraph.rank"}
    assert ranks == {"0", "1", "2"}
    told = json.dumps(ran.body)
    assert ran.running.token not in told
    assert "make it blue" not in told, "what was asked is not traced"
    with ran.running.client() as client:
        assert json.loads(client.trace_file(ran.result["run"], "otlp")) == ran.body


@pytest.mark.safety("S15")
def test_what_leaves_the_machine_holds_no_secret_and_nothing_that_was_asked(ran: Ran) -> None:
    told = json.dumps(ran.body)
    for hidden in (ran.running.token, "make it blue", "Bearer", str(ran.running.home)):
        assert hidden not in told


def test_prometheus_counts_the_calls_that_runs_tell(ran: Ran) -> None:
    headers = {"Authorization": f"Bearer {ran.running.token}"}
    text = httpx.get(f"{ran.running.told['url']}/metrics", headers=headers, trust_env=False).text
    found: dict[str, float] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            if sample.name == "walkgraph_node_execution_seconds_count":
                found[sample.labels["node"]] = sample.value
            if sample.name == "walkgraph_request_success_total":
                assert sample.value == len(ran.results)
    calls = Counter[str]()
    for row in [row for result in ran.results for row in result["times"] if not row["walk"]]:
        calls[row["node"]] += row["calls"]
    assert found == {node: calls[node] for node in found}
    assert {"llm", "llm_cfg_text", "llm_cfg_img", "vae_decoder"} <= found.keys()
    assert "walkgraph_edge_bytes_total{" in text
