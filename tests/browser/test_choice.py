"""A person draws a choice with a merge from an empty Walk, by gestures alone, takes each back, and does them again."""

from __future__ import annotations

import re
from typing import Any

from tests.browser.expecting import expect
from tests.browser.person import Person

NAME = "either"
TAKEN = re.compile("taken")


def test_a_choice_with_a_merge_from_an_empty_walk(person: Person) -> None:
    draw_steps(person)
    put_a_choice_around(person)
    choose_by_a_wire(person)
    merge_the_branches(person)
    is_what_was_meant(person)
    name_and_add_cases(person)
    move_between_cases(person)
    take_all_back(person)
    choose_among_steps(person)


def draw_steps(person: Person) -> None:
    page = person.page
    person.new_graph(NAME)
    person.new_walk("go")
    for _ in range(3):
        page.get_by_role("button", name="Zoom out").click()
    person.move_to("@in", (60, 520))
    person.move_to("@out", (700, 520))
    person.add("synthetic.constant", (120, 180))
    person.add("synthetic.compare", (270, 180))
    person.add("synthetic.add", (440, 180))
    person.add("synthetic.delay", (440, 320))
    person.connect("constant.value", "compare.value")
    person.connect("constant.value", "add.a")
    person.connect("constant.value", "delay.value")
    person.connect("add.sum", "@out.+")
    person.look("steps")


def put_a_choice_around(person: Person) -> None:
    page = person.page
    person.select("use:add")
    x, y, width, _ = person.box(person.node("use:delay"))
    page.keyboard.down("Control")
    page.mouse.click(x + width * 0.7, y + 6)
    page.keyboard.up("Control")
    person.on_node("use:delay", "Wrap in a Choice")
    for id_ in ("choose:0", "case:a", "case:b"):
        expect(person.node(id_)).to_be_visible()
    person.look("wrapped")
    # Without a value it can't run, and says so at its place.
    expect(person.node("choose:0").get_by_label(re.compile("problem"))).to_be_visible()


def choose_by_a_wire(person: Person) -> None:
    """A flag has two values, after which cases that nobody has named are called."""
    person.connect("compare.reached", "@choice.choose:0")
    expect(person.wire("compare.reached", "@choice.choose:0")).to_have_count(1)
    for id_ in ("case:true", "case:false"):
        expect(person.node(id_)).to_be_visible()
    expect(person.node("choose:0").get_by_label("Value that the choice goes by").first).to_be_visible()
    person.look("chosen_by")


def merge_the_branches(person: Person) -> None:
    """The wire of a second branch to a port that another feeds."""
    person.connect("delay.value", "@out.sum")
    expect(person.node("merge:value")).to_be_visible()
    expect(
        person.page.get_by_role("alert").or_(person.page.get_by_role("status")).filter(has_text="merge")
    ).to_be_visible()
    for from_, to in (("add.sum", "@merge.value"), ("delay.value", "@merge.value"), ("@merge.value", "@out.sum")):
        expect(person.wire(from_, to)).to_have_count(1)
    in_node(person, "merge:value", "Merge's name", "either")
    expect(person.node("merge:either")).to_be_visible()
    person.look("merged")
    person.pane().click(position={"x": 20, "y": 20})
    person.press("l")
    expect(person.page.get_by_text("The canvas was laid out again")).to_have_count(1)
    person.page.wait_for_timeout(400)
    person.look("laid_out")
    person.page.emulate_media(color_scheme="dark")
    expect(person.page.locator(".wg-root.dark")).to_have_count(1)
    person.look("laid_out_dark")
    person.page.emulate_media(color_scheme="light")


def is_what_was_meant(person: Person) -> None:
    graph = person.stored(NAME, lambda graph: "either" in graph["walks"]["go"].get("merges", {}))
    walk = graph["walks"]["go"]
    cases = {"true": ["add"], "false": ["delay"]}
    assert walk["body"] == ["constant", "compare", {"choose": "compare.reached", "cases": cases}]
    assert walk["merges"] == {"either": ["add.sum", "delay.value"]}
    assert ["@merge.either", "@out.sum"] in walk["edges"]
    assert errors(person, graph) == []


