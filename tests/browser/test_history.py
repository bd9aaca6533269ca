"""The playground lists what programs have run, with what they asked for and what came of it."""

from __future__ import annotations

import httpx
from playwright.sync_api import expect

from tests.browser.person import Person
from tests.support.serving import Service


def test_runs_of_programs_are_listed_with_prompt_and_picture(person: Person, running: Service) -> None:
    page = person.page
    with running.client() as client:
        asked = {"inputs": {"prompt": "a violet star, by the SDK"}, "params": {"steps": 2, "seed": 3}}
        client.run("shapes", "text_to_image", asked)
    headers = {"Authorization": f"Bearer {running.token}"}
    body = {"model": "shapes", "prompt": "a green circle, by OpenAI's route"}
    answer = httpx.post(f"{running.told['url']}/v1/images/generations", json=body, headers=headers, timeout=600)
    assert answer.status_code == 200, answer.text
    person.go("playground?deployment=shapes")
    lines = page.get_by_role("complementary", name="Runs").get_by_role("listitem")
    for place, said in enumerate(("a green circle, by OpenAI's route", "a violet star, by the SDK")):
        line = lines.nth(place)
        expect(line.get_by_text(said, exact=True)).to_be_visible()
        expect(line.get_by_label("Run by another client")).to_be_visible()
        picture = line.locator("img")
        expect(picture).to_have_js_property("complete", True)
        expect(picture).to_have_js_property("naturalWidth", 64)
    person.look("listed")
    lines.nth(1).get_by_text("a violet star, by the SDK").click()
    expect(page.get_by_label("Prompt", exact=True)).to_have_value("a violet star, by the SDK")
    expect(page.get_by_role("region", name="Image").get_by_role("img").last).to_be_visible()
    person.look("opened")
