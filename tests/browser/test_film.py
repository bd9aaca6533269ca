"""A person watches an arm reach for a ball, replays and saves the film, and uses one of its pictures."""

from __future__ import annotations

import re

import pytest
from PIL import Image
from playwright.sync_api import Locator

from tests.browser.expecting import expect
from tests.browser.person import Person
from tests.support.serving import Service

PATIENT = 600_000
"""ms: an episode on two cores that others use too."""


@pytest.fixture(scope="module")
def running(across: Service) -> Service:
    return across


def test_an_episode_is_watched_seen_again_and_taken_along(person: Person) -> None:
    page = person.page
    page.emulate_media(reduced_motion="no-preference")
    person.go("playground?deployment=reach")
    page.get_by_role("tab", name="Play an episode").click()
    expect(page.get_by_label("Instruction", exact=True)).to_have_value("reach the red ball")
    page.get_by_label("Seed", exact=True).fill("3")
    page.get_by_label("Instruction", exact=True).evaluate(LIVE)
    person.press("Control+Enter")
    film = page.get_by_role("region", name="Film")
    expect(page.get_by_role("status").get_by_text("Done", exact=True)).to_be_visible(timeout=PATIENT)
    expect(page.get_by_role("group", name="Reached")).to_contain_text("yes")
    assert page.evaluate("window.lived.size") > 1, "the pictures came while the run was under way"
    person.look("reached")

    looks = int(re.findall(r"\d+", film.get_by_text(re.compile(r"^\d+ pictures$")).inner_text())[0])
    expect(film.get_by_text(f"{looks} of {looks}", exact=True)).to_be_visible()
    film.evaluate(COMES, f"1 of {looks}")
    film.get_by_role("button", name="Pause").click()
    scrubber = film.get_by_role("slider", name="Picture shown")
    scrubber.press("Home")
    expect(film.get_by_text(f"1 of {looks}", exact=True)).to_be_visible()
    first = shown(film)
    scrubber.press("ArrowRight")
    expect(film.get_by_text(f"2 of {looks}", exact=True)).to_be_visible()
    assert shown(film) != first
    with page.expect_download() as download:
        film.get_by_role("button", name="Download the film").click()
    with Image.open(person.keep(download.value)) as kept:
        assert getattr(kept, "n_frames", 1) == looks

    film.get_by_role("button", name="Act on one observation").click()
    expect(page.get_by_role("form").get_by_role("img", name="picture")).to_be_visible()
    expect(page.get_by_label("State", exact=True)).to_have_value("0.4 -0.8")
    page.get_by_role("form").get_by_role("button", name="Run").click()
    actions = page.get_by_role("region", name="Actions")
    expect(actions.get_by_role("img", name="2 curves over 8 steps")).to_be_visible(timeout=PATIENT)
    person.look("acted")


def test_a_loop_in_a_loop_says_how_it_is_iterated_and_why(person: Person) -> None:
    """Also where the model is too large for this machine."""
    page = person.page
    person.open("vjepa2_ac")
    person.canvas("Sample action sequences, keep the best, sample closer to them")
    outer, inner = person.node("loop:rounds"), person.node("loop:frames")
    expect(outer.locator(".wg-iterated")).to_have_text("on the device")
    expect(inner.locator(".wg-iterated")).to_have_text("unrolled in rounds")
    expect(outer.locator(".wg-iterated")).to_have_attribute("title", re.compile("begins every iteration as a copy"))
    expect(page.get_by_text("No problems", exact=True)).to_be_visible()
    person.select("loop:frames")
    expect(page.locator(".wg-inspector")).to_contain_text(
        "Part of each iteration of rounds, which runs on the device as a whole."
    )
    person.look("nested")


LIVE = """(field) => {
    const root = field.getRootNode();
    const page = root.body ?? root;
    window.lived = new Set();
    const look = () => {
        const found = page.textContent.match(/live, picture (\\d+)/);
        if (found) window.lived.add(found[1]);
    };
    new MutationObserver(look).observe(page, { subtree: true, childList: true, characterData: true });
}"""
"""From now on the numbers of pictures that are shown live are kept."""
COMES = """(film, words) => new Promise((seen) => {
    const look = () => film.textContent.includes(words) && seen(true);
    new MutationObserver(look).observe(film, { subtree: true, childList: true, characterData: true });
    look();
})"""
"""Until words stand in it, for however short a time: a picture of a film may stand for 40 ms."""


def shown(film: Locator) -> str:
    return film.locator("img").get_attribute("src") or ""
