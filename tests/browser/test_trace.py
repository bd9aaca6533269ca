"""A person watches live runs, opens one of them, and finds out why it took its time."""

from __future__ import annotations

import json
import random
import re
from typing import Any

from playwright.sync_api import Locator, Route

from tests.browser.expecting import expect
from tests.browser.person import Person

BLOCKS = 10_000
DRAWN = """(canvas) => new Promise((shown) => {
  requestAnimationFrame(() => requestAnimationFrame(() => shown(canvas.toDataURL())));
})"""


def test_a_run_is_watched_and_told_why_it_took_its_time(person: Person) -> None:
    page = person.page
    person.go("trace")
    level = page.get_by_role("tablist", name="Telemetry")
    level.get_by_role("tab", name="full").click()
    expect(level.get_by_role("tab", name="full")).to_have_attribute("aria-selected", "true")
    with person.running.client() as client:
        asked = {"inputs": {"prompt": "a large red circle on white"}, "params": {"steps": 10}}
        ran = client.run("shapes", "text_to_image", asked)
    line_of(person, ran["run"]).click()
    expect(page.get_by_role("button", name=re.compile("^Rank 0"))).to_be_visible()
    person.look("run")

    page.get_by_role("button", name="denoise").click()
    lane = page.get_by_role("region", name=re.compile("^Blocks of"))
    expect(lane.get_by_role("row").nth(1)).to_contain_text("iteration")
    lane.get_by_role("button").first.click()
    expect(page.get_by_role("region", name="The chosen block")).to_contain_text("denoise")
    picture(person).press(".")
    expect(page.locator(".wg-gantt [role=status]")).to_contain_text("denoise")

    page.get_by_role("tab", name="Why slow").click()
    expect(page.get_by_role("region", name="Why slow")).to_contain_text("Compute")
    request = page.get_by_role("region", name="The request: ")
    expect(request.get_by_role("img")).to_have_attribute("aria-label", re.compile("^Socket .*, Device .* %"))
    request.get_by_text("Its way").click()
    expect(request.get_by_role("row", name="last byte sent")).to_be_visible()
    person.look("why")
    drawn = exported(person, "Perfetto")["traceEvents"]
    assert {"X", "M"} <= {event["ph"] for event in drawn}
    spans = [
        span
        for resource in exported(person, "OpenTelemetry")["resourceSpans"]
        for scope in resource["scopeSpans"]
        for span in scope["spans"]
    ]
    known = {span["spanId"] for span in spans}
    assert len({span["traceId"] for span in spans}) == 1
    # One stands for the run, all others lie in one another below it.
    assert [span["name"] for span in spans if span.get("parentSpanId") not in known] == [
        "invoke_workflow text_to_image"
    ]
    assert exported(person, "Trace as JSON")["run"] == ran["run"]


def test_two_runs_are_compared_and_the_level_says_what_is_told(person: Person) -> None:
    page = person.page
    person.go("trace")
    level = page.get_by_role("tablist", name="Telemetry")
    level.get_by_role("tab", name="off").click()
    expect(page.get_by_text("Telemetry is off")).to_be_visible()
    runs = {}
    with person.running.client() as client:
        for name, steps in (("full", 8), ("summary", 16)):
            level.get_by_role("tab", name=name).click()
            expect(level.get_by_role("tab", name=name)).to_have_attribute("aria-selected", "true")
            asked = {"inputs": {"prompt": "a small blue square on white"}, "params": {"steps": steps}}
            runs[name] = client.run("shapes", "text_to_image", asked)["run"]
        person.until(lambda: client.watch("shapes")["level"], lambda level: level == "summary")
    line_of(person, runs["summary"]).click()
    expect(page.locator(".wg-trace-head")).to_contain_text("telemetry summary")
    line_of(person, runs["full"]).click()
    expect(page.locator(".wg-trace-head")).not_to_contain_text("telemetry")

    page.get_by_role("button", name="Compare with another run").click()
    line_of(person, runs["summary"]).click()
    for run in runs.values():
        expect(page.get_by_role("application", name=re.compile(f"^Run {run[:8]}"))).to_be_visible()
    page.get_by_role("tab", name="Nodes").click()
    table = page.get_by_role("table", name="The second run against the first, largest change first")
    expect(table.get_by_role("row").filter(has_text="vae_decoder")).to_contain_text("1 → 1")
    person.look("compared")
    page.get_by_role("button", name="Stop comparing").click()
    expect(page.get_by_role("application")).to_have_count(1)


