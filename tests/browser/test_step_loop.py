"""A person makes a task loop: draw, describe, and draw again from that; each picture is streamed, on two ranks."""

from __future__ import annotations

import re
from itertools import groupby
from typing import Any

import pytest

from tests.browser.expecting import expect
from tests.browser.person import Person

NAME = "redraw"
WALKS: dict[str, Any] = {
    "draw": {
        "inputs": {"idea": "text"},
        "body": ["painter"],
        "edges": [["@in.idea", "painter.prompt"], ["painter.image", "@out.image"]],
        "results": {"picture": "painter.image"},
    },
    "look": {
        "inputs": {"picture": "image"},
        "body": ["critic"],
        "edges": [["@in.picture", "critic.image"], ["critic.text", "@out.text"]],
        "results": {"idea": "critic.text"},
    },
}
NODES: dict[str, Any] = {
    "painter": {"component": "shapes/text_to_image", "params": {"steps": 4}},
    "critic": {"component": "shapes/image_to_text"},
}
TWO_RANKS = {
    "format": "walkgraph/placement@1",
    "name": "two",
    "graph": NAME,
    "groups": [{"nodes": ["*"], "ranks": [0]}, {"nodes": ["critic"], "ranks": [1]}],
    "ranks": [{"rank": 0, "device": "cpu"}, {"rank": 1, "device": "cpu"}],
}
STEPS = [
    {
        "loop": [
            {"walk": "draw", "with": {"idea": "look.idea"}},
            {"walk": "look", "with": {"picture": "draw.picture"}},
        ],
        "times": "3",
        "start": {"look.idea": "@task.prompt"},
    }
]


@pytest.mark.timeout(1200)
def test_a_task_draws_describes_and_draws_again(person: Person) -> None:
    with_walks(person)
    loop_over_steps(person)
    back_and_forth(person)
    play(person)


def with_walks(person: Person) -> None:
    """A graph of its own that calls two tasks of the starter, without a task."""
    with person.running.client() as client:
        graph = {"format": "walkgraph/graph@1", "name": NAME, "nodes": NODES, "walks": WALKS}
        client.put_document("graph", NAME, graph)
    person.open(NAME)


def loop_over_steps(person: Person) -> None:
    page = person.page
    person.tab("Tasks")
    page.get_by_role("button", name="Add a task").last.click()
    person.enter("Name of the task", "run")
    page.get_by_role("button", name="Add a step at the end").click()
    page.get_by_role("menuitem", name="Loop…").click()
    page.get_by_role("button", name="Add a step to the loop").click()
    page.get_by_role("menuitem", name="look", exact=True).click()
    page.get_by_label("picture of look").select_option("draw.picture")
    page.get_by_label("idea of draw").select_option("look.idea")
    # The first pass has no description yet, and says so at its place.
    expect(page.get_by_text("comes later in the loop").first).to_be_visible()
    person.look("without_a_start")
    page.get_by_role("button", name="Input", exact=True).click()
    person.enter("Name of the input", "prompt")
    page.get_by_label("Say what a result starts as").select_option("look.idea")
    expect(page.get_by_label("What look.idea starts as", exact=True)).to_have_value("@task.prompt")
    person.enter("Most passes of the loop", "3")
    for output in ("image", "text"):
        page.get_by_role("region", name="Outputs").get_by_role("checkbox", name=re.compile(output)).check()
    person.look("looped")
    task = person.stored(NAME, is_whole)["tasks"]["run"]
    assert task["steps"] == STEPS
    assert sorted(task["outputs"]) == ["image", "text"]


def back_and_forth(person: Person) -> None:
    """Every edit is taken back and done again."""
    done = person.stored(NAME, is_whole)["tasks"]
    for _ in range(4):
        person.page.get_by_role("button", name="Undo: ").first.click()
    person.stored(NAME, lambda graph: not is_whole(graph))
    for _ in range(4):
        person.page.get_by_role("button", name="Redo: ").first.click()
    person.stored(NAME, lambda graph: graph["tasks"] == done)


def play(person: Person) -> None:
    """Three pictures, one after the other, each before the next is described."""
    with person.running.client() as client:
        client.put_document("placement", "two", TWO_RANKS)
        client.deploy(NAME, "two", NAME)
    person.running.wait_ready(NAME)
    with person.running.client() as client, client.task(NAME, "run").stream(prompt="a red circle on white") as outputs:
        order = [output.name for output in outputs if output.name in ("image", "text")]
    assert [name for name, _ in groupby(order)] == ["image", "text"] * 3, "a text may come in pieces"
    assert order.count("image") == 3
    with person.running.client() as client:
        client.undeploy(NAME)


def is_whole(graph: dict[str, Any]) -> bool:
    task = graph.get("tasks", {}).get("run", {})
    steps = task.get("steps", [{}])
    return bool(steps) and bool(steps[0].get("start")) and len(task.get("outputs", [])) == 2
