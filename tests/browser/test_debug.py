"""A person stops a run before a step, looks at what goes in, steps on, and replays it: it comes out alike."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import Locator, Page, expect

from tests.browser.person import Person


def dock(page: Page) -> Locator:
    return page.get_by_role("region", name="Debugger")


def run_recorded(page: Page) -> None:
    page.get_by_label("Prompt", exact=True).fill("a red circle")
    page.get_by_label("Steps", exact=True).fill("6")
    page.get_by_role("button", name="Other ways to start").click()
    page.get_by_role("menuitem", name="Run recorded").click()


@pytest.mark.timeout(300)
def test_a_run_is_stopped_stepped_and_replayed(person: Person) -> None:
    page = person.page
    person.open("shapes")
    person.canvas("Draw with guidance")
    person.select("use:vae_decoder")
    person.press("F9")
    expect(dock(page).get_by_role("tab", name="Breakpoints (1)")).to_be_visible()
    expect(person.node("use:vae_decoder").get_by_role("button", pressed=True)).to_be_visible()

    person.tab("Play")
    run_recorded(page)
    held = dock(page).get_by_role("list", name="Calls that are held")
    expect(held.get_by_text("vae_decoder")).to_be_visible()
    inputs = dock(page).get_by_role("region", name="Goes in")
    expect(inputs.get_by_text("latents").first).to_be_visible()
    person.tab("Graph")
    expect(person.node("use:vae_decoder").get_by_label("it comes next")).to_be_visible()
    person.look("held")

    person.press("F10")
    expect(held.get_by_text("picture_out")).to_be_visible()
    expect(held.get_by_text("vae_decoder")).to_have_count(0)
    person.press("F8")
    expect(dock(page).get_by_role("tab", name=re.compile("Paused"))).to_have_count(0)
    person.select("use:vae_decoder")
    person.press("F9")
    expect(dock(page)).to_have_count(0)

    person.tab("Play")
    expect(page.get_by_text("Done", exact=True)).to_be_visible()
    newest = page.get_by_role("complementary", name="Runs").get_by_role("listitem").first
    newest.hover()
    newest.get_by_role("button", name="Replay in the service").click()
    page.get_by_role("menuitem", name="Replay and compare", exact=True).click()
    expect(dock(page).get_by_text(re.compile(r"^Identical: \d+ values$"))).to_be_visible()
    person.look("identical")
