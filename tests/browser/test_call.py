"""The snippets of "Call it from your code" run unchanged, and the pages of a deployment show how to call it."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from PIL import Image
from playwright.sync_api import Locator

from tests.browser.expecting import expect
from tests.browser.person import Person
from tests.support.serving import Service

KEEPING = "synthetic_states"
"""A graph one of whose tasks keeps sessions."""
TABS = ["curl", "Python", "OpenAI", "WebSocket", "Command line"]
SECONDS = 300


@pytest.fixture(scope="module")
def keeping(running: Service) -> Iterator[None]:
    with running.client() as client:
        client.deploy(KEEPING)
        running.wait_ready(KEEPING)
        yield
        client.undeploy(KEEPING, grace=0.0)


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A folder of somebody's who has started the service in a home that programs don't look in by themselves."""
    (tmp_path / "me").mkdir()
    (tmp_path / "work").mkdir()
    return tmp_path / "work"


def test_a_picture_is_drawn_by_what_every_tab_shows(person: Person, place: Path) -> None:
    open_form(person, "text_to_image")
    person.page.get_by_label("Prompt", exact=True).fill("it's a red circle; on white")
    person.page.get_by_label("Steps", exact=True).fill("4")
    shown = every_tab(person, place, TABS)
    person.look("drawing_by_code")
    answers = run_all(shown, place, person.running)
    for tab in ("curl", "Python", "OpenAI"):
        assert picture(place / tab / "text_to_image.png").size == (64, 64), tab
    assert "'preview'" in answers["WebSocket"]
    assert "'done'" in answers["WebSocket"]
    assert picture(next((place / "Command line").glob("text_to_image-*.png"))).size == (64, 64)


def test_a_picture_is_changed_by_what_every_tab_shows(person: Person, place: Path) -> None:
    given = place / "given.png"
    Image.new("RGB", (64, 64), "red").save(given)
    person.page.emulate_media(color_scheme="dark")
    person.page.set_viewport_size({"width": 560, "height": 900})
    open_form(person, "edit")
    give(person, given)
    person.page.get_by_label("Instruction", exact=True).fill("make it blue")
    person.page.get_by_label("Steps", exact=True).fill("4")
    shown = every_tab(person, place, TABS)
    person.look("in_a_narrow_window")
    for tab in TABS:
        assert (place / tab / "image.png").read_bytes() == given.read_bytes()
        assert "image.png" in shown[tab]
    answers = run_all(shown, place, person.running)
    for tab in ("curl", "Python", "OpenAI"):
        assert picture(place / tab / "edit.png").size == (64, 64), tab
    assert "'done'" in answers["WebSocket"]
    assert picture(next((place / "Command line").glob("edit-*.png"))).size == (64, 64)


def test_a_picture_is_described_alike_by_both(person: Person, place: Path) -> None:
    given = place / "given.png"
    Image.new("RGB", (64, 64), "red").save(given)
    open_form(person, "image_to_text")
    give(person, given)
    person.page.get_by_label("Max tokens", exact=True).fill("8")
    answers = run_all(every_tab(person, place, ["curl", "OpenAI"]), place, person.running)
    assert answers["curl"].strip()
    assert answers["OpenAI"].strip() == answers["curl"].strip()


@pytest.mark.usefixtures("keeping")
def test_a_session_is_called_and_ended_where_it_is_seen(person: Person, place: Path) -> None:
    open_form(person, "remember", KEEPING)
    answers = run_all(every_tab(person, place, ["curl", "Session"]), place, person.running)
    assert "token" in answers["curl"]
    assert "token" in answers["Session"]

    page = person.page
    person.open(KEEPING)
    person.tab("Deploy")
    reached = page.get_by_label("Its address", exact=True)
    address = f"{person.running.told['url']}/v1/tasks/{KEEPING}"
    expect(reached.get_by_text(address)).to_be_visible()
    reached.get_by_role("button", name="Copy the address").click()
    assert page.evaluate("() => navigator.clipboard.readText()") == address
    held = page.get_by_role("region", name="Sessions").get_by_role("row").filter(has_text="idle for")
    expect(held).to_have_count(1)
    expect(held.get_by_text(re.compile(r"^\d.* (B|KiB|MiB)$"))).to_be_visible()
    person.look("held")
    held.get_by_role("button", name=re.compile("^End ")).click()
    page.get_by_role("dialog").get_by_role("button", name="End it").click()
    expect(page.get_by_text("No session is open.")).to_be_visible()
    person.look("ended")


