"""The settings: what the operator has set, and a theme that holds for every page of this browser."""

from __future__ import annotations

import re

from tests.browser.expecting import expect
from tests.browser.person import Person

LIGHTNESS = """found => getComputedStyle(found).backgroundColor.match(/[\\d.]+/g).slice(0, 3)
  .reduce((sum, channel) => sum + Number(channel) / 3, 0)"""
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


def test_a_theme_is_shown_at_once_in_all_tabs_and_nothing_open_is_lost(person: Person) -> None:
    page = person.page
    person.copied("synthetic_loops", "themed")
    person.open("themed")
    person.canvas("Components")
    page.evaluate("window.stays = true")
    person.add("range", (60, 60))
    drawn = page.locator(".react-flow__node")
    count = drawn.count()
    settings = person.another()
    settings.go("settings")
    expect(settings.page.get_by_label("As the system")).to_be_checked()
    settings.page.get_by_label("Dark").check()
    dark(settings)
    dark(person)
    person.look("dark")
    expect(drawn).to_have_count(count)
    person.press("Control+z")
    expect(drawn).to_have_count(count - 1)
    person.tab("Trace")
    dark(person)
    person.press("Control+k")
    page.keyboard.type("Theme: L")
    page.keyboard.press("Enter")
    light(person)
    light(settings)
    expect(settings.page.get_by_label("Light")).to_be_checked()
    settings.page.get_by_role("link", name="Library").click()
    expect(settings.page.get_by_text("Library").last).to_be_visible()
    light(settings)
    assert page.evaluate("window.stays")
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


def light(person: Person) -> None:
    expect(person.page.locator(".wg-root.dark")).to_have_count(0)
    page = person.page
    page.wait_for_function(f"() => ({LIGHTNESS})(document.querySelector('[data-testid=\"stApp\"]')) > 165")


def lightness(person: Person) -> float:
    """Mean of the channels of Streamlit's background."""
    person.page.locator('[data-testid="stApp"]').wait_for()
    found: float = person.page.eval_on_selector('[data-testid="stApp"]', LIGHTNESS)
    return found
