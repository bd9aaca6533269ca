"""A person makes a blueprint of a step, opens it in place, changes it inside, stores it, and unpacks it again."""

from __future__ import annotations

from tests.browser.expecting import expect
from tests.browser.person import Person

NAME = "packing"


def test_a_step_becomes_a_blueprint_and_back(person: Person) -> None:
    page = person.page
    person.new_graph(NAME)
    person.new_walk("go")
    for _ in range(3):
        page.get_by_role("button", name="Zoom out").click()
    person.move_to("@out", (740, 480))
    person.add("synthetic.range", (150, 180))
    person.add("synthetic.sum", (420, 180))
    person.connect("range.values", "sum.values")
    person.on_node("use:sum", "Make a blueprint")
    expect(person.node("use:blueprint")).to_be_visible()
    expect(person.wire("range.values", "blueprint.values")).to_have_count(1)
    graph = person.stored(NAME, lambda graph: "blueprints" in graph)
    assert set(graph["nodes"]) == {"range", "blueprint"}
    assert graph["blueprints"]["blueprint"]["nodes"] == {"sum": {"component": "synthetic.sum"}}
    person.look("made")

    person.on_node("use:blueprint", "Save to the library")
    page.get_by_role("tab", name="Palette").click()
    expect(page.get_by_role("region", name="Library of blueprints")).to_contain_text("blueprint")

    person.on_node("use:blueprint", "Open the blueprint")
    back = page.get_by_role("navigation", name="Inside a blueprint")
    expect(back).to_be_visible()
    expect(person.node("use:sum")).to_be_visible()
    person.connect("sum.sum", "@result.+")
    graph = person.stored(NAME, lambda graph: graph["blueprints"]["blueprint"].get("outputs"))
    assert graph["blueprints"]["blueprint"]["outputs"] == {"sum": "sum.sum"}
    name = page.get_by_label("Blueprint's name")
    name.fill("adder")
    name.press("Enter")
    graph = person.stored(NAME, lambda graph: "adder" in graph["blueprints"])
    assert graph["nodes"]["blueprint"]["component"] == "blueprint.adder"
    person.look("inside")
    back.get_by_role("button").first.click()
    person.connect("blueprint.sum", "@out.+")
    expect(person.wire("blueprint.sum", "@out.sum")).to_have_count(1)

    person.on_node("use:blueprint", "Unpack the blueprint")
    expect(person.node("use:sum")).to_be_visible()
    expect(person.wire("sum.sum", "@out.sum")).to_have_count(1)
    graph = person.stored(NAME, lambda graph: "blueprints" not in graph)
    assert set(graph["nodes"]) == {"range", "sum"}
    person.press("Control+z")
    expect(person.node("use:blueprint")).to_be_visible()