def test_a_run_of_ten_thousand_blocks_is_zoomed_and_moved(person: Person) -> None:
    page = person.page
    row = {"run": "0" * 32, "task": "draw", "state": "done", "level": "full", "seconds": 2.0, "at": 1.0}
    answer(person, "**/deployments/shapes/traces*", [{**row, "blocks": BLOCKS, "recorded": False}])
    answer(person, f"**/runs/{row['run']}/trace", trace(row["run"]))
    answer(person, f"**/runs/{row['run']}/why", {"type": "about:blank", "detail": "not here"}, status=404)
    person.expected.append("404")
    person.go("trace")
    page.get_by_role("button", name=re.compile("draw 00000000")).click()
    expect(page.get_by_role("button", name=re.compile("^Rank 1"))).to_be_visible()
    shown = picture(person)
    shown.press("0")
    # Over the axis no block is under the pointer.
    shown.hover(position={"x": 400, "y": 40})
    whole = shown.evaluate(DRAWN)
    page.mouse.wheel(0, -400)
    near = person.until(lambda: shown.evaluate(DRAWN), lambda drawn: drawn != whole)
    page.mouse.wheel(200, 0)
    person.until(lambda: shown.evaluate(DRAWN), lambda drawn: drawn not in (near, whole))
    shown.press("0")
    assert shown.evaluate(DRAWN) == whole


def line_of(person: Person, run: str) -> Locator:
    """The run in the list of those whose traces are kept."""
    return person.page.get_by_role("button", name=re.compile(f"text_to_image {run[:8]}"))


def exported(person: Person, name: str) -> dict[str, Any]:
    """Returns the download of the shown run."""
    with person.page.expect_download() as saved:
        person.page.get_by_role("button", name="Export").click()
        person.page.get_by_role("menuitem", name=re.compile(name)).click()
    return json.loads(saved.value.path().read_text())


def picture(person: Person) -> Locator:
    return person.page.get_by_role("application", name=re.compile("^Run "))


def answer(person: Person, path: str, value: Any, status: int = 200) -> None:
    def give(route: Route) -> None:
        route.fulfill(status=status, content_type="application/json", body=json.dumps(value))

    person.page.route(path, give)


def trace(run: str) -> dict[str, Any]:
    """Ten thousand calls in six lanes of two ranks."""
    chance = random.Random(1)
    rows = []
    ends = [0] * 6
    for number in range(BLOCKS):
        lane = number % 6
        started = ends[lane] + chance.randint(5, 400)
        ends[lane] = started + chance.randint(50, 1500)
        rows.append((started, ends[lane], lane, number))
    rows.sort()
    same = {name: [0] * BLOCKS for name in ("kind", "walk", "use", "step", "queued", "pages_free")}
    starts, finishes = [row[0] for row in rows], [row[1] for row in rows]
    blocks = {
        **same,
        "lane": [row[2] for row in rows],
        "number": [row[3] for row in rows],
        "iteration": [[row[3]] for row in rows],
        "mates": [[] for _ in rows],
        "count": [1] * BLOCKS,
        "batch": [1] * BLOCKS,
        "failed": [False] * BLOCKS,
        **dict.fromkeys(("ready", "taken", "launched", "started"), starts),
        "finished": finishes,
        "busy": [end - start for start, end in zip(starts, finishes, strict=True)],
    }
    hops = "source target walk edge step key transport count nbytes sent arrived".split()
    counters = "rank at busy queue runs memory_used pages_used pages_total".split()
    lanes = [{"rank": lane // 3, "name": f"n{lane}", "nodes": [f"n{lane}"], "loop": False} for lane in range(6)]
    return {
        "run": run,
        "deployment": "shapes",
        "task": "draw",
        "state": "done",
        "level": "full",
        "wall": 1.0,
        "seconds": max(finishes) / 1e6,
        "phases": {"queued": 0},
        "error": None,
        "devices": [],
        "names": ["w"],
        "lanes": lanes,
        "blocks": blocks,
        "hops": {name: [] for name in hops},
        "counters": {name: [] for name in counters},
        "loops": [],
        "lost": 0,
        "cut": False,
    }
