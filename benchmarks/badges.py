"""Measures the delay of the canvas: from the end of a node to the change of its badge in a browser, at 5,000 events per
second.

    ./dev env && ./dev bench badges [--rate 5000] [--seconds 20] [--headed] [--out FILE] [--check]

The script starts a service with the plain command in its own home and deploys a graph of 40 nodes. The graph is open in
Chromium, rendered in software, with all nodes visible. A process simulates the ranks and reports calls through the
service's telemetry socket, with the workers' own emitters. The number of a call is its iteration, which the node's
badge shows; changes are observed as they happen. The two clocks are compared beforehand:

    first       a node that stood still runs: its call's end to the badge that says so
    each        any call's end to the badge that shows it, or a later one: what comes close together is shown at once
    frame       any call's end to its frame in another reader, that does nothing else

Four nodes are called from time to time and are idle in between; all others are called continuously. `--check` runs few
short cases and writes nothing; it only checks that badges change.
"""

import argparse
import itertools
import json
import os
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from _service import home, is_ready, report, service, when
from playwright.sync_api import Browser, CDPSession, Page, sync_playwright

from walkgraph.client import Client, read_address
from walkgraph.service.observe.telemetry import SOCKET
from walkgraph.settings import Settings
from walkgraph.wire import sockets

RESULTS = Path(__file__).parent / "results" / "badges.json"
PLAYED = Path(__file__).with_name("_ranks.py")
FLAGS = "--no-sandbox --disable-gpu --no-first-run --disable-background-networking --disable-sync".split()
WINDOW = {"width": 1920, "height": 1080}
NAME, WALK = "badges", "go"
COLUMNS, ROWS = 8, 5
RARE = 4
WARM = 2.0
"""Seconds at the beginning that don't count: code is compiled, the first frames are slow."""
BAR = 100.0
"""Milliseconds, of 95 in 100."""

SEEN = """() => {
  const root = [...document.querySelectorAll('*')].map((e) => e.shadowRoot).find((r) => r?.querySelector('.wg'));
  const changes = (window.changes_ = []);
  const of = (node) => (node.nodeType === 1 ? node : node.parentElement)?.closest('.wg-live');
  new MutationObserver((mutations) => {
    const now = performance.now();
    for (const badge of new Set(mutations.map((each) => of(each.target)).filter(Boolean))) {
      const name = badge.closest('.react-flow__node').dataset.id;
      changes.push([now, name, badge.dataset.activity, /#(\\d+)/.exec(badge.textContent)?.[1] ?? null]);
    }
  }).observe(root, { subtree: true, childList: true, characterData: true, attributeFilter: ['data-activity'] });
}"""
"""Keeps every change of a badge: when, whose, its state, the iteration it shows."""


class Change(NamedTuple):
    at: float
    """Seconds of the host's clock."""
    state: str
    number: int | None
    """Number of the call that it shows."""


Told = Sequence[tuple[str, int, float]]
"""Calls in their order: node, number, when it ended."""
Shown = Mapping[str, Sequence[Change]]
"""Node -> changes of its badge."""


def main() -> None:
    given = options()
    load = os.getloadavg()[0]
    with home() as folder, service(folder) as found:
        deploy(found.client)
        with sync_playwright() as playwright:
            path = shutil.which("chromium") or shutil.which("chromium-headless-shell")
            browser = playwright.chromium.launch(executable_path=path, args=FLAGS, headless=not given.headed)
            figures = {"load of the machine before, processes": load}
            for level in ("summary", "full"):
                measured = measure(browser, found.client, folder, level, given.rate, given.seconds)
                figures |= {f"{level}: {name}": value for name, value in measured.items()}
            browser.close()
    report("./dev bench badges", figures, None if given.check else given.out)


def options() -> argparse.Namespace:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--rate", type=int, default=5000, help="events per second")
    arguments.add_argument("--seconds", type=float, default=20.0, help="at each level")
    arguments.add_argument("--headed", action="store_true", help="show the window")
    arguments.add_argument("--out", type=Path, default=RESULTS)
    arguments.add_argument("--check", action="store_true", help="run few short cases and write nothing")
    given = arguments.parse_args()
    if given.check:
        given.rate, given.seconds = 300, WARM + 2.0
    return given


