"""`walkgraph hosts`, against a service that answers from memory."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.support.fake_service import FakeService

Call = Callable[..., int]
GIB = 2**30
GPU = {"title": "NVIDIA H200", "total": 141 * GIB, "free": 100 * GIB, "hypothetical": False, "numa": None}
CPU = {**GPU, "name": "cpu", "title": "x86_64", "total": 64 * GIB, "free": 48 * GIB}


def host(name: str, **changed: Any) -> dict[str, Any]:
    head = {"name": name, "address": "10.0.0.2", "here": False, "alive": True, "problems": [], "cores": 16}
    return {**head, "devices": [CPU], "links": [], "reaches": [], "ranks": []} | changed


def rank(deployment: str, number: int, state: str = "ready") -> dict[str, Any]:
    return {"deployment": deployment, "rank": number, "device": "cpu", "state": state}


def test_hosts_are_listed_with_their_devices_and_ranks(
    walkgraph: Call, service: FakeService, capsys: pytest.CaptureFixture[str]
) -> None:
    two = [CPU, {**GPU, "name": "cuda:0"}, {**GPU, "name": "cuda:1"}]
    way = {"bandwidth": 1.5 * GIB, "latency": 0.0002}
    listed = [
        host(
            "near",
            here=True,
            address="10.0.0.1",
            reaches=[{"host": "far", **way}],
            ranks=[rank("talk", 0), rank("talk", 1, "loading"), rank("see", 0)],
        ),
        host("far", devices=two, reaches=[{"host": "near", **way}]),
        host(
            "lost",
            alive=False,
            address="",
            problems=["host `lost` is gone; start it"],
            devices=[],
            ranks=[rank("see", 1, "lost")],
        ),
    ]
    service.answers["GET", "/api/v1/hosts"] = httpx.Response(200, json=listed)
    assert walkgraph("hosts") == 0
    told = capsys.readouterr()
    assert told.err == "host `lost` is gone; start it\n"
    rows = [" ".join(row.split()) for row in told.out.splitlines()]
    assert rows == [
        "HOST ADDRESS CPUS MEMORY FREE GPUS RANKS",
        "near (the service's) 10.0.0.1 16 64.0 GiB 48.0 GiB - talk 0, 1 (loading); see 0",
        "far 10.0.0.2 16 64.0 GiB 48.0 GiB 2 x NVIDIA H200 of 141 GiB, 200 GiB free -",
        "lost gone see 1 (lost)",
        "",
        "BETWEEN AND BANDWIDTH LATENCY",
        "near far 1.5 GiB/s 0.20 ms",
    ]
    assert walkgraph("hosts", "--json") == 0
    assert json.loads(capsys.readouterr().out) == listed


def test_the_one_host_of_a_service_has_no_address(
    walkgraph: Call, service: FakeService, capsys: pytest.CaptureFixture[str]
) -> None:
    service.answers["GET", "/api/v1/hosts"] = httpx.Response(200, json=[host("alone", here=True, address="")])
    assert walkgraph("hosts") == 0
    assert " ".join(capsys.readouterr().out.splitlines()[1].split()).startswith("alone (the service's) - 16 ")


def test_a_graph_is_planned_for_the_hosts_of_the_service(
    walkgraph: Call, service: FakeService, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    reach = {"bandwidth": 1.5 * GIB, "latency": 0.0002}
    full = {**CPU, "free": 0}
    listed = [
        host("near", here=True, address="10.0.0.1", devices=[full], reaches=[{"host": "far", **reach}]),
        host("far", devices=[full, {**GPU, "name": "cuda:0"}], reaches=[{"host": "near", **reach}]),
        host("lost", alive=False, address="", devices=[]),
    ]
    service.answers["GET", "/api/v1/hosts"] = httpx.Response(200, json=listed)
    groups = [{"nodes": ["*"], "ranks": [0]}, {"nodes": ["vae_decoder"], "ranks": [1], "host": "far"}]
    ranks = [{"rank": 0, "device": "cpu"}, {"rank": 1, "device": "cuda:0"}]
    place = {"format": "walkgraph/placement@1", "name": "far", "groups": groups, "ranks": ranks}
    (tmp_path / "far.json").write_text(json.dumps(place))
    assert walkgraph("plan", "shapes", str(tmp_path / "far.json"), "--gpus", "cluster") == 0
    drawn = capsys.readouterr().out
    assert "rank 1  cuda:0 of far" in drawn
    assert "each 0.20 ms or more" in drawn
    groups[1]["host"] = "lost"
    (tmp_path / "far.json").write_text(json.dumps(place))
    assert walkgraph("plan", "shapes", str(tmp_path / "far.json"), "--gpus", "cluster") == 1
    assert "there is no host `lost`" in capsys.readouterr().out
