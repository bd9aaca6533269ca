"""A person watches a picture emerge, passes it on to be edited, and has it described."""

from __future__ import annotations

import base64
import io
import re
from pathlib import Path

from PIL import Image, ImageStat
from playwright.sync_api import Locator

from tests.browser.expecting import expect
from tests.browser.person import Person
from tests.support.serving import Service

SIZE = (64, 64)


def test_a_picture_is_watched_handed_on_edited_and_described(person: Person) -> None:
    page = person.page
    person.go("playground")
    expect(page.get_by_label("Preview every", exact=True)).to_have_value("2")
    page.get_by_label("Prompt", exact=True).fill("a large red circle on white")
    page.get_by_label("Seed", exact=True).fill("7")
    page.get_by_label("Steps", exact=True).fill("20")
    person.press("Control+Enter")
    frame = page.get_by_role("region", name="Picture")
    expect(frame.get_by_text(re.compile(r"^step \d+$"))).to_be_visible()
    expect(frame).to_have_count(1)
    done(person)
    expect(frame.get_by_text("final", exact=True)).to_be_visible()
    expect(frame.get_by_text("10 of 10")).to_be_visible()
    drawn = newest(frame)
    person.look("random")

    frame.get_by_role("button", name="Use it").click()
    page.get_by_role("menuitem", name="Edit a picture").click()
    page.get_by_label("Instruction", exact=True).fill("make the circle blue")
    page.get_by_label("Steps", exact=True).fill("20")
    person.press("Control+Enter")
    done(person)
    edited = newest(frame)
    assert Image.open(io.BytesIO(edited)).size == SIZE
    assert bluer(edited) > bluer(drawn)
    person.look("edited")

    frame.get_by_role("button", name="Use it").click()
    page.get_by_role("menuitem", name="Describe a picture").click()
    page.get_by_role("form").get_by_role("button", name="Run").click()
    done(person)
    expect(page.get_by_role("region", name="Text").get_by_text("circle")).to_be_visible()
    person.look("described")


def test_what_is_no_picture_is_refused_where_it_is_given(person: Person, tmp_path: Path) -> None:
    broken = tmp_path / "broken.png"
    broken.write_bytes(b"\x89PNG\r\n\x1a\n and no more")
    page = person.page
    person.go("playground")
    page.get_by_role("tab", name="Describe a picture").click()
    with page.expect_file_chooser() as chooser:
        page.get_by_role("button", name="Image: choose a file").click()
    chooser.value.set_files(broken)
    expect(page.get_by_role("alert")).to_have_text("this picture can't be read; save it again, as PNG or JPEG")
    expect(page.get_by_role("form").locator("img")).to_have_count(0)


def test_a_run_outlives_its_page_and_is_found_again(person: Person, running: Service) -> None:
    page = person.page
    person.go("playground?deployment=shapes")
    form(person, "a small green square", "24")
    person.press("Control+Enter")
    expect(status(person).get_by_text("Running", exact=True)).to_be_visible()
    person.look("before_the_reload")
    page.reload()
    expect(page.get_by_label("Prompt", exact=True)).to_have_value("a small green square")
    expect(page.get_by_label("Steps", exact=True)).to_have_value("24")
    person.look("after_the_reload")
    done(person)
    expect(page.get_by_role("region", name="Picture").get_by_text("final", exact=True)).to_be_visible()
    person.look("found_again")

    with running.client() as client:
        before = len(client.runs("shapes", 50))
    form(person, "a small blue square", "3")
    person.press("Control+Enter")
    page.goto("about:blank")
    person.go("playground?deployment=shapes")
    mine = page.get_by_role("complementary", name="Runs").get_by_role("listitem")
    expect(mine).to_have_count(before + 1)
    expect(mine.get_by_text("running", exact=True)).to_have_count(0)
    person.look("left_at_once")


def test_the_list_of_runs_hears_of_somebody_elses_end(person: Person, running: Service) -> None:
    with running.client() as client:
        request = {"inputs": {"prompt": "a red circle"}, "params": {"steps": 2}, "hold": True}
        run = client.start_run("shapes", "text_to_image", request)["id"]
        person.go("playground?deployment=shapes")
        listed = person.page.get_by_role("complementary", name="Runs").get_by_text("paused", exact=True)
        expect(listed).to_have_count(2)  # in the queue too
        person.look("paused")
        client.steer(run, "resume")
        expect(listed).to_have_count(0)
        person.look("ended")


def form(person: Person, prompt: str, steps: str) -> None:
    person.page.get_by_label("Prompt", exact=True).fill(prompt)
    person.page.get_by_label("Steps", exact=True).fill(steps)


def status(person: Person) -> Locator:
    return person.page.get_by_role("status").filter(has_text="seed")


def done(person: Person) -> None:
    expect(status(person).get_by_text("Done", exact=True)).to_be_visible(timeout=600_000)


def newest(frame: Locator) -> bytes:
    """PNG of the picture on top."""
    source = frame.locator("img").last.get_attribute("src") or ""
    return base64.b64decode(source.removeprefix("data:image/png;base64,"))


def bluer(png: bytes) -> float:
    """How much more blue than red there is, on average."""
    with Image.open(io.BytesIO(png)) as image:
        red, _, blue = ImageStat.Stat(image.convert("RGB")).mean
    return blue - red