def grid() -> dict[str, Any]:
    """One Walk of nodes in rows, each fed by the one before; they are never run, but told of."""
    names = nodes()
    at = {f"use:{name}": [(index % COLUMNS) * 260, (index // COLUMNS) * 190] for index, name in enumerate(names)}
    edges = [["source.value", f"{names[0]}.a"]]
    edges += [[f"{a}.sum", f"{b}.a"] for a, b in itertools.pairwise(names)]
    return {
        "format": "walkgraph/graph@1",
        "name": NAME,
        "nodes": {
            "source": {"component": "synthetic.constant"},
            **{name: {"component": "synthetic.add"} for name in names},
        },
        "walks": {WALK: {"body": ["source", *names], "edges": [*edges, [f"{names[-1]}.sum", "@out.sum"]]}},
        "tasks": {WALK: {"outputs": ["sum"], "steps": [{"walk": WALK}]}},
        "layout": {"walks": {WALK: {"at": at | {"use:source": [-260, 0], "@out": [COLUMNS * 260, 0]}}}},
    }  # fmt: skip


def nodes() -> list[str]:
    return [f"n{index}" for index in range(COLUMNS * ROWS)]


def deploy(client: Client) -> None:
    """The graph, in the library as well, for the editor to open it."""
    client.put_document("graph", NAME, grid())
    client.deploy(NAME)
    when(client, NAME, is_ready)


def measure(browser: Browser, client: Client, folder: Path, level: str, rate: int, seconds: float) -> dict[str, float]:
    """Measures a service with this home that has the graph deployed: name -> value."""
    pid = read_address(Settings(home=folder)).pid  # pyright: ignore[reportOptionalMemberAccess]
    played = {
        "address": sockets.address(folder / "d", SOCKET), "deployment": f"{NAME} {version(client)}", "level": level,
        "ranks": 4, "runs": 32, "walk": WALK, "busy": nodes()[RARE:], "rare": nodes()[:RARE], "rate": rate,
        "pause": 1.2, "seconds": seconds,
    }  # fmt: skip
    with opened(browser, client) as page:
        page.evaluate(SEEN)
        ahead = clock_ahead(page)
        devtools = page.context.new_cdp_session(page)
        devtools.send("Performance.enable", {"timeDomain": "threadTicks"})
        before, used = busy(devtools), processor(pid)
        with reader(client) as frames:
            told = play(played)
        worked = {name: seconds - before[name] for name, seconds in busy(devtools).items()}
        used = processor(pid) - used
        shown = changes(page, ahead)
    figures = {"events a second": len(told) / (told[-1][2] - told[0][2])}
    figures |= spread("frame", later(told, frames, nodes()))
    figures |= spread("first", later(told, shown, nodes()[:RARE]))
    figures |= spread("each", later(told, shown, nodes()[RARE:]))
    figures["changes of badges a second"] = sum(map(len, shown.values())) / seconds
    figures |= {f"page, {name}, share of a core": spent / seconds for name, spent in worked.items()}
    figures["service, share of a core"] = used / seconds
    return figures


@contextmanager
def opened(browser: Browser, client: Client) -> Iterator[Page]:
    """The graph on the canvas, its nodes large enough for badges."""
    context = browser.new_context(viewport=WINDOW)
    page = context.new_page()
    try:
        page.goto(client.studio_address())
        page.goto(f"{client.url}/studio/editor?graph={NAME}")
        page.locator(".react-flow__node").nth(COLUMNS * ROWS).wait_for(timeout=60_000)
        page.wait_for_timeout(1500)
        if page.locator(".wg-board.wg-lod").count():
            raise RuntimeError("the nodes are too small for badges")
        yield page
    finally:
        context.close()


def clock_ahead(page: Page) -> float:
    """Seconds by which the page's clock is ahead of the host's: an answer's time lies between asking and having it."""
    low, high = float("-inf"), float("inf")
    for _ in range(100):
        before = time.monotonic()
        there = page.evaluate("performance.now()") / 1000
        low, high = max(low, there - time.monotonic()), min(high, there - before)
    return (low + high) / 2


def version(client: Client) -> str:
    """The version of the deployment, as its packets name it; makes a run, so that packets arrive."""
    for frame in client.telemetry(NAME):
        if frame is not None and frame["type"] == "welcome":
            client.start_run(NAME, WALK, {})
        elif frame is not None and frame["type"] == "events":
            return frame["source"].rpartition(" ")[2]
    raise RuntimeError("the telemetry has ended")


def play(played: Mapping[str, Any]) -> Told:
    """The reports of the ranks, once they are complete and had time to be shown."""
    command = [sys.executable, str(PLAYED)]
    done = subprocess.run(command, input=json.dumps(played), stdout=subprocess.PIPE, text=True, check=True)
    time.sleep(1.0)
    return [(node, number, ended) for node, number, ended in json.loads(done.stdout)]


@contextmanager
def reader(client: Client) -> Iterator[dict[str, list[Change]]]:
    """Another reader; once it is closed, node -> when its frames came."""
    found: dict[str, list[Change]] = {}
    frames: list[tuple[float, dict[str, Any]]] = []
    over = threading.Event()

    def read() -> None:
        for frame in client.telemetry(NAME, every=0.2):
            if frame is not None and frame["type"] == "events":
                frames.append((time.monotonic(), frame))
            if over.is_set():
                return

    thread = threading.Thread(target=read)
    thread.start()
    try:
        yield found
    finally:
        over.set()
        thread.join()
    for at, frame in frames:
        for event in frame["events"]:
            for node, iteration in calls_of(event):
                found.setdefault(node, []).append(Change(at, "", iteration[0]))


def calls_of(event: Mapping[str, Any]) -> Sequence[tuple[str, Sequence[int]]]:
    """Those that were played: (node, iteration)."""
    if event["type"] == "activity":
        made = [(event["node"], event["iteration"])]
    elif event["type"] == "forward":
        made = list(zip(event["nodes"], event["iterations"], strict=True))
    else:
        made = []
    return [(node, iteration) for node, iteration in made if iteration]


def changes(page: Page, ahead: float) -> Shown:
    found: dict[str, list[Change]] = {}
    for at, name, state, shown in page.evaluate("window.changes_"):
        number = None if shown is None else int(shown) - 1
        found.setdefault(name.removeprefix("use:"), []).append(Change(at / 1000 - ahead, state, number))
    return found


def later(told: Told, shown: Shown, of: Sequence[str]) -> list[float]:
    """Milliseconds from the end of each call of these nodes to the first change that shows it, or a later one."""
    found: list[float] = []
    for node in of:
        seen = iter(shown.get(node, ()))
        change = next(seen, None)
        for _, number, ended in (call for call in told if call[0] == node):
            while change is not None and (change.number is None or change.number < number):
                change = next(seen, None)
            if ended >= told[0][2] + WARM:
                found.append(1e3 * (change.at - ended) if change is not None else float("inf"))
    return found


def spread(what: str, delays: Sequence[float]) -> dict[str, float]:
    at = sorted(delays)
    if not at:
        raise RuntimeError(f"nothing was measured: {what}")
    shares = {"p50": 0.5, "p95": 0.95, "p99": 0.99, "most": 1.0}
    return {f"{what}, {name}, ms": at[min(len(at) - 1, int(share * len(at)))] for name, share in shares.items()}


def busy(devtools: CDPSession) -> dict[str, float]:
    """Seconds of a core that the page's main thread has used, in all and at what."""
    found = {each["name"]: each["value"] for each in devtools.send("Performance.getMetrics")["metrics"]}
    names = {"main thread": "Task", "of it script": "Script", "style": "RecalcStyle", "layout": "Layout"}
    return {name: found[f"{key}Duration"] for name, key in names.items()}


def processor(pid: int) -> float:
    """Seconds that a process has used of a core."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


if __name__ == "__main__":
    main()
