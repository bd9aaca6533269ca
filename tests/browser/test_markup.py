"""Markup in names, labels, notes and prompts is text: nothing of it runs."""

from __future__ import annotations

import pytest
from playwright.sync_api import expect

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
    person.page.on("dialog", lambda dialog: dialogs.append(dialog.message) or dialog.dismiss())
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


def unharmed(person: Person, dialogs: list[str]) -> None:
    person.page.wait_for_timeout(300)
    assert person.page.title() != "run"
    assert not dialogs
    assert person.page.locator("img[onerror]").count() == 0
    assert person.page.locator("a[href^='javascript:']").count() == 0
