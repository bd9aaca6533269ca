"""A deployment over two hosts whose clocks differ is watched as one on one host is: traces, taps, breakpoints, replays,
live telemetry and metrics show both ranks, at times of one clock."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.util import find_spec
from typing import Any

import pytest

from tests.support.namespaces import Host, allowed, clocks_allowed, two_hosts
from tests.support.ray_hosts import ray_cluster
from tests.support.served_hosts import served
from walkgraph.placement.transports import declared_transports

pytestmark = [
    pytest.mark.skipif(find_spec("ray") is None, reason="`ray` is not installed"),
    pytest.mark.skipif(not declared_transports()["nixl"].installed, reason="`nixl` is not installed"),
    pytest.mark.skipif(not allowed(), reason="network namespaces are not allowed here"),
]
AHEAD = 1000 if clocks_allowed() else 0
"""Seconds that the other host's clock is ahead."""
NEAR, FAR = 0, 1
Seen = dict[str, Any]


@pytest.fixture(scope="module")
def there(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Host, Seen]]:
    """The other host, and what is seen of runs."""
    home = tmp_path_factory.mktemp("watching") / "home"
    with two_hosts(AHEAD) as (here, far), ray_cluster(here, far) as ray, served(here, ray, home) as service:
        service.ask("deploy", "far", "synthetic_loops", far.name)
        service.ask("until", "far", {"state": "ready"})
        yield far, service.ask("watched", "far")
        service.ask("undeploy", "far")


def test_a_trace_has_both_hosts_in_one_time(there: tuple[Host, Seen]) -> None:
    host, trace = there[0].name, there[1]["traced"]["trace"]
    assert trace["hosts"] == ["", host]
    [clock] = trace["clocks"]
    assert clock["host"] == host
    assert abs(clock["offset"] + AHEAD) * 1e6 <= clock["error"] < 1e6
    lanes, blocks = trace["lanes"], trace["blocks"]
    end = trace["seconds"] * 1e6 + clock["error"]
    spans = list(zip(blocks["lane"], blocks["ready"], blocks["started"], blocks["finished"], strict=True))
    assert {lanes[lane]["rank"] for lane, *_ in spans} == {NEAR, FAR}
    assert all(-clock["error"] <= ready <= started <= finished <= end for _, ready, started, finished in spans)
    hops = trace["hops"]
    ways = set(zip(hops["source"], hops["target"], strict=True))
    assert (NEAR, FAR) in ways
    assert all(0 <= sent <= arrived <= end for sent, arrived in zip(hops["sent"], hops["arrived"], strict=True))
    assert trace["early"] == 0
    assert {part["rank"] for part in trace["parts"]} == {NEAR, FAR}
    assert all(-clock["error"] <= part["received"] <= part["done"] <= end for part in trace["parts"])
    assert (trace["lost"], trace["cut"]) == (0, False)
    assert sum(there[1]["traced"]["why"]["shares"].values()) == pytest.approx(trace["seconds"], abs=1e-4)


def test_exported_traces_say_how_wrong_times_may_be(there: tuple[Host, Seen]) -> None:
    host, traced = there[0].name, there[1]["traced"]
    [clock] = traced["trace"]["clocks"]
    perfetto = traced["files"]["perfetto"]
    assert perfetto["otherData"]["clocks"] == [clock]
    names = [event["args"]["name"] for event in perfetto["traceEvents"] if event["name"] == "process_name"]
    assert f"rank 1 (cpu, host {host})" in names
    [scope] = traced["files"]["otlp"]["resourceSpans"][0]["scopeSpans"]
    spans = [{one["key"]: one["value"] for one in span["attributes"]} for span in scope["spans"]]
    nodes = {span["walkgraph.node"]["stringValue"]: span for span in spans if "walkgraph.node" in span}
    assert nodes["unload"]["walkgraph.host"] == {"stringValue": host}
    assert nodes["unload"]["walkgraph.clock_error_seconds"] == {"doubleValue": clock["error"] / 1e6}
    assert "walkgraph.host" not in nodes["load"]


def test_live_telemetry_has_both_hosts_in_one_time(there: tuple[Host, Seen]) -> None:
    host, (began, ended) = there[0].name, there[1]["traced"]["between"]
    frames = there[1]["traced"]["frames"]
    far = [frame for frame in frames if frame["source"].startswith("rank 1.")]
    assert {frame["clock"]["host"] for frame in far} == {host}
    assert all(frame["clock"] is None for frame in frames if frame not in far)
    times = [event["started"] + frame["wall"] for frame in far for event in frame["events"] if "started" in event]
    assert times
    # The calendar is as exact as its service reads it.
    assert all(began - 1 < at < ended + 1 for at in times)


def test_taps_of_a_far_rank_show_whole_values(there: tuple[Host, Seen]) -> None:
    out, into = there[1]["tapped"]
    assert (out["rank"], out["source"], out["statistics"]["count"]) == (FAR, "unload.sum", 1)
    assert (into["source"], into["shape"], into["statistics"]["count"]) == ("load.items", [4096], 4096)
    assert out["statistics"]["mean"] == pytest.approx(into["statistics"]["mean"] * 4096, rel=1e-5)


def test_a_breakpoint_stops_a_far_rank(there: tuple[Host, Seen]) -> None:
    seen = there[1]["held"]
    call = next(call for call in seen["paused"]["held"] if call["use"] == "unload")
    assert seen["paused"]["breakpoint"] == seen["stop"]
    assert (call["rank"], call["walk"], call["iteration"]) == (FAR, "ferry", [2])
    assert call not in seen["stepped"]
    assert (seen["input"]["rank"], seen["input"]["statistics"]["count"]) == (FAR, 4096)
    assert seen["outputs"] == seen["free"]


def test_a_replay_has_the_same_values(there: tuple[Host, Seen]) -> None:
    seen = there[1]["replayed"]
    found = seen["differences"]
    assert found["recorded"]
    assert found["compared"] >= 8
    assert (found["equal"], found["missing"], found["first"]) == (found["compared"], {"a": 0, "b": 0}, None)
    # A recorded run begins with the first of its values, wherever that is made.
    assert 0 < seen["seconds"] < 600


def test_metrics_have_both_ranks(there: tuple[Host, Seen]) -> None:
    lines = [line for line in there[1]["metrics"].splitlines() if 'deployment="far"' in line]
    for rank in (NEAR, FAR):
        assert any(f'rank="{rank}"' in line for line in lines), lines
