"""A person draws three partitions that stream into one another, from an empty canvas to numbers that come in."""

from __future__ import annotations

import re
from typing import Any

from tests.browser.expecting import expect
from tests.browser.person import Person

NAME = "in_a_row"
WINDOWS = [6, 14, 22, 30, 38, 46, 54, 62, 70, 70]
"""Sums of four of 0 to 19, two apart; the numbers end with a window, so the last one has nothing new."""
TOTALS = [20, 52, 84, 116, 140, 0]
"""Sums of two windows each; 0 where no window is left."""


def test_three_partitions_from_an_empty_canvas_to_numbers(person: Person) -> None:
    draw_producer(person)
    cut_the_stream(person)
    draw_transformer(person)
    draw_consumer(person)
    make_task(person)
    simulate(person)
    is_what_was_meant(person)
    person.place({1: "chunk_sum", 2: "chunk_sum_2"})
    deploy(person)
    play(person)


def draw_producer(person: Person) -> None:
    """A loop that gives its index as an item."""
    person.new_graph(NAME)
    person.new_walk("produce")
    person.add("synthetic.tensor", (330, 120))
    person.on_node("use:tensor", "Wrap in a Loop")
    person.in_place("Loop's name", "number")
    person.in_place("How many times", "count")
    person.connect("@loop.number", "tensor.value")
    person.select("use:tensor")
    person.enter("n", "1")
    person.look("producer")


def cut_the_stream(person: Person) -> None:
    """A wire makes the stream, the inspector shows how its chunks overlap."""
    page = person.page
    person.connect("tensor.items", "@sink.+")
    expect(person.node("stream:items")).to_be_visible()
    inspector = page.get_by_role("group", name="stream items")
    expect(inspector.get_by_role("img", name="Each item is a chunk of its own.")).to_be_visible()
    inspector.get_by_label("A chunk is").select_option("a sliding window")
    person.enter("Items of a window", "4")
    person.enter("New items each time", "2")
    picture = inspector.locator(".wg-chunks")
    expect(picture.get_by_text("delivered before")).to_be_visible()
    expect(picture.locator("rect.context").first).to_be_visible()
    expect(person.node("stream:items")).to_contain_text("window 4, every 2")
    picture.scroll_into_view_if_needed()
    person.look("chunks")


def draw_transformer(person: Person) -> None:
    """It takes the windows, which lie in the palette now, and streams their sums on."""
    page = person.page
    person.new_walk("transform")
    person.add("chunk_sum", (330, 140))
    row = page.get_by_role("listbox", name="Palette").locator('[data-key="stream:items"]')
    person.drag(person.middle(row), person.at((60, 200)))
    expect(person.node("@stream.items")).to_be_visible()
    person.connect("@stream.items", "chunk_sum.items")
    person.connect("chunk_sum.sum", "@out.+")
    person.connect("chunk_sum.sum", "@sink.+")
    page.get_by_role("group", name="stream sum").get_by_label("Items of a chunk").fill("2")
    person.press("Enter")
    expect(person.node("stream:sum")).to_contain_text("2 at a time")
    name_output(person, "sum", "windows")
    person.look("transformer")


def draw_consumer(person: Person) -> None:
    """Its stream is found by letting go of a wire."""
    person.new_walk("consume")
    person.add("synthetic.chunk_sum", (400, 140))
    person.drag(person.middle(person.port("chunk_sum_2.items", "target")), person.at((200, 200)))
    person.choose("Where should it come from?", "sum")
    expect(person.wire("@stream.sum", "chunk_sum_2.items")).to_have_count(1)
    person.connect("chunk_sum_2.sum", "@out.+")
    name_output(person, "sum", "totals")
    person.look("consumer")


def make_task(person: Person) -> None:
    """One lane a partition; the consumers run once a chunk."""
    page = person.page
    person.tab("Tasks")
    page.get_by_role("button", name="Add a task").last.click()
    person.enter("Name of the task", "add_up")
    page.get_by_role("button", name="Parameter", exact=True).click()
    person.enter("Name of the parameter", "count")
    person.enter("Default of count", "20")
    person.enter("Minimum count", "1")
    page.get_by_role("button", name="Split into lanes").click()
    page.get_by_role("button", name="Lane", exact=True).click()
    walks = {"main": "produce", "lane": "transform", "lane_2": "consume"}
    for lane, walk in walks.items():
        person.enter(f"Name of the lane {lane}", f"{walk}_lane")
        page.get_by_role("button", name=f"Add a step at the end of {walk}_lane").click()
        page.get_by_role("menuitem", name=walk, exact=True).click()
    for walk in ("transform", "consume"):
        page.get_by_role("checkbox", name=re.compile(f"{walk}: once for each chunk")).check()
    for output in ("windows", "totals"):
        page.get_by_role("region", name="Outputs").get_by_role("checkbox", name=re.compile(output)).check()
    person.look("task")


def simulate(person: Person) -> None:
    simulator = person.page.get_by_role("complementary", name="Simulator")
    expect(simulator.get_by_text("3 Walks run")).to_be_visible()
    expect(simulator.get_by_text("number × 20")).to_be_visible()
    person.look("simulated")


def is_what_was_meant(person: Person) -> None:
    """As somebody would have written it, and without a fault or a warning."""
    graph = person.stored(NAME, lambda graph: len(graph.get("tasks", {}).get("add_up", {}).get("outputs", [])) == 2)
    chunks = {stream["name"]: (stream["from"], stream["walks"], stream["chunks"]) for stream in graph["streams"]}
    assert chunks == {
        "items": ("tensor.items", ["produce"], {"policy": "sliding", "window": 4, "stride": 2}),
        "sum": ("chunk_sum.sum", ["transform"], {"policy": "fixed", "size": 2}),
    }
    assert graph["walks"]["produce"]["body"] == [{"loop": "number", "times": "count", "body": ["tensor"]}]
    steps: dict[str, Any] = graph["tasks"]["add_up"]["steps"]
    assert steps == {
        "produce_lane": [{"walk": "produce"}],
        "transform_lane": [{"walk": "transform", "per": "chunk"}],
        "consume_lane": [{"walk": "consume", "per": "chunk"}],
    }
    with person.running.client() as client:
        assert client.check(graph)["problems"] == []


def deploy(person: Person) -> None:
    page = person.page
    person.saved()
    person.tab("Deploy")
    page.locator(".wg-deploy").get_by_role("button", name="Deploy", exact=True).click()
    rows = page.get_by_role("region", name="The serving version").get_by_role("row")
    expect(rows).to_have_count(4, timeout=600_000)
    for index in range(1, 4):
        expect(rows.nth(index)).to_contain_text("ready", timeout=600_000)
    person.look("deployed")


def play(person: Person) -> None:
    page = person.page
    person.tab("Play")
    page.get_by_role("form").get_by_role("button", name="Run").click()
    result = page.locator(".wg-play-result")
    expect(result.get_by_text("Done", exact=True)).to_be_visible(timeout=600_000)
    for name, values in (("Windows", WINDOWS), ("Totals", TOTALS)):
        output = result.get_by_role("region", name=name)
        expect(output.get_by_role("listitem")).to_have_text([str(value) for value in values])
    person.look("played")
    result.get_by_role("button", name="On the graph").click()
    person.canvas("transform")
    expect(person.node("use:chunk_sum").locator(".wg-live.done")).to_be_visible()
    person.look("figures")


def name_output(person: Person, old: str, new: str) -> None:
    person.select("@out")
    person.enter(f"@out.{old}", new)
    expect(person.port(f"@out.{new}", "target")).to_be_visible()
