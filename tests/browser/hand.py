"""A person's hand, whose gestures are counted: a click, a double click, a drag, and a text typed into a field."""

from __future__ import annotations

from playwright.sync_api import Locator

from tests.browser.person import Person, Point


class Hand:
    def __init__(self, person: Person) -> None:
        self.person = person
        self.gestures = 0

    def click(self, what: Locator) -> None:
        self.gestures += 1
        what.click()

    def double_click(self, spot: Point) -> None:
        """On the canvas."""
        self.gestures += 1
        self.person.page.mouse.dblclick(*self.person.at(spot))

    def write(self, field: Locator, text: str) -> None:
        """With Enter at the end."""
        self.gestures += 1
        field.fill(text)
        field.press("Enter")

    def choose(self, field: Locator, value: str) -> None:
        """From a list that opens with one click and closes with another."""
        self.gestures += 2
        field.select_option(value)

    def connect(self, from_: str, to: str) -> None:
        self.gestures += 1
        self.person.connect(from_, to)

    def carry(self, what: Locator, onto: Locator) -> None:
        self.gestures += 1
        self.person.carry(what, onto)
