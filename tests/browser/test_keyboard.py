"""Everything can be reached and used with the keyboard, and everything says what it is."""

from __future__ import annotations

import re
from typing import Any

from playwright.sync_api import Locator

from tests.browser.expecting import expect
from tests.browser.person import Person

CONTROLS = {
    *("button", "textbox", "searchbox", "combobox", "checkbox", "radio", "slider", "spinbutton", "switch", "link"),
    *("tab", "tablist", "menuitem", "option", "listbox", "tree", "treeitem", "dialog", "toolbar", "separator"),
}
MOST = 120
"""Presses of Tab that lead around a page."""


def test_a_graph_is_edited_without_a_mouse(person: Person) -> None:
    person.copied("shapes", "keys")
    person.open("keys")
    expect(person.node("use:picture_in")).to_be_visible()
    page = person.page

    reach(person, page.get_by_role("combobox", name=re.compile("^Search the palette")))
    page.keyboard.type("flow.noise")
    found = page.get_by_role("listbox", name="Palette").get_by_role("option")
    expect(found.first).to_have_attribute("data-key", re.compile(r"flow\.noise$"))
    person.press("Enter")
    person.stored("keys", lambda found: "noise_2" in body(found))

    reach(person, page.get_by_role("tab", name="Palette"), "Shift+Tab")
    person.press("ArrowRight")
    tree = page.get_by_role("tree", name="Outline of keys")
    reach(person, tree.get_by_role("treeitem").and_(page.locator("[tabindex='0']")))
    step = tree.get_by_role("treeitem", name="use vit_encoder")
    press_until(person, "ArrowDown", step)
    person.press("Enter")
    expect(page.locator(".wg-inspector header h2")).to_have_text("vit_encoder")
    person.press("Alt+ArrowDown")
    person.stored("keys", lambda found: body(found)[-2:] == ["llm", "vit_encoder"])
    person.press("Control+z")
    person.stored("keys", lambda found: body(found)[-2:] == ["vit_encoder", "llm"])

    node = person.node("use:picture_in")
    reach(person, node)
    person.press("Enter")
    expect(node).to_have_class(re.compile("selected"))
    person.look("node")
    before = person.stored("keys").get("layout")
    person.press("ArrowDown")
    person.stored("keys", lambda found: found.get("layout") != before)

    reach(person, page.locator(".wg-inspector").get_by_label("Name", exact=True))
    person.press("Control+a")
    page.keyboard.type("eye")
    person.press("Enter")
    person.stored("keys", lambda found: body(found)[0] == "eye")
    expect(page.locator(".wg-inspector header h2")).to_have_text("eye")

    reach(person, person.node("use:eye"))
    person.press("Delete")
    expect(person.node("use:eye")).to_have_count(0)
    strip = page.get_by_role("region", name="Problems").get_by_role("button", name=re.compile("Problems"))
    reach(person, strip)
    person.press("Enter")
    problem = person.problems().get_by_role("listitem").get_by_role("button").first
    reach(person, problem)
    person.press("Enter")
    person.look("problem")
    expect(page.locator(".wg-inspector header h2")).not_to_have_text("read_image")
    person.press("Control+z")
    expect(person.node("use:eye")).to_be_visible()


def test_keys_are_listed_and_lead_anywhere(person: Person) -> None:
    person.open("shapes")
    expect(person.node("use:picture_in")).to_be_visible()
    person.press("?")
    sheet = person.page.get_by_role("dialog", name="Keyboard")
    expect(sheet).to_be_visible()
    expect(sheet.get_by_text("Find anything")).to_be_visible()
    person.look("sheet")
    person.press("Escape")
    expect(sheet).to_have_count(0)

    person.press("Control+k")
    search = person.page.get_by_role("combobox", name="Find anything")
    expect(search).to_be_focused()
    person.page.keyboard.type("combine_cfg")
    found = person.page.get_by_role("dialog", name="Find anything").get_by_role("option", selected=True)
    expect(found).to_contain_text("combine_cfg")
    person.look("find")
    person.press("Enter")
    expect(search).to_have_count(0)
    expect(person.page.locator(".wg-inspector header h2")).to_have_text("combine_cfg")
    expect(person.page.locator('.react-flow__node.selected[data-id*="combine_cfg"]')).to_be_visible()

    for number, tab in enumerate(("Graph", "Tasks", "Placement", "Deploy", "Play"), 1):
        person.press(f"Alt+{number}")
        views = person.page.get_by_role("tablist", name="Views")
        expect(views.get_by_role("tab", name=tab, exact=True)).to_have_attribute("aria-selected", "true")


def test_everything_says_what_it_is(person: Person) -> None:
    person.open("shapes")
    unnamed: dict[str, list[str]] = {}
    for tab in ("Graph", "Tasks", "Placement", "Deploy", "Play"):
        person.tab(tab)
        expect(person.page.get_by_role("main", name=re.compile("^The "))).to_be_visible()
        unnamed[tab] = nameless(person)
    for path in ("", "library", "playground?deployment=shapes", "trace?deployment=shapes"):
        person.go(path)
        expect(person.page.get_by_test_id("stMain").get_by_role("button").first).to_be_visible()
        unnamed[path or "start"] = nameless(person)
    assert {place: found for place, found in unnamed.items() if found} == {}


# ── how ─────────────────────────────────────────────────────────────────────────────────────────


def body(graph: dict[str, Any]) -> list[Any]:
    return graph["walks"]["read_image"]["body"]


def reach(person: Person, target: Locator, key: str = "Tab") -> None:
    press_until(person, key, target)


def press_until(person: Person, key: str, target: Locator) -> None:
    """Until the target has the focus."""
    expect(target).to_be_visible()
    for _ in range(MOST):
        if target.evaluate("element => element.getRootNode().activeElement === element"):
            return
        person.press(key)
    raise AssertionError(f"{key} does not lead to {target}")


def nameless(person: Person) -> list[str]:
    """Controls without a name for who does not see them, as the browser tells assistive software."""
    session = person.page.context.new_cdp_session(person.page)
    nodes = session.send("Accessibility.getFullAXTree")["nodes"]
    found = [node for node in nodes if not node["ignored"] and _value(node, "role") in CONTROLS]
    assert len(found) > 5, "the page is empty"
    unnamed = [node for node in found if not _value(node, "name").strip()]
    shown = [session.send("DOM.describeNode", {"backendNodeId": node["backendDOMNodeId"]}) for node in unnamed]
    session.detach()
    return [f"{_value(node, 'role')} {one['node']}" for node, one in zip(unnamed, shown, strict=True)]


def _value(node: dict[str, Any], key: str) -> str:
    return str(node.get(key, {}).get("value", ""))
