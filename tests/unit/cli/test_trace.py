"""`walkgraph trace`: a run on a terminal, files, a deployment's runs, and a live view."""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from websockets.sync.server import ServerConnection, serve

from tests.support import traces
from tests.support.fake_service import FakeService
from walkgraph.cli.show import timelines
from walkgraph.cli.show.following import WINDOW, Board
from walkgraph.client import Client, Unreachable
from walkgraph.telemetry.sinks import otlp, perfetto
from walkgraph.telemetry.trace import FOLDED, Blocks, ClockError, Lane, Trace

RUN = traces.RUN
TRACE = traces.trace(3, ranks=2)
WHY: dict[str, Any] = {
    "run": RUN,
    "seconds": 2.0,
    "shares": {"admission": 0.0, "queue": 0.5, "launch": 0.001, "compute": 1.499},
    "says": "`llm` on rank 0 took 75 % of the time.",
}
SHARES = (("socket", 0.002), ("decode", 0.0), ("queue", 0.05), ("device", 0.148))
PROFILE: dict[str, Any] = {
    "seconds": 0.2,
    "exact": True,
    "shares": [
        {"share": share, "seconds": spent, "part": spent / 0.2, "means": f"{share} is meant", "advice": f"mind {share}"}
        for share, spent in SHARES
    ],
    "largest": "device",
    "moments": [{"what": "service received the request", "at": 0.0}, {"what": "admitted", "at": 0.0015},
                {"what": "last byte sent", "at": 0.2}],
}  # fmt: skip
WHY["profile"] = PROFILE
LISTED = {"run": RUN, "task": "draw", "state": "done", "level": "full", "seconds": 0.5, "at": 1.75e9, "blocks": 9,
          "recorded": True}  # fmt: skip
NODE = {"node": "llm", "rank": 0, "calls": 7, "p50": 1.0, "p95": 2.0, "p99": 3.5, "queued_p50": 0.1, "queued_p95": 0.2,
        "batch_mean": None, "share": 0.8, "busy": 3.0}  # fmt: skip
Call = Callable[..., int]
Output = pytest.CaptureFixture[str]


@pytest.fixture(autouse=True)
def _answers(service: FakeService) -> None:
    files = {"perfetto": perfetto.encode(TRACE), "otlp": otlp.encode(TRACE)}

    def trace(request: httpx.Request) -> httpx.Response:
        return httpx.Response(200, content=files.get(request.url.params.get("format", ""), msgspec.json.encode(TRACE)))

    def listed(request: httpx.Request) -> httpx.Response:
        asked = request.url.params.get("task")
        kept = [LISTED, {**LISTED, "task": "edit"}]
        return httpx.Response(200, json=[found for found in kept if asked in (None, found["task"])])

    service.answers |= {
        ("GET", f"/api/v1/runs/{RUN}/trace"): trace,
        ("GET", f"/api/v1/runs/{RUN}/why"): httpx.Response(200, json=WHY),
        ("GET", "/api/v1/runs"): httpx.Response(200, json=[{"id": RUN}, {"id": "0af7" + "1" * 28}]),
        ("GET", "/api/v1/deployments/shapes/traces"): listed,
        ("GET", "/api/v1/deployments/shapes/statistics"): httpx.Response(200, json={"runs": 2, "nodes": [NODE]}),
    }


# ── a run ───────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("named", [RUN, RUN[:6], "last"])
def test_a_run_is_shown_with_nodes_ranks_and_why(walkgraph: Call, capsys: Output, named: str) -> None:
    assert walkgraph("trace", named) == 0
    shown = capsys.readouterr().out
    assert "draw on shapes: done" in shown
    assert "first output after" in shown
    assert "rank 1 cuda:1" in shown
    assert "generate (llm, sampler)" in shown
    assert WHY["says"] in shown
    assert "compute 75%, queue 25%" in shown


def test_a_run_is_named_well_or_not_at_all(walkgraph: Call, capsys: Output) -> None:
    assert walkgraph("trace", "0af7") == 1
    assert "2 runs start with `0af7`" in capsys.readouterr().err
    assert walkgraph("trace", "ffff") == 1
    assert "no run's id starts with `ffff`" in capsys.readouterr().err
    assert walkgraph("trace", "0a") == 1
    assert walkgraph("trace") == 2
    assert walkgraph("trace", "last", "--follow") == 2
    assert walkgraph("trace", "-d", "shapes", "--otlp", "x.json") == 2


