"""A person looks at the canvas while runs go: who works, where in its loop, how fast, and where it went wrong."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import Locator

from tests.browser.expecting import expect
from tests.browser.person import Person
from tests.support.serving import Service

LONG = {
    "inputs": {"prompt": "a red circle on white"},
    "params": {"steps": 200, "cfg_interval_low": 0.0, "preview_every": 1},
}
"""Many seconds on any machine: a picture is painted in every iteration. Those who start one end it."""


@pytest.fixture(scope="module")
def running(across: Service) -> Service:
    return across


def badge(person: Person, node: str) -> Locator:
    return person.node(f"use:{node}").locator(".wg-live")


def reached(place: Locator) -> int:
    """The iteration that a loop's `17 / 199` tells."""
    return int((place.text_content() or "").split(" ")[0])


def test_badges_change_while_runs_go(person: Person, running: Service) -> None:
    person.page.emulate_media(reduced_motion="no-preference")
    person.open("shapes")
    person.canvas("Draw with guidance")
    person.near()
    llm, other = badge(person, "llm"), badge(person, "llm_cfg_text")
    place = person.node("loop:denoise").locator(".wg-loop-at")
    with running.client() as client:
        first = client.start_run("shapes", "text_to_image", LONG)["id"]
        for shown in (llm, other):
            expect(shown).to_have_attribute("data-activity", "running")
        for shown in (llm, other):
            expect(shown).to_have_text(re.compile(r"#\d+ · [\d.]+/s · [\d.]+ ms"))
        expect(place).to_have_text(re.compile(r"^\d+ / 199$"))
        before = reached(place)
        expect(place).not_to_have_text(f"{before} / 199")
        assert reached(place) > before
        expect(llm).to_have_attribute(
            "title", re.compile(r"iteration \d+\n[\d,]+ calls, .* a second\n.*on rank 0", re.S)
        )
        expect(other).to_have_attribute("title", re.compile("on rank 1"))
        person.look("one_run")

        second = client.start_run("shapes", "text_to_image", LONG)["id"]
        expect(place).to_have_text(re.compile(r"^\d+(–\d+)? / 199 · 2 runs$"))
        person.look("two_runs")
        client.cancel(first)
        expect(place).to_have_text(re.compile(r"^\d+ / 199$"))
        client.cancel(second)
    expect(llm).to_have_attribute("data-activity", "done")
    expect(person.page.locator('.wg-live[data-activity="running"]')).to_have_count(0)


def test_an_error_is_told_at_its_node_until_the_next_run(person: Person, running: Service) -> None:
    person.open("synthetic_faults")
    person.canvas("Fail in iteration `at`")
    fail = badge(person, "fail")
    with running.client() as client:
        client.start_run("synthetic_faults", "fail", {"params": {"times": 5, "at": 3}})
        expect(fail).to_have_attribute("data-activity", "error")
        expect(fail).to_contain_text("fails at the value 3")
        expect(badge(person, "tick")).to_have_attribute("data-activity", "done")
        person.look("failed")
        client.start_run("synthetic_faults", "fail", {"params": {"times": 5}})
        expect(fail).to_have_attribute("data-activity", "done")
    expect(fail).to_contain_text("#5")
