"""A newcomer's first hour: rows stay under the pointer, a paused node in sight; unknown words are named."""

from __future__ import annotations

import pytest
from playwright.sync_api import Locator

from tests.browser.expecting import expect
from tests.browser.person import Person
from tests.support.serving import Service


@pytest.fixture(scope="module")
def running(across: Service) -> Service:
    return across


def test_ticking_an_output_moves_nothing(person: Person) -> None:
    page = person.page
    person.copied("shapes", "ticked")
    person.open("ticked")
    person.tab("Tasks")
    boxes = page.get_by_role("region", name="Outputs").get_by_role("checkbox")
    # The simulation's notes stand in the rows above.
    expect(page.get_by_text("an earlier choice is taken").first).to_be_visible()
    before = [person.box(boxes.nth(k)) for k in range(boxes.count())]
    for k in (0, 1, 0):
        boxes.nth(k).click()
        assert [person.box(boxes.nth(n)) for n in range(boxes.count())] == before


def test_the_result_says_which_words_the_starter_does_not_know(person: Person) -> None:
    page = person.page
    person.open("shapes")
    person.tab("Play")
    page.get_by_label("Steps", exact=True).fill("4")
    for prompt, unknown in (("a cat on a sofa", "cat, sofa"), ("a red circle on white", None)):
        page.get_by_label("Prompt", exact=True).fill(prompt)
        page.get_by_role("button", name="Run", exact=True).last.click()
        expect(page.get_by_role("status").get_by_text("Done", exact=True)).to_be_visible()
        told = page.get_by_role("note")
        expect(told).to_contain_text(f"not learned {unknown}.") if unknown else expect(told).to_have_count(0)


def apart(one: Person, a: Locator, b: Locator) -> bool:
    ax, ay, aw, ah = one.box(a)
    bx, by, bw, bh = one.box(b)
    return ax + aw <= bx or bx + bw <= ax or ay + ah <= by or by + bh <= ay


def test_a_paused_node_stays_in_sight_above_the_panel_and_beside_a_tap(person: Person) -> None:
    page = person.page
    person.open("shapes")
    person.canvas("Draw with guidance")
    person.select("use:llm_cfg_img")
    person.press("F9")
    person.tab("Play")
    page.get_by_label("Prompt", exact=True).fill("a red circle")
    page.get_by_label("Steps", exact=True).fill("4")
    page.get_by_label("Cfg img scale", exact=True).last.fill("2")
    page.get_by_role("button", name="Run", exact=True).last.click()
    expect(page.get_by_role("list", name="Held calls")).to_be_visible()
    person.tab("Graph")
    node = person.node("use:llm_cfg_img")
    expect(node.get_by_label("this call is next")).to_be_visible()
    expect(node).to_be_in_viewport(ratio=0.99)
    bar = page.get_by_role("toolbar", name="View")
    assert person.box(node)[1] + person.box(node)[3] <= person.box(bar)[1]
    person.wire("noise", "llm_cfg_img").click(force=True, button="right")
    page.get_by_role("menuitem", name="Tap this edge").click()
    card = page.get_by_role("region", name="Tap of")
    expect(card).to_be_visible()
    person.look("tapped")
    assert apart(person, node, card)
    card.get_by_role("button", name="Remove").click()
    person.select("use:llm_cfg_img")
    person.press("F9")
    expect(page.get_by_role("tab", name="Breakpoints (1)")).to_have_count(0)
    person.press("F8")
    expect(page.get_by_role("region", name="Debugger")).to_have_count(0)