def test_a_deployment_says_what_else_it_answers(person: Person) -> None:
    person.open("shapes")
    person.tab("Deploy")
    expect(person.page.get_by_label("Its address", exact=True)).to_contain_text("also: OpenAI chat, images, edits")
    expect(person.page.get_by_role("region", name="Sessions")).to_have_count(0)
    person.look("routes")
    person.go("")
    expect(person.page.get_by_text("Also over the OpenAI API: chat, images, edits")).to_be_visible()
    expect(person.page.get_by_text(f"{person.running.told['url']}/v1/tasks/shapes", exact=True)).to_be_visible()
    person.look("start")


# ── what a person does ──────────────────────────────────────────────────────────────────────────


def open_form(person: Person, task: str, deployment: str = "shapes") -> None:
    person.go(f"playground?deployment={deployment}")
    person.page.get_by_role("tablist", name="Tasks").get_by_title(task, exact=True).click()


def give(person: Person, file: Path) -> None:
    with person.page.expect_file_chooser() as chooser:
        person.page.get_by_role("button", name="Image: choose a file").click()
    chooser.value.set_files(file)
    expect(person.page.get_by_role("form").locator("img")).to_be_visible()


def every_tab(person: Person, place: Path, tabs: list[str]) -> dict[str, str]:
    """Tab -> what it shows; the files that it reads lie in a folder of the tab's name."""
    page = person.page
    page.get_by_role("button", name="Call it from your code").click()
    dialog = page.get_by_role("dialog")
    choices = dialog.get_by_role("tablist", name="Language").get_by_role("tab")
    every = ["curl", "Python", "Session", "Command line"] if "Session" in tabs else TABS
    expect(choices).to_have_text(every)
    return {tab: shown(person, dialog, tab, place / tab) for tab in tabs}


def shown(person: Person, dialog: Locator, tab: str, folder: Path) -> str:
    dialog.get_by_role("tab", name=tab, exact=True).click()
    text = dialog.locator("pre")
    expect(text).to_have_attribute("aria-label", tab)
    assert person.running.token not in dialog.inner_text()
    folder.mkdir()
    for button in dialog.get_by_role("button", name=re.compile("^Save ")).all():
        with person.page.expect_download() as download:
            button.click()
        download.value.save_as(folder / download.value.suggested_filename)
    return text.inner_text()


def run_all(texts: dict[str, str], place: Path, running: Service) -> dict[str, str]:
    """The output of each snippet, run in parallel. None may fail or need more than the service's folder."""
    known = {key: value for key, value in os.environ.items() if not key.startswith(("WALKGRAPH_", "OPENAI_"))}
    environment = {**known, "HOME": str(place.parent / "me"), "PATH": f"{Path(sys.executable).parent}:{known['PATH']}"}
    begun = {tab: started(tab, text, place / tab, environment) for tab, text in texts.items()}
    answers: dict[str, str] = {}
    for tab, process in begun.items():
        answers[tab], said = process.communicate(timeout=SECONDS)
        assert process.returncode == 0, (tab, texts[tab], said, answers[tab], running.log[-2000:])
    return answers


def started(tab: str, text: str, folder: Path, environment: dict[str, str]) -> subprocess.Popen[str]:
    program = ["bash", "-c"] if tab in ("curl", "Command line") else [sys.executable, "-c"]
    return subprocess.Popen(
        [*program, text], cwd=folder, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def picture(path: Path) -> Image.Image:
    with Image.open(path) as found:
        found.load()
        return found
