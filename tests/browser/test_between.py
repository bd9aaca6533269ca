"""A wire that doesn't fit is dropped on a port; the component that makes it fit is put in between by one press."""

from __future__ import annotations

from typing import Any

from tests.browser.expecting import expect
from tests.browser.person import Person

GRAPH: dict[str, Any] = {
    "format": "walkgraph/graph@1",
    "name": "unfit",
    "weights": {"shapes": {"family": "bagel", "source": "starter:shapes"}},
    "nodes": {"encoder": {"component": "bagel.vit", "weights": "shapes"}},
    "walks": {"main": {"inputs": {"photo": "image"}, "body": ["encoder"], "edges": [["encoder.embeddings", "@out.e"]]}},
}


def test_what_makes_a_wire_fit_is_proposed_and_put_in_between(person: Person) -> None:
    page = person.page
    with person.running.client() as client:
        client.put_document("graph", "unfit", GRAPH)
    person.open("unfit")
    page.get_by_role("tablist", name="Canvases").get_by_role("tab", name="main").click()
    person.connect("@in.photo", "encoder.pixels")
    expect(page.get_by_role("menuitem").first).to_have_text("image does not fit pixels.")
    person.look("proposed")
    page.get_by_role("menuitem", name="Put media.picture_in in between").click()
    expect(person.wire("@in.photo", "picture_in.image")).to_have_count(1)
    expect(person.wire("picture_in.pixels", "encoder.pixels")).to_have_count(1)
    stored = person.stored("unfit", lambda graph: "picture_in" in graph["nodes"])
    assert stored["walks"]["main"]["body"] == ["picture_in", "encoder"]
