"""Shards on the Placement tab and the Trace page: a component is divided with the mouse and by keys, and what its
shards did stands below it."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from playwright.sync_api import Locator

from tests.browser.expecting import expect
from tests.browser.person import Person
from walkgraph import resources
from walkgraph.graph.reading.guard import read_json

LLM = re.compile("^llm,")
NAME = "tiny_shards"
TWO = {
    "format": "walkgraph/placement@1",
    "name": NAME,
    "graph": NAME,
    "groups": [{"nodes": ["*"], "ranks": [0, 1], "tensor_parallel": 2, "memory": "256MiB"}],
    "ranks": [{"rank": rank, "device": "cpu"} for rank in range(2)],
}


def tiny(name: str = NAME, shape: str = "qwen3-tiny") -> dict[str, Any]:
    """The bundled language model, with small weights at random."""
    graph = read_json(resources.bundled("graphs")["llm"].read_bytes())
    weights = {"llm": {"family": "llm", "source": f"random:{shape}:0"}}
    return {**graph, "name": name, "weights": weights}


def opened(person: Person, graph: dict[str, Any], folder: Path) -> None:
    """A graph with two ranks, everything on the first."""
    name = graph["name"]
    file = folder / f"{name}.json"
    file.write_text(json.dumps(graph))
    person.upload(file)
    expect(person.page.get_by_role("heading", name=name)).to_be_visible()
    person.open(name)
    two_ranks(person)


def two_ranks(person: Person) -> None:
    person.tab("Placement")
    person.page.get_by_role("button", name="Place by hand").click()
    person.page.get_by_role("button", name="+ Add a rank").click()


def lane(person: Person, rank: int) -> Locator:
    return person.page.get_by_role("region", name=re.compile(f"^Rank {rank} on "))


def shards(person: Person, count: int) -> None:
    """The component stands in this many lanes, whole in one."""
    for rank in range(3):
        chip = lane(person, rank).get_by_role("option", name=LLM)
        expect(chip).to_have_count(1 if rank < count else 0)
        if 1 < count > rank:
            expect(chip).to_have_accessible_name(re.compile(f"shard {rank + 1} of {count}"))


def test_a_component_is_divided_by_hand(person: Person, tmp_path: Path) -> None:
    page = person.page
    opened(person, tiny(), tmp_path)
    chip = lane(person, 0).get_by_role("option", name=LLM)
    chip.hover()
    person.carry(chip.locator(".edge"), lane(person, 1))
    shards(person, 2)
    toolbar = page.get_by_role("toolbar", name="Placement")
    expect(toolbar.get_by_text("fits", exact=True)).to_be_visible()
    expect(lane(person, 1).get_by_text("Holds shards; repeats what is served by")).to_be_visible()
    person.look("two_shards")
    # Over the edge of the board for one more rank, back by keys, and each step undone.
    person.carry(chip.locator(".edge"), page.locator(".lane.new"))
    shards(person, 3)
    chip.focus()
    page.keyboard.press("Shift+ArrowLeft")
    shards(person, 2)
    page.keyboard.press("Shift+ArrowLeft")
    shards(person, 1)
    page.keyboard.press("Shift+ArrowRight")
    shards(person, 2)
    page.keyboard.press("Control+z")
    shards(person, 1)
    page.keyboard.press("Control+z")
    shards(person, 2)
    expect(page.get_by_role("status").filter(has_text="divided over 2 ranks")).to_have_count(1)
    chip.click(button="right")
    page.get_by_role("menuitem", name=re.compile("Keep it whole on one rank")).click()
    shards(person, 1)
    # What comes to the group goes to its first shard, which tells the others.
    person.carry(chip, lane(person, 1))
    moved = lane(person, 1).get_by_role("option", name=LLM)
    moved.hover()
    person.carry(moved.locator(".edge"), lane(person, 2))
    expect(lane(person, 2).get_by_role("option", name=LLM)).to_have_accessible_name(re.compile("shard 2 of 2"))
    expect(toolbar.get_by_text("fits", exact=True)).to_be_visible()
    lane(person, 0).get_by_role("option", name=re.compile("^prompt,")).hover()
    words = page.locator(".wg-place .lines > span")
    expect(words.filter(has_text="broadcast")).to_have_count(1)
    expect(words.filter(has_text="inline")).not_to_have_count(0)
    person.look("resharded")
    page.emulate_media(color_scheme="dark")
    person.look("resharded_dark")


def test_the_tokens_of_a_component_that_draws_are_divided(person: Person) -> None:
    page = person.page
    person.copied("shapes", "tiny_drawn")
    person.open("tiny_drawn")
    two_ranks(person)
    chip = lane(person, 0).get_by_role("option", name=LLM)
    chip.hover()
    person.carry(chip.locator(".edge"), lane(person, 1))
    details = page.get_by_role("region", name="Details")
    details.get_by_role("button", name="Divide tokens").click()
    toolbar = page.get_by_role("toolbar", name="Placement")
    expect(toolbar.get_by_text("fits", exact=True)).to_be_visible()
    shards(person, 2)
    details.get_by_role("tab", name=re.compile("^Groups")).click()
    divides = details.get_by_role("combobox", name=re.compile("divides$"))
    expect(divides).to_have_value("sequence_parallel")
    person.look("tokens")
    divides.select_option("weights")
    expect(details.get_by_text("none of its nodes has weights that can be divided")).to_be_visible()
    divides.select_option("tokens")
    expect(toolbar.get_by_text("fits", exact=True)).to_be_visible()


def test_the_shards_of_a_mixture_hold_whole_experts(person: Person, tmp_path: Path) -> None:
    page = person.page
    opened(person, tiny("tiny_experts", "qwen3-moe-tiny"), tmp_path)
    chip = lane(person, 0).get_by_role("option", name=LLM)
    chip.hover()
    person.carry(chip.locator(".edge"), lane(person, 1))
    details = page.get_by_role("region", name="Details")
    details.get_by_role("tab", name=re.compile("^Groups")).click()
    whole = details.get_by_role("checkbox", name="Whole experts of group 2")
    redundant = details.get_by_role("spinbutton", name="Redundant experts of group 2")
    expect(whole).not_to_be_checked()
    expect(redundant).to_have_count(0)
    whole.check()
    redundant.fill("2")
    toolbar = page.get_by_role("toolbar", name="Placement")
    expect(toolbar.get_by_text("fits", exact=True)).to_be_visible()
    person.look("experts")
    # Moved and back, the group is as it was.
    person.carry(chip, lane(person, 1))
    expect(lane(person, 0).get_by_role("option", name=LLM)).to_have_accessible_name(re.compile("shard 2 of 2"))
    expect(redundant).to_have_value("2")
    chip.focus()
    for _ in range(2):
        page.keyboard.press("Control+z")
    expect(whole).to_be_checked()
    expect(redundant).to_have_value("0")
    page.keyboard.press("Control+z")
    expect(whole).not_to_be_checked()
    expect(redundant).to_have_count(0)
    page.keyboard.press("Control+Shift+z")
    redundant.fill("1")
    details.get_by_role("button", name="2 redundant experts").click()
    expect(redundant).to_have_value("2")
    expect(toolbar.get_by_text("fits", exact=True)).to_be_visible()
    divides = details.get_by_role("combobox", name=re.compile("divides$"))
    divides.select_option("tokens")
    expect(whole).to_have_count(0)


def test_what_shards_did_stands_below_their_component(person: Person) -> None:
    page = person.page
    with person.running.client() as client:
        client.deploy(tiny(), TWO, name=NAME)
        person.running.wait_ready(NAME)
        person.go(f"trace?deployment={NAME}")
        level = page.get_by_role("tablist", name="Telemetry").get_by_role("tab", name="full")
        level.click()
        expect(level).to_have_attribute("aria-selected", "true")
        client.task(NAME, "complete")(prompt="a heron", max_tokens=12, seed=1)
    run = page.get_by_role("button", name=re.compile("^complete [0-9a-f]{8}")).first
    expect(run).not_to_contain_text("running")
    run.click()
    expect(page.get_by_role("button", name="Rank 1 cpu shard of rank 0")).to_be_visible()
    opener = page.get_by_role("button", name=re.compile("^Shards of ")).first
    person.look("closed")
    opener.click()
    expect(opener).to_have_attribute("aria-expanded", "true")
    expect(page.locator(".wg-gantt .lane.shard")).to_have_count(1)
    person.look("opened")
    opener = page.get_by_role("button", name="Shards of llm")
    opener.click()
    page.locator(".wg-gantt .lane.shard").last.click()
    page.locator(".wg-trace-lane tbody button").first.click()
    expect(page.get_by_role("heading", name="On its shards")).to_be_visible()
    page.emulate_media(color_scheme="dark")
    expect(page.locator(".wg-root.dark")).to_have_count(1)
    person.look("part_dark")
    person.running.take_back(NAME)
