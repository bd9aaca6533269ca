"""Traces reach a collector of spans, or are counted as dropped; nobody waits for either."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable

import httpx
import pytest

from tests.support import traces
from walkgraph.service.observe import exporting
from walkgraph.service.observe.exporting import SpanExporter
from walkgraph.settings import Settings

UNSAMPLED = traces.PARENT[:-2] + "00"


class Collector:
    """Answers with what it is told to, in order, then with 200."""

    def __init__(self, *answers: int | httpx.Response | Exception) -> None:
        self.answers = list(answers)
        self.requests: list[httpx.Request] = []
        self.some = asyncio.Condition()

    async def __call__(self, request: httpx.Request) -> httpx.Response:
        answer = self.answers.pop(0) if self.answers else 200
        async with self.some:
            self.requests.append(request)
            self.some.notify_all()
        if isinstance(answer, Exception):
            raise answer
        return answer if isinstance(answer, httpx.Response) else httpx.Response(answer)

    async def until(self, true: Callable[[], bool]) -> None:
        async with self.some:
            await asyncio.wait_for(self.some.wait_for(true), 5.0)


def exporter(collector: Collector, endpoint: str = "http://collector:4318") -> SpanExporter:
    transport = httpx.MockTransport(collector)
    return SpanExporter(endpoint, {"x-team": "a b"}, transport=transport, pauses=(0.0, 0.0))


@pytest.mark.parametrize(
    "endpoint", ["http://collector:4318", "http://collector:4318/", "http://collector:4318/v1/traces"]
)
async def test_a_trace_is_posted_as_json(endpoint: str) -> None:
    collector = Collector()
    spans = exporter(collector, endpoint)
    spans.start()
    spans.offer(traces.trace(1))
    await spans.close()
    [request] = collector.requests
    assert str(request.url) == "http://collector:4318/v1/traces"
    assert request.headers["content-type"] == "application/json"
    assert request.headers["x-team"] == "a b"
    scoped = json.loads(request.content)["resourceSpans"][0]["scopeSpans"][0]
    assert scoped["spans"][0]["name"] == "invoke_workflow draw"
    assert (spans.exported, spans.dropped) == (1, 0)


@pytest.mark.parametrize(
    ("answers", "tries", "taken"),
    [
        ((503, 429), 3, 1),
        ((httpx.ConnectError("no"), 200), 2, 1),
        ((503, 503, 503), 3, 0),
        ((400,), 1, 0),
        ((httpx.Response(429, headers={"Retry-After": "0"}),), 2, 1),
        ((httpx.Response(503, headers={"Retry-After": "soon"}),), 2, 1),
        ((httpx.Response(503, headers={"Retry-After": "Wed, 21 Oct 2015 07:28:00 GMT"}),), 2, 1),
    ],
)
async def test_what_may_be_taken_later_is_tried_again(
    answers: tuple[int | httpx.Response | Exception, ...], tries: int, taken: int
) -> None:
    collector = Collector(*answers)
    spans = exporter(collector)
    spans.start()
    spans.offer(traces.trace(1, batches=1))
    await spans.close()
    assert len(collector.requests) == tries
    assert (spans.exported, spans.dropped) == (taken, 1 - taken)


async def test_a_collector_that_hangs_holds_nobody_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exporting, "CLOSE_SECONDS", 0.0)
    asked = asyncio.Event()

    async def hang(_request: httpx.Request) -> httpx.Response:
        asked.set()
        await asyncio.Event().wait()
        raise AssertionError

    spans = SpanExporter("http://collector", {}, transport=httpx.MockTransport(hang))
    spans.start()
    trace = traces.trace(1, batches=0)
    spans.offer(trace)
    await asked.wait()
    for _ in range(exporting.WAITING + 3):
        spans.offer(trace)
    assert spans.dropped == 3
    await spans.close()
    assert (spans.exported, spans.dropped) == (0, exporting.WAITING + 4)


async def test_what_the_caller_did_not_sample_is_not_sent() -> None:
    collector = Collector()
    spans = exporter(collector)
    spans.start()
    spans.offer(traces.trace(1, batches=0, parent=UNSAMPLED))
    spans.offer(traces.trace(1, batches=0, parent=""))
    await spans.close()
    assert len(collector.requests) == 1


def test_headers_are_a_list_of_pairs(tmp_path: object) -> None:
    settings = Settings(otlp_headers="authorization=Basic%20abc, x-team = a ", otlp_endpoint="https://otel.example")
    assert settings.otlp_header_fields() == {"authorization": "Basic abc", "x-team": "a"}
    assert "abc" not in repr(settings)
    for wrong in (
        {"otlp_headers": "authorization"},
        {"otlp_headers": "x-team=a%0Ab"},
        {"otlp_headers": "x-team=\u00e9"},
        {"otlp_endpoint": "otel.example:4318"},
        {"otlp_endpoint": "http://otel.example:port"},
        {"otlp_endpoint": "http://otel.example:70000"},
    ):
        with pytest.raises(ValueError, match=r"otlp|OTLP"):
            Settings(**wrong)
