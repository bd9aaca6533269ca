"""Hosts on the Placement tab: lanes stand under the host of their rank, and what crosses hosts says so."""

from __future__ import annotations

import re

from tests.browser.expecting import expect
from tests.browser.person import Person


def test_a_graph_is_placed_on_hosts_that_are_assumed(person: Person) -> None:
    page = person.page
    person.open("reach")
    person.tab("Placement")
    toolbar, planned_for = page.get_by_role("toolbar", name="Placement"), page.get_by_label("Plan for")
    expect(planned_for.locator("option:checked")).to_have_text("for this machine")
    planned_for.select_option(label="with nothing else running")
    expect(toolbar.get_by_text("fits", exact=True)).to_be_visible()
    planned_for.select_option(label="as if there were")
    for label, number in (("Number of hosts", "2"), ("Number of GPUs", "1"), ("Memory of each, in GB", "24")):
        page.get_by_label(label, exact=True).fill(number)
    near, far = (page.get_by_role("region", name=f"Host host{i}", exact=True) for i in range(2))
    expect(near.get_by_role("region", name=re.compile("^Rank 0 on "))).to_be_visible()
    page.get_by_role("button", name="Place by hand").click()
    page.get_by_role("button", name="+ Add a rank").click()
    page.get_by_label("Host of rank 1").select_option("host1")
    second = far.get_by_role("region", name=re.compile("^Rank 1 on cuda:0"))
    expect(second).to_be_visible()
    person.carry(near.get_by_role("option", name=re.compile("^vision,")), second)
    expect(second.get_by_role("option", name=re.compile("^vision,"))).to_be_visible()
    expect(page.get_by_text("over the network between hosts").first).to_be_visible()
    expect(toolbar.get_by_text("fits, but can't be deployed yet")).to_be_visible()
    person.look("two_hosts")
    page.get_by_label("Host of rank 1").select_option("host0")
    expect(far).to_have_count(0)
    expect(near.get_by_role("region", name=re.compile("^Rank 1 on "))).to_be_visible()
    person.look("one_host")
