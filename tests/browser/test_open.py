"""Every bundled graph opens, and comes back from the editor as it was, up to its layout."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from playwright.sync_api import expect

from tests.browser.person import Person
from walkgraph.resources import bundled


@pytest.mark.parametrize("name", sorted(bundled("graphs")))
def test_a_graph_is_saved_as_it_was_read(person: Person, repository: Path, name: str) -> None:
    person.open(name)
    node = person.page.locator('.react-flow__node[data-id^="use:"]').first
    expect(node).to_be_visible()
    person.select(node.get_attribute("data-id") or "")
    person.press("ArrowRight")
    original = json.loads((repository / "graphs" / f"{name}.json").read_text())
    stored = person.stored(name, lambda document: document.pop("layout", None))
    assert json.dumps(stored) == json.dumps(original)


def test_the_printed_address_leads_to_the_first_page_which_opens_a_graph(person: Person) -> None:
    person.page.context.clear_cookies()
    person.page.goto(person.address())
    expect(person.page.get_by_text("Draw a model. Watch it walk.")).to_be_visible()
    person.look("start")
    person.page.get_by_role("button", name="Open", exact=True).first.click()
    expect(person.page.locator(".react-flow__node").first).to_be_visible()
    person.look("editor")
