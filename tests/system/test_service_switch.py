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

from tests.support.serving import Service, children, service, wait_gone
from walkgraph.client import Client
from walkgraph.starters import shapes

PROMPT = {"inputs": {"prompt": "a red circle on white"}, "params": {"seed": 7}}


def drawing(client: Client, steps: int, **changes: Any) -> dict[str, Any]:
    """The shapes graph that draws in so many steps if nobody says how many."""
    document = client.graph("shapes")
    document["tasks"]["text_to_image"]["params"]["steps"]["default"] = steps
    return {**document, **changes}


def steps_drawn(client: Client) -> int:
    """Of a picture made now: tells the version that made it."""
    result = client.run("shapes", "text_to_image", PROMPT)
    assert result["outputs"]["image"]
    return 1 + next(row["calls"] for row in result["times"] if row["node"] == "combine_cfg")


@contextmanager
def asking(running: Service, clients: int) -> Iterator[list[Any]]:
    """Clients that ask one after the other; the steps drawn, or errors, as they come."""
    answers: list[Any] = []
    over = threading.Event()

    def ask() -> None:
        with running.client() as client:
            while not over.is_set():
                try:
                    answers.append(steps_drawn(client))
                except Exception as error:  # noqa: BLE001
                    answers.append(error)

    threads = [threading.Thread(target=ask) for _ in range(clients)]
    for thread in threads:
        thread.start()
    try:
        yield answers
    finally:
        over.set()
        for thread in threads:
            thread.join()


def wait_switched(client: Client) -> dict[str, Any]:
    for found in client.follow_deployment("shapes"):
        if found["next"] is None or found["next"]["state"] == "failed":
            return found
    raise AssertionError("the deployment is gone")


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_a_switch_under_load_loses_nothing(tmp_path: Path) -> None:
    with service(tmp_path / "home", studio="false") as running:
        running.up("--no-deploy")
        with running.client() as client:
            client.deploy(drawing(client, 4), "shapes_one_cpu", "shapes")
            running.wait_ready("shapes")
            assert running.process is not None
            old = children(running.process.pid)
            assert steps_drawn(client) == 4
            with asking(running, 2) as answers:
                client.replace("shapes", drawing(client, 6), "shapes_one_cpu")
                assert wait_switched(client)["next"] is None
                wait_gone(old, 30)
                assert steps_drawn(client) == 6
            assert set(answers) == {4, 6}
            changes = [a != b for a, b in pairwise(answers)]
            # Runs of the old version may end after the first of the new one; there are at most as many as clients.
            assert 1 <= sum(changes) <= 7
            assert children(running.process.pid).isdisjoint(old)
        running.down()
        running.up()
        running.wait_ready("shapes")
        with running.client() as client:
            assert steps_drawn(client) == 6
        running.down()


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_a_switch_to_what_does_not_load_changes_nothing(tmp_path: Path) -> None:
    torn = tmp_path / "checkpoints" / "torn"
    shutil.copytree(Path(shapes.__file__).parent, torn, ignore=shutil.ignore_patterns("*.py", "__pycache__"))
    weights = torn / "ema.safetensors"
    weights.write_bytes(weights.read_bytes()[:-4096])
    roots = json.dumps([str(torn.parent)])
    with service(tmp_path / "home", studio="false", checkpoint_roots=roots) as running:
        running.up("--no-deploy")
        with running.client() as client:
            client.deploy(drawing(client, 4), "shapes_one_cpu", "shapes")
            digest = running.wait_ready("shapes")["digest"]
            assert running.process is not None
            old = children(running.process.pid)
            with asking(running, 2) as answers:
                bad = drawing(client, 6, weights={"shapes": {"family": "bagel", "source": "checkpoint:torn"}})
                client.replace("shapes", bad, "shapes_one_cpu")
                found = wait_switched(client)
                assert found["next"]["state"] == "failed"
                assert found["next"]["reason"]
                wait_gone(children(running.process.pid) - old, 30)
            assert set(answers) == {4}
            assert (found["state"], found["digest"], found["restarts"]) == ("ready", digest, 0)
            assert children(running.process.pid) == old
        running.down()
