"""What is drawn runs on a scratch deployment: its worker takes up each graph, and computes what a fresh one would."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.support.serving import Service, service
from walkgraph.client import Client, ProblemError

TIMES = 20
DRAW = {"inputs": {"prompt": "a red circle on white"}, "params": {"seed": 4, "steps": 5}}


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    with service(tmp_path_factory.mktemp("scratch") / "home", studio="false") as found:
        found.up("--no-deploy")
        yield found
        assert found.down() == 0


def counting(client: Client, value: int) -> dict[str, Any]:
    """A graph that needs no weights, with this number to begin from."""
    document = client.graph("synthetic_loops")
    document["tasks"]["spin"]["params"]["value"]["default"] = value
    return document


def told(client: Client, deployment: str, task: str, request: dict[str, Any]) -> Any:
    return client.run(deployment, task, request)["outputs"]


def workers(client: Client, deployment: str) -> list[int]:
    return [rank["pid"] for rank in client.deployment(deployment)["ranks"]]


@pytest.mark.slow
def test_the_same_worker_serves_one_graph_after_the_other(running: Service) -> None:
    spin = {"params": {"times": TIMES}}
    with running.client() as client:
        first = counting(client, 3)
        client.serve_scratch("page", first)
        running.wait_ready("page")
        before = workers(client, "page")
        results = [told(client, "page", "spin", spin)]
        client.serve_scratch("page", counting(client, 8))
        results.append(told(client, "page", "spin", spin))
        assert workers(client, "page") == before

        shapes = client.graph("shapes")
        client.serve_scratch("page", shapes)
        drawn = told(client, "page", "text_to_image", DRAW)
        assert workers(client, "page") == before
        client.serve_scratch("page", first)
        results.append(told(client, "page", "spin", spin))
        assert workers(client, "page") == before
        assert results[0] == results[2] != results[1]

        # The naive twin: a deployment of its own for each graph.
        for name, graph in (("three", first), ("eight", counting(client, 8)), ("drawn", shapes)):
            client.deploy(graph, name=name)
            running.wait_ready(name)
        assert [told(client, name, "spin", spin) for name in ("three", "eight")] == results[:2]
        assert told(client, "drawn", "text_to_image", DRAW) == drawn
        client.end_scratch("page")
        assert "page" not in {found["id"] for found in client.deployments()}


@pytest.mark.slow
def test_a_graph_that_cannot_run_leaves_the_former_one(running: Service) -> None:
    with running.client() as client:
        good = counting(client, 5)
        client.serve_scratch("torn", good)
        running.wait_ready("torn")
        before = told(client, "torn", "spin", {"params": {"times": TIMES}})
        bad = counting(client, 6)
        bad["walks"]["spin"]["edges"].append(["nowhere.value", "@out.value"])
        with pytest.raises(ProblemError, match="nowhere"):
            client.serve_scratch("torn", bad)
        assert told(client, "torn", "spin", {"params": {"times": TIMES}}) == before
        client.end_scratch("torn")
