"""A run of two ranks is stopped, stepped, looked into, recorded and replayed, through the service as it is started.

Deployments are batch-invariant: which calls come together depends on when they are let pass, and sums are rounded by
who is in a batch. So numbers are compared to the last bit.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.support.serving import Service, service
from tests.support.yardstick import patience
from walkgraph.client import Client, ProblemError

TWO = {
    "format": "walkgraph/placement@1",
    "name": "two",
    "graph": "shapes",
    "groups": [
        {"nodes": ["*"], "ranks": [0], "memory": "1GiB"},
        {"nodes": ["llm_cfg_text"], "ranks": [1], "memory": "512MiB"},
    ],
    "ranks": [{"rank": 0, "device": "cpu"}, {"rank": 1, "device": "cpu"}],
}
WHOLE = {
    **TWO,
    "name": "whole",
    "groups": [
        {"nodes": ["*"], "ranks": [0], "memory": "1GiB"},
        {"nodes": ["vae_decoder"], "ranks": [1], "memory": "512MiB"},
    ],
}
"""Its loop lies on one rank."""
ONE = {**TWO, "name": "one", "groups": TWO["groups"][:1], "ranks": TWO["ranks"][:1]}
PROMPT = {"inputs": {"prompt": "a red circle on white"}, "params": {"steps": 6, "seed": 7}}
WALK = "image_gen_cfg"


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    with service(tmp_path_factory.mktemp("debugging") / "home", studio="false", batch_invariant="true") as found:
        found.up("--no-deploy")
        with found.client() as client:
            client.deploy("shapes", TWO, "shapes")
            client.deploy("shapes", WHOLE, "whole")
            client.deploy("shapes", ONE, "one")
        for deployment in ("shapes", "whole", "one"):
            found.wait_ready(deployment)
        yield found


@pytest.fixture
def client(running: Service) -> Iterator[Client]:
    """Leaves nothing armed."""
    with running.client() as found:
        yield found
        for deployment in ("shapes", "whole"):
            watched = found.watch(deployment)
            for tap in watched["taps"]:
                found.remove_tap(deployment, tap["id"])
            for stop in watched["breakpoints"]:
                found.remove_breakpoint(deployment, stop["id"])


class Followed:
    """The telemetry of a deployment, from when it is made."""

    def __init__(self, client: Client, deployment: str = "shapes") -> None:
        self._frames = client.telemetry(deployment, every=0.5)
        self.samples: list[dict[str, Any]] = []
        self.until(lambda frame: frame["type"] == "welcome")

    def until(self, holds: Callable[[dict[str, Any]], Any]) -> dict[str, Any]:
        began = time.monotonic()
        for frame in self._frames:
            assert time.monotonic() - began < patience(30), "it takes too long"
            if frame is None:
                continue
            if frame["type"] == "events":
                self.samples += [event for event in frame["events"] if event["type"] == "sample"]
            if holds(frame):
                return frame
        raise AssertionError("the telemetry has ended")

    def paused(self, run: str, holds: Callable[[list[dict[str, Any]]], Any]) -> dict[str, Any]:
        """Until a run is paused so."""
        return self.until(lambda frame: frame["type"] == "paused" and frame["run"] == run and holds(frame["held"]))

    def ended(self, run: str) -> dict[str, Any]:
        return self.until(lambda frame: frame["type"] == "run" and frame["run"] == run)


def pictures(client: Client, run: str) -> list[Any]:
    found = client.result(run)
    assert found["state"] == "done", client.get_run(run)
    return found["outputs"]["image"]


def at(held: list[dict[str, Any]], use: str, *iteration: int) -> bool:
    return any(call["use"] == use and call["iteration"] == list(iteration) for call in held)


def test_a_run_stops_is_stepped_and_goes_on_to_the_same_picture(client: Client) -> None:
    free = client.run("shapes", "text_to_image", PROMPT)["outputs"]["image"]
    followed = Followed(client)
    stop = client.set_breakpoint("shapes", WALK, "llm", iteration=2)
    run = client.start_run("shapes", "text_to_image", PROMPT)["id"]
    frame = followed.paused(run, lambda held: at(held, "llm", 2))
    assert frame["breakpoint"] == stop["id"]
    found = client.get_run(run)
    assert (found["state"], found["paused"]["breakpoint"]) == ("running", stop["id"])
    client.steer(run, "step", next(call for call in frame["held"] if call["use"] == "llm"))
    frame = followed.paused(run, lambda held: not at(held, "llm", 2))
    # Its other rank has made its own call of the iteration, or holds it, or will once it gets there.
    while not at(frame["held"], "combine_cfg", 2):
        for call in frame["held"]:
            client.steer(run, "step", call)
        frame = followed.paused(run, lambda held: True)
    client.steer(run, "iteration")
    frame = followed.paused(run, lambda held: at(held, "llm", 3) and at(held, "llm_cfg_text", 3))
    assert {call["rank"] for call in frame["held"]} == {0, 1}
    one = next(call for call in frame["held"] if call["use"] == "llm_cfg_text")
    client.steer(run, "step", one)
    followed.paused(run, lambda held: not at(held, "llm_cfg_text", 3) and at(held, "llm", 3))
    with pytest.raises(ProblemError, match="isn't held"):
        client.steer(run, "step", one)
    client.steer(run, "resume")
    followed.until(lambda frame: frame["type"] == "resumed" and frame["run"] == run)
    followed.ended(run)
    assert pictures(client, run) == free
    held = {(s["walk"], s["source"], tuple(s["iteration"])) for s in followed.samples if s["why"] == "held"}
    assert (WALK, "llm.latents", (2,)) in held
    assert (WALK, "llm_cfg_text.latents", (3,)) in held


def test_what_runs_on_its_devices_is_paused_between_iterations(client: Client) -> None:
    long = {**PROMPT, "params": {"steps": 40, "seed": 7, "cfg_text_scale": 1.0}}
    followed = Followed(client, "whole")
    run = client.start_run("whole", "text_to_image", long)["id"]
    followed.until(lambda frame: frame["type"] == "events" and "looping" in {e["type"] for e in frame["events"]})
    client.steer(run, "pause")
    frame = followed.paused(run, bool)
    assert {call["loop"] for call in frame["held"]} == {"denoise"}
    client.steer(run, "resume")
    followed.ended(run)
    assert pictures(client, run) == client.run("whole", "text_to_image", long)["outputs"]["image"]


def test_a_loop_on_a_device_is_stepped_where_it_is_to_stop(client: Client) -> None:
    followed = Followed(client, "whole")
    stop = client.set_breakpoint("whole", WALK, "combine_cfg", iteration=1)
    assert stop["inside"]
    run = client.start_run("whole", "text_to_image", PROMPT)["id"]
    followed.paused(run, lambda held: at(held, "combine_cfg", 1))
    client.remove_breakpoint("whole", stop["id"])
    client.steer(run, "resume")
    followed.ended(run)
    recorded = client.start_run("whole", "text_to_image", {**PROMPT, "record": True})["id"]
    followed.ended(recorded)
    # Which is stepped, too: iterations on the device round otherwise.
    assert pictures(client, run) == pictures(client, recorded)


def test_a_held_run_is_cancelled_and_frees_what_it_held(client: Client) -> None:
    followed = Followed(client)
    run = client.start_run("shapes", "text_to_image", {**PROMPT, "hold": True})["id"]
    followed.paused(run, bool)
    client.cancel(run)
    assert followed.ended(run)["state"] == "cancelled"
    assert client.get_run(run)["paused"] is None
    assert client.deployment("shapes")["running"] == 0


def test_taps_show_what_passes(client: Client) -> None:
    followed = Followed(client)
    inside = client.tap("shapes", WALK, "llm_cfg_text.velocity", interval=0.05)
    outside = client.tap("shapes", "prefill_text", "@in.text")
    run = client.start_run("shapes", "text_to_image", PROMPT)["id"]
    followed.ended(run)
    if not {inside["id"], outside["id"]} <= {sample["tap"] for sample in followed.samples}:
        followed.until(lambda _: {inside["id"], outside["id"]} <= {sample["tap"] for sample in followed.samples})
    velocity = next(sample for sample in followed.samples if sample["tap"] == inside["id"])
    assert (velocity["run"], velocity["rank"], velocity["source"]) == (run, 1, "llm_cfg_text.velocity")
    assert velocity["statistics"]["count"] > 0
    assert velocity["statistics"]["low"] < velocity["statistics"]["high"]
    text = next(sample for sample in followed.samples if sample["tap"] == outside["id"])
    assert text["preview"] == {"kind": "text", "text": "a red circle on white"}


def test_a_replay_is_the_same_run_and_another_seed_is_not(client: Client) -> None:
    followed = Followed(client)
    first = client.start_run("shapes", "text_to_image", {**PROMPT, "record": True})["id"]
    followed.ended(first)
    second = client.replay(first)["id"]
    followed.ended(second)
    found = client.differences(first, second)
    assert found["recorded"]
    assert found["compared"] > 6 * 4
    assert (found["equal"], found["missing"], found["first"]) == (found["compared"], {"a": 0, "b": 0}, None)
    assert [output["equal"] for output in found["outputs"]] == [True]
    other = {**PROMPT, "params": {"steps": 6, "seed": 8}, "record": True}
    third = client.start_run("shapes", "text_to_image", other)["id"]
    followed.ended(third)
    found = client.differences(first, third)
    assert found["compared"] == client.differences(first, second)["compared"]
    assert (found["first"]["source"], found["first"]["max_abs"] > 0) == ("noise.latents", True)
    assert found["equal"] < found["compared"]
    assert [output["equal"] for output in found["outputs"]] == [False]


@pytest.mark.parametrize("deployment", ["whole", "one"])
def test_a_run_is_replayed_on_another_placement(client: Client, deployment: str) -> None:
    """With two ranks or one, a rank's sums don't depend on the number of ranks that share the cores."""
    followed = Followed(client)
    first = client.start_run("shapes", "text_to_image", {**PROMPT, "record": True})["id"]
    followed.ended(first)
    followed = Followed(client, deployment)
    second = client.replay(first, deployment)
    assert second["deployment"] == deployment
    followed.ended(second["id"])
    found = client.differences(first, second["id"])
    assert (found["missing"], found["compared"] > 20) == ({"a": 0, "b": 0}, True)
    assert (found["equal"], found["rows"]) == (found["compared"], [])
    assert [output["equal"] for output in found["outputs"]] == [True]
