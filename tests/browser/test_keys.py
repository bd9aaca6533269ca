"""A person makes a key for a program, sees that it is used, revokes it, and reads the audit log."""

from __future__ import annotations

import httpx
import pytest

from tests.browser.expecting import expect
from tests.browser.person import Person


def test_a_key_is_made_used_revoked_and_told_of(person: Person) -> None:
    page = person.page
    person.go("keys")
    page.get_by_role("button", name="New key").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_role("button", name="Create key").click()
    expect(dialog.get_by_text("A key needs a name")).to_be_visible()
    dialog.get_by_label("Name", exact=True).fill("robot")
    dialog.get_by_label("Requests per minute").fill("600")
    person.look("new_key")
    dialog.get_by_role("button", name="Create key").click()
    expect(dialog).to_have_count(0)
    secret = page.locator("code").filter(has_text="wg_").inner_text()
    assert asked(person, secret) == 200
    person.look("made")
    page.get_by_role("button", name="I have copied it").click()
    expect(page.get_by_text(secret)).to_have_count(0)

    choose_only_row(person)
    page.get_by_role("button", name="Revoke robot").click()
    person.look("asks_first")
    assert asked(person, secret) == 200
    page.get_by_role("button", name="Revoke this key").click()
    expect(page.get_by_text("There are no keys.")).to_be_visible()
    assert asked(person, secret) == 401

    log = page.get_by_test_id("stDataFrame").last
    expect(log).to_be_visible()
    person.look("log")
    page.get_by_label("Action").click()
    page.get_by_role("option", name="studio").click()
    expect(page.get_by_role("combobox", name="Action")).to_have_value("studio")
    person.look("filtered")


@pytest.mark.parametrize(("scheme", "width"), [("dark", 1440), ("light", 480)])
def test_the_page_fits(person: Person, scheme: str, width: int) -> None:
    page = person.page
    page.emulate_media(color_scheme="dark" if scheme == "dark" else "light")
    page.set_viewport_size({"width": width, "height": 800})
    person.go("keys")
    expect(page.get_by_text("Audit log")).to_be_visible()
    expect(page.get_by_test_id("stDataFrame").last).to_be_visible()
    wider = page.evaluate("() => document.documentElement.scrollWidth - innerWidth")
    assert wider <= 0
    person.look(f"{scheme}_{width}")


def choose_only_row(person: Person) -> None:
    """The table is a canvas: its first row's box lies below the head."""
    x, y, _, _ = person.box(person.page.get_by_test_id("stDataFrame").first)
    person.page.mouse.click(x + 20, y + 52)


def asked(person: Person, secret: str) -> int:
    url = f"{person.running.told['url']}/v1/models"
    return httpx.get(url, headers={"Authorization": f"Bearer {secret}"}).status_code
