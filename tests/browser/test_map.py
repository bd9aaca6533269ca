"""A person draws a map around a step, gives it a list, collects what it makes, takes each gesture back, and does them
again."""

from __future__ import annotations

import re
from typing import Any

from tests.browser.expecting import expect
from tests.browser.person import Person

NAME = "every"
PROBLEM = re.compile("problem")


def test_a_map_around_a_step(person: Person) -> None:
    draw_steps(person)
    put_a_map_around(person)
    give_it_a_list(person)
    collect_what_it_makes(person)
    set_its_bounds(person)
    is_what_was_meant(person)
    in_and_out(person)
    from_the_inspector(person)
    take_all_back(person)


def draw_steps(person: Person) -> None:
    page = person.page
    person.new_graph(NAME)
    person.new_walk("go")
    for _ in range(3):
        page.get_by_role("button", name="Zoom out").click()
    person.move_to("@in", (60, 520))
    person.move_to("@out", (740, 480))
    person.add("synthetic.constant", (80, 180))
    person.add("synthetic.range", (230, 180))
    person.add("synthetic.delay", (420, 220))
    person.add("synthetic.sum", (700, 180))
    person.connect("constant.value", "range.start")
    person.look("steps")


def put_a_map_around(person: Person) -> None:
    person.on_node("use:delay", "Wrap in a Map")
    expect(person.node("map:items")).to_be_visible()
    expect(person.node("use:delay")).to_be_visible()
    # Without a list it can't run, and says so at its place.
    expect(person.node("map:items").get_by_label(PROBLEM)).to_be_visible()
    person.look("wrapped")


def give_it_a_list(person: Person) -> None:
    """A wire dropped anywhere on its head; then one to the step, which brings each item."""
    x, y, width, _ = person.box(person.node("map:items"))
    person.drag(person.middle(person.port("range.values", "source")), (x + width * 0.8, y + 8))
    expect(person.wire("range.values", "@map.map:items")).to_have_count(1)
    expect(person.node("map:items").get_by_label("List that the map goes through").last).to_have_value("range.values")
    person.connect("range.values", "delay.value")
    expect(person.wire("range.values", "delay.value")).to_have_count(1)
    person.look("with_a_list")


def collect_what_it_makes(person: Person) -> None:
    person.connect("delay.value", "sum.values")
    person.connect("sum.sum", "@out.+")
    person.connect("delay.value", "@out.+")
    expect(person.wire("delay.value", "@out.value")).to_have_count(1)
    person.pane().click(position={"x": 20, "y": 20})
    person.press("l")
    expect(person.page.get_by_text("The canvas was laid out again")).to_have_count(1)
    person.page.wait_for_timeout(400)
    person.look("laid_out")
    person.page.emulate_media(color_scheme="dark")
    expect(person.page.locator(".wg-root.dark")).to_have_count(1)
    person.look("laid_out_dark")
    person.page.emulate_media(color_scheme="light")


def set_its_bounds(person: Person) -> None:
    in_node(person, "map:items", "How many items at most", "12")
    in_node(person, "map:items", "How many items at once", "4")
    in_node(person, "map:items", "Map's name", "rows")
    expect(person.node("map:rows")).to_be_visible()
    expect(person.node("map:rows").get_by_label(PROBLEM)).to_have_count(0)
    person.look("bounded")


def is_what_was_meant(person: Person) -> None:
    graph = person.stored(NAME, lambda graph: body_of(graph).get("as") == "rows")
    walk = graph["walks"]["go"]
    mapped = {"map": "range.values", "bound": "12", "body": ["delay"], "width": "4", "as": "rows"}
    assert walk["body"] == ["constant", "range", mapped, "sum"]
    for edge in (
        {"from": "range.values", "to": "delay.value", "each": True},
        {"from": "delay.value", "to": "sum.values", "collect": True},
        {"from": "delay.value", "to": "@out.value", "each": True},
    ):
        assert edge in walk["edges"]
    assert errors(person, graph) == []


def in_and_out(person: Person) -> None:
    """A step dragged out of the map loses the flags of its edges, and gets them again when it is taken back."""
    before = person.stored(NAME, lambda graph: bool(body_of(graph)))["walks"]["go"]
    x, y, width, _ = person.box(person.node("use:delay"))
    person.drag((x + width * 0.7, y + 6), (x + width * 0.7, y + 260))
    person.stored(NAME, lambda graph: body_of(graph)["body"] == [])
    person.look("outside")
    undo(person, 1)
    person.stored(NAME, lambda graph: graph["walks"]["go"] == before)


def from_the_inspector(person: Person) -> None:
    page = person.page
    person.select("map:rows")
    inspector = page.locator(".wg-inspector")
    expect(inspector.get_by_label("For each of")).to_have_value("range.values")
    expect(inspector.get_by_label("Items at most")).to_have_value("12")
    expect(inspector.get_by_label("Items at once")).to_have_value("4")
    person.look("inspected")
    inspector.get_by_label("For each of").select_option("")
    expect(person.wire("range.values", "@map.map:rows")).to_have_count(0)
    expect(person.node("map:rows").get_by_label(PROBLEM)).to_be_visible()
    expect(inspector).to_contain_text("names no list")
    person.look("without_a_list")
    undo(person, 1)
    expect(person.wire("range.values", "@map.map:rows")).to_have_count(1)
    person.select("map:rows")
    person.press("o")
    expect(person.node("use:delay")).to_have_count(0)
    person.look("closed")
    person.press("o")
    expect(person.node("use:delay")).to_be_visible()
    undo(person, 2)


def take_all_back(person: Person) -> None:
    """Every gesture is one step back, down to the empty Walk, and forward again."""
    page = person.page
    person.pane().click(position={"x": 20, "y": 20})
    done = person.stored(NAME, lambda graph: body_of(graph).get("as") == "rows")["walks"]["go"]
    steps = 0
    while page.get_by_role("button", name=re.compile("^Undo: ")).count() and steps < 60:
        person.press("Control+z")
        steps += 1
    person.stored(NAME, lambda graph: not graph.get("walks"))
    for _ in range(steps):
        person.press("Control+Shift+z")
    graph = person.stored(NAME, lambda graph: graph.get("walks", {}).get("go") == done)
    assert errors(person, graph) == []


# ── gestures ────────────────────────────────────────────────────────────────────────────────────


def undo(person: Person, times: int) -> None:
    person.pane().click(position={"x": 20, "y": 20})
    for _ in range(times):
        person.press("Control+z")


def in_node(person: Person, id_: str, label: str, text: str) -> None:
    field = person.node(id_).get_by_label(label).first
    field.fill(text)
    field.press("Enter")


def body_of(graph: dict[str, Any]) -> dict[str, Any]:
    body = graph.get("walks", {}).get("go", {}).get("body", [])
    return next((item for item in body if isinstance(item, dict) and "map" in item), {})


def errors(person: Person, graph: dict[str, Any]) -> list[str]:
    """But for the task that isn't there yet."""
    with person.running.client() as client:
        found = client.check(graph)["problems"]
    return [problem["code"] for problem in found if problem["severity"] == "error"]
