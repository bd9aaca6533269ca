"""A person taps edges of a running graph and sees statistics and previews until the taps are removed."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import Locator

from tests.browser.expecting import expect
from tests.browser.person import Person
from tests.support.serving import Service

PROMPT = "a large red circle on white"
COLORS = """(canvas) => {
  const { data } = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
  const colors = new Set();
  for (let at = 0; at < data.length; at += 4) colors.add(`${data[at]} ${data[at + 1]} ${data[at + 2]}`);
  return colors.size;
}"""
"""How many colours a preview has: one that was not drawn has one."""


@pytest.fixture(scope="module")
def running(across: Service) -> Service:
    return across


def edge_menu(person: Person, from_: str, to: str, entry: str) -> None:
    person.page.mouse.click(*person.halfway(from_, to), button="right")
    person.page.get_by_role("menuitem", name=re.compile(entry)).click()


def card(person: Person, source: str) -> Locator:
    return person.page.get_by_role("region", name=re.compile(f"^Tap of {re.escape(source)} in "))


def figure(shown: Locator, name: str) -> float:
    """One of a value's statistics."""
    told = shown.locator("dl > div").filter(has_text=name).locator("dd")
    return float((told.text_content() or "").replace("−", "-").replace(",", ""))


def test_an_edge_is_tapped_and_shows_what_passes(person: Person, running: Service) -> None:
    person.open("shapes")
    person.canvas("Draw with guidance")
    edge_menu(person, "vae_decoder.pixels", "picture_out.pixels", "^Tap this edge")
    pixels = card(person, "vae_decoder.pixels")
    expect(pixels).to_contain_text("Waiting for the next value of a run.")
    edge_menu(person, "llm_cfg_text.velocity", "combine_cfg.velocity_text", "^Tap this edge")
    velocity = card(person, "llm_cfg_text.velocity")
    # What leaves the loop is its last value, not every iteration's.
    edge_menu(person, "combine_cfg.latents", "vae_decoder.latents", "^Tap this edge")
    left = card(person, "combine_cfg.latents → vae_decoder.latents")
    expect(person.page.get_by_role("region", name="Taps")).to_contain_text("3 taps")

    with running.client() as client:
        request = {"inputs": {"prompt": PROMPT}, "params": {"steps": 6}}
        ran = client.run("shapes", "text_to_image", request)["run"]
        expect(pixels.get_by_role("img", name=re.compile(r"^A picture of \d+ by \d+ pixels$"))).to_be_visible()
        expect(pixels.get_by_role("img", name=re.compile("equal bins"))).to_be_visible()
        assert pixels.locator("canvas").evaluate(COLORS) > 8
        assert figure(pixels, "least") < figure(pixels, "mean") < figure(pixels, "most")
        assert figure(pixels, "numbers") == 64 * 64 * 3
        expect(pixels.locator(".where")).to_contain_text(f"run {ran[:8]}")
        expect(velocity.locator(".where")).to_contain_text(re.compile("iteration .* rank 1"))
        expect(left.locator(".where")).to_contain_text(f"run {ran[:8]}")
        expect(left.locator(".where")).not_to_contain_text("iteration")
        person.look("tapped")

        edge_menu(person, "vae_decoder.pixels", "picture_out.pixels", "^Remove the tap")
        expect(pixels).to_have_count(0)
        for one in (left, velocity):
            one.get_by_role("button", name="Remove the tap").click()
            expect(one).to_have_count(0)
        person.until(lambda: client.watch("shapes")["taps"], lambda taps: taps == [])
    expect(person.page.locator(".wg-tap-mark")).to_have_count(0)


def test_text_is_read_as_it_passes(person: Person, running: Service) -> None:
    person.open("shapes")
    person.canvas("Read a text and update the guidance contexts")
    edge_menu(person, "@in.text", "tokenizer.text", "^Tap this edge")
    shown = card(person, "@in.text")
    with running.client() as client:
        client.run("shapes", "text_to_image", {"inputs": {"prompt": PROMPT}, "params": {"steps": 2}})
        expect(shown.get_by_text(PROMPT, exact=True)).to_be_visible()
        person.look("text")
        person.page.get_by_role("region", name="Taps").get_by_role("button", name="1 tap").click()
        person.page.get_by_role("button", name="Remove all").click()
        expect(shown).to_have_count(0)
        person.until(lambda: client.watch("shapes")["taps"], lambda taps: taps == [])
