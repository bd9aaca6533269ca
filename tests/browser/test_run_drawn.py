"""Ctrl+Enter runs what is drawn, wherever one is, without a deployment; after an edit the result is another."""

from __future__ import annotations

import re
from collections import deque
from typing import Any

import pytest

from tests.browser.expecting import expect
from tests.browser.person import Person
from walkgraph.client import ProblemError

NAME = "drawn"
KEYS = "Control+Enter"
GRAPH: dict[str, Any] = {
    "format": "walkgraph/graph@1",
    "name": NAME,
    "nodes": {
        "numbers": {"component": "synthetic.range", "params": {"n": 4}},
        "total": {"component": "synthetic.sum"},
    },
    "walks": {
        "add": {
            "body": ["numbers", "total"],
            "edges": [["numbers.values", "total.values"], ["total.sum", "@out.sum"]],
        }
    },
    "tasks": {"add_up": {"label": "Add up", "outputs": ["sum"], "steps": [{"walk": "add"}]}},
}


def test_the_key_runs_what_is_drawn_and_again_after_an_edit(person: Person) -> None:
    with person.running.client() as client:
        client.put_document("graph", NAME, GRAPH)
        offered = {found["id"] for found in client.deployments()}
    page = person.page
    person.open(NAME)
    person.canvas("add")
    person.press(KEYS)
    expect(page.get_by_text(re.compile(r"^Add up is done in .* s: its results are in Play\.$"))).to_be_visible()
    person.look("after_the_first_run")
    person.tab("Play")
    result = page.get_by_role("group", name="Sum")
    expect(result.get_by_text("6", exact=True)).to_be_visible()

    person.tab("Graph")
    person.canvas("Components")
    person.select("node:numbers")
    person.enter("n", "5")
    page.get_by_role("button", name="Run", exact=True).click()
    person.tab("Play")
    expect(result.get_by_text("10", exact=True)).to_be_visible()
    person.look("after_the_edit")

    person.tab("Graph")
    person.canvas("Components")
    person.select("node:numbers")
    page.get_by_label("n", exact=True).fill("7")
    person.press(KEYS)
    expect(page.get_by_label("n", exact=True)).to_have_value("7")
    person.tab("Play")
    expect(result.get_by_text("21", exact=True)).to_be_visible()

    person.tab("Graph")
    person.press("Control+z")
    person.press("Control+z")
    person.tab("Placement")
    person.press(KEYS)
    person.tab("Play")
    expect(result.get_by_text("6", exact=True)).to_be_visible()
    with person.running.client() as client:
        (mine,) = [found for found in client.deployments() if found["id"] not in offered]
        assert mine["scratch"]
        assert mine["graph"] == NAME
    leaves(person, mine["id"])


def test_a_node_that_has_not_changed_is_shown_as_kept(person: Person) -> None:
    graph = {**GRAPH, "name": "unchanged"}
    graph["nodes"] = {
        "a": {"component": "synthetic.constant", "params": {"value": 2}},
        "b": {"component": "synthetic.constant", "params": {"value": 3}},
        "total": {"component": "synthetic.add"},
    }
    edges = [["a.value", "total.a"], ["b.value", "total.b"], ["total.sum", "@out.sum"]]
    graph["walks"] = {"add": {"body": ["a", "b", "total"], "edges": edges}}
    with person.running.client() as client:
        client.put_document("graph", "unchanged", graph)
    page = person.page
    person.open("unchanged")
    person.canvas("add")
    done = page.get_by_text(re.compile(r"^Add up is done in .* s: its results are in Play\.$"))
    person.press(KEYS)
    expect(done).to_be_visible()
    expect(done).to_be_hidden()
    person.canvas("Components")
    person.select("node:b")
    person.enter("value", "4")
    person.canvas("add")
    person.press(KEYS)
    expect(done).to_be_visible()
    states = [person.node(f"use:{use}").locator("[data-activity]") for use in ("a", "b", "total")]
    for state, wanted in zip(states, ("kept", "done", "done"), strict=True):
        expect(state).to_have_attribute("data-activity", wanted)
    person.look("one_is_kept")
    person.press(KEYS)
    for state in states:
        expect(state).to_have_attribute("data-activity", "kept")
    person.look("all_are_kept")
    person.tab("Trace")
    runs = page.get_by_role("button", name=re.compile("^add_up"))
    expect(runs).to_have_count(3)
    runs.first.click()
    found = page.get_by_role("region", name="Kept, not run")
    expect(found.get_by_role("listitem")).to_have_text(["a", "b", "total"])
    person.look("the_trace")


def test_a_graph_with_a_problem_shows_the_first_one_at_its_place(person: Person) -> None:
    broken = {**GRAPH, "name": "torn", "nodes": {**GRAPH["nodes"], "numbers": {"component": "synthetic.nothing"}}}
    with person.running.client() as client:
        client.put_document("graph", "torn", broken)
    page = person.page
    person.expected.append("422")
    person.open("torn")
    person.tab("Play")
    page.get_by_role("button", name="Run what is drawn").click()
    expect(page.get_by_role("tab", name="Components")).to_have_attribute("aria-selected", "true")
    expect(person.node("node:numbers")).to_have_class(re.compile("selected"))
    expect(page.get_by_role("alert").get_by_text("synthetic.nothing")).to_be_visible()
    person.look("the_problem")


def leaves(person: Person, scratch: str) -> None:
    """The scratch deployment ends with the page."""
    page = person.page
    page.goto("about:blank")
    with person.running.client() as client, pytest.raises(ProblemError, match="there is no deployment"):
        deque(client.follow_deployment(scratch), maxlen=0)
