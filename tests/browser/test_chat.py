"""A person talks about pictures in the playground, and gives a task of their own a conversation."""

from __future__ import annotations

import io
import re
from pathlib import Path

from PIL import Image, ImageDraw
from playwright.sync_api import Locator

from tests.browser.expecting import expect
from tests.browser.person import Person
from tests.browser.test_play import done


def test_a_conversation_of_two_turns_goes_on_by_itself(person: Person, tmp_path: Path) -> None:
    page = person.page
    person.go("playground?deployment=shapes")
    page.get_by_role("tab", name="Talk about pictures").click()
    turns = page.get_by_role("list", name="Messages").locator("> li")
    expect(turns).to_have_count(1)
    ask(person, 1, square(tmp_path, "red"))
    person.look("first_question")
    page.get_by_role("form").get_by_role("button", name="Run").click()
    done(person)
    expect(turns).to_have_count(3)
    expect(page.get_by_label("Role of turn 2")).to_have_value("assistant")
    expect(page.get_by_label("Turn 2, assistant", exact=True).get_by_role("textbox")).to_have_value(re.compile("red"))
    person.look("first_answer")
    page.emulate_media(color_scheme="dark")
    person.look("first_answer_in_the_dark")
    page.emulate_media(color_scheme="light")

    ask(person, 3, square(tmp_path, "blue"))
    page.get_by_role("form").get_by_role("button", name="Run").click()
    done(person)
    expect(turns).to_have_count(5)
    expect(page.get_by_label("Turn 4, assistant", exact=True).get_by_role("textbox")).not_to_have_value("")
    person.look("second_answer")
    page.get_by_role("button", name="New conversation").click()
    expect(turns).to_have_count(1)


def test_a_task_gets_a_conversation_by_gestures(person: Person) -> None:
    page = person.page
    person.copied("shapes", "talking")
    person.open("talking")
    person.tab("Tasks")
    page.get_by_role("navigation", name="Tasks").get_by_role("button", name="image_to_text").click()
    page.get_by_label("Modality of image", exact=True).select_option("messages")
    page.get_by_role("button", name="Add a step at the end").click()
    page.get_by_role("menuitem", name="For each turn…").click()
    steps = page.get_by_role("table", name="Steps of image_to_text")
    expect(steps.get_by_text("of the conversation, in order")).to_be_visible()
    expect(steps.get_by_role("button", name="Remove the steps for assistant")).to_be_visible()
    expect(page.get_by_label("image: many", exact=True)).not_to_be_checked()
    person.look("turns")
    page.emulate_media(color_scheme="dark")
    person.look("turns_in_the_dark")
    page.emulate_media(color_scheme="light")
    person.stored("talking", lambda found: turns_in(found) == [["system", "user", "assistant"]])
    person.look_away()
    person.press("Control+z")
    expect(steps.get_by_text("of the conversation, in order")).to_have_count(0)
    person.stored("talking", lambda found: turns_in(found) == [])
    person.press("Control+Shift+z")
    expect(steps.get_by_text("of the conversation, in order")).to_be_visible()


def turns_in(graph: dict[str, object]) -> list[list[str]]:
    steps = graph["tasks"]["image_to_text"]["steps"]  # type: ignore[index]
    return [[key for key in step if key != "for"] for step in steps if step.get("for") == "turns"]


def ask(person: Person, turn: int, picture: Path) -> None:
    """Give a turn a picture in place of its text."""
    page = person.page
    page.get_by_role("button", name=f"Add image to turn {turn}").click()
    with page.expect_file_chooser() as chooser:
        here(person, turn).get_by_role("button", name="choose a file").click()
    chooser.value.set_files(picture)
    expect(here(person, turn).locator("img")).to_be_visible()


def here(person: Person, turn: int) -> Locator:
    return person.page.get_by_role("list", name="Messages").locator("> li").nth(turn - 1)


def square(folder: Path, colour: str) -> Path:
    image = Image.new("RGB", (64, 64), "white")
    ImageDraw.Draw(image).rectangle((16, 16, 48, 48), fill=colour)
    buffer = io.BytesIO()
    image.save(buffer, "PNG")
    path = folder / f"{colour}.png"
    path.write_bytes(buffer.getvalue())
    return path