def test_files_are_written_as_they_come(walkgraph: Call, capsys: Output, tmp_path: Path) -> None:
    assert walkgraph("trace", "last", "--perfetto", "p.json", "--otlp", "-") == 0
    told = capsys.readouterr()
    assert json.loads(told.out)["resourceSpans"]
    assert "wrote p.json" in told.err
    assert (tmp_path / "p.json").read_bytes() == perfetto.encode(TRACE)
    assert walkgraph("trace", "last", "--perfetto", str(tmp_path / "no" / "p.json")) == 1
    assert "can't be written" in capsys.readouterr().err


def test_json_is_the_trace_and_why(walkgraph: Call, capsys: Output) -> None:
    assert walkgraph("trace", RUN, "--json") == 0
    found = json.loads(capsys.readouterr().out)
    assert msgspec.convert(found["trace"], Trace) == TRACE
    assert found["why"] == WHY


def test_a_profile_is_a_table_of_shares_the_largest_first_and_of_the_way(walkgraph: Call, capsys: Output) -> None:
    assert walkgraph("trace", "last", "--why") == 0
    assert capsys.readouterr().out.splitlines() == [
        f"{RUN}: 200.0 ms from its request to the last byte of its answer",
        "",
        "SHARE       MS  PERCENT  WHAT IT IS",
        "device  148.00    74.0%  device is meant",
        "queue    50.00    25.0%  queue is meant",
        "socket    2.00     1.0%  socket is meant",
        "",
        "The largest share is device: mind device.",
        "",
        " AT MS  AFTER MS  WHAT HAPPENED",
        "  0.00      0.00  service received the request",
        "  1.50      1.50  admitted",
        "200.00    198.50  last byte sent",
    ]


def test_a_profile_says_what_it_can_not_tell(walkgraph: Call, service: FakeService, capsys: Output) -> None:
    shares = [{**row, "seconds": 0.0, "part": 0.0} for row in PROFILE["shares"]]
    nothing = {**PROFILE, "seconds": 0.0, "shares": shares, "moments": [], "exact": False}
    service.answers["GET", f"/api/v1/runs/{RUN}/why"] = httpx.Response(200, json={**WHY, "profile": nothing})
    assert walkgraph("trace", "last", "--why") == 0
    shown = capsys.readouterr().out
    assert "only telemetry of level `full` reports single calls" in shown
    assert "largest" not in shown


def test_a_profile_is_data_too_and_is_of_one_run(walkgraph: Call, capsys: Output) -> None:
    assert walkgraph("trace", "last", "--why", "--json") == 0
    assert json.loads(capsys.readouterr().out) == PROFILE
    assert walkgraph("trace", "-d", "shapes", "--why") == 2
    assert "`--why` explains one run" in capsys.readouterr().err


def lane_lines(trace: Trace, width: int) -> list[str]:
    return [line for line in timelines.timeline(trace, width) if line.endswith("│") and not line.startswith("phases")]


@given(seed=st.integers(0, 500), width=st.integers(1, 120), folded=st.booleans())
def test_a_column_is_shaded_where_its_lane_was_busy(seed: int, width: int, folded: bool) -> None:
    trace = traces.trace(seed, ranks=2, batches=4, folded=folded)
    lines = lane_lines(trace, width)
    assert len(lines) == len(trace.lanes)
    columns = lines[0].index("│", lines[0].index("│") + 1) - lines[0].index("│") - 1
    assert all(len(line) <= max(width, len(line) - columns + timelines.LEAST_WIDTH) for line in lines)
    end = max([round(trace.seconds * 1e6), *trace.blocks.finished])
    for number, line in zip(sorted(range(len(trace.lanes)), key=lambda i: trace.lanes[i].rank), lines, strict=True):
        drawn = line.partition("│")[2][:-1]
        for column in range(columns):
            low, high = column * end / columns, (column + 1) * end / columns
            rows = [row for row, lane in enumerate(trace.blocks.lane) if lane == number]
            spans = [(trace.blocks.started[row], trace.blocks.finished[row]) for row in rows]
            if drawn[column] == " ":
                assert not any(max(low, start) + 1 < min(high, finish) for start, finish in spans)
            else:
                assert any(start <= high + 1 and finish + end / columns >= low - 1 for start, finish in spans)


