"""The start page stands where no graph is open; pages say where models come from and what expressions can say."""

from __future__ import annotations

import re

from tests.browser.expecting import expect
from tests.browser.person import Person


def test_the_editor_without_a_graph_offers_pictures_and_copies(person: Person) -> None:
    page = person.page
    person.go("editor")
    expect(page.get_by_text("Draw a model. Watch it walk.")).to_be_visible()
    picture = page.get_by_test_id("stImage").first.locator("img")
    expect(picture).to_be_visible()
    assert picture.evaluate("(img) => img.decode().then(() => img.naturalWidth)") > 300
    expect(page.get_by_text("random weights").first).to_be_visible()
    person.look("gallery")
    person.on_card("copy.shapes")
    expect(page.locator(".wg .react-flow")).to_be_visible()
    expect(page).to_have_url(re.compile("graph=shapes_copy"))
    with person.running.client() as client:
        client.delete_document("graph", "shapes_copy")


def test_the_models_page_says_what_to_download(person: Person) -> None:
    page = person.page
    person.go("models")
    expect(page.get_by_text("no folder for weights")).to_be_visible()
    page.get_by_text("BAGEL · 1").click()
    expect(page.get_by_text("ByteDance-Seed/BAGEL-7B-MoT")).to_be_visible()
    person.look("models")


def test_a_condition_is_completed_valued_and_explained(person: Person) -> None:
    page = person.page
    person.copied("shapes", "expressed")
    person.open("expressed")
    person.canvas("Draw with guidance")
    person.select("use:llm_cfg_text")
    field = page.get_by_label("Only when")
    field.fill("st")
    person.press("Tab")
    page.keyboard.type(" > 1 and flow")
    person.press("Tab")
    page.keyboard.type("@loop.index, steps, shift) > 0.5")
    expect(field).to_have_value("steps > 1 and flow_time(@loop.index, steps, shift) > 0.5")
    expect(page.get_by_text("= true with the defaults")).to_be_visible()
    person.look("expression")
    with page.context.expect_page() as opened:
        page.get_by_role("link", name="What these mean").click()
    expect(opened.value.get_by_role("heading", name="Functions")).to_be_visible()
