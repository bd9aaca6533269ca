"""Nothing that a person made is lost: not to another tab, not to somebody else's save, a crash or a file."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from playwright.sync_api import Error, Locator, WebSocketRoute

from tests.browser.expecting import expect
from tests.browser.person import Person

GRAPH = "shapes"
OFFLINE = "ERR_INTERNET_DISCONNECTED"
REFUSED = "412 (Precondition Failed)"


def test_of_two_tabs_one_edits(person: Person) -> None:
    person.copied(GRAPH, "tabs")
    other = person.another()
    person.open("tabs")
    other.open("tabs")
    expect(saying(other, "Read only")).to_be_visible()
    expect(banner(other, "This document is open in another tab.")).to_be_visible()
    other.look("reader")

    rename_walk(other, "read_image", "Not to be")
    expect(other.page.get_by_text("Choose “Edit here” to change it.")).to_be_visible()
    expect(walk(other, "Encode a picture")).to_be_visible()

    rename_walk(person, "read_image", "Look at it")
    expect(walk(other, "Look at it")).to_be_visible()

    rename_walk(person, "read_image", "Look closely")
    other.page.get_by_role("button", name="Edit here").click()
    expect(saying(other, "Saved")).to_be_visible()
    expect(walk(other, "Look closely")).to_be_visible()
    expect(banner(person, "Another tab edits this document now.")).to_be_visible()
    rename_walk(other, "read_image", "Look again")
    expect(walk(person, "Look again")).to_be_visible()

    other.page.close()
    expect(banner(person, "The tab that edited this document is closed.")).to_be_visible()
    person.page.get_by_role("button", name="Edit here").click()
    expect(saying(person, "Saved")).to_be_visible()
    rename_walk(person, "read_image", "Look up")
    person.stored("tabs", lambda found: found["walks"]["read_image"]["label"] == "Look up")


def test_somebody_elses_save_is_not_overwritten(person: Person) -> None:
    person.expected = [REFUSED]
    person.copied(GRAPH, "both")
    person.open("both")
    collide(person, "Theirs 1", "Mine 1")
    person.look("conflict")
    expect(asked(person).get_by_text("read_image").first).to_be_visible()
    asked(person).get_by_role("button", name="Close").click()
    person.page.get_by_role("button", name="Changed elsewhere: choose").click()
    asked(person).get_by_role("button", name="Keep mine").click()
    person.saved()
    person.stored("both", labelled("Mine 1"))

    collide(person, "Theirs 2", "Mine 2")
    asked(person).get_by_role("button", name="Take theirs").click()
    expect(walk(person, "Theirs 2")).to_be_visible()
    person.saved()
    person.stored("both", labelled("Theirs 2"))
    person.page.get_by_role("button", name="Undo: Use the other version").click()
    expect(walk(person, "Mine 2")).to_be_visible()
    person.stored("both", labelled("Mine 2"))

    collide(person, "Theirs 3", "Mine 3")
    asked(person).get_by_role("button", name="Save mine as a copy").click()
    expect(person.page.get_by_text("Yours is stored as “both_copy”")).to_be_visible()
    expect(walk(person, "Theirs 3")).to_be_visible()
    person.saved()
    person.stored("both", labelled("Theirs 3"))
    person.stored("both_copy", labelled("Mine 3"))


def test_changes_in_different_places_of_the_library_are_no_conflict(person: Person) -> None:
    """Others' changes are adopted without conflict; own changes can be undone, also after the page is reopened."""
    person.copied(GRAPH, "follows")
    person.open("follows")
    behind(person, "follows", "Theirs")
    person.page.reload()
    expect(walk(person, "Theirs")).to_be_visible()
    rename_walk(person, "read_image", "Mine")
    person.stored("follows", labelled("Mine"))

    person.page.reload()
    expect(walk(person, "Mine")).to_be_visible()
    person.page.get_by_role("button", name=re.compile("^Undo: ")).click()
    expect(walk(person, "Theirs")).to_be_visible()
    person.stored("follows", labelled("Theirs"))


def test_a_service_that_is_gone_is_told_in_our_words_until_it_answers(person: Person) -> None:
    person.expected = [OFFLINE, "server endpoint", "not responding", "WebSocket", "Failed to", "Image source error"]
    sockets: list[WebSocketRoute] = []
    person.page.route_web_socket(re.compile("/_stcore/stream"), lambda found: sockets.append(connected(found)))
    person.go("")
    new = person.page.get_by_role("button", name="New graph")
    expect(new).to_be_visible()
    # Streamlit loads the code of each kind of element when it first draws one.
    person.page.wait_for_load_state("networkidle")
    # Cut off in the middle of a script's run, Streamlit itself can't draw the rest.
    expect(person.page.get_by_test_id("stApp")).to_have_attribute("data-test-script-state", "notRunning")
    person.page.context.set_offline(True)
    sockets[-1].close()
    told = person.page.get_by_role("alert").filter(has_text="The service at")
    expect(told).to_contain_text("isn't answering. Start it with")
    expect(told).to_contain_text(f"WALKGRAPH_HOME={person.running.home} walkgraph up --port ")
    person.look("gone")
    person.page.context.set_offline(False)
    expect(told).to_have_count(0)

    new.click()
    person.page.get_by_label("Name", exact=True).fill("by_enter")
    person.page.get_by_label("Name", exact=True).press("Enter")
    expect(person.page.locator(".wg .react-flow")).to_be_visible()
    # Its tab can't be freed of the route.
    person.page.close()


