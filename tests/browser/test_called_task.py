"""A person calls a task of a deployed graph: finds it in the palette, wires and sets it, and opens its graph."""

from __future__ import annotations

import re

from tests.browser.expecting import expect
from tests.browser.person import Person

NAME = "poster"
TASK = "shapes/text_to_image"


def test_a_task_is_called_from_an_empty_walk(person: Person) -> None:
    draw(person)
    set_a_parameter(person)
    open_its_graph(person)
    is_what_was_meant(person)


def draw(person: Person) -> None:
    page = person.page
    person.new_graph(NAME)
    person.new_walk("go")
    palette = page.get_by_role("listbox", name="Palette")
    expect(palette.get_by_role("group", name="Tasks")).to_be_visible()
    page.get_by_role("combobox", name=re.compile("^Search the palette")).fill("text to image shapes")
    entry = palette.locator(f'[data-key="{TASK}"]')
    expect(entry).to_contain_text("Draw from a caption")
    person.look("palette")
    entry.dblclick()
    expect(person.node("use:text_to_image")).to_be_visible()
    person.move_to("@in", (60, 300))
    person.move_to("@out", (600, 300))
    person.connect("text_to_image.image", "@out.+")
    person.connect("@in.+", "text_to_image.prompt")
    expect(person.wire("text_to_image.image", "@out.image")).to_have_count(1)
    person.look("called")


def set_a_parameter(person: Person) -> None:
    page = person.page
    person.select("use:text_to_image")
    inspector = page.locator(".wg-inspector")
    expect(inspector).to_contain_text("a task, run by the service")
    steps = inspector.get_by_label("steps", exact=True)
    steps.fill("12")
    steps.press("Enter")
    person.look("inspector")


def open_its_graph(person: Person) -> None:
    page = person.page
    link = page.locator(".wg-inspector").get_by_role("link", name="Open the graph shapes")
    expect(link).to_have_attribute("href", "editor?graph=shapes")
    with page.context.expect_page() as opened:
        x, y, width, _ = person.box(person.node("use:text_to_image"))
        page.mouse.dblclick(x + width / 2, y + 30)
    other = opened.value
    expect(other).to_have_url(re.compile(r"/studio/editor\?graph=shapes"))
    other.close()


def is_what_was_meant(person: Person) -> None:
    graph = person.stored(NAME, lambda graph: bool(graph.get("nodes", {}).get("text_to_image", {}).get("params")))
    assert graph["nodes"] == {"text_to_image": {"component": TASK, "params": {"steps": 12}}}
    walk = graph["walks"]["go"]
    assert walk["body"] == ["text_to_image"]
    assert ["text_to_image.image", "@out.image"] in walk["edges"]
    assert ["@in.prompt", "text_to_image.prompt"] in walk["edges"]
