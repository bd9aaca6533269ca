"""A person speaks with a model that answers in text and sound: by microphone, with files, over two turns."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
import soundfile
from PIL import Image
from playwright.sync_api import Locator

from tests.browser.expecting import expect
from tests.browser.person import Person
from tests.browser.test_chat import here
from tests.browser.test_play import done
from tests.support.serving import Service
from tests.system.openai.conftest import qwen3_omni

NAME = "qwen3_omni"
VIDEO = Path(__file__).parents[1] / "golden" / "qwen3_omni" / "whole.mp4"
LOUD = """player => {
  const bytes = Uint8Array.from(atob(player.src.split(",")[1]), (letter) => letter.charCodeAt(0));
  const samples = new Int16Array(bytes.buffer, 44);
  return [samples.length, Math.max(...samples.slice(0, 100000).map(Math.abs))];
}"""


@pytest.fixture(scope="module")
def spoken(running: Service) -> None:
    """No two recordings of a microphone are equal: each has an answer in sound."""
    graph = qwen3_omni(max_tokens={"default": 8}, max_frames={"default": 12}, context={"default": 512})
    with running.client() as client:
        client.deploy(graph, name=NAME)
    running.wait_ready(NAME)


@pytest.mark.usefixtures("spoken")
def test_a_spoken_conversation_of_two_turns(person: Person) -> None:
    page = person.page
    person.go(f"playground?deployment={NAME}")
    page.get_by_role("tab", name="Answer in a conversation").click()
    turns = page.get_by_role("list", name="Messages").locator("> li")
    expect(turns).to_have_count(1)
    person.look("empty")
    page.get_by_role("button", name="Add audio to turn 1").click()
    person.look("added")
    recorded(person, here(person, 1))
    person.look("recorded")
    run(person)
    expect(turns).to_have_count(3)
    heard(person)
    person.look("first_answer")
    expect(page.get_by_role("button", name="Add text to turn 2")).to_be_visible()
    for kind in ("audio", "image", "video"):
        expect(page.get_by_role("button", name=f"Add {kind} to turn 3")).to_be_visible()
        expect(page.get_by_role("button", name=f"Add {kind} to turn 2")).to_have_count(0)
    page.get_by_role("button", name="Add audio to turn 3").click()
    recorded(person, here(person, 3))
    run(person)
    expect(turns).to_have_count(5)
    heard(person)
    person.look("second_answer")
    with person.running.client() as client:
        latest = client.runs(NAME)[0]["id"]
    person.go(f"trace?deployment={NAME}")
    page.get_by_role("button", name=re.compile(f"converse {latest[:8]}")).click()
    ends = page.get_by_role("region", name="How loops ended")
    expect(ends.get_by_role("listitem")).to_have_count(2)
    ends.scroll_into_view_if_needed()
    person.look("loops_ended")


@pytest.mark.usefixtures("spoken")
def test_files_of_each_kind_are_answered(person: Person, tmp_path: Path) -> None:
    page = person.page
    sound, picture = tmp_path / "tone.mp3", tmp_path / "red.png"
    soundfile.write(sound, np.sin(np.arange(8000) / 9).astype(np.float32) / 2, 16000, format="MP3")
    Image.new("RGB", (64, 64), "red").save(picture)
    person.go(f"playground?deployment={NAME}")
    form = page.get_by_role("form")
    expect(form).to_be_visible()
    person.look("chat")
    for kind, file in (("audio", sound), ("image", picture), ("video", VIDEO)):
        page.get_by_role("button", name=f"Add {kind}", exact=True).click()
        given(person, file)
    person.look("chat_given")
    run(person)
    heard(person)
    person.look("chat_answered")


def given(person: Person, file: Path) -> None:
    with person.page.expect_file_chooser() as chooser:
        person.page.get_by_role("button", name="choose a file").last.click()
    chooser.value.set_files(file)


def recorded(person: Person, turn: Locator) -> None:
    """Speak into the microphone for as long as it takes until something was heard."""
    turn.get_by_role("button", name="record").click()
    loud = turn.get_by_label("Loudness")
    expect(loud).to_be_visible()
    person.until(lambda: loud.evaluate("meter => meter.value"), lambda value: value > 0.01)
    person.look("recording")
    turn.get_by_role("button", name="end the recording").click()
    samples, peak = turn.locator("audio").evaluate(LOUD)
    assert samples > 1000
    assert peak > 100


def run(person: Person) -> None:
    person.page.get_by_label("Seed", exact=True).fill("7")
    person.page.get_by_role("form").get_by_role("button", name="Run").click()
    done(person)


def heard(person: Person) -> None:
    """The answer's sound can be played."""
    output = person.page.get_by_role("region", name="Audio")
    player = output.locator("audio")
    person.until(lambda: player.evaluate("player => player.duration"), lambda seconds: seconds and seconds > 0)
    player.evaluate("player => player.play()")
    person.until(lambda: player.evaluate("player => player.currentTime"), lambda seconds: seconds > 0)
    assert player.evaluate("player => player.error") is None
