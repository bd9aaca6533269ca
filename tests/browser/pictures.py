"""Takes the documentation's pictures of the studio: `python -m tests.browser.pictures` writes `docs/*.png`.

It needs no GPU. A run on a CPU takes the place of one on a GPU, so times in the pictures say nothing.
"""

from __future__ import annotations

import io
import json
import re
import sys
import tempfile
from pathlib import Path

import numpy as np
import soundfile
from PIL import Image
from playwright.sync_api import Browser, Locator, ViewportSize, sync_playwright

from tests.browser.conftest import FLAGS, browser_path
from tests.browser.expecting import expect
from tests.browser.person import PATIENCE, Person
from tests.support.serving import Service, service

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
OMNI = ROOT / "graphs" / "qwen3_omni.json", ROOT / "placements" / "qwen3_omni_two_gpus.json"
LARGE: ViewportSize = {"width": 1440, "height": 900}
SMALL: ViewportSize = {"width": 1200, "height": 760}
THREE_RANKS = {
    "format": "walkgraph/placement@1",
    "name": "three",
    "graph": "shapes",
    "groups": [
        {"nodes": ["*"], "ranks": [0], "memory": "1GiB"},
        {"nodes": ["llm_cfg_text"], "ranks": [1], "memory": "512MiB"},
        {"nodes": ["llm_cfg_img"], "ranks": [2], "memory": "512MiB"},
    ],
    "ranks": [{"rank": rank, "device": "cpu"} for rank in range(3)],
}


def first_walk(person: Person) -> None:
    """The steps of "The first Walk" in README."""
    page = person.page
    person.new_graph("first")
    page.get_by_role("button", name="Add a Walk").click()
    expect(page.get_by_text("This Walk has no steps yet.")).to_be_visible()
    person.add("range", (110, 200))
    person.add("sum", (310, 200))
    person.connect("range.values", "sum.values")
    person.connect("sum.sum", "@out.+")
    expect(person.port("@out.sum", "target")).to_be_visible()
    # Arranged: all of it is in sight.
    page.keyboard.press("l")
    person.saved()
    shown(person, "draw_walk")

    person.tab("Tasks")
    page.get_by_role("button", name="Add a task").last.click()
    page.get_by_role("button", name=re.compile("^Add a step at the end")).click()
    page.get_by_role("menuitem").first.click()
    page.get_by_role("region", name="Outputs").get_by_role("checkbox", name=re.compile("sum")).check()
    expect(page.get_by_role("complementary", name="Simulator").get_by_text("1 Walk runs")).to_be_visible()
    person.saved()
    shown(person, "draw_task")

    person.tab("Deploy")
    page.locator(".wg-deploy").get_by_role("button", name="Deploy", exact=True).click()
    rows = page.get_by_role("region", name="The serving version").get_by_role("row")
    expect(rows.nth(1)).to_contain_text("ready")
    person.tab("Play")
    page.get_by_role("form").get_by_role("button", name="Run").click()
    expect(page.locator(".wg-play-result").get_by_text("Done", exact=True)).to_be_visible()
    shown(person, "draw_play")


def guided_walk(person: Person) -> None:
    """The starter's guided Walk after a run, with a tap of its latents."""
    page = person.page
    person.open("shapes")
    person.canvas("Draw with guidance")
    page.get_by_role("button", name="Hide palette and outline").click()
    person.near()
    page.get_by_role("button", name="Zoom in").click()
    dragged(person, page.locator(".react-flow__pane"), (500, 60), (150, 0))
    page.mouse.click(*person.halfway("combine_cfg.latents", "vae_decoder.latents"), button="right")
    page.get_by_role("menuitem", name=re.compile("^Tap this edge")).click()
    tap = page.get_by_role("region", name=re.compile("^Tap of combine_cfg.latents"))
    expect(tap).to_contain_text("Waiting for the next value of a run.")
    person.tab("Play")
    page.get_by_label("Prompt", exact=True).fill("a red circle left of a blue square")
    page.get_by_label("Seed", exact=True).fill("7")
    page.get_by_label("Steps", exact=True).fill("20")
    page.get_by_role("form").get_by_role("button", name="Run").click()
    expect(page.get_by_role("region", name="Picture").get_by_text("final", exact=True)).to_be_visible()
    person.tab("Graph")
    person.canvas("Draw with guidance")
    expect(tap.get_by_role("img", name=re.compile("equal bins"))).to_be_visible()
    person.select("use:combine_cfg")
    dragged(person, tap.locator("header"), (60, 12), (290, 30))
    shown(person, "editor")


