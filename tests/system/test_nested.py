"""Nested device loops through the service: their values, their telemetry, and where they stop."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

from tests.support.serving import Service
from tests.system.test_debugging import Followed, at
from walkgraph.client import Client

NAME = "synthetic_search"
GIVEN = {"params": {"rounds": 4, "horizon": 3, "ways": 5, "seed": 3}}


@pytest.fixture(scope="module")
def running(plain: Service) -> Iterator[Service]:
    with plain.client() as client:
        client.deploy(NAME, "synthetic_search_one_cpu", NAME)
    plain.wait_ready(NAME)
    yield plain
    plain.take_back(NAME)


@pytest.fixture
def client(running: Service) -> Iterator[Client]:
    with running.client() as found:
        yield found


def outputs(client: Client, run: str) -> Any:
    found = client.result(run)
    assert found["state"] == "done", client.get_run(run)
    return found["outputs"]


def test_it_runs_whole_and_stepped_alike_and_its_trace_has_the_loop_or_all_uses(client: Client) -> None:
    followed = Followed(client, NAME)
    runs: list[str] = []
    for record in (False, True):
        runs.append(client.start_run(NAME, "search", {**GIVEN, "record": record})["id"])
        followed.ended(runs[-1])
    assert outputs(client, runs[0]) == outputs(client, runs[1])
    assert len(outputs(client, runs[0])["far"]) == 4
    whole, stepped = (told(client, run) for run in runs)
    before, inside = {"known": 1, "straight": 1, "memory": 1}, {"spread": 4, "try": 12, "choose": 4}
    assert stepped == {**before, **inside}
    assert whole == {**before, "rounds": 4}
    loops = [[(loop["loop"], loop["iterations"]) for loop in client.trace(run)["loops"]] for run in runs]
    assert loops == [[("rounds", 4)], []]
    assert client.why(runs[0])["bottleneck"]["lane"] in whole


def told(client: Client, run: str) -> dict[str, int]:
    """Calls of each use, and iterations of each loop that its device ran whole, by the run's trace."""
    trace = client.trace(run)
    found: Counter[str] = Counter()
    for lane, count in zip(trace["blocks"]["lane"], trace["blocks"]["count"], strict=True):
        found[trace["lanes"][lane]["name"]] += count
    return dict(found)


def test_a_breakpoint_inside_steps_it(client: Client) -> None:
    followed = Followed(client, NAME)
    stop = client.set_breakpoint(NAME, "search", "try", iteration=1)
    assert stop["inside"]
    run = client.start_run(NAME, "search", GIVEN)["id"]
    followed.paused(run, lambda held: at(held, "try", 0, 1))
    client.remove_breakpoint(NAME, stop["id"])
    client.steer(run, "resume")
    followed.ended(run)
    assert outputs(client, run) == client.run(NAME, "search", GIVEN)["outputs"]


def test_a_long_one_is_paused_between_rounds_and_goes_on(client: Client) -> None:
    long = {"params": {**GIVEN["params"], "rounds": 300, "horizon": 4}}
    followed = Followed(client, NAME)
    run = client.start_run(NAME, "search", long)["id"]
    followed.until(lambda frame: frame["type"] == "events" and "looping" in {e["type"] for e in frame["events"]})
    client.steer(run, "pause")
    frame = followed.paused(run, bool)
    assert [(call["loop"], len(call["iteration"])) for call in frame["held"]] == [("rounds", 0)]
    client.steer(run, "resume")
    followed.ended(run)
    assert outputs(client, run) == client.run(NAME, "search", long)["outputs"]
