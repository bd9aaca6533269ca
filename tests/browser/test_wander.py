"""Things that come to mind, while everything around the editor comes and goes.

`pytest tests/browser/test_wander.py --gestures 200` does more of them; the long scale does a hundred.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator

from tests.browser.expecting import expect
from tests.browser.person import Person
from tests.browser.wanderer import Wanderer, differences

DISTURBANCES = 7
"""As many as there are: each meets the gestures once, at least."""
NAME = "wandered"


def test_nothing_is_lost_in_many_gestures(person: Person, gestures: int) -> None:
    person.expected = ["ERR_INTERNET_DISCONNECTED", "WebSocket connection"]
    person.copied("shapes", NAME)
    person.open(NAME)
    expect(person.node("use:picture_in")).to_be_visible()
    wanderer = Wanderer(person, seed=7)
    disturbances, between = shuffled(), max(1, gestures // DISTURBANCES)
    for count in range(1, gestures + 1):
        wanderer.wander()
        if count % between == 0:
            disturb = next(disturbances)
            disturb(person, wanderer)
            wanderer.story.append(disturb.__name__)
            assert differences(wanderer.document, wanderer.shown()) == [], wanderer.story
            settled(person, wanderer)
    wanderer.back_and_forth()
    person.look("end")
    settled(person, wanderer)
    person.open(NAME)
    wanderer.read_along()
    assert wanderer.shown() == wanderer.document
    assert wanderer.done.total() > gestures / 2, wanderer.done


def settled(person: Person, wanderer: Wanderer) -> None:
    person.saved()
    assert differences(wanderer.document, person.stored(NAME)) == [], wanderer.story


# ── what happens around the editor ──────────────────────────────────────────────────────────────


def away_and_back(person: Person, wanderer: Wanderer) -> None:
    """To the library and back, at once after an edit."""
    nav(person, "Library")
    expect(person.page.get_by_test_id("stDataFrame")).to_be_visible()
    nav(person, "Editor")
    expect(person.page.locator(".wg .react-flow")).to_be_visible()


def rerun(person: Person, wanderer: Wanderer) -> None:
    """Streamlit runs the page's script anew."""
    nav(person, "Editor")
    expect(person.page.locator(".wg .react-flow")).to_be_visible()


def theme(person: Person, wanderer: Wanderer) -> None:
    dark = person.page.locator(".wg-root.dark").count() == 1
    person.page.emulate_media(color_scheme="light" if dark else "dark")
    expect(person.page.locator(".wg-root.dark")).to_have_count(0 if dark else 1)


def views(person: Person, wanderer: Wanderer) -> None:
    for tab in ("Tasks", "Placement", "Deploy", "Play", "Graph"):
        person.tab(tab)
    expect(person.page.locator(".wg .react-flow")).to_be_visible()


def offline(person: Person, wanderer: Wanderer) -> None:
    context = person.page.context
    context.set_offline(True)
    before = wanderer.document
    for _ in range(3):
        wanderer.wander()
    if wanderer.document != before:
        expect(person.page.locator(".wg-saving.offline")).to_be_visible()
    context.set_offline(False)


def loaded_anew(person: Person, wanderer: Wanderer) -> None:
    """At once after an edit."""
    person.page.reload()
    same_history(person, wanderer)


def loaded_elsewhere(person: Person, wanderer: Wanderer) -> None:
    """To the library at once after an edit; the page ends there."""
    nav(person, "Library")
    expect(person.page.get_by_test_id("stDataFrame")).to_be_visible()
    person.page.reload()
    person.open(NAME)
    same_history(person, wanderer)


def same_history(person: Person, wanderer: Wanderer) -> None:
    """The page that went has saved the last edit, or the one that came offers it. It can be undone either way."""
    expect(person.page.locator(".wg .react-flow")).to_be_visible()
    wanderer.read_along()
    if wanderer.shown() != wanderer.document:
        person.page.get_by_role("button", name="Restore them").click()
    assert differences(wanderer.document, wanderer.shown()) == [], wanderer.story
    wanderer.retrace()


def shuffled() -> Iterator[Callable[[Person, Wanderer], None]]:
    """Each of them in turn, in another order every time."""
    order = random.Random(3)
    while True:
        some = [away_and_back, rerun, theme, views, offline, loaded_anew, loaded_elsewhere]
        order.shuffle(some)
        yield from some


def nav(person: Person, name: str) -> None:
    # Streamlit may lose a click that comes while it still runs the page's script for the one before.
    expect(person.page.get_by_test_id("stApp")).to_have_attribute("data-test-script-state", "notRunning")
    person.page.get_by_role("navigation", name="App pages").get_by_role("link", name=name).click()