def test_how_busy_is_shaded_by_hand() -> None:
    blocks = Blocks(
        kind=(FOLDED, 0), lane=(0, 0), walk=(0, 0), use=(-1, -1), step=(0, 0), iteration=((), ()), count=(4, 1),
        number=(-1, 1), batch=(1, 1), mates=((), ()), ready=(0, 0), taken=(0, 0), launched=(0, 0), started=(0, 500_000),
        finished=(500_000, 750_000), busy=(250_000, 250_000), queued=(0, 0), pages_free=(-1, -1), failed=(False, False),
    )  # fmt: skip
    lane = Lane(rank=0, name="llm", nodes=("llm",), loop=False)
    trace = msgspec.structs.replace(TRACE, seconds=1.0, lanes=(lane,), blocks=blocks, phases={"queued": 0})
    [line] = lane_lines(trace, 49)
    assert line == "  llm  │" + "▒" * 20 + "█" * 10 + " " * 10 + "│"
    assert timelines.nodes(trace) == [("llm", 0, 5, "500.0", "100.00", "0.0", "1.0", "50%")]


@pytest.mark.parametrize(
    ("seconds", "text"), [(0.0, "0 us"), (5e-5, "50 us"), (0.0123, "12.3 ms"), (2.5, "2.50 s"), (90.0, "1 min 30 s")]
)
def test_durations(seconds: float, text: str) -> None:
    assert timelines.duration(seconds) == text


# ── a deployment ────────────────────────────────────────────────────────────────────────────────


def test_a_deployment_lists_its_traces_and_what_nodes_take(walkgraph: Call, capsys: Output) -> None:
    assert walkgraph("trace", "-d", "shapes", "--task", "draw") == 0
    shown = capsys.readouterr().out
    assert "500.0 ms" in shown
    assert "over 2 runs" in shown
    assert "3.50" in shown
    assert "edit" not in shown
    assert walkgraph("trace", "-d", "shapes", "--json") == 0
    assert json.loads(capsys.readouterr().out)["statistics"]["runs"] == 2


def activity(calls: int, busy: float) -> dict[str, Any]:
    return {"type": "activity", "rank": 0, "node": "llm", "iteration": [3], "calls": calls, "busy": busy, "queued": 0.0}


def frames(*events: dict[str, Any]) -> dict[str, Any]:
    return {"type": "events", "events": list(events)}


def test_a_board_shows_rates_of_the_last_seconds() -> None:
    board = Board("shapes")
    phase = {"type": "run", "run": RUN, "task": "draw", "at": 0.0, "error": None}
    told = list(board.take(frames({**phase, "phase": "queued"}, {**phase, "phase": "started"}), 100.0))
    assert told == ["0af76519  draw: queued", "0af76519  draw: started"]
    board_lines = "\n".join(board.lines(101.0))
    assert "1 runs, 0 over" in board_lines
    assert "1.00 s" in board_lines
    for at in (100.0, 101.0):
        list(board.take(frames(activity(10, 0.05)), at))
    assert f"{20 / WINDOW:.1f}" in "\n".join(board.lines(102.0))
    assert "5.00" in "\n".join(board.lines(102.0))
    assert f"{10 / WINDOW:.1f}" in "\n".join(board.lines(105.5))
    over = {"type": "run", "run": RUN, "task": "draw", "state": "done", "seconds": 1.25}
    assert list(board.take(over, 106.0)) == ["0af76519  draw: done in 1.25 s"]
    assert "0 runs, 1 over" in "\n".join(board.lines(106.0))


def test_a_board_forgets_a_run_whose_end_came_before_its_phases() -> None:
    board = Board("shapes")
    phase = {"type": "run", "run": RUN, "task": "draw", "at": 0.0, "error": None}
    list(board.take({"type": "run", "run": RUN, "task": "draw", "state": "done", "seconds": 1.25}, 1.0))
    told = frames(*({**phase, "phase": name} for name in ("queued", "started", "finished")))
    assert list(board.take(told, 1.1)) == ["0af76519  draw: queued", "0af76519  draw: started"]
    assert "0 runs, 1 over" in "\n".join(board.lines(2.0))


