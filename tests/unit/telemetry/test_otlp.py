"""Spans are what the protocol's own message types take, hang together as one tree, and say what the trace says."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest
from google.protobuf import json_format
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span, Status

from tests.support import traces
from walkgraph.telemetry import traceparent
from walkgraph.telemetry.sinks import otlp
from walkgraph.telemetry.trace import ClockError, Trace


def parsed(trace: Trace) -> list[Span]:
    """By the official types; OTLP's JSON has ids in hex where protobuf's has base64."""
    body = json.loads(otlp.encode(trace))
    for span in body["resourceSpans"][0]["scopeSpans"][0]["spans"]:
        for name in ("traceId", "spanId", "parentSpanId"):
            if name in span:
                span[name] = base64.b64encode(bytes.fromhex(span[name])).decode()
    [resource] = json_format.ParseDict(body, ExportTraceServiceRequest()).resource_spans
    assert values(resource.resource)["service.name"] == "walkgraph"
    [scope] = resource.scope_spans
    return list(scope.spans)


def values(owner: Any) -> dict[str, Any]:
    return {one.key: getattr(one.value, one.value.WhichOneof("value")) for one in owner.attributes}


@pytest.mark.parametrize("folded", [False, True])
@given(seed=st.integers(0, 10_000), ranks=st.integers(1, 3))
def test_spans_are_one_tree_below_the_caller(folded: bool, seed: int, ranks: int) -> None:
    trace = traces.trace(seed, ranks=ranks, batches=6, folded=folded)
    spans = parsed(trace)
    caller = traceparent.parse(trace.parent)
    assert caller is not None
    by_id = {span.span_id: span for span in spans}
    assert len(by_id) == len(spans)
    root = spans[0]
    assert root.kind == Span.SPAN_KIND_SERVER
    assert root.parent_span_id.hex() == caller.span
    for span in spans:
        assert span.trace_id.hex() == caller.trace
        assert len(span.span_id) == 8
        assert span.end_time_unix_nano >= span.start_time_unix_nano
        assert span is root or span.parent_span_id in by_id
    began = round(trace.wall * 1e9)
    named = [span for span in spans if "walkgraph.node" in values(span)]
    told = sorted(
        (began + start * 1000, began + end * 1000)
        for start, end in zip(trace.blocks.started, trace.blocks.finished, strict=True)
    )
    assert sorted((span.start_time_unix_nano, span.end_time_unix_nano) for span in named) == told
    transfers = [values(span)["walkgraph.bytes"] for span in spans if "walkgraph.edge" in values(span)]
    assert sorted(transfers) == sorted(trace.hops.nbytes)
    for span in named:
        step = by_id[span.parent_span_id]
        assert step.start_time_unix_nano <= span.start_time_unix_nano
        assert span.end_time_unix_nano <= step.end_time_unix_nano


def test_the_run_says_what_generative_ai_conventions_ask() -> None:
    root = parsed(traces.trace(1, parent="", phases={"queued": 0, "started": 500, "first_output": 250_000}))[0]
    found = values(root)
    assert root.name == "invoke_workflow draw"
    assert (found["gen_ai.operation.name"], found["gen_ai.workflow.name"]) == ("invoke_workflow", "draw")
    assert found["gen_ai.server.time_to_first_token"] == 0.25
    assert found["walkgraph.queued_seconds"] == 0.0005
    assert root.status.code == Status.STATUS_CODE_OK
    assert [event.name for event in root.events] == ["queued", "started", "first_output"]
    assert root.parent_span_id == b""
    assert root.trace_id.hex() == traces.RUN


def test_a_failed_run_and_its_calls_say_so() -> None:
    spans = parsed(traces.trace(5, state="failed", error="numeric_error", batches=40))
    assert spans[0].status.code == Status.STATUS_CODE_ERROR
    assert values(spans[0])["error.type"] == "numeric_error"
    failed = traces.trace(5, batches=40).blocks.failed
    wrong = [span for span in spans[1:] if span.status.code == Status.STATUS_CODE_ERROR]
    assert len(wrong) == sum(failed) > 0


@pytest.mark.parametrize("limit", [8, 120, 1000])
def test_very_many_calls_are_told_together(monkeypatch: pytest.MonkeyPatch, limit: int) -> None:
    trace = traces.trace(2, batches=60)
    monkeypatch.setattr(otlp, "MAX_SPANS", limit)
    spans = parsed(trace)
    named = [values(span) for span in spans if "walkgraph.node" in values(span)]
    hops = [span for span in spans if "walkgraph.edge" in values(span)]
    assert len(named) <= limit
    assert len(hops) <= limit
    left_out = values(spans[0]).get("walkgraph.spans_left_out", 0)
    assert (left_out > 0) == (limit == 8)
    assert (len(named) < len(trace.blocks.lane)) == (limit != 1000)
    if limit != 8:
        assert sum(found["walkgraph.calls"] for found in named) == sum(trace.blocks.count)
        busy = sum(found["walkgraph.busy_seconds"] for found in named)
        assert busy == pytest.approx(sum(trace.blocks.busy) / 1e6)


def test_spans_of_other_hosts_say_how_wrong_their_times_may_be() -> None:
    clocks = ClockError(host="b", offset=5.0, error=40), ClockError(host="c", offset=-1.0, error=70)
    trace = traces.trace(1, hosts=("", "b", "c"), clocks=clocks, early=3)
    root, *spans = map(values, parsed(trace))
    assert root["walkgraph.early_transfers"] == 3
    hosts = {0: None, 1: ("b", 4e-5), 2: ("c", 7e-5)}
    nodes = [span for span in spans if "walkgraph.node" in span]
    assert {span["walkgraph.rank"] for span in nodes} == {0, 1, 2}
    for span in nodes:
        found = span.get("walkgraph.host"), span.get("walkgraph.clock_error_seconds")
        assert found == (hosts[span["walkgraph.rank"]] or (None, None))
    ends = [(span.get("walkgraph.source_rank"), span.get("walkgraph.target_rank")) for span in spans]
    between = [span for span, pair in zip(spans, ends, strict=True) if {*pair} == {1, 2}]
    assert between
    assert {span["walkgraph.clock_error_seconds"] for span in between} == {1.1e-4}
