"""Bundled graphs open, and come back from the editor as they were, up to their layout; at the long scale all do."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.browser.expecting import expect
from tests.browser.person import Person
from walkgraph.resources import bundled

FEW = ("qwen3_omni", "synthetic_approvals", "synthetic_maps")
"""Streams, steps of a person, and maps in maps. Vitest writes all documents as they were read, without a page."""


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "name" in metafunc.fixturenames:
        metafunc.parametrize("name", sorted(bundled("graphs")) if metafunc.config.option.scale == "long" else FEW)


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
    person.on_card("open.shapes")
    expect(person.page.locator(".react-flow__node").first).to_be_visible()
    person.look("editor")