def dragged(person: Person, what: Locator, at: tuple[int, int], by: tuple[int, int]) -> None:
    """Drag a thing, held at a place in it."""
    box = what.bounding_box()
    assert box is not None
    mouse, x, y = person.page.mouse, box["x"] + at[0], box["y"] + at[1]
    mouse.move(x, y)
    mouse.down()
    mouse.move(x + by[0], y + by[1], steps=8)
    mouse.up()


def trace(person: Person) -> None:
    """An edit on three ranks, with its critical path."""
    page = person.page
    with person.running.client() as client:
        row = client.replace("shapes", "shapes", THREE_RANKS)
        while len(row["ranks"]) < 3 or row["state"] != "ready":
            row = client.deployment("shapes", after=row["revision"])
        circle = client.task("shapes", "text_to_image")(prompt="a red circle on white", steps=12, seed=7).picture()
        person.go("trace")
        level = page.get_by_role("tablist", name="Telemetry").get_by_role("tab", name="full")
        level.click()
        expect(level).to_have_attribute("aria-selected", "true")
        client.task("shapes", "edit")(image=circle, instruction="make the circle blue", steps=12)
    edit = page.get_by_role("button", name=re.compile("^edit [0-9a-f]{8}")).first
    expect(edit).not_to_contain_text("running")
    edit.click()
    page.get_by_role("tab", name="Why slow").click()
    page.get_by_role("checkbox", name=re.compile("critical path")).check()
    shown(person, "trace")


def spoken_answer(person: Person) -> None:
    """A tiny Qwen3-Omni that hears a tone and speaks, its thinker on one rank, talker and vocoder on another."""
    page = person.page
    graph, placement = (json.loads(file.read_text()) for file in OMNI)
    graph["weights"]["omni"]["source"] = "random:qwen3-omni-tiny:0"
    graph["nodes"]["talker"]["params"]["min_frames"] = 55
    placement["ranks"] = [{"rank": rank, "device": "cpu"} for rank in range(2)]
    for group in placement["groups"]:
        group["memory"] = "1GiB"
    tone = io.BytesIO()
    soundfile.write(tone, np.sin(np.arange(16000) / 9) / 2, 16000, format="WAV")
    with person.running.client() as client:
        client.deploy(graph, placement, name=graph["name"])
        person.running.wait_ready(graph["name"])
        person.go(f"trace?deployment={graph['name']}")
        level = page.get_by_role("tablist", name="Telemetry").get_by_role("tab", name="full")
        level.click()
        expect(level).to_have_attribute("aria-selected", "true")
        bounds = {"max_tokens": 24, "max_frames": 55, "context": 512}
        client.task(graph["name"], "chat")(text="What do you hear?", audio=tone.getvalue(), **bounds)
    answer = page.get_by_role("button", name=re.compile("^chat [0-9a-f]{8}")).first
    expect(answer).not_to_contain_text("running")
    answer.click()
    shown(person, "trace_speech")


def shown(person: Person, name: str) -> None:
    person.page.mouse.move(5, 5)
    with Image.open(person.look(name)) as picture:
        picture.convert("RGB").quantize(256, dither=Image.Dither.NONE).save(DOCS / f"{name}.png", optimize=True)


def sit_down(chromium: Browser, running: Service, window: ViewportSize, folder: Path) -> Person:
    context = chromium.new_context(viewport=window, reduced_motion="reduce")
    context.set_default_timeout(PATIENCE * 1000)
    person = Person(context.new_page(), running, folder)
    person.log_in()
    return person


TAKES = ((first_walk, SMALL), (guided_walk, LARGE), (trace, LARGE), (spoken_answer, LARGE))


def main() -> None:
    wanted = sys.argv[1:]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with service(folder / "home") as running, sync_playwright() as playwright:
            running.up()
            running.wait_ready("shapes")
            chromium = playwright.chromium.launch(executable_path=browser_path(), args=FLAGS)
            for take, window in TAKES:
                if not wanted or take.__name__ in wanted:
                    take(sit_down(chromium, running, window, folder))
            chromium.close()


if __name__ == "__main__":
    main()
