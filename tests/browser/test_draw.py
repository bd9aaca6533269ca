"""A person draws the guided Walk of `shapes` from nothing, places, deploys and plays it, breaks it, and goes back."""

from __future__ import annotations

import base64
import copy
import io
import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from PIL import Image
from playwright.sync_api import Locator

from tests.browser.expecting import expect
from tests.browser.person import Person
from tests.support.serving import Service, starter

TIMES = "steps - 1"
INSIDE = "float32(cfg_interval_low) < flow_time(@loop.index, steps, shift) <= float32(cfg_interval_high)"
SELECTED = re.compile("selected")
BRANCHES = {
    "llm_cfg_text": f"cfg_text_scale > 1 and {INSIDE}",
    "llm_cfg_img": f"cfg_text_scale > 1 and cfg_img_scale > 1 and {INSIDE}",
}


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    with starter(tmp_path_factory) as found:
        yield found


@pytest.mark.timeout(1200)
def test_draw_place_deploy_play_break_and_restore(person: Person, repository: Path) -> None:
    original = json.loads((repository / "graphs" / "shapes.json").read_text())
    new_walk(person)
    draw_steps(person)
    wrap_steps(person)
    draw_wires(person)
    is_the_original(person, original)
    use_in_task(person)
    person.place({1: "llm_cfg_text", 2: "llm_cfg_img"})
    loop_is_stepped(person)
    switch(person)
    play(person)
    break_it(person)
    go_back(person, original)


def new_walk(person: Person) -> None:
    page = person.page
    person.go("")
    person.look("start")
    person.on_card("open.shapes")
    expect(page.locator(".react-flow__node").first).to_be_visible()
    person.new_walk("draw")
    assert sorted(nodes(person)) == ["@in", "@out"]
    person.look("empty")
    person.enter("Label", "Drawn by hand")
    expect(page.get_by_role("tab", name="Drawn by hand")).to_have_attribute("aria-selected", "true")


def draw_steps(person: Person) -> None:
    """The steps side by side: from the palette, by double click, by a key, by wires let go over empty canvas."""
    page = person.page
    for _ in range(3):
        page.get_by_role("button", name="Zoom out").click()
    person.move_to("@in", (20, 520))
    person.move_to("@out", (700, 520))
    person.add("noise", (71, 250))
    row = page.get_by_role("listbox", name="Palette").locator('[data-key="node:llm"]')
    row.scroll_into_view_if_needed()
    person.drag(person.middle(row), person.at((240, 110)))
    expect(person.node("use:llm")).to_be_visible()
    person.add("llm_cfg_text", (240, 235))
    page.mouse.move(*person.at((240, 360)))
    person.press("Space")
    person.choose("Add", "llm_cfg_img")
    let_go(person, "llm.velocity", (400, 230), "combine_cfg")
    let_go(person, "combine_cfg.latents", (560, 230), "vae_decoder")
    let_go(person, "vae_decoder.pixels", (700, 230), "picture_out")
    person.connect("picture_out.image", "@out.+")
    expect(person.port("@out.image", "target")).to_be_visible()
    person.look("steps")


def wrap_steps(person: Person) -> None:
    page = person.page
    branches = ["llm", "llm_cfg_text", "llm_cfg_img"]
    boxes = [person.box(person.node(f"use:{name}")) for name in branches]
    page.keyboard.down("Shift")
    left, top = boxes[0][0] - 12, boxes[0][1] - 12
    person.drag((left, top), (boxes[2][0] + 60, boxes[2][1] + 30))
    page.keyboard.up("Shift")
    for name in branches:
        expect(person.node(f"use:{name}")).to_have_class(SELECTED)
    person.on_node("use:llm", "Wrap in a Parallel")
    parallel = next(id_ for id_ in nodes(person) if id_.startswith("parallel:"))
    person.select(parallel)
    x, y, width, _ = person.box(person.node("use:combine_cfg"))
    page.keyboard.down("Control")
    page.mouse.click(x + width * 0.7, y + 6)
    page.keyboard.up("Control")
    person.on_node("use:combine_cfg", "Wrap in a Loop")
    person.in_place("Loop's name", "denoise")
    person.in_place("How many times", TIMES)
    expect(person.node("loop:denoise")).to_be_visible()
    for node, when in BRANCHES.items():
        person.select(f"use:{node}")
        person.enter("Only when", when)
    person.look("wrapped")


def draw_wires(person: Person) -> None:
    for to in ("llm", "llm_cfg_text", "llm_cfg_img", "combine_cfg"):
        person.connect("noise.latents", f"{to}.latents")
    person.connect("llm_cfg_text.velocity", "combine_cfg.velocity_text")
    person.connect("llm_cfg_img.velocity", "combine_cfg.velocity_img")
    for to in ("llm", "llm_cfg_text", "llm_cfg_img", "combine_cfg"):
        person.connect("combine_cfg.latents", f"{to}.latents")
    person.look("wired")