def test_unsaved_work_survives_a_crash(person: Person) -> None:
    person.expected = [OFFLINE]
    before = person.copied(GRAPH, "crash")
    crashing = person.another()
    crashing.open("crash")
    expect(crashing.node("use:picture_in")).to_be_visible()
    person.page.context.set_offline(True)
    rename_walk(crashing, "read_image", "Before the crash")
    crashing.canvas("Generate text")
    crashing.add("loop", (60, 500))
    expect(saying(crashing, "Offline, kept in this browser")).to_be_visible()
    crashing.look("offline")
    crash(crashing)
    person.page.context.set_offline(False)
    assert person.stored("crash") == before

    person.open("crash")
    offer = banner(person, "were not saved; this browser kept them.")
    expect(offer).to_be_visible()
    expect(walk(person, "Encode a picture")).to_be_visible()
    offer.get_by_role("button", name="Compare").click()
    compared = person.page.get_by_role("dialog", name="What restoring would change")
    expect(compared.get_by_text("Before the crash").first).to_be_visible()
    person.look("found")
    compared.get_by_role("button", name="Close").click()
    offer.get_by_role("button", name="Restore them").click()
    expect(walk(person, "Before the crash")).to_be_visible()
    expect(offer).to_have_count(0)
    person.saved()
    restored = person.stored("crash", labelled("Before the crash"))
    assert any("loop" in item for item in restored["walks"]["decode"]["body"][2:])
    person.page.reload()
    expect(walk(person, "Before the crash")).to_be_visible()
    expect(offer).to_have_count(0)


def test_a_graph_goes_out_and_comes_in_as_files(person: Person, repository: Any) -> None:
    """As JSON out of the library, and in a picture that the playground saved."""
    original = json.loads((repository / "graphs" / f"{GRAPH}.json").read_text())
    with person.running.client() as client:
        client.put_document("graph", "carried", {**original, "name": "carried"})
    person.go("library")
    table = person.page.get_by_test_id("stDataFrame")
    expect(table).to_be_visible()
    person.page.get_by_label("Filter").fill("carried")
    person.page.get_by_label("Filter").press("Enter")
    expect(table.locator("[role=grid]")).to_have_attribute("aria-rowcount", "2")
    x, y, _, _ = person.box(table)
    person.page.mouse.click(x + 18, y + 52)
    with person.page.expect_download() as exporting:
        person.page.get_by_role("button", name="Export").click()
    exported = person.keep(exporting.value)
    assert json.loads(exported.read_text()) == {**original, "name": "carried"}
    person.look("exported")

    person.upload(exported)
    expect(person.page.get_by_role("heading", name="carried_2")).to_be_visible()
    assert person.stored("carried_2") == {**original, "name": "carried_2"}

    person.go(f"playground?deployment={GRAPH}")
    person.page.get_by_label("Steps").and_(person.page.locator("input:not([type=range])")).fill("2")
    person.page.get_by_role("textbox", name="Prompt").fill("a red circle on white")
    person.page.get_by_role("form").get_by_role("button", name="Run").click()
    with person.page.expect_download() as saving:
        person.page.get_by_role("button", name="Download image").click()
    picture = person.keep(saving.value)
    assert picture.suffix == ".png"
    person.upload(picture)
    expect(person.page.get_by_role("heading", name=f"{GRAPH}_2")).to_be_visible()
    assert person.stored(f"{GRAPH}_2") == {**original, "name": f"{GRAPH}_2"}


# ── what these tests do and look at ─────────────────────────────────────────────────────────────


def crash(person: Person) -> None:
    """The tab's process ends: nothing that a page does when it is closed is done."""
    with pytest.raises(Error, match="crash"):
        person.page.goto("chrome://crash")
    person.page.close()


def banner(person: Person, words: str) -> Locator:
    return person.page.locator(".wg-banner").filter(has_text=words)


def saying(person: Person, words: str) -> Locator:
    return person.page.locator(".wg-saving").filter(has_text=words)


def asked(person: Person) -> Locator:
    return person.page.get_by_role("dialog", name="“both” was also changed elsewhere")


def walk(person: Person, label: str) -> Locator:
    return person.page.get_by_role("tablist", name="Canvases").get_by_role("tab", name=label, exact=True)


def labelled(label: str) -> Any:
    return lambda found: found["walks"]["read_image"]["label"] == label


def rename_walk(person: Person, name: str, label: str) -> None:
    """By a double click on its tab."""
    tabs = person.page.get_by_role("tablist", name="Canvases")
    tabs.get_by_title(re.compile(rf"\({name}\)$")).dblclick()
    field = tabs.get_by_label("The Walk's label")
    field.fill(label)
    field.press("Enter")


def behind(person: Person, graph: str, label: str) -> None:
    """Somebody changes it with the API."""
    with person.running.client() as client:
        document, etag = client.document("graph", graph)
        document["walks"]["read_image"]["label"] = label
        client.put_document("graph", graph, document, etag)


def collide(person: Person, theirs: str, mine: str) -> None:
    person.saved()
    behind(person, "both", theirs)
    rename_walk(person, "read_image", mine)
    expect(asked(person)).to_be_visible()


def connected(found: WebSocketRoute) -> WebSocketRoute:
    found.connect_to_server()
    return found
