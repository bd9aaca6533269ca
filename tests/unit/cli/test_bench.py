"""Load and its figures: arithmetic against numbers counted by hand, clients against a server of a few lines."""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import httpx
import pytest

from walkgraph.cli import main as cli
from walkgraph.cli.benching import figures, load, report, tables
from walkgraph.cli.benching.load import Bounds, Level, Measured
from walkgraph.cli.benching.wire import Connection, Sample
from walkgraph.client import Client
from walkgraph.errors import InvalidInput

TASK = {
    "deployment": "shapes",
    "name": "draw",
    "inputs": {"prompt": {"modality": "text", "many": False, "optional": False, "description": ""}},
    "params": {"steps": {"type": "integer", "default": 4, "min": 1, "max": 9, "choices": [], "description": ""}},
    "outputs": ["text"],
}
SHAPES = {"id": "shapes", "graph": "shapes", "placement": "default", "digest": "d", "state": "ready",
          "ranks": [{"rank": 0, "device": "cpu"}]}  # fmt: skip
USAGE = {
    "read": 5,
    "cached_tokens": 2,
    "loops": [{"walk": "decode", "loop": "tokens", "iterations": 3, "reason": "stop"}],
}


class Service:
    """A task over HTTP; `answer` decides what becomes of the n-th request."""

    def __init__(self) -> None:  # noqa: C901 (a class in it, of small methods)
        self.asked: list[dict[str, Any]] = []
        self.answer: Callable[[int], str] = lambda number: "good"
        self.wait = threading.Event()
        outer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            disable_nagle_algorithm = True

            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["content-length"])))
                outer.asked.append({**body, "token": self.headers["authorization"]})
                getattr(self, outer.answer(len(outer.asked)))()

            def good(self, *, ends: bool = True) -> None:
                self._begin()
                self._event("accepted", {"run": "r", "seed": 1})
                self._event("output", {"value": "first"})
                # A piece that ends within an event, and one that begins there and holds two.
                whole = b'event: output\ndata: {"value": "second"}\n\n' + b": \n\n" + b"event: output\ndata: {}\n\n"
                for piece in (whole[:20], whole[20:]):
                    self._chunk(piece)
                if ends:
                    self._event("done", {"run": "r", "seconds": 0.1, "queued": 0.25, "times": [], "usage": USAGE})
                self._chunk(b"")

            def failed(self) -> None:
                self._begin()
                self._event("error", {"queued": 0.0, "error": {"code": "out_of_memory", "message": "no"}})
                self._chunk(b"")

            def cut(self) -> None:
                self.good(ends=False)

            def busy(self) -> None:
                self._whole(503, json.dumps({"code": "overloaded", "detail": "come later"}).encode())

            def proxy(self) -> None:
                self._whole(502, b"<html>")

            def left(self) -> None:
                self.close_connection = True

            def held(self) -> None:
                outer.wait.wait(60)
                with contextlib.suppress(OSError):
                    self.good()

            def _whole(self, status: int, data: bytes) -> None:
                self.send_response(status)
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def _begin(self) -> None:
                self.send_response(200)
                self.send_header("Content-Type", "text/event-stream")
                self.send_header("Transfer-Encoding", "chunked")
                self.end_headers()

            def _event(self, name: str, data: dict[str, Any]) -> None:
                self._chunk(f"event: {name}\nid: 1\ndata: {json.dumps(data)}\n\n".encode())

            def _chunk(self, data: bytes) -> None:
                self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02})
        self._thread.start()

    def close(self) -> None:
        self.wait.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


@pytest.fixture
def service() -> Iterator[Service]:
    found = Service()
    yield found
    found.close()


def ask(service: Service, level: Level, bounds: Bounds) -> Measured:
    async def measured() -> Measured:
        asked = load.bodies({"inputs": {"prompt": "x"}, "params": {}})
        path = "/v1/tasks/shapes/draw"
        return await load.run(level, lambda: Connection(service.url, "secret", path), asked, bounds, asyncio.Event())

    return asyncio.run(measured())


# ── the clients ─────────────────────────────────────────────────────────────────────────────────


def test_a_streamed_answer_is_timed_and_counted(service: Service) -> None:
    [sample] = ask(service, Level(concurrency=1), Bounds(1, None, 0)).samples
    assert sample.code == ""
    assert len(sample.outputs) == 3
    assert sample.due <= sample.sent <= sample.outputs[0] <= sample.outputs[-1] <= sample.ended
    assert (sample.read, sample.found, sample.loops, sample.queued) == (5, 2, {"decode.tokens": 3}, 0.25)
    assert service.asked[0]["token"] == "Bearer secret"
    assert service.asked[0]["stream"] is True