def name_and_add_cases(person: Person) -> None:
    page = person.page
    in_node(person, "case:false", "Case: the value that takes this branch", "never")
    person.select("case:never")
    expect(page.locator(".wg-inspector")).to_contain_text("compare.reached is never never")
    expect(person.node("case:never").get_by_label(re.compile("problem"))).to_be_visible()
    person.look("never")
    page.get_by_role("button", name="Remove the case never").click()
    expect(person.node("use:delay")).to_have_count(0)
    expect(person.node("merge:either")).to_have_count(0)
    expect(person.wire("add.sum", "@out.sum")).to_have_count(1)
    undo(person, 2)
    expect(person.node("merge:either")).to_be_visible()
    person.node("choose:0").get_by_role("button", name="Add a branch for other values").click()
    expect(person.node("otherwise:0")).to_be_visible()
    page.get_by_role("button", name="Remove the branch for other values").click()
    expect(person.node("otherwise:0")).to_have_count(0)


def move_between_cases(person: Person) -> None:
    """Out of a branch, and into the other, by dragging."""
    before = person.stored(NAME, is_whole)["walks"]["go"]
    x, y, width, _ = person.box(person.node("use:delay"))
    other = person.box(person.node("case:true"))
    person.drag((x + width * 0.7, y + 6), (other[0] + other[2] * 0.9, other[1] + 24))
    person.stored(NAME, lambda graph: body_of(graph)["cases"]["false"] == [])
    person.look("moved")
    label = person.node("merge:either").get_by_label(re.compile("problem"))
    expect(label).to_have_attribute("title", re.compile("may both have a value"))
    undo(person, 1)
    person.stored(NAME, lambda graph: graph["walks"]["go"] == before)


def take_all_back(person: Person) -> None:
    """Every gesture is one step back, down to the empty Walk, and forward again."""
    page = person.page
    person.pane().click(position={"x": 20, "y": 20})
    done = person.stored(NAME, is_whole)["walks"]["go"]
    steps = 0
    while page.get_by_role("button", name=re.compile("^Undo: ")).count() and steps < 60:
        person.press("Control+z")
        steps += 1
    person.stored(NAME, lambda graph: not graph.get("walks"))
    for _ in range(steps):
        person.press("Control+Shift+z")
    person.stored(NAME, lambda graph: graph.get("walks", {}).get("go") == done)


def choose_among_steps(person: Person) -> None:
    page = person.page
    person.tab("Tasks")
    page.get_by_role("button", name="Add a task").last.click()
    person.enter("Name of the task", "run")
    page.get_by_role("button", name="Parameter", exact=True).click()
    person.enter("Name of the parameter", "fast")
    page.get_by_label("Type of fast").select_option("boolean")
    page.get_by_role("button", name="Add a step at the end").click()
    page.get_by_role("menuitem", name="Choice by a value…").click()
    page.get_by_label("Value that the choice goes by").select_option("@task.fast")
    expect(page.get_by_label("Value of the case true")).to_be_visible()
    page.get_by_role("button", name="Add a step to the case true").click()
    page.get_by_role("menuitem", name="go", exact=True).click()
    person.look("steps_with_a_choice")
    task = person.stored(NAME, lambda graph: "run" in graph.get("tasks", {}) and steps_of(graph))["tasks"]["run"]
    assert task["steps"] == [{"choose": "@task.fast", "cases": {"true": [{"walk": "go"}], "false": []}}]


# ── gestures ────────────────────────────────────────────────────────────────────────────────────


def undo(person: Person, times: int) -> None:
    person.pane().click(position={"x": 20, "y": 20})
    for _ in range(times):
        person.press("Control+z")


def in_node(person: Person, id_: str, label: str, text: str) -> None:
    field = person.node(id_).get_by_label(label)
    field.fill(text)
    field.press("Enter")


def body_of(graph: dict[str, Any]) -> dict[str, Any]:
    return next(item for item in graph["walks"]["go"]["body"] if isinstance(item, dict) and "choose" in item)


def is_whole(graph: dict[str, Any]) -> bool:
    """Both cases with their steps, and nothing more."""
    choice = body_of(graph)
    return choice["cases"] == {"true": ["add"], "false": ["delay"]} and "otherwise" not in choice


def steps_of(graph: dict[str, Any]) -> bool:
    return any(step["cases"].get("true") for step in graph["tasks"]["run"]["steps"] if "choose" in step)


def errors(person: Person, graph: dict[str, Any]) -> list[str]:
    with person.running.client() as client:
        found = client.check(graph)["problems"]
    return [problem["code"] for problem in found if problem["severity"] == "error"]
