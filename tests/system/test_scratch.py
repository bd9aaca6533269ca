"""A graph that is drawn runs on a scratch deployment: its worker computes what a fresh one would."""

from __future__ import annotations

import time
from typing import Any

import pytest

from tests.support.serving import Service
from tests.support.yardstick import patience
from tests.unit.worker.test_pipelines import letter
from walkgraph.client import Client, ProblemError
from walkgraph.graph import codec

TIMES = 20
DRAW = {"inputs": {"prompt": "a red circle on white"}, "params": {"seed": 4, "steps": 5}}


@pytest.fixture(scope="module")
def running(plain: Service) -> Service:
    return plain


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
        running.take_back("three", "eight", "drawn")
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


WRITE = {"inputs": {"name": "Ada"}, "params": {"seed": 4}}


def called(client: Client, deployment: str) -> tuple[Any, dict[str, tuple[int, int]]]:
    """The outputs of a run, and for each node how often it was called, and how many of these calls were not made."""
    answer = client.run(deployment, "t", WRITE)
    shown = client.get_run(answer["run"])
    return answer["outputs"], {one["node"]: (one["calls"], one["kept"]) for one in shown["times"]}


@pytest.mark.slow
def test_nodes_that_have_not_changed_are_not_run_again(running: Service) -> None:
    def drawn(greeting: str) -> dict[str, Any]:
        return codec.dump(letter(greeting))

    whole = dict.fromkeys(("greeting", "question", "shout", "both", "dice", "told"), (1, 0))
    again = dict.fromkeys(whole, (1, 1)) | {"dice": (1, 0)}
    changed = again | dict.fromkeys(("greeting", "shout", "both"), (1, 0))
    with running.client() as client:
        client.serve_scratch("kept", drawn("Hello {value}"))
        running.wait_ready("kept")
        first, made = called(client, "kept")
        assert made == whole
        assert called(client, "kept") == (first, again)
        # The rank takes up the changed graph, and goes on with what it has kept.
        client.serve_scratch("kept", drawn("Dear {value}"))
        second, made = called(client, "kept")
        assert made == changed
        assert second["letter"] != first["letter"]
        client.serve_scratch("kept", drawn("Hello {value}"))
        assert called(client, "kept") == (first, again)

        # Another page, and a deployment for clients, begin with nothing.
        client.serve_scratch("other", drawn("Hello {value}"))
        running.wait_ready("other")
        assert called(client, "other") == (first, whole)
        client.deploy(drawn("Hello {value}"), name="clients")
        running.wait_ready("clients")
        assert [called(client, "clients") for _ in range(2)] == [(first, whole)] * 2
        for page in ("kept", "other"):
            client.end_scratch(page)
        client.undeploy("clients")


@pytest.mark.slow
def test_clients_get_what_nodes_keep_for_their_key_or_for_all(running: Service) -> None:
    graph = codec.dump(letter())
    graph["nodes"]["shout"]["kept"], graph["nodes"]["both"]["kept"] = "own", "shared"
    with running.client() as client:
        client.deploy(graph, name="keeping")
        running.wait_ready("keeping")
        outputs: list[Any] = []
        kept: list[set[str]] = []
        keys = [client.add_key(name, ["infer"])["secret"] for name in ("one", "two")]
        for secret in (*keys, keys[0]):
            with Client(running.told["url"], secret) as caller:
                answer = caller.run("keeping", "t", WRITE)
            outputs.append(answer["outputs"])
            kept.append({one["node"] for one in client.get_run(answer["run"])["times"] if one["kept"]})
        assert kept == [set(), {"both"}, {"both", "shout"}]
        assert outputs[1:] == outputs[:1] * 2
        client.undeploy("keeping")


@pytest.mark.slow
def test_the_trace_lists_what_was_not_run(running: Service) -> None:
    with running.client() as client:
        client.serve_scratch("traced", codec.dump(letter()))
        running.wait_ready("traced")
        client.run("traced", "t", WRITE)
        run = client.run("traced", "t", WRITE)["run"]
        known = {"greeting", "question", "shout", "both", "told"}
        deadline = time.monotonic() + patience(20)
        found = client.trace(run)
        while {one["node"] for one in found["kept"]} != known:
            assert time.monotonic() < deadline, found["kept"]
            time.sleep(0.05)
            found = client.trace(run)
        assert {lane["name"] for lane in found["lanes"]} == {"dice"}
        client.end_scratch("traced")
