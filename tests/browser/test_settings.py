"""The settings: what the operator has set, and a theme that holds for every page of this browser."""

from __future__ import annotations

import re

from playwright.sync_api import expect

from tests.browser.person import Person

DARK = 90
"""Mean of the channels of a dark page's background, at most."""


def test_the_settings_of_the_service_are_shown(person: Person) -> None:
    page = person.page
    person.go("settings")
    row = page.get_by_role("row").filter(has_text="WALKGRAPH_QUEUE_LIMIT")
    expect(row.get_by_text("256", exact=True)).to_be_visible()
    expect(row.get_by_text("The most unfinished runs of one deployment")).to_be_visible()
    expect(page.get_by_role("main", name="Settings").get_by_text("Undo", exact=True)).to_be_visible()
    person.look("settings")
    page.get_by_label("Compact").check()
    person.look("compact")
    page.reload()
    expect(page.get_by_label("Compact")).to_be_checked()
    page.get_by_label("Comfortable").check()


def test_the_theme_holds_for_all_pages_and_all_their_parts(person: Person) -> None:
    page = person.page
    person.go("settings")
    expect(page.get_by_label("As the system")).to_be_checked()
    assert lightness(person) > 255 - DARK
    page.get_by_label("Dark").check()
    dark(person)
    expect(page.get_by_label("Dark")).to_be_checked()
    person.look("settings")
    for address, word in (
        ("", "New graph"),
        ("library", "Library"),
        ("keys", "New key"),
        ("playground?deployment=shapes", "Draw from a caption"),
        ("trace?deployment=shapes", "Live: all runs"),
        ("models", "Models"),
    ):
        person.go(address)
        expect(page.get_by_text(word).last).to_be_visible()
        dark(person)
        person.look(address.partition("?")[0] or "start")
    person.open("shapes")
    dark(person)
    for tab in ("Tasks", "Placement", "Deploy", "Play", "Trace", "Graph"):
        page.get_by_role("tab", name=re.compile(f"^{tab}")).first.click()
        person.look(tab.lower())
    page.locator(".react-flow__pane").first.click(button="right")
    person.look("menu")
    page.keyboard.press("Escape")
    person.press("Control+k")
    page.keyboard.type("Theme: L")
    person.look("palette")
    page.keyboard.press("Enter")
    expect(page.locator(".wg-root")).not_to_have_class(re.compile(r"\bdark\b"))
    assert lightness(person) > 255 - DARK
    person.look("light")


def dark(person: Person) -> None:
    """The component and Streamlit's page around it are dark."""
    person.page.wait_for_function(
        """() => {
          const of = getComputedStyle(document.querySelector('[data-testid="stApp"]') ?? document.body);
          return (of.backgroundColor.match(/\\d+/g) ?? [255]).slice(0, 3).every((channel) => Number(channel) < 90);
        }"""
    )
    for root in person.page.locator(".wg-root").all():
        expect(root).to_have_class(re.compile(r"\bdark\b"))


def lightness(person: Person) -> float:
    """Mean of the channels of Streamlit's background."""
    person.page.locator('[data-testid="stApp"]').wait_for()
    color = person.page.eval_on_selector('[data-testid="stApp"]', "found => getComputedStyle(found).backgroundColor")
    channels = [float(one) for one in re.findall(r"[\d.]+", color)[:3]]
    return sum(channels) / 3