def is_the_original(person: Person, original: dict[str, Any]) -> None:
    """The drawn Walk equals the one in the graph, except for its preview; the service reports no problem."""
    wanted = copy.deepcopy(original["walks"]["image_gen_cfg"])
    wanted["body"][1]["body"].pop()
    edges = {edge for edge in map(link, wanted["edges"]) if "preview" not in " ".join(edge)}
    graph = person.stored("shapes", lambda graph: len(graph["walks"].get("draw", {}).get("edges", [])) == len(edges))
    drawn = graph["walks"]["draw"]
    assert drawn["body"] == wanted["body"]
    assert sorted(map(link, drawn["edges"])) == sorted(edges)
    assert graph["nodes"] == original["nodes"]
    with person.running.client() as client:
        answer = client.check(graph)
    assert answer["ok"], answer
    assert [problem["code"] for problem in answer["problems"]] == ["unused_walk"]


def link(edge: Any) -> tuple[str, str]:
    """The ends of an edge, which is drawn without any flag."""
    from_, to = edge if isinstance(edge, list) else (edge["from"], edge["to"])
    return from_, to


def use_in_task(person: Person) -> None:
    """The task draws with the new Walk; the simulator says so before anything runs."""
    page = person.page
    person.tab("Tasks")
    page.get_by_role("navigation", name="Tasks").get_by_role("button", name="text_to_image").click()
    step = page.get_by_label(re.compile("^Walk of step .* image_gen_cfg$"))
    step.select_option("draw")
    simulator = page.get_by_role("complementary", name="Simulator")
    expect(simulator.get_by_text("2 Walks run")).to_be_visible()
    expect(simulator.get_by_role("button", name="draw", exact=True)).to_be_visible()
    expect(simulator.get_by_text("denoise × 49")).to_be_visible()
    simulator.get_by_text("7 uses").click()
    person.look("simulated")


def loop_is_stepped(person: Person) -> None:
    person.tab("Graph")
    iterated = person.node("loop:denoise").locator(".wg-iterated")
    expect(iterated).to_have_text("stepped")
    expect(iterated).to_have_attribute(
        "title", re.compile(r"^Call by call, because its uses lie on ranks 0, 1 and 2\.")
    )


def switch(person: Person) -> None:
    """The version that runs serves until the drawn one is ready."""
    page = person.page
    person.saved()
    person.tab("Deploy")
    page.get_by_role("button", name="Deploy this version").click()
    person.look("switch")
    page.get_by_role("dialog").get_by_role("button", name="Switch", exact=True).click()
    expect(page.get_by_role("region", name="The next version")).to_be_visible()
    person.look("getting_ready")
    expect(page.get_by_role("region", name="The next version")).to_have_count(0, timeout=600_000)
    rows = page.get_by_role("region", name="The serving version").get_by_role("row")
    expect(rows).to_have_count(4)
    for index in range(1, 4):
        expect(rows.nth(index)).to_contain_text("ready")
    person.look("switched")


def play(person: Person) -> None:
    page = person.page
    person.tab("Play")
    page.get_by_label("Prompt", exact=True).fill("a red circle on white")
    person.enter("Steps", "30")
    page.get_by_role("form", name="Draw from a caption").get_by_role("button", name="Run").click()
    person.tab("Graph")
    expect(page.locator(".wg-live em").first).to_be_visible()
    person.look("running")
    person.tab("Play")
    result = page.locator(".wg-play-result")
    expect(result.get_by_text("Done", exact=True)).to_be_visible(timeout=600_000)
    picture = result.locator("img").first
    expect(picture).to_be_visible()
    source = picture.get_attribute("src") or ""
    with Image.open(io.BytesIO(base64.b64decode(source.removeprefix("data:image/png;base64,")))) as image:
        assert (image.format, image.size) == ("PNG", (64, 64))
        colours = image.convert("RGB").getcolors(64 * 64)
    assert colours
    assert len(colours) > 1
    person.look("played")
    result.get_by_role("button", name="On the graph").click()
    for node in ("noise", "llm", "llm_cfg_text", "combine_cfg", "vae_decoder", "picture_out"):
        expect(person.node(f"use:{node}").locator(".wg-live.done")).to_be_visible()
    person.look("figures")


# ── ten ways to break it ───────────────────────────────────────────────────────────────────────