def test_a_board_takes_every_frame() -> None:
    board = Board("shapes")
    rank = {"type": "rank", "rank": 1, "busy": 0.5, "queue": 2, "runs": 3, "pages_free": 25, "pages_total": 100,
            "memory_used": 2**30, "memory_total": 4 * 2**30}  # fmt: skip
    launch = {"type": "launch", "rank": 0, "loop": "generate", "runs": [RUN], "outer": [[1]], "first": [8], "count": 4,
              "started": 1.0, "finished": 1.5}  # fmt: skip
    forward = {"type": "forward", "rank": 0, "nodes": ["vae"], "ready": [0.0], "iterations": [[]], "started": 1.0,
               "finished": 2.0}  # fmt: skip
    looping = {"type": "looping", "rank": 1, "loop": "steps", "calls": 2, "busy": 0.1, "iterations": [[17]]}
    told = [
        frames(rank, launch, forward, looping, {"type": "sample"}),
        {"type": "welcome", "seq": 1},
        {"type": "deployment", "state": "ready"},
        {"type": "dropped", "count": 3},
        {"type": "paused", "run": RUN, "held": []},
    ]
    assert [line for frame in told for line in board.take(frame, 1.0)] == ["shapes is ready"]
    shown = "\n".join(board.lines(1.0))
    for word in ("busy  50%", "KV 75%", "memory 1.0 of 4.0 GiB", "generate", "1.8", "17", "3 frames missed"):
        assert word in shown, word


# ── following ───────────────────────────────────────────────────────────────────────────────────


@pytest.fixture
def telemetry() -> Iterator[tuple[str, list[Any]]]:
    """A service's socket: two frames, a pause, then the end; and what it was asked."""
    asked: list[Any] = []

    def answer(socket: ServerConnection) -> None:
        assert socket.request is not None
        asked.append((socket.request.path, socket.request.headers["Authorization"]))
        socket.send(json.dumps({"type": "welcome"}))
        socket.send(json.dumps({"type": "deployment", "state": "ready"}))
        socket.close()

    with serve(answer, "127.0.0.1", 0) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.socket.getsockname()[1]}", asked
        server.shutdown()
        thread.join()


def test_frames_are_followed_until_the_service_ends(telemetry: tuple[str, list[Any]]) -> None:
    url, asked = telemetry
    with Client(url, "secret") as client:
        found = [frame for frame in client.telemetry("my shapes") if frame is not None]
    assert [frame["type"] for frame in found] == ["welcome", "deployment"]
    assert asked == [("/ws/v1/telemetry?deployment=my%20shapes", "Bearer secret")]
    with Client("http://127.0.0.1:1", "secret") as client, pytest.raises(Unreachable):
        next(client.telemetry("shapes"))


def test_without_a_terminal_changes_are_lines(walkgraph: Call, capsys: Output, monkeypatch: pytest.MonkeyPatch) -> None:
    def telemetry(self: Client, deployment: str, every: float = 1.0) -> Iterator[dict[str, Any] | None]:
        yield from ({"type": "deployment", "state": "ready"}, None, frames(activity(1, 0.1)))

    monkeypatch.setattr(Client, "telemetry", telemetry)
    assert walkgraph("trace", "-d", "shapes", "--follow") == 0
    assert capsys.readouterr().out == "shapes is ready\n"
    assert walkgraph("trace", "-d", "shapes", "--follow", "--json") == 0
    assert [json.loads(line)["type"] for line in capsys.readouterr().out.splitlines()] == ["deployment", "events"]
    assert walkgraph("trace", "-d", "nothing", "--follow") == 1


def test_on_a_terminal_one_picture_is_drawn_anew(
    walkgraph: Call, capsys: Output, monkeypatch: pytest.MonkeyPatch
) -> None:
    def telemetry(self: Client, deployment: str, every: float = 1.0) -> Iterator[dict[str, Any] | None]:
        yield from ({"type": "deployment", "state": "ready"}, frames({**activity(1, 0.1), "node": "[red]\x1b[31m"}))
        clock[0] += 1.0
        yield None

    clock = [1000.0]
    monkeypatch.setattr(Client, "telemetry", telemetry)
    monkeypatch.setattr("walkgraph.cli.verbs.trace.time.monotonic", lambda: clock[0])
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    assert walkgraph("trace", "-d", "shapes", "--follow") == 0
    shown = capsys.readouterr().out
    assert shown.count("shapes: ready, 0 runs") >= 2
    assert "[red]\\x1b[31m" in shown


def test_the_heading_says_how_wrong_the_times_of_other_hosts_may_be() -> None:
    clock = ClockError(host="b", offset=5.0, error=40)
    _, line = timelines.heading(traces.trace(1, hosts=("", "b"), clocks=(clock,)))
    assert line.endswith("times of host b: +-40 us")
    assert "2 values came before they were sent" in timelines.heading(traces.trace(1, early=2))[1]