def test_clients_ask_again_with_other_seeds_and_warm_up_first(service: Service) -> None:
    measured = ask(service, Level(concurrency=3), Bounds(7, None, 2))
    assert len(measured.samples) == 7
    assert len(service.asked) == 3 * 2 + 7
    assert sorted(asked["params"]["seed"] for asked in service.asked) == list(range(13))
    assert not measured.interrupted


def test_a_seed_that_was_given_is_kept() -> None:
    asked = load.bodies({"inputs": {"text": "ü"}, "params": {"seed": 7, "steps": 3}})
    whole = {"inputs": {"text": "ü"}, "params": {"seed": 7, "steps": 3}, "stream": True}
    assert [json.loads(next(asked)) for _ in range(3)] == [whole] * 3
    others = load.bodies({"inputs": {}, "params": {"steps": 3}}, 5)
    assert [json.loads(next(others))["params"] for _ in range(2)] == [{"steps": 3, "seed": 5}, {"steps": 3, "seed": 6}]


def test_what_goes_wrong_is_a_code_and_the_next_request_goes_on(service: Service) -> None:
    kinds = ["busy", "good", "proxy", "failed", "left", "cut", "good"]
    service.answer = lambda number: kinds[number - 1]
    measured = ask(service, Level(concurrency=1), Bounds(7, None, 0))
    samples = measured.samples
    told = figures.warnings([figures.row(measured, {})])
    assert "1 x out_of_memory (no); 1 x overloaded (come later)" in told[-1]
    codes = [sample.code for sample in samples]
    assert codes == ["overloaded", "", "http_502", "out_of_memory", "connection", "connection", ""]


def test_where_nobody_listens_every_request_fails() -> None:
    async def measured() -> Sample:
        return await Connection("http://127.0.0.1:1", "t", "/x").ask(b"{}", 0.0)

    assert asyncio.run(measured()).code == "connection"


def test_an_open_load_comes_by_the_clock_and_its_waits_count(service: Service) -> None:
    service.answer = lambda number: "held"
    release = threading.Timer(0.3, service.wait.set)
    release.start()
    measured = ask(service, Level(rate=200.0), Bounds(12, None, 0))
    assert len(measured.samples) == 12
    dues = sorted(sample.due for sample in measured.samples)
    assert dues[-1] - dues[0] < 0.25, "they come although nothing is answered yet"
    assert all(figures.whole(sample) >= 0.04 for sample in measured.samples)
    release.join()


def test_seconds_bound_what_is_begun(service: Service) -> None:
    measured = ask(service, Level(concurrency=2), Bounds(None, 0.2, 0))
    assert len(measured.samples) > 2
    assert max(sample.due for sample in measured.samples) <= measured.began + 0.2


# ── the figures ─────────────────────────────────────────────────────────────────────────────────


def sample(due: float, outputs: list[float], ended: float, code: str = "") -> Sample:
    return Sample(due=due, sent=due, outputs=outputs, ended=ended, code=code, read=10, found=4, loops={"w.l": 3})


def test_figures_are_those_counted_by_hand() -> None:
    samples = [sample(0, [1, 2, 4], 5), sample(0, [3], 3), sample(1, [], 2, code="timeout")]
    measured = Measured(Level(concurrency=2), samples, began=0, ended=5, cpu=0.5)
    row = figures.row(measured, {"ttft": 2.0, "e2e": 6.0})
    assert (row["requests"], row["completed"], row["errors"]) == (3, 2, {"timeout": 1})
    assert row["throughput"] == 2 / 5
    assert row["ttft"]["p50"] == 2.0
    assert (row["itl"]["min"], row["itl"]["max"], row["itl"]["mean"]) == (1, 2, 1.5)
    assert row["e2e"]["p50"] == 4.0
    assert row["tokens"]["read"] == 20
    assert row["tokens"]["loops"] == {"w.l": {"iterations": 6, "per_second": 6 / 5}}
    assert row["good"] == {"requests": 1, "per_second": 1 / 5, "share": 1 / 3}


def test_percentiles_lie_between_the_nearest_ranks() -> None:
    values = [float(n) for n in range(101)]
    assert [figures.percentile(values, share) for share in (0.0, 0.5, 0.95, 1.0)] == [0, 50, 95, 100]
    assert figures.percentile([1.0, 2.0], 0.25) == 1.25
    assert figures.percentile([3.0], 0.99) == 3.0
    assert len(figures.distribution([float(n) for n in range(5000)])) == 200


