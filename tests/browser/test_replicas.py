"""Replicas on the Placement tab: a component dragged with Ctrl held stays where it is, and is on the other rank too."""

from __future__ import annotations

import re

from tests.browser.expecting import expect
from tests.browser.person import Person


def test_components_get_replicas_by_hand(person: Person) -> None:
    page = person.page
    person.open("shapes")
    person.tab("Placement")
    page.get_by_role("button", name="Place by hand").click()
    page.get_by_role("button", name="+ Add a rank").click()
    first, second = (page.get_by_role("region", name=re.compile(f"^Rank {rank} on ")) for rank in range(2))
    encoder = re.compile("^vit_encoder,")
    page.keyboard.down("Control")
    person.carry(first.get_by_role("option", name=encoder), second)
    page.keyboard.up("Control")
    for lane, number in ((first, 1), (second, 2)):
        chip = lane.get_by_role("option", name=encoder)
        expect(chip).to_have_accessible_name(re.compile(f"replica {number} of 2"))
        expect(chip.get_by_text(f"{number}/2", exact=True)).to_be_visible()
    toolbar = page.get_by_role("toolbar", name="Placement")
    expect(toolbar.get_by_text("fits", exact=True)).to_be_visible()
    person.look("two_replicas")
    second.get_by_role("option", name=encoder).click(button="right")
    page.get_by_role("menuitem", name=re.compile("Add a replica")).click()
    third = page.get_by_role("region", name=re.compile("^Rank 2 on "))
    expect(third.get_by_role("option", name=encoder)).to_have_accessible_name(re.compile("replica 3 of 3"))
    expect(toolbar.get_by_text("fits", exact=True)).to_be_visible()
    person.look("three_replicas")
    person.carry(third.get_by_role("option", name=encoder), second)
    expect(second.get_by_role("option", name=encoder)).to_have_accessible_name(re.compile("replica 2 of 2"))
    expect(third.get_by_role("option", name=encoder)).to_have_count(0)
