"""Blueprints inside blueprints, deployed on two ranks: their runs give what the graph without them gives."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.support.serving import Service
from walkgraph.client import Client

PLAIN, NAME = "synthetic_maps", "packed"


@pytest.fixture(scope="module")
def running(plain: Service) -> Iterator[Service]:
    with plain.client() as client:
        client.deploy(PLAIN, f"{PLAIN}_two_ranks", PLAIN)
        client.deploy(packed(client), placement(), NAME)
    for name in (PLAIN, NAME):
        plain.wait_ready(name)
    yield plain
    plain.take_back(PLAIN, NAME)


def packed(client: Client) -> dict[str, Any]:
    """The graph with a map inside a map as a blueprint in a blueprint, and a map with caches as another."""
    graph = client.graph(PLAIN)
    graph = client.pack(graph, "add", ["/body/1/body/1", "/body/1/body/2"], "row")
    graph = client.pack(graph, "add", ["/body/1"], "rows")
    graph = client.pack(graph, "write", ["/body/1"], "author")
    return {**graph, "name": NAME}


def placement() -> dict[str, Any]:
    groups = [{"nodes": ["*"], "ranks": [0]}, {"nodes": ["rows", "author"], "ranks": [1]}]
    ranks = [{"rank": rank, "device": "cpu"} for rank in (0, 1)]
    return {"format": "walkgraph/placement@1", "name": "two", "groups": groups, "ranks": ranks}


@pytest.mark.parametrize("task", ["add", "write"])
def test_a_run_gives_what_the_graph_without_blueprints_gives(running: Service, task: str) -> None:
    with running.client() as client:
        for seed in (1, 2):
            expected, found = (client.run(name, task, {"params": {"seed": seed}})["outputs"] for name in (PLAIN, NAME))
            assert found == expected


def test_a_node_inside_is_planned_under_its_own_name(running: Service) -> None:
    with running.client() as client:
        assert "rows__row__square" in json.dumps(client.plan(packed(client), placement()))
