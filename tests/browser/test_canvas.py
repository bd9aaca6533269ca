"""Actions on the canvas, judged by the resulting document."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from playwright.sync_api import Locator

from tests.browser.expecting import expect
from tests.browser.person import Person

Walk = dict[str, Any]
SEE = "Encode a picture"
DRAW = "Draw without guidance"


def test_wires_are_there_from_near_and_far_and_on_every_visit(person: Person) -> None:
    person.copied("shapes", "visits")
    person.open("visits")
    counts: dict[str, int] = {}
    for walk in (SEE, DRAW, "Components"):
        person.canvas(walk)
        counts[walk] = wires(person)
    assert (counts[SEE], counts[DRAW]) == (3, 11)
    for walk in (DRAW, SEE):
        person.canvas(walk)
        expect(lines(person)).to_have_count(counts[walk])
        for way in ("out", "out", "out", "out", "in", "in", "in", "in", "in", "in"):
            person.page.get_by_role("button", name=f"Zoom {way}").click()
            expect(lines(person)).to_have_count(counts[walk])
    expect(person.port("vit_encoder.pixels", "target")).to_be_visible()
    person.tab("Play")
    expect(person.page.locator(".react-flow")).to_have_count(0)
    person.tab("Graph")
    expect(lines(person)).to_have_count(counts[SEE])
    person.page.get_by_role("button", name="Hide all wires").click()
    expect(lines(person)).to_have_count(0)
    person.select("use:llm")
    expect(lines(person)).to_have_count(1)
    person.look("hidden")


def test_steps_are_bypassed_muted_replaced_and_taken_out(person: Person) -> None:
    before = person.copied("shapes", "steps")["walks"]["read_image"]
    stored = opened(person, "steps", SEE, "read_image")
    person.select("use:vit_encoder")
    for keys, word in (("Control+b", "bypassed"), ("Control+m", "muted")):
        person.press(keys)
        expect(person.node("use:vit_encoder").get_by_text(word)).to_be_visible()
        stored(lambda walk: "when" in walk["body"][1] and walk["edges"] == before["edges"])
        person.press(keys)
        stored(lambda walk: walk == before)

    person.press("Shift+Delete")
    stored(lambda walk: walk["body"] == ["picture_in", "llm"])
    person.press("Control+z")
    person.on_node("use:picture_in", "Delete and join")
    stored(lambda walk: walk["edges"] == [["vit_encoder.embeddings", "llm.image"]])
    person.press("Control+z")
    stored(lambda walk: walk == before)

    person.on_node("use:vit_encoder", "Replace with")
    person.choose("Replace vit_encoder with", "vae_encoder")
    stored(lambda walk: walk["body"] == ["picture_in", "vae_encoder", "llm"])
    replaced = stored(lambda walk: ["picture_in.pixels", "vae_encoder.pixels"] in walk["edges"])
    assert len(replaced["edges"]) == 2
    person.press("Control+z")

    person.select("use:vit_encoder")
    person.press("Control+c")
    person.page.mouse.move(*person.at((60, 420)))
    person.press("Control+Shift+v")
    pasted = stored(lambda walk: ["picture_in.pixels", "vit_encoder_2.pixels"] in walk["edges"])
    assert pasted["body"].index({"use": "vit_encoder", "as": "vit_encoder_2"}) > pasted["body"].index("picture_in")
    person.look("pasted")


def test_wires_take_steps_and_bends_and_other_ends(person: Person) -> None:
    person.copied("shapes", "wires")
    stored = opened(person, "wires", "Append a picture's latents", "prefill_vae")
    row = person.sought("combine_cfg", "node:combine_cfg")
    person.drag(person.middle(row), person.halfway("vae_encoder", "llm"))
    through = stored(lambda walk: "combine_cfg" in walk["body"])
    assert ["vae_encoder.latents", "combine_cfg.latents"] in through["edges"]
    assert through["edges"][-1] == ["combine_cfg.latents", "llm.clean"]
    person.press("Control+z")
    row = person.sought("tokenizer", "node:tokenizer")
    person.drag(person.middle(row), person.halfway("vae_encoder", "llm"))
    stored(lambda walk: "tokenizer" in walk["body"] and len(walk["edges"]) == 3)
    person.press("Control+z")

    def bends() -> list[Any]:
        layout = layout_of(person.stored("wires"), "prefill_vae")
        return layout.get("reroutes", {}).get("picture_in.pixels>vae_encoder.pixels", [])

    person.page.mouse.dblclick(*person.halfway("picture_in", "vae_encoder"))
    bend = person.page.locator(".wg-reroute")
    expect(bend).to_have_count(1)
    person.stored("wires", lambda _: bends())
    first = bends()
    x, y = person.middle(bend)
    person.drag((x, y), (x, y + 90))
    person.stored("wires", lambda _: bends() and bends()[0][1] > first[0][1])
    person.look("bent")
    person.page.mouse.dblclick(*person.middle(bend))
    expect(bend).to_have_count(0)
    person.stored("wires", lambda _: not bends())

    stored = opened(person, "wires", DRAW, "image_gen")
    person.near()
    end = person.wire("llm.velocity", "combine_cfg.velocity").locator(".react-flow__edgeupdater-target")
    person.drag(person.middle(end), person.middle(person.port("combine_cfg.velocity_text", "target")))
    moved = stored(lambda walk: ["llm.velocity", "combine_cfg.velocity_text"] in walk["edges"])
    assert ["llm.velocity", "combine_cfg.velocity"] not in moved["edges"]


def test_containers_close_open_for_what_is_inside_and_unwrap(person: Person) -> None:
    before = person.copied("shapes", "boxes")["walks"]["image_gen"]
    stored = opened(person, "boxes", DRAW, "image_gen")

    def closed() -> list[str]:
        return layout_of(person.stored("boxes"), "image_gen").get("closed", [])

    person.select("loop:denoise")
    person.press("o")
    expect(person.node("use:llm")).to_have_count(0)
    person.stored("boxes", lambda _: closed() == ["loop:denoise"])
    person.look("closed")
    person.page.get_by_role("tab", name="Outline").click()
    person.page.get_by_role("treeitem", name=re.compile("preview_out")).first.click()
    expect(person.node("use:preview_out")).to_have_class(re.compile("selected"))
    person.stored("boxes", lambda _: not closed())

    person.on_node("loop:denoise", "Unwrap")
    flat = stored(lambda walk: "llm" in walk["body"])
    assert flat["body"] == ["noise", *before["body"][1]["body"], *before["body"][2:]]
    person.press("Control+z")
    stored(lambda walk: walk == before)


def test_steps_are_lined_up_and_notes_and_frames_resized(person: Person) -> None:
    person.copied("shapes", "lines")
    opened(person, "lines", SEE, "read_image")

    def layout(holds: Callable[[Walk], object]) -> Walk:
        found = person.stored("lines", lambda found: holds(layout_of(found, "read_image")))
        return layout_of(found, "read_image")

    def tops(found: Walk) -> set[int]:
        return {at[1] for key, at in found.get("at", {}).items() if key.startswith("use:")}

    x, y, width, _ = person.box(person.node("use:llm"))
    person.drag((x + width * 0.7, y + 6), (x + width * 0.7, y + 100))
    layout(lambda found: len(tops(found)) == 2)
    person.press("Control+a")
    person.on_node("use:vit_encoder", "Align tops")
    layout(lambda found: len(tops(found)) == 1)
    expect(person.page.get_by_role("button", name="Lay out the selection again (Shift+L)")).to_be_visible()

    person.press("Escape")
    person.select("use:llm")
    expect(person.page.get_by_role("button", name="Lay out everything again (L)")).to_be_visible()
    lined = person.node("use:llm").get_attribute("style") or ""
    person.press("Shift+L")
    expect(person.node("use:llm")).not_to_have_attribute("style", lined)
    person.look("laid_out")

    for kind, name in (("note", "Add a note"), ("frame", "Add a frame")):
        person.page.mouse.click(*person.at((60, 30)), button="right")
        person.page.get_by_role("menuitem", name=name).click()
        made = layout(lambda found, key=f"{kind}s": found.get(key))[f"{kind}s"][0]
        person.page.locator(f".react-flow__node-{kind}").click(position={"x": 60, "y": 40})
        corner = person.middle(
            person.page.locator(f".react-flow__node-{kind} .react-flow__resize-control.bottom.right.handle")
        )
        person.drag(corner, (corner[0] + 60, corner[1] - 20))
        wider = layout(lambda found, key=f"{kind}s", was=made: found[key][0]["size"][0] > was["size"][0])
        assert wider[f"{kind}s"][0]["at"] == made["at"]
        assert wider[f"{kind}s"][0]["size"][1] < made["size"][1]
        person.press("Delete")
        layout(lambda found, key=f"{kind}s": not found.get(key))


def test_a_wire_between_components_is_an_edge_or_a_stream(person: Person) -> None:
    before = person.copied("synthetic_streams", "parts")
    person.open("parts")
    person.canvas("Components")
    person.connect("item.items", "chain_sum.items")
    person.look("asked")
    person.page.get_by_role("menuitem", name=re.compile("new stream", re.IGNORECASE)).click()
    made = person.stored("parts", lambda found: len(found["streams"]) == len(before["streams"]) + 1)
    stream = made["streams"][-1]
    assert (stream["from"], stream["walks"]) == ("item.items", ["produce"])
    assert [f"@stream.{stream['name']}", "chain_sum.items"] in made["walks"]["chain"]["edges"]
    person.press("Control+z")

    person.page.get_by_label("Highlight").select_option("produce")
    person.connect("pace.value", "item.value")
    lit = person.stored("parts", lambda found: ["pace.value", "item.value"] in found["walks"]["produce"]["edges"])
    assert ["limit.value", "item.value"] not in lit["walks"]["produce"]["edges"]


def test_what_runs_is_seen_on_the_canvas(person: Person) -> None:
    page = person.page
    person.open("shapes")
    person.canvas("Draw with guidance")
    person.tab("Play")
    # Longer than any machine needs to show it; it is cancelled when the page closes.
    page.get_by_role("textbox", name=re.compile("^steps$", re.IGNORECASE)).fill("200")
    page.get_by_role("textbox", name=re.compile("^preview.every$", re.IGNORECASE)).fill("5")
    page.get_by_role("textbox", name="Prompt").fill("a red circle on white")
    page.get_by_role("button", name=re.compile("^Run")).last.click()
    person.tab("Graph")
    expect(page.locator(".wg-flowing").first).to_be_attached()
    person.look("running")
    expect(person.node("use:combine_cfg").locator('[data-activity="running"]')).to_be_attached()
    expect(page.locator(".wg-preview img").first).to_be_visible()
    expect(page.locator(".react-flow__node .wg-preview")).to_have_count(0)
    person.look("preview")
    person.select("loop:denoise")
    person.press("o")
    expect(person.node("loop:denoise").locator('[data-activity]:not([data-activity="idle"])')).to_be_attached()
    person.look("closed")
    expect(page.locator(".wg-changed")).to_have_count(0)
    person.press("o")
    person.near()
    person.select("use:combine_cfg")
    person.press("Control+m")
    expect(person.node("use:combine_cfg").locator(".wg-changed")).to_be_visible()
    person.look("changed")
    person.press("Control+z")
    expect(page.locator(".wg-changed")).to_have_count(0)


# ── what these tests do and look at ─────────────────────────────────────────────────────────────


def opened(person: Person, graph: str, label: str, walk: str) -> Callable[[Callable[[Walk], object]], Walk]:
    """The Walk of a graph, on its canvas; returns how to wait for what is stored of it."""
    person.open(graph)
    person.canvas(label)
    expect(person.page.locator(".react-flow__node").first).to_be_visible()

    def stored(holds: Callable[[Walk], object]) -> Walk:
        return person.stored(graph, lambda found: holds(found["walks"][walk]))["walks"][walk]

    return stored


def layout_of(graph: dict[str, Any], walk: str) -> dict[str, Any]:
    return graph.get("layout", {}).get("walks", {}).get(walk, {})


def lines(person: Person) -> Locator:
    return person.page.locator(".react-flow__edge .wg-line")


def wires(person: Person) -> int:
    expect(lines(person).first).to_be_attached()
    return lines(person).count()
