"""A person puts a step that waits for approval among the steps of a task, takes each edit back, and does it again."""

from __future__ import annotations

from typing import Any

from tests.browser.expecting import expect
from tests.browser.person import Person

NAME = "asked"
TYPE = "scalar: int"
NODES: dict[str, Any] = {
    "painter": {"component": "synthetic.add"},
}
WALKS: dict[str, Any] = {
    "draw": {
        "inputs": {"idea": TYPE, "step": TYPE},
        "body": ["painter"],
        "edges": [["@in.idea", "painter.a"], ["@in.step", "painter.b"], ["painter.sum", "@out.picture"]],
        "results": {"picture": "painter.sum", "again": "painter.sum"},
    }
}
TASKS: dict[str, Any] = {
    "run": {
        "outputs": ["picture"],
        "params": {"idea": {"type": "integer", "default": 1}},
        "steps": [
            {"loop": [{"walk": "draw", "with": {"idea": "@task.idea", "step": "@loop.index"}}], "times": "3"},
        ],
    }
}
ASKS = {"approve": ["draw.picture", "draw.again"], "label": "Keep this picture?", "within": 3600, "as": "said"}


def test_a_step_that_waits_for_approval(person: Person) -> None:
    with person.running.client() as client:
        graph = {"format": "walkgraph/graph@1", "name": NAME, "nodes": NODES, "walks": WALKS, "tasks": TASKS}
        client.put_document("graph", NAME, graph)
    person.open(NAME)
    add_the_step(person)
    say_how_it_asks(person)
    let_the_answer_end_the_loop(person)
    back_and_forth(person)
    rename_the_answer(person)


def add_the_step(person: Person) -> None:
    page = person.page
    person.tab("Tasks")
    page.get_by_role("button", name="Add a step to the loop").click()
    page.get_by_role("menuitem", name="Wait for approval").click()
    expect(page.get_by_role("button", name="Don't show draw.picture")).to_be_visible()
    person.stored(NAME, lambda graph: asks(graph) == {"approve": ["draw.picture"]})


def say_how_it_asks(person: Person) -> None:
    """Each field is one edit."""
    page = person.page
    page.get_by_label("Result to show to the person").select_option("draw.again")
    person.stored(NAME, lambda graph: asks(graph)["approve"] == ASKS["approve"])
    page.get_by_role("button", name="Undo: ").first.click()
    person.stored(NAME, lambda graph: asks(graph)["approve"] == ["draw.picture"])
    page.get_by_role("button", name="Redo: ").first.click()
    person.stored(NAME, lambda graph: asks(graph)["approve"] == ASKS["approve"])
    person.enter("Question to the person", ASKS["label"])
    # A time that no service allows is refused at its place.
    person.enter("Seconds to answer", "0")
    expect(page.get_by_label("Seconds to answer")).to_have_attribute("aria-invalid", "true")
    person.look("refused")
    person.enter("Seconds to answer", str(ASKS["within"]))
    person.enter("Name of the answer", ASKS["as"])
    person.stored(NAME, lambda graph: asks(graph) == ASKS)


def let_the_answer_end_the_loop(person: Person) -> None:
    person.page.get_by_label("Flag that ends the loop").select_option("said.approved")
    graph = person.stored(NAME, lambda graph: loop(graph).get("until") == "said.approved")
    assert problems(person, graph) == []
    expect(person.page.get_by_label("Seconds to answer")).not_to_have_attribute("aria-invalid", "true")
    person.look("asks")
    person.page.emulate_media(color_scheme="dark")
    expect(person.page.locator(".wg-root.dark")).to_have_count(1)
    person.look("asks_dark")
    person.page.emulate_media(color_scheme="light")


def back_and_forth(person: Person) -> None:
    """Seven edits, seven steps back to the task as it was, and forth again."""
    page = person.page
    done = person.stored(NAME)["tasks"]
    for _ in range(7):
        page.get_by_role("button", name="Undo: ").first.click()
    person.stored(NAME, lambda graph: graph["tasks"] == TASKS)
    for _ in range(7):
        page.get_by_role("button", name="Redo: ").first.click()
    person.stored(NAME, lambda graph: graph["tasks"] == done)


def rename_the_answer(person: Person) -> None:
    """The step that ends the loop follows, in the same step."""
    person.enter("Name of the answer", "verdict")
    graph = person.stored(NAME, lambda graph: asks(graph).get("as") == "verdict")
    assert loop(graph)["until"] == "verdict.approved"
    assert problems(person, graph) == []
    person.page.get_by_role("button", name="Undo: ").first.click()
    person.stored(NAME, lambda graph: (asks(graph), loop(graph)["until"]) == (ASKS, "said.approved"))


def loop(graph: dict[str, Any]) -> dict[str, Any]:
    return graph["tasks"]["run"]["steps"][0]


def asks(graph: dict[str, Any]) -> dict[str, Any]:
    """The step after the first in the loop; empty: there is none."""
    return next(iter(loop(graph)["loop"][1:]), {})


def problems(person: Person, graph: dict[str, Any]) -> list[str]:
    with person.running.client() as client:
        return [problem["message"] for problem in client.check(graph)["problems"]]
