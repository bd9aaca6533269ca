"""A person stops a run on two ranks before a step, inspects its inputs, steps on, and replays it here and elsewhere."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import Locator, Page

from tests.browser.expecting import expect
from tests.browser.person import Person
from tests.support.serving import Service

PROMPT = "a red circle"
BAR = 60
"""Pixels of the canvas that its toolbar covers, at the bottom."""


@pytest.fixture(scope="module")
def running(across: Service) -> Service:
    return across


def dock(page: Page) -> Locator:
    return page.get_by_role("region", name="Debugger")


def run_recorded(page: Page) -> None:
    page.get_by_label("Prompt", exact=True).fill(PROMPT)
    page.get_by_label("Steps", exact=True).fill("6")
    page.get_by_role("button", name="Other ways to start").click()
    page.get_by_role("menuitem", name="Run recorded").click()


def newest_replayed(page: Page, how: str) -> None:
    newest = page.get_by_role("complementary", name="Runs").get_by_role("listitem").first
    newest.hover()
    newest.get_by_role("button", name="Replay in the service").click()
    page.get_by_role("menuitem", name=how, exact=True).click()


def test_a_run_on_two_ranks_is_stopped_stepped_and_replayed(person: Person) -> None:
    page = person.page
    person.open("shapes")
    person.canvas("Draw with guidance")
    person.select("use:llm_cfg_text")
    person.press("F9")
    expect(dock(page).get_by_role("tab", name="Breakpoints (1)")).to_be_visible()
    expect(person.node("use:llm_cfg_text").get_by_role("button", pressed=True)).to_be_visible()
    dock(page).get_by_role("button", name="Expand the debugger").click()
    iteration = dock(page).get_by_label("Iteration in which runs pause before llm_cfg_text")
    iteration.fill("2")
    iteration.press("Enter")
    expect(person.node("use:llm_cfg_text").get_by_role("button", name=re.compile("iteration 2"))).to_be_visible()

    person.tab("Play")
    run_recorded(page)
    held = dock(page).get_by_role("list", name="Held calls")
    guided, own = (
        held.get_by_role("listitem").filter(has_text=re.compile(f"{use}Walk")) for use in ("llm_cfg_text", "llm")
    )
    expect(guided).to_contain_text("iteration 2")
    inputs = dock(page).get_by_role("region", name="Inputs")
    expect(inputs.get_by_text("latents").first).to_be_visible()
    person.tab("Graph")
    expect(person.node("use:llm_cfg_text").get_by_label("this call is next")).to_be_visible()
    person.look("held")

    person.press("Shift+F10")
    expect(guided).to_contain_text("iteration 3, rank 1")
    expect(own).to_contain_text("iteration 3, rank 0")
    person.look("next_iteration")
    guided.get_by_role("button", name=re.compile("llm_cfg_text")).first.click()
    person.press("F10")
    expect(guided).to_have_count(0)
    expect(own).to_be_visible()
    expect(person.node("use:llm").get_by_label("this call is next")).to_be_visible()
    person.look("stepped")
    person.press("F8")
    expect(dock(page).get_by_role("tab", name=re.compile("Paused"))).to_have_count(0)
    person.select("use:llm_cfg_text")
    person.press("F9")
    expect(dock(page)).to_have_count(0)

    person.tab("Play")
    expect(page.get_by_text("Done", exact=True)).to_be_visible()
    newest_replayed(page, "Replay and compare")
    expect(dock(page).get_by_text(re.compile(r"^Identical: \d+ values$"))).to_be_visible()
    person.look("identical")

    newest_replayed(page, "Replay on guided and compare")
    expect(dock(page).get_by_text("The runs differ", exact=True)).to_be_visible()
    first = dock(page).get_by_role("region", name="The first difference")
    expect(first).to_contain_text(
        re.compile(r"combine_cfg\.(latents|estimate) in Walk image_gen_cfg, step 2, iteration 1:")
    )
    person.look("differs")
    first.get_by_role("button", name="Show the edge").click()
    chosen = page.locator(".react-flow__edge.selected")
    expect(chosen.first).to_have_attribute("aria-label", re.compile(r"combine_cfg\."))
    expect(page.get_by_role("tab", name="Draw with guidance")).to_have_attribute("aria-selected", "true")
    # How many there are follows from the parameters, which are asked for: a short run may be over before they come.
    expect(person.node("loop:denoise").locator(".wg-loop-at")).to_have_text(re.compile(r"^5( / 5)?$"))
    # It comes into sight above the debugger.
    page.wait_for_timeout(400)
    x, y, width, height = person.box(person.pane())
    across, down = person.halfway("combine_cfg.estimate", "preview.latents")
    assert x < across < x + width
    assert y < down < y + height - BAR
    person.look("first_edge")
