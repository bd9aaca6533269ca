"""The playground lists what programs have run, and what waits for its turn."""

from __future__ import annotations

import time
from collections.abc import Iterator

import httpx
import pytest

from tests.browser.expecting import expect
from tests.browser.person import PATIENCE, Person
from tests.support.serving import Service
from walkgraph.client import Client

NARROW = "narrow"


def test_runs_of_programs_are_listed_with_prompt_and_picture(person: Person, running: Service) -> None:
    page = person.page
    with running.client() as client:
        asked = {"inputs": {"prompt": "a violet star, by the SDK"}, "params": {"steps": 2, "seed": 3}}
        client.run("shapes", "text_to_image", asked)
    headers = {"Authorization": f"Bearer {running.token}"}
    body = {"model": "shapes", "prompt": "a green circle, by OpenAI's route"}
    answer = httpx.post(f"{running.told['url']}/v1/images/generations", json=body, headers=headers, timeout=600)
    assert answer.status_code == 200, answer.text
    person.go("playground?deployment=shapes")
    lines = page.get_by_role("complementary", name="Runs").get_by_role("listitem")
    for place, said in enumerate(("a green circle, by OpenAI's route", "a violet star, by the SDK")):
        line = lines.nth(place)
        expect(line.get_by_text(said, exact=True)).to_be_visible()
        expect(line.get_by_label("Run by another client")).to_be_visible()
        picture = line.locator("img")
        expect(picture).to_have_js_property("complete", True)
        expect(picture).to_have_js_property("naturalWidth", 64)
    person.look("listed")
    lines.nth(1).get_by_text("a violet star, by the SDK").click()
    expect(page.get_by_label("Prompt", exact=True)).to_have_value("a violet star, by the SDK")
    expect(page.get_by_role("region", name="Image").get_by_role("img").last).to_be_visible()
    person.look("opened")


@pytest.fixture(scope="module")
def narrow(running: Service) -> Iterator[Client]:
    """A deployment with room for one of the runs below at a time."""
    with running.client() as client:
        graph = {**client.document("graph", "synthetic_states")[0], "name": NARROW}
        groups = [{"nodes": ["*"], "ranks": [0], "memory": "50MiB"}]
        ranks = [{"rank": 0, "device": "cpu"}]
        placement = {
            "format": "walkgraph/placement@1",
            "name": NARROW,
            "graph": NARROW,
            "groups": groups,
            "ranks": ranks,
        }
        client.deploy(graph, placement)
        running.wait_ready(NARROW)
        yield client
        client.undeploy(NARROW)


def waiting(client: Client, first: int) -> str:
    """A run that takes all the room, and is known by its parameter `first`."""
    request = {"params": {"prompt": 4096, "times": 80_000, "first": first}, "hold": True}
    return client.start_run(NARROW, "write", request)["id"]


def test_waiting_runs_are_put_in_order_and_cancelled(person: Person, narrow: Client) -> None:
    page = person.page
    runs = [waiting(narrow, number) for number in range(4)]
    order(narrow, *zip(runs, (None, 1, 2, 3), strict=True))
    person.go(f"playground?deployment={NARROW}")
    queue = page.get_by_role("region", name="Queue").get_by_role("listitem")
    expect(queue).to_have_count(4)
    expect(queue.nth(3).get_by_text("place 3 of 3")).to_be_visible()
    person.look("queue")
    newest = page.get_by_role("complementary", name="Runs").locator("ul > li").first
    expect(newest.get_by_text("waiting", exact=True)).to_be_visible()
    expect(newest.get_by_text("place 3 of 3")).to_be_visible()
    other = person.another()
    other.go(f"trace?deployment={NARROW}")
    beside = other.page.get_by_role("complementary", name="Runs").get_by_role("listitem").first
    expect(beside.get_by_text("place 3 of 3")).to_be_visible()
    queue.nth(3).get_by_role("button", name="Move up").click()
    expect(queue.nth(1).get_by_role("button", name="Move up")).to_be_disabled()
    order(narrow, (runs[0], None), (runs[1], 1), (runs[3], 2), (runs[2], 3))
    expect(newest.get_by_text("place 2 of 3")).to_be_visible()
    expect(beside.get_by_text("place 2 of 3")).to_be_visible()
    other.look("in_another_tab")
    other.page.close()
    queue.nth(1).get_by_role("button", name="Move down").click()
    order(narrow, (runs[0], None), (runs[3], 1), (runs[1], 2), (runs[2], 3))
    queue.nth(0).get_by_role("button", name="Cancel this run").click()
    expect(queue).to_have_count(3)
    expect(page.get_by_role("region", name="Queue").get_by_text("place 2 of 2")).to_be_visible()
    assert narrow.queue(NARROW)["runs"][0]["run"] == runs[3], "the moved one goes first"
    person.look("moved")
    page.get_by_role("button", name="Cancel all").click()
    page.get_by_role("button", name="Cancel these 3 runs").click()
    expect(page.get_by_role("region", name="Queue")).to_have_count(0)
    assert [narrow.get_run(run)["state"] for run in runs] == ["cancelled"] * 4
    person.look("cancelled")


def order(client: Client, *wanted: tuple[str, int | None]) -> None:
    """Waits until the queue has these runs at these places; one that has begun has none."""
    end = time.monotonic() + PATIENCE
    while (found := [(one["run"], one["place"]) for one in client.queue(NARROW)["runs"]]) != list(wanted):
        assert time.monotonic() < end, found
