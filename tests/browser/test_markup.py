"""Markup in names, labels, notes and prompts is text: nothing of it runs."""

from __future__ import annotations

import pytest

from tests.browser.expecting import expect
from tests.browser.person import Person

ATTACK = "<img src=x onerror=\"document.title='run'\"><script>document.title='run'</script>"
LINK = "[a](javascript:alert(1)) ![b](x) **c** {{constructor.constructor('alert(1)')()}}"


@pytest.mark.safety("S10")
def test_markup_of_a_document_and_of_a_prompt_is_shown_as_text(person: Person) -> None:
    person.expected = ["404", "422", "400"]
    document = person.copied("shapes", "marked")
    document["description"] = ATTACK + LINK
    document["walks"]["read_image"]["label"] = ATTACK
    document["walks"]["decode"]["label"] = LINK
    document["tasks"]["text_to_image"]["label"] = ATTACK
    document["tasks"]["text_to_image"]["inputs"]["prompt"]["description"] = ATTACK + LINK
    document["nodes"]["llm"]["label"] = ATTACK
    with person.running.client() as client:
        _, etag = client.document("graph", "marked")
        client.put_document("graph", "marked", document, etag)
    dialogs: list[str] = []
    person.hear("dialog", lambda dialog: dialogs.append(dialog.message) or dialog.dismiss())
    person.open("marked")
    expect(person.page.get_by_text("<img src=x").first).to_be_visible()
    unharmed(person, dialogs)
    person.go("library")
    expect(person.page.get_by_test_id("stDataFrame")).to_be_visible()
    unharmed(person, dialogs)
    person.go("playground?deployment=shapes")
    person.page.get_by_label("Steps").and_(person.page.locator("input:not([type=range])")).fill("2")
    person.page.get_by_role("textbox", name="Prompt").fill(ATTACK)
    person.page.get_by_role("form").get_by_role("button", name="Run").click()
    expect(person.page.get_by_role("button", name="Download image")).to_be_visible()
    unharmed(person, dialogs)


LINKS = "[Sign in again](https://evil.example/) <https://evil.example/> https://evil.example/ ![x](https://evil.example/x.png)"
DIRECTIVES = ":red[x] $\\href{https://evil.example/}{x}$ `a` [b](//evil.example) `c"


@pytest.mark.safety("S10")
def test_a_description_leads_nowhere(person: Person) -> None:
    """Pages of the studio that are written as Markdown: a text of a document's author makes no link."""
    document = person.copied("shapes", "leading")
    document["description"] = f"Read this. {LINKS} {DIRECTIVES} {ATTACK}"
    document["tasks"]["text_to_image"]["label"] = f"Draw {LINKS}"
    with person.running.client() as client:
        _, etag = client.document("graph", "leading")
        client.put_document("graph", "leading", document, etag)
    asked: list[str] = []
    person.hear("request", lambda request: asked.append(request.url))
    person.go("")
    text = person.page.get_by_text("Read this.")
    expect(text).to_be_visible()
    expect(text).to_contain_text("[Sign in again](")
    assert person.page.locator("a[href*='evil']").count() == 0
    assert not [url for url in asked if "evil" in url]
    unharmed(person, [])


@pytest.mark.safety("S10")
def test_markup_in_the_keys_of_a_draft_is_shown_as_text(person: Person) -> None:
    """A draft holds whatever JSON it was given: names that no graph could have, and their problems."""
    person.expected = ["404", "422", "400"]
    draft = {
        "format": "walkgraph/graph@1",
        "name": "drafted",
        ATTACK: {ATTACK: ATTACK},
        "nodes": {ATTACK: {"component": ATTACK, "label": ATTACK, "params": {ATTACK: ATTACK}}, "b": {"component": LINK}},
        "states": {ATTACK: {"kind": ATTACK}},
        "weights": {ATTACK: {"family": ATTACK, "source": ATTACK}},
        "walks": {
            ATTACK: {"label": ATTACK, "inputs": {ATTACK: ATTACK}, "body": [ATTACK], "edges": [[ATTACK, ATTACK]]},
            "w": {"body": ["b", {"loop": ATTACK, "times": ATTACK, "body": [ATTACK]}], "edges": [["@in.x", "b.y"]]},
        },
        "tasks": {ATTACK: {"outputs": [ATTACK], "steps": [{"walk": ATTACK}]}, "t": {"outputs": [], "steps": [ATTACK]}},
        "layout": {ATTACK: ATTACK, "notes": [{"text": ATTACK}]},
    }
    with person.running.client() as client:
        client.put_document("graph", "drafted", draft)
    dialogs: list[str] = []
    person.hear("dialog", lambda dialog: dialogs.append(dialog.message) or dialog.dismiss())
    person.open("drafted")
    expect(person.page.get_by_text("<img src=x").locator("visible=true").first).to_be_visible()
    for tab in person.page.get_by_role("tablist", name="Views").get_by_role("tab").all():
        tab.click()
        unharmed(person, dialogs)
    person.go("")
    unharmed(person, dialogs)


@pytest.mark.safety("S10")
def test_markup_of_runs_and_blueprints_is_shown_as_text(person: Person) -> None:
    """In the history and the queue of runs, their trace, the canvas and form of a blueprint, and the library."""
    person.expected = ["404", "422", "400"]
    document = person.copied("synthetic_states", "boxed")
    document["blueprints"] = {
        "box": {
            "description": ATTACK + LINK,
            "inputs": {"a": "scalar: int", "b": "scalar: int"},
            "outputs": {"sum": "add.sum"},
            "body": ["add"],
            "nodes": {"add": {"component": "synthetic.add"}},
            "edges": [["@in.a", "add.a"], ["@in.b", "add.b"]],
        }
    }
    dialogs: list[str] = []
    person.hear("dialog", lambda dialog: dialogs.append(dialog.message) or dialog.dismiss())
    with person.running.client() as client:
        _, etag = client.document("graph", "boxed")
        client.put_document("graph", "boxed", document, etag)
        entry = client.entry(document, blueprint="box")
        client.put_document("blueprint", "box", entry)
        asked = {"inputs": {"prompt": ATTACK + LINK}, "params": {"steps": 2, "seed": 3}}
        client.run("shapes", "text_to_image", asked)
        waiting = client.start_run("shapes", "text_to_image", {**asked, "hold": True})["id"]
    person.go("playground?deployment=shapes")
    expect(person.page.get_by_text("<img src=x").locator("visible=true").first).to_be_visible()
    unharmed(person, dialogs)
    person.look("history")
    person.go("trace?deployment=shapes")
    unharmed(person, dialogs)
    person.open("boxed")
    person.page.get_by_role("tab", name="Palette").click()
    expect(person.page.get_by_role("region", name="Library of blueprints")).to_contain_text("box")
    unharmed(person, dialogs)
    person.look("palette")
    person.go("library")
    unharmed(person, dialogs)
    with person.running.client() as client:
        client.cancel(waiting)


def unharmed(person: Person, dialogs: list[str]) -> None:
    person.page.wait_for_timeout(300)
    assert person.page.title() != "run"
    assert not dialogs
    assert person.page.locator("img[onerror]").count() == 0
    assert person.page.locator("a[href^='javascript:']").count() == 0