def break_it(person: Person) -> None:
    """Each time the page says what is wrong and what to do, and leads to the place; then all is undone."""
    page = person.page
    page.get_by_role("button", name="Back to live").click()
    page.get_by_role("region", name="Problems").get_by_role("button", name="No problems").click()
    before, last = person.stored("shapes"), undo_button(person).get_attribute("title")
    drawn = sorted(nodes(person))
    for break_ in (
        cut_a_needed_wire,
        misspell_a_parameter,
        connect_what_does_not_fit,
        take_a_name_that_is_taken,
        feed_a_port_twice,
        take_a_step_out_of_its_loop,
        name_an_unknown_component,
        take_a_state_away,
        write_half_a_condition,
        leave_a_loop_empty,
    ):
        break_(person)
        person.look(break_.__name__)
        page.get_by_role("tablist", name="Canvases").get_by_role("tab", name="Drawn by hand").click()
    person.pane().click(position={"x": 20, "y": 20})
    for _ in range(40):
        if undo_button(person).get_attribute("title") == last:
            break
        person.press("Control+z")
    expect(undo_button(person)).to_have_attribute("title", last or "")
    person.stored("shapes", lambda graph: graph == before)
    assert sorted(nodes(person)) == drawn
    expect(person.problems().get_by_label("Error")).to_have_count(0)
    person.look("undone")


def cut_a_needed_wire(person: Person) -> None:
    wire = person.wire("llm.velocity", "combine_cfg.velocity").locator("path").first
    person.page.mouse.click(*on_path(wire))
    person.press("Delete")
    read_and_follow(person, r"nothing feeds combine_cfg\.velocity .* draw an edge to it", "use:combine_cfg")


def misspell_a_parameter(person: Person) -> None:
    person.select("use:combine_cfg")
    person.enter("text_scale", "cfg_scale")
    read_and_follow(person, r"cfg_scale has no value .* did you mean cfg_\w+_scale\?", "node:combine_cfg")


def connect_what_does_not_fit(person: Person) -> None:
    mouse = person.page.mouse
    end = person.middle(person.port("vae_decoder.latents", "target"))
    mouse.move(*person.middle(person.port("llm.token", "source")))
    mouse.down()
    mouse.move(end[0] - 30, end[1] - 30, steps=6)
    mouse.move(*end, steps=3)
    tip = person.page.locator(".wg-tip")
    expect(tip).to_contain_text("does not fit")
    person.look("does_not_fit")
    mouse.up()
    expect(tip).to_be_hidden()
    expect(person.page.get_by_role("menuitem").filter(has_text="does not fit")).to_be_visible()
    person.press("Escape")
    expect(person.page.get_by_role("menuitem")).to_have_count(0)
    expect(person.wire("llm.token", "vae_decoder.latents")).to_have_count(0)


def take_a_name_that_is_taken(person: Person) -> None:
    person.pane().click(position={"x": 20, "y": 20})
    person.enter("Name", "image_gen")
    expect(person.page.get_by_role("alert").filter(has_text="There is already a Walk")).to_be_visible()
    person.press("Escape")
    expect(person.page.get_by_label("Name", exact=True)).to_have_value("draw")


def feed_a_port_twice(person: Person) -> None:
    """A wire drawn there takes the place of the other: two come only from a text."""
    edge = '["vae_decoder.pixels", "picture_out.pixels"]'
    edit_text(person, lambda text: put_last(text, edge, f'["noise.latents", "vae_decoder.latents"], {edge}'))
    follow(person, r"vae_decoder\.latents is fed twice; keep one edge")
    expect(person.page.locator(".react-flow__edge.selected")).to_have_count(1)


def take_a_step_out_of_its_loop(person: Person) -> None:
    person.move_to("use:combine_cfg", (600, 360))
    read_and_follow(person, r"combine_cfg takes its own earlier value, .* put it in a loop", None)
    read_and_follow(person, r"llm stands before combine_cfg, and no loop .* put them in a loop", None)


def name_an_unknown_component(person: Person) -> None:
    edit_text(person, lambda text: text.replace('"media.picture_out"', '"media.picture_outt"'))
    wanted = r"no component media\.picture_outt; did you mean media\.picture_out\?"
    read_and_follow(person, wanted, "node:picture_out")
    expect(person.node("node:picture_out")).to_contain_text("unknown")


def take_a_state_away(person: Person) -> None:
    person.canvas("Components")
    person.pane().click(position={"x": 20, "y": 20})
    person.page.get_by_role("button", name="Remove the state cfg_img").click()
    wanted = r"bagel\.backbone keeps a paged_kv in slot kv; bind it to a state"
    read_and_follow(person, wanted, "node:llm_cfg_img")


def write_half_a_condition(person: Person) -> None:
    person.select("use:llm_cfg_text")
    person.enter("Only when", "cfg_text_scale >")
    read_and_follow(person, r"cfg_text_scale >: a value is missing at the end", "use:llm_cfg_text")


