"""A person keeps a loop's text for a later step, by gestures alone, takes it back and does it again."""

from __future__ import annotations

from tests.browser.expecting import expect
from tests.browser.person import Person


def test_keep_the_text_of_a_loop(person: Person) -> None:
    page = person.page
    copy = person.copied("shapes", "keeping")
    person.open("keeping")
    person.canvas("Generate text")
    person.connect("detokenizer.text", "@result.+")
    expect(person.wire("detokenizer.text", "@result.text")).to_have_count(1)
    whole = {"from": "detokenizer.text", "collect": True}
    graph = person.stored("keeping", lambda graph: "text" in graph["walks"]["decode"]["results"])
    assert graph["walks"]["decode"]["results"]["text"] == whole, "all of the text, not its last piece"
    person.look("kept")
    person.press("Control+z")
    expect(person.wire("detokenizer.text", "@result.text")).to_have_count(0)
    person.press("Control+Shift+z")
    expect(person.wire("detokenizer.text", "@result.text")).to_have_count(1)
    person.select("@out")
    page.locator(".wg-inspector").get_by_label("Of its iterations").last.select_option("list")
    graph = person.stored("keeping", lambda graph: graph["walks"]["decode"]["results"]["text"] != whole)
    assert graph["walks"]["decode"]["results"]["text"] == {"from": "detokenizer.text", "collect": "list"}
    assert copy["walks"]["decode"]["results"] == {"token": "llm.token"}
