"""An order that no wire draws: who reads what others left in states."""

from __future__ import annotations

from playwright.sync_api import Locator, expect

from tests.browser.person import Person

LENS = "Show which step reads what another left in a state"


def test_states_are_drawn_by_a_lens_and_around_what_is_pointed_at(person: Person) -> None:
    person.copied("shapes", "states")
    person.open("states")
    person.canvas("Components")
    lens = person.page.get_by_role("button", name=LENS)
    expect(lines(person)).to_have_count(0)
    person.select("node:llm")
    expect(line(person, "llm_cfg_text reads what llm left in cfg_text")).to_be_attached()
    person.press("Escape")
    person.page.mouse.move(*person.at((20, 20)))
    expect(lines(person)).to_have_count(0)
    person.node("node:llm_cfg_text").hover()
    expect(line(person, "llm_cfg_text reads what llm left in cfg_text")).to_be_attached()
    person.look("pointed")

    lens.click()
    person.page.mouse.move(*person.at((20, 20)))
    expect(lens).to_have_attribute("aria-pressed", "true")
    expect(line(person, "llm_cfg_text reads what llm left in cfg_text")).to_be_attached()
    person.look("lens")
    person.go("")
    person.open("states")
    expect(lens).to_have_attribute("aria-pressed", "true")
    lens.click()
    expect(lines(person)).to_have_count(0)


def test_a_walk_shows_its_copies_of_states_between_who_writes_and_who_reads(person: Person) -> None:
    person.copied("synthetic_states", "parting")
    person.open("parting")
    person.canvas("Fork the cache, append to the copy, and continue with both")
    person.select("use:told")
    expect(lines(person)).to_have_count(2)
    expect(line(person, "copy reads what told left in copy")).to_be_attached()
    person.look("fork")
    assert person.box(person.node("use:told"))[0] > person.box(person.node("fork:0"))[0]


def lines(person: Person) -> Locator:
    return person.page.locator(".wg-dependencies [role=img]")


def line(person: Person, name: str) -> Locator:
    return person.page.get_by_role("img", name=name, exact=True)
