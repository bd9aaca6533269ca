"""A person sees an order that no wire draws, and mends problems; blueprints, and names of the palette."""

from __future__ import annotations

from playwright.sync_api import Locator

from tests.browser.expecting import expect
from tests.browser.person import Person

LENS = "Show which step reads what another left in a state"


def test_states_are_drawn_by_a_lens_and_around_what_is_pointed_at(person: Person) -> None:
    person.copied("shapes", "states")
    person.open("states")
    person.canvas("Components")
    lens = person.page.get_by_role("button", name=LENS)
    expect(lines(person)).to_have_count(0)
    person.select("node:llm")
    expect(line(person, "llm_cfg_text reads what llm left in cfg_text")).to_be_attached()
    person.press("Escape")
    person.page.mouse.move(*person.at((20, 20)))
    expect(lines(person)).to_have_count(0)
    person.node("node:llm_cfg_text").hover()
    expect(line(person, "llm_cfg_text reads what llm left in cfg_text")).to_be_attached()
    person.look("pointed")

    lens.click()
    person.page.mouse.move(*person.at((20, 20)))
    expect(lens).to_have_attribute("aria-pressed", "true")
    expect(line(person, "llm_cfg_text reads what llm left in cfg_text")).to_be_attached()
    person.look("lens")
    person.go("")
    person.open("states")
    expect(lens).to_have_attribute("aria-pressed", "true")
    lens.click()
    expect(lines(person)).to_have_count(0)


def test_a_walk_shows_its_copies_of_states_between_who_writes_and_who_reads(person: Person) -> None:
    person.copied("synthetic_states", "parting")
    person.open("parting")
    person.canvas("Fork the cache, append to the copy, and continue with both")
    person.select("use:told")
    expect(lines(person)).to_have_count(2)
    expect(line(person, "copy reads what told left in copy")).to_be_attached()
    person.look("fork")
    assert person.box(person.node("use:told"))[0] > person.box(person.node("fork:0"))[0]


def test_a_press_mends_a_problem_and_undo_brings_it_back(person: Person) -> None:
    graph = person.copied("shapes", "mends")
    del graph["nodes"]["llm"]["states"]
    graph["nodes"]["spare"] = {"component": "text.tokenizer", "weights": "shapes"}
    graph["walks"]["read_text"]["edges"].pop(0)
    with person.running.client() as client:
        client.put_document("graph", "mends", graph, etag=client.document("graph", "mends")[1])
    person.open("mends")
    person.page.get_by_role("region", name="Problems").get_by_role("button").first.click()
    press(person, "Keep it in main").wait_for()
    person.look("problems")
    press(person, "Connect the input text to tokenizer.text").click()
    expect(press(person, "Connect the input text to tokenizer.text")).to_have_count(0)
    press(person, "Remove spare").click()
    expect(press(person, "Remove spare")).to_have_count(0)
    person.look("mended")
    person.press("Control+z")
    expect(press(person, "Remove spare")).to_be_enabled()


def test_a_walk_of_another_graph_becomes_a_blueprint_with_a_form(person: Person) -> None:
    page = person.page
    person.new_graph("borrower")
    person.new_walk("go")
    page.mouse.click(*person.at((300, 60)), button="right")
    page.get_by_role("menuitem", name="Add a Walk of another graph").click()
    page.get_by_role("menuitem", name="shapes", exact=True).click()
    person.look("walks")
    page.get_by_role("menuitem", name="Read a text (read_text)").click()
    expect(person.node("use:read_text")).to_be_visible()
    graph = person.stored("borrower", lambda graph: "blueprints" in graph)
    assert graph["nodes"]["read_text"]["component"] == "blueprint.read_text"
    assert set(graph["blueprints"]["read_text"]["nodes"]) == {"tokenizer", "llm"}

    person.on_node("use:read_text", "Open the blueprint")
    form = page.locator(".wg-inspector")
    expect(form.get_by_role("heading", name="read_text")).to_be_visible()
    form.get_by_label("Description").fill("Reads what is told.")
    added = form.get_by_label("Add a parameter")
    added.fill("many")
    added.press("Enter")
    record = form.get_by_role("group", name="the parameter many")
    for label, value in (("Default", "3"), ("At least", "1"), ("At most", "9"), ("Help", "How many.")):
        record.get_by_label(label, exact=True).fill(value)
        record.get_by_label(label, exact=True).press("Enter")
    person.look("form")
    told = {"type": "integer", "default": 3, "min": 1, "max": 9, "description": "How many."}
    graph = person.stored("borrower", lambda graph: "many" in graph["blueprints"]["read_text"].get("params", {}))
    graph = person.stored("borrower", lambda graph: graph["blueprints"]["read_text"]["params"]["many"] == told)
    assert graph["blueprints"]["read_text"]["description"] == "Reads what is told."
    form.get_by_label("Name", exact=True).first.fill("reader")
    form.get_by_label("Name", exact=True).first.press("Enter")
    expect(page.get_by_label("Blueprint's name")).to_have_value("reader")
    page.get_by_role("navigation", name="Inside a blueprint").get_by_role("button").first.click()
    person.select("use:read_text")
    expect(form).to_contain_text("many")
    person.look("node")


def test_the_palette_shows_names_whole_and_finds_first_what_the_graph_uses(person: Person) -> None:
    person.copied("shapes", "finds")
    person.open("finds")
    palette = person.page.locator(".wg-palette")
    expect(palette.get_by_role("option").first).to_be_visible()
    clipped = "names => names.filter(name => name.scrollWidth > name.clientWidth + 1).map(name => name.textContent)"
    for shown in (".title", ".title small"):
        assert palette.locator(shown).count() > 100
        assert palette.locator(shown).evaluate_all(clipped) == []
    palette.get_by_role("combobox").fill("noise")
    found = palette.get_by_role("option").filter(has_text="noise")
    expect(found.nth(2)).to_contain_text("pi05")
    expect(found.nth(0)).to_contain_text("flow")
    person.look("found")


def press(person: Person, name: str) -> Locator:
    return person.page.locator(".wg-problems").get_by_role("button", name=name, exact=True)


def lines(person: Person) -> Locator:
    return person.page.locator(".wg-dependencies [role=img]")


def line(person: Person, name: str) -> Locator:
    return person.page.get_by_role("img", name=name, exact=True)
