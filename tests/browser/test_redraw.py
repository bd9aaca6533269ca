"""One person's way from *New graph* to three pictures: draw, describe, and draw again from that, on two ranks."""

from __future__ import annotations

import re
import time
from typing import Any

import pytest
from playwright.sync_api import Locator

from tests.browser.expecting import expect
from tests.browser.hand import Hand
from tests.browser.person import Person
from tests.support.yardstick import patience

NAME = "thrice"
MOST_GESTURES = 40
MOST_SECONDS = 300.0
IDEA = "a red circle on white"

WALKS: dict[str, Any] = {
    "draw": {
        "inputs": {"prompt": "text"},
        "body": ["text_to_image"],
        "edges": [["@in.prompt", "text_to_image.prompt"], ["text_to_image.image", "@out.image"]],
        "results": {"image": "text_to_image.image"},
    },
    "describe": {
        "inputs": {"image": "image"},
        "body": ["image_to_text"],
        "edges": [["@in.image", "image_to_text.image"], ["image_to_text.text", "@out.text"]],
        "results": {"text": "image_to_text.text"},
    },
}
TASK: dict[str, Any] = {
    "inputs": {"prompt": {"modality": "text"}},
    "outputs": ["image", "text"],
    "steps": [
        {
            "loop": [
                {"walk": "draw", "with": {"prompt": "describe.text"}},
                {"walk": "describe", "with": {"image": "draw.image"}},
            ],
            "times": "3",
            "start": {"describe.text": "@task.prompt"},
        }
    ],
}
# Notes how the run stands and how many pictures there are, whenever that changes.
WATCH = """result => {
  window.seen = [];
  const note = () => {
    const now = [
      result.querySelector('.status .wg-badge')?.textContent,
      result.querySelectorAll('figure img').length,
    ];
    if (JSON.stringify(now) !== JSON.stringify(window.seen.at(-1))) window.seen.push(now);
  };
  note();
  new MutationObserver(note).observe(result.getRootNode(), { subtree: true, childList: true, characterData: true });
}"""


@pytest.mark.timeout(1200)
def test_three_pictures_from_a_new_graph(person: Person) -> None:
    hand = Hand(person)
    began = time.monotonic()
    new_graph(hand)
    draw_and_describe(hand)
    repeat(hand)
    graph = person.stored(NAME, lambda graph: graph.get("tasks") == {"redraw": TASK})
    assert graph["walks"] == WALKS
    place_on_two_ranks(hand)
    deploy(hand)
    play(hand)
    assert hand.gestures <= MOST_GESTURES
    assert time.monotonic() - began < patience(MOST_SECONDS)
    with person.running.client() as client:
        client.undeploy(NAME)


def new_graph(hand: Hand) -> None:
    page = hand.person.page
    hand.person.go("")
    hand.click(page.get_by_role("button", name="New graph"))
    hand.write(page.get_by_label("Name", exact=True), NAME)
    expect(page.locator(".wg .react-flow")).to_be_visible()


def draw_and_describe(hand: Hand) -> None:
    add_walk(hand, "draw", "draw from a caption")
    hand.connect("@in.+", "text_to_image.prompt")
    hand.connect("text_to_image.image", "@out.+")
    hand.connect("text_to_image.image", "@result.+")
    hand.person.look("draw")
    add_walk(hand, "describe", "describe a picture")
    hand.connect("@in.+", "image_to_text.image")
    hand.connect("image_to_text.text", "@out.+")
    hand.connect("image_to_text.text", "@result.+")
    hand.person.look("describe")


def add_walk(hand: Hand, name: str, words: str) -> None:
    """With a task of the starter, found by its title, in the middle of the canvas."""
    page = hand.person.page
    hand.click(page.get_by_role("button", name="Add a Walk"))
    expect(page.get_by_text("This Walk has no steps yet.")).to_be_visible()
    hand.write(page.get_by_label("Name", exact=True), name)
    _, _, width, height = hand.person.box(hand.person.pane())
    hand.double_click((width / 2, height / 2))
    search = page.get_by_role("combobox", name="Add", exact=True)
    hand.write(search, words)
    expect(search).to_have_count(0)


def repeat(hand: Hand) -> None:
    page = hand.person.page
    tab(hand, "Tasks")
    hand.click(page.get_by_role("button", name="Add a task").last)
    hand.write(page.get_by_label("Name of the task", exact=True), "redraw")
    hand.click(page.get_by_role("button", name="Input", exact=True))
    hand.write(page.get_by_label("Name of the input", exact=True), "prompt")
    hand.click(page.get_by_role("button", name="Add a step at the end"))
    hand.click(page.get_by_role("menuitem", name="Loop…"))
    hand.click(page.get_by_role("button", name="Add a step to the loop"))
    hand.click(page.get_by_role("menuitem", name="describe", exact=True))
    hand.choose(page.get_by_label("prompt of draw", exact=True), "describe.text")
    outputs = page.get_by_role("region", name="Outputs")
    for output in ("image", "text"):
        hand.click(outputs.get_by_role("checkbox", name=re.compile(output)))
    hand.person.look("repeated")


def place_on_two_ranks(hand: Hand) -> None:
    page = hand.person.page
    tab(hand, "Placement")
    hand.click(page.get_by_role("button", name="Place by hand"))
    hand.click(page.get_by_role("button", name="+ Add a rank"))
    lane = page.get_by_role("region", name=re.compile("^Rank 1 on "))
    chip = re.compile("^image_to_text,")
    # The plan that shows this moves the chips down.
    expect(lane.get_by_text("no node is on rank 1")).to_be_visible()
    hand.carry(page.get_by_role("option", name=chip), lane)
    expect(lane.get_by_role("option", name=chip)).to_be_visible()
    expect(page.get_by_role("toolbar", name="Placement").get_by_text("fits", exact=True)).to_be_visible()
    hand.person.look("placed")


def deploy(hand: Hand) -> None:
    page = hand.person.page
    tab(hand, "Deploy")
    hand.click(page.locator(".wg-deploy").get_by_role("button", name="Deploy", exact=True))
    rows = page.get_by_role("region", name="The serving version").get_by_role("row")
    for rank in (0, 1):
        expect(rows.nth(1 + rank)).to_contain_text(re.compile(rf"^rank {rank}.*cpu.*ready"))
    hand.person.look("deployed")


def play(hand: Hand) -> None:
    """Each picture is there while the run goes on."""
    page = hand.person.page
    tab(hand, "Play")
    hand.gestures += 1
    page.get_by_label("Prompt", exact=True).fill(IDEA)
    hand.click(page.get_by_role("form").get_by_role("button", name="Run"))
    result = page.locator(".wg-play-result")
    result.evaluate(WATCH)
    hand.person.look("begun")
    expect(pictures(result).first).to_be_visible()
    hand.person.look("first")
    expect(result.get_by_text("Done", exact=True)).to_be_visible()
    hand.person.look("done")
    expect(pictures(result)).to_have_count(3)
    seen = page.evaluate("window.seen")
    assert [count for state, count in seen if state == "Running" and count] == [1, 2, 3]
    assert result.get_by_role("region", name="Text").locator(".text").inner_text().count("\n") == 2
    with hand.person.running.client() as client:
        trace = client.trace(client.runs(NAME)[0]["id"])
    assert [leg["passes"] for leg in trace["passes"]] == [[[0], [0]], [[1], [1]], [[2], [2]]]


def pictures(result: Locator) -> Locator:
    return result.locator("figure img")


def tab(hand: Hand, name: str) -> None:
    hand.click(hand.person.page.get_by_role("tablist", name="Views").get_by_role("tab", name=name, exact=True))
