"""A deployment that is switched while it is used: no request is lost, and a bad version changes nothing."""

from __future__ import annotations

import json
import shutil
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from tests.support.serving import Service, children, deployed_processes, service, wait_gone
from walkgraph.client import Client
from walkgraph.starters import shapes

PAUSE = 0.02
"""Seconds between the requests of a client: the versions that load need the processors too."""


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """With the deployment `numbers`, which tells 4; the folder `torn` is a checkpoint that lacks a tensor."""
    folder = tmp_path_factory.mktemp("switch")
    torn = folder / "checkpoints" / "torn"
    shutil.copytree(Path(shapes.__file__).parent, torn, ignore=shutil.ignore_patterns("*.py", "__pycache__"))
    weights = torn / "ema.safetensors"
    weights.write_bytes(weights.read_bytes().replace(b"llm2vae.weight", b"llm2vae.absent"))
    with service(folder / "home", studio="false", checkpoint_roots=json.dumps([str(torn.parent)])) as found:
        found.up("--no-deploy")
        with found.client() as client:
            client.deploy(telling(client, 4), name="numbers")
            found.wait_ready("numbers")
        yield found
        assert found.down() == 0


def telling(client: Client, number: int) -> dict[str, Any]:
    """A graph that needs no weights, of which `told` gets this number."""
    document = client.graph("synthetic_loops")
    document["tasks"]["spin"]["params"]["value"]["default"] = number
    return document


def told(client: Client) -> int:
    """By the version that serves now."""
    result = client.run("numbers", "spin", {"params": {"times": 20}})
    return result["outputs"]["value"][0]["value"]


@contextmanager
def asking(running: Service, clients: int) -> Iterator[list[list[Any]]]:
    """Clients that ask one after the other; of each what it was told, or its errors, as they come."""
    answers: list[list[Any]] = [[] for _ in range(clients)]
    over = threading.Event()

    def ask(mine: list[Any]) -> None:
        with running.client() as client:
            while not over.wait(PAUSE):
                try:
                    mine.append(told(client))
                except Exception as error:  # noqa: BLE001
                    mine.append(error)

    threads = [threading.Thread(target=ask, args=[mine]) for mine in answers]
    for thread in threads:
        thread.start()
    try:
        yield answers
    finally:
        over.set()
        for thread in threads:
            thread.join()


def wait_switched(client: Client) -> dict[str, Any]:
    for found in client.follow_deployment("numbers"):
        if found["next"] is None or found["next"]["state"] == "failed":
            return found
    raise AssertionError("the deployment is gone")


@pytest.mark.safety("R11")
@pytest.mark.slow
def test_a_switch_to_what_does_not_load_changes_nothing(running: Service) -> None:
    assert running.process is not None
    with running.client() as client:
        before, number = client.deployment("numbers"), told(client)
        old = children(running.process.pid)
        bad = {**client.graph("shapes"), "weights": {"shapes": {"family": "bagel", "source": "checkpoint:torn"}}}
        with asking(running, 2) as answers:
            client.replace("numbers", bad, "shapes_one_cpu")
            found = wait_switched(client)
            assert found["next"]["state"] == "failed"
            assert found["next"]["reason"]
            wait_gone(children(running.process.pid) - old, 60)
        assert [set(mine) for mine in answers] == [{number}, {number}]
        assert (found["state"], found["digest"], found["restarts"]) == ("ready", before["digest"], 0)
        assert children(running.process.pid) == old


@pytest.mark.safety("R11")
@pytest.mark.slow
def test_a_switch_under_load_loses_nothing(running: Service) -> None:
    assert running.process is not None
    with running.client() as client:
        number = told(client)
        old = deployed_processes(running.process.pid)
        with asking(running, 2) as answers:
            client.replace("numbers", telling(client, number + 1))
            assert wait_switched(client)["next"] is None
            wait_gone(old, 60)
            assert told(client) == number + 1
        for mine in answers:
            # Each client asks one thing after the other, so it sees one change.
            assert set(mine) <= {number, number + 1}
            assert mine[0] == number
            assert sum(a != b for a, b in pairwise(mine)) <= 1
        assert deployed_processes(running.process.pid).isdisjoint(old)