def leave_a_loop_empty(person: Person) -> None:
    menu(person, (560, 30), "Add a Loop")
    empty = "must not be empty; put something in, or remove it"
    read_and_follow(person, empty, "loop:loop")
    expect(person.page.get_by_role("complementary", name="Inspector").get_by_text(empty)).to_be_visible()
    person.look("empty_loop")
    person.page.mouse.dblclick(*person.middle(person.node("loop:loop").get_by_text("Drop the steps to repeat here")))
    person.choose("Add", "noise")
    expect(person.node("loop:loop").get_by_text("Drop the steps to repeat here")).to_have_count(0)
    expect(person.problems().get_by_text(empty)).to_have_count(0)


def read_and_follow(person: Person, wanted: str, place: str | None) -> None:
    """The advice is in the list of problems; a click on it selects what it is about."""
    follow(person, wanted)
    if place:
        expect(person.node(place)).to_have_class(SELECTED)
    else:
        expect(person.page.locator(".react-flow__edge.selected")).to_have_count(1)


def follow(person: Person, wanted: str) -> None:
    line = person.problems().get_by_role("listitem").filter(has_text=re.compile(wanted))
    # Until the new answer is there, what the old one said may stand beside it.
    expect(line).to_have_count(1)
    # What follows it mends it.
    line.get_by_role("button").first.click()


def edit_text(person: Person, change: Callable[[str], str]) -> None:
    """The graph as JSON, changed and put back as one step."""
    page = person.page
    page.get_by_role("tab", name="Code", exact=True).click()
    page.get_by_role("button", name="Edit", exact=True).click()
    field = page.get_by_label("shapes as JSON, to be edited")
    text = field.input_value()
    changed = change(text)
    assert changed != text
    field.fill(changed)
    page.get_by_role("button", name="Apply", exact=True).click()
    expect(field).to_have_count(0)
    page.get_by_role("tab", name="Inspector").click()


def put_last(text: str, old: str, new: str) -> str:
    before, _, after = text.rpartition(old)
    return before + new + after


# ── back to how it came ────────────────────────────────────────────────────────────────────────


def go_back(person: Person, original: dict[str, Any]) -> None:
    """The first version comes back from the list; undo brings the drawing back, and more of it takes all away."""
    page = person.page
    page.get_by_role("tab", name="Versions").click()
    page.get_by_role("navigation", name="Versions").get_by_role("listitem").last.get_by_role("button").click()
    person.look("versions")
    page.get_by_role("button", name=re.compile("^Restore “")).click()
    person.stored("shapes", lambda graph: without_layout(graph) == original)
    person.look("restored")
    person.pane().click(position={"x": 20, "y": 20})
    person.press("Control+z")
    person.stored("shapes", lambda graph: "draw" in graph["walks"])
    for _ in range(200):
        if undo_button(person).is_disabled():
            break
        person.press("Control+z")
    expect(undo_button(person)).to_be_disabled()
    person.stored("shapes", lambda graph: without_layout(graph) == original)
    expect(page.get_by_role("tab", name="Drawn by hand")).to_have_count(0)
    person.tab("Placement")
    expect(page.get_by_role("button", name="Place by hand")).to_be_visible()
    expect(page.get_by_role("region", name=re.compile("^Rank "))).to_have_count(1)
    person.look("as_it_came")


def without_layout(graph: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in graph.items() if key != "layout"}


# ── what a person does here ────────────────────────────────────────────────────────────────────


def undo_button(person: Person) -> Locator:
    return person.page.get_by_role("button", name=re.compile("^(Undo: .*|Nothing to undo)$"))


def on_path(path: Locator) -> tuple[float, float]:
    """A point of a wire in the window, near its beginning."""
    x, y = path.evaluate(
        """line => {
          const { x, y } = line.getPointAtLength(line.getTotalLength() * 0.3);
          const seen = new DOMPoint(x, y).matrixTransform(line.getScreenCTM());
          return [seen.x, seen.y];
        }"""
    )
    return x, y


def nodes(person: Person) -> list[str]:
    found = person.page.locator(".react-flow__node")
    return [found.nth(index).get_attribute("data-id") or "" for index in range(found.count())]


def menu(person: Person, spot: tuple[float, float], entry: str) -> None:
    person.page.mouse.click(*person.at(spot), button="right")
    person.page.get_by_role("menuitem", name=entry).click()


def let_go(person: Person, from_: str, spot: tuple[float, float], words: str) -> None:
    """A wire dropped on empty canvas, and what it should go to."""
    person.drag(person.middle(person.port(from_, "source")), person.at(spot))
    person.choose("Where should it go?", words)
    expect(person.wire(from_.split(".", maxsplit=1)[0], words)).to_have_count(1)
