"""Measures how soon what is drawn runs: from the key, or the request, to the first node that runs.

    ./dev env && ./dev bench drawn [--rounds 10] [--out FILE] [--check]

The starter `shapes` on two cores, with the service, its processes, the client and the browser on them.

    switch    the way without a scratch deployment: the changed graph becomes the next version of a deployment; from the
              request until that serves and its first node has begun
    request   the scratch deployment takes up the changed graph: from the request until its first node has begun, by the
              telemetry socket
    key       the same from Ctrl+Enter in the editor until the first node's badge is shown
"""

import argparse
import itertools
import json
import os
import shutil
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from _common import spread
from _service import home, is_ready, report, service, when
from playwright.sync_api import Browser, sync_playwright
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import connect

from walkgraph.client import Client

RESULTS = Path(__file__).parent / "results" / "drawn.json"
FLAGS = "--no-sandbox --disable-gpu --no-first-run --disable-background-networking --disable-sync".split()
CORES = 2
TASK = "text_to_image"
REQUEST = {"inputs": {"prompt": "a red circle on white"}, "params": {"steps": 4}}
SEEN = """() => {
  const root = [...document.querySelectorAll('*')].map((e) => e.shadowRoot).find((r) => r?.querySelector('.wg'));
  window.pressed_ = window.began_ = null;
  window.addEventListener('keydown', (e) => {
    if (e.key === 'Enter' && e.ctrlKey) [window.pressed_, window.began_] = [performance.now(), null];
  }, true);
  new MutationObserver((mutations) => {
    if (window.pressed_ === null || window.began_ !== null) return;
    const badges = mutations.map(({ target }) => target.closest?.('.wg-live')).filter(Boolean);
    if (badges.some((badge) => ['running', 'done'].includes(badge.dataset.activity)))
      window.began_ = performance.now();
  }).observe(root, { subtree: true, childList: true, attributeFilter: ['data-activity'] });
}"""
"""Notes when the key was pressed, and when a node's badge first says since that it runs, or did."""

Graph = dict[str, Any]


def main() -> None:
    given = options()
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:CORES])
    figures: dict[str, Any] = {"load of the machine before, processes": os.getloadavg()[0]}
    with home() as folder, service(folder) as found:
        for name, seconds in (
            ("switch", switched(found.client, given.rounds)),
            *((f"request, {edit.__name__}", requested(found.client, given.rounds, edit)) for edit in EDITS),
        ):
            figures |= {f"{name}: {key}, s": value for key, value in spread(seconds).items()}
            print(name, *(f"{one:.3f}" for one in seconds))
        with sync_playwright() as playwright:
            browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=FLAGS)
            first, later = pressed(browser, found.client, given.rounds)
            browser.close()
        figures["key, first run of the page, s"] = first
        figures |= {f"key: {key}, s": value for key, value in spread(later).items()}
    report("./dev bench drawn", figures, None if given.check else given.out)


def options() -> argparse.Namespace:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--rounds", type=int, default=10)
    arguments.add_argument("--out", type=Path, default=RESULTS)
    arguments.add_argument("--check", action="store_true", help="run one round and write nothing")
    given = arguments.parse_args()
    given.rounds = 1 if given.check else given.rounds
    return given


# ── edits ───────────────────────────────────────────────────────────────────────────────────────


def parameter(graph: Graph, number: int) -> None:
    graph["nodes"]["combine_cfg"]["params"]["text_scale"] = f"=cfg_text_scale + {number}"


def added_node(graph: Graph, number: int) -> None:
    """One that the Walk of the task uses."""
    graph["nodes"][f"extra{number}"] = {"component": "synthetic.range"}
    graph["walks"]["prefill_text"]["body"].append(f"extra{number}")


def edge(graph: Graph, number: int) -> None:
    """A wire that comes and goes."""
    if number % 2:
        edges = graph["walks"]["prefill_text"]["edges"]
        edges.remove(["tokenizer.ids", "llm_cfg_img.ids"])
        edges.insert(0, ["tokenizer.ids", "llm_cfg_img.ids"])


EDITS: tuple[Callable[[Graph, int], None], ...] = (parameter, added_node, edge)


# ── measured ────────────────────────────────────────────────────────────────────────────────────


def switched(client: Client, rounds: int) -> list[float]:
    seconds: list[float] = []
    for number in range(rounds):
        graph = client.graph("shapes")
        parameter(graph, number)
        with Begins(client, "shapes") as begins:
            began = time.perf_counter()
            client.replace("shapes", graph)
            when(client, "shapes", lambda found: found["next"] is None)
            client.run("shapes", TASK, REQUEST)
            seconds.append(begins.first() - began)
    return seconds


def requested(client: Client, rounds: int, edit: Callable[[Graph, int], None]) -> list[float]:
    seconds: list[float] = []
    client.serve_scratch("page", client.graph("shapes"))
    when(client, "page", is_ready)
    client.run("page", TASK, REQUEST)
    for number in range(1, rounds + 1):
        graph = client.graph("shapes")
        edit(graph, number)
        with Begins(client, "page") as begins:
            began = time.perf_counter()
            client.serve_scratch("page", graph)
            client.run("page", TASK, REQUEST)
            seconds.append(begins.first() - began)
    client.end_scratch("page")
    return seconds


class Begins:
    """Notes when a deployment's next node begins, by the telemetry socket."""

    def __init__(self, client: Client, deployment: str) -> None:
        address = f"ws{client.url.removeprefix('http')}/ws/v1/telemetry?deployment={deployment}"
        headers = {"Authorization": f"Bearer {client.token}"}
        self._socket = connect(address, additional_headers=headers, max_size=None)
        self._seen = threading.Event()
        self._at = 0.0
        self._thread = threading.Thread(target=self._read, daemon=True)

    def __enter__(self) -> "Begins":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()
        self._thread.join()

    def first(self) -> float:
        if not self._seen.wait(60):
            raise RuntimeError("no node has begun")
        return self._at

    def _read(self) -> None:
        try:
            for text in self._socket:
                if not self._seen.is_set() and _tells_of_a_node(json.loads(text)):
                    self._at = time.perf_counter()
                    self._seen.set()
        except ConnectionClosed:
            return


def _tells_of_a_node(frame: Mapping[str, Any]) -> bool:
    return any(event.get("type") in ("activity", "began", "looping", "forward") for event in frame.get("events", ()))


def pressed(browser: Browser, client: Client, rounds: int) -> tuple[float, list[float]]:
    """Seconds of the first run of a page, and of later ones, each after an edit."""
    page = browser.new_context(viewport={"width": 1440, "height": 900}).new_page()
    page.set_default_timeout(600_000)
    page.goto(client.studio_address())
    page.goto(f"{client.url}/studio/editor?graph=shapes")
    page.locator(".react-flow__node").nth(3).wait_for()
    page.evaluate(SEEN)

    def press() -> float:
        page.keyboard.press("Control+Enter")
        page.wait_for_function("window.began_ !== null")
        page.wait_for_timeout(3000)  # the run is over
        return (page.evaluate("window.began_ - window.pressed_")) / 1000

    page.get_by_label("Label", exact=True).fill("Drawn again")
    page.get_by_label("Label", exact=True).press("Enter")
    page.locator(".react-flow__pane").click(position={"x": 5, "y": 5})
    first, later = press(), list[float]()
    for keys in itertools.islice(itertools.cycle(("Control+z", "Control+Shift+z")), rounds):
        page.keyboard.press(keys)
        later.append(press())
    page.context.close()
    return first, later


if __name__ == "__main__":
    main()