def test_goals_are_read() -> None:
    assert figures.goals("ttft=300ms, e2e<=2s,itl<50ms") == {"ttft": 0.3, "e2e": 2.0, "itl": 0.05}
    for wrong in ("ttft", "ttft=3", "speed=3s", "e2e=fasts", "e2e=1.2.3s"):
        with pytest.raises(InvalidInput, match=r"goal|number"):
            figures.goals(wrong)
    assert figures.meets(sample(0, [1], 2), {"itl": 0.1}), "one output has no time between outputs"
    assert not figures.meets(sample(0, [], 2), {"ttft": 9.0}), "no output, no first one"


def test_what_makes_figures_worth_less_is_said() -> None:
    samples = [sample(0, [1], 1, code="overloaded")]
    row = figures.row(Measured(Level(concurrency=1), samples, ended=1, cpu=0.9), {})
    told = " ".join(figures.warnings([row]))
    assert "90% of a core" in told
    assert "0 requests were answered" in told
    assert "1 x overloaded" in told


def test_times_are_shown_in_the_unit_that_reads_best() -> None:
    assert [tables.took(v) for v in (None, 0.0123, 0.123, 12.3)] == ["-", "12.3 ms", "123 ms", "12.30 s"]


# ── the verb and its report ─────────────────────────────────────────────────────────────────────


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, service: Service) -> Callable[..., int]:
    monkeypatch.setenv("WALKGRAPH_HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)

    def answer(request: httpx.Request) -> httpx.Response:
        known = {"/v1/tasks/shapes/draw": TASK, "/api/v1/deployments/shapes": SHAPES}
        if request.url.path in known:
            return httpx.Response(200, json=known[request.url.path])
        return httpx.Response(404, json={"code": "not_found", "detail": "no", "errors": []})

    def local(_settings: object = None) -> Client:
        return Client(service.url, "very-secret", transport=httpx.MockTransport(answer))

    monkeypatch.setattr(Client, "local", local)

    def call(*words: str) -> int:
        monkeypatch.setattr(sys, "argv", ["walkgraph", "bench", "shapes", "draw", *words])
        with pytest.raises(SystemExit) as left:
            cli.main()
        return int(left.value.code or 0)

    return call


def test_a_report_stands_alone_and_holds_no_secret(
    bench: Callable[..., int], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ("--prompt", "a <red> circle", "-c", "1,2", "-n", "4", "--slo", "e2e=5s", "-o", "report", "--json")
    assert bench(*words) == 0
    told = json.loads(capsys.readouterr().out)
    results = json.loads((tmp_path / "report" / "results.json").read_text())
    assert [row["level"] for row in results["rows"]] == ["1", "2"] == [row["level"] for row in told["rows"]]
    assert results["about"]["graph digest"] == "d"
    assert results["about"]["placement"] == "default"
    assert results["request"]["inputs"] == {"prompt": "a <red> circle"}
    page = (tmp_path / "report" / "report.html").read_text()
    assert page.count("<svg") == 5
    assert "a &lt;red&gt; circle" in page
    assert not re.search(r"(src|href)=\"?http", page.replace("xmlns", ""))
    for text in (page, json.dumps(results), json.dumps(told)):
        assert "very-secret" not in text


def test_without_matplotlib_the_report_says_how_to_get_pictures(
    bench: Callable[..., int], tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(report, "has_pictures", lambda: False)
    assert bench("--prompt", "x", "-n", "2", "-o", "report") == 0
    assert "walkgraph[report]" in capsys.readouterr().err
    page = (tmp_path / "report" / "report.html").read_text()
    assert "walkgraph[report]" in page
    assert "<svg" not in page


def test_ctrl_c_tells_what_was_measured(
    bench: Callable[..., int], service: Service, capsys: pytest.CaptureFixture[str]
) -> None:
    service.answer = lambda number: "good" if number < 5 else "held"
    threading.Timer(0.5, signal.raise_signal, (signal.SIGINT,)).start()
    assert bench("--prompt", "x", "-c", "1,2", "--warmup", "0", "--json") == 130
    told = capsys.readouterr()
    [row] = json.loads(told.out)["rows"]
    assert row["interrupted"]
    assert row["completed"] == 4
    assert "interrupted" in told.err


@pytest.mark.parametrize(
    "words", [("-c", "0"), ("-c", "x"), ("-c", "1.5"), ("--rate", "-1"), ("-c", "1", "--rate", "1")]
)
def test_loads_that_make_no_sense_are_wrong_commands(bench: Callable[..., int], words: tuple[str, ...]) -> None:
    assert bench("--prompt", "x", *words) == 2


def test_a_deployment_that_answers_nothing_is_a_failure(bench: Callable[..., int], service: Service) -> None:
    service.answer = lambda number: "busy"
    assert bench("--prompt", "x", "-n", "2") == 1
    assert bench("--prompt", "x", "--slo", "soon") == 1
