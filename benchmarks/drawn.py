"""Measures how soon what is drawn runs: from Ctrl+Enter, and from the request that it sends, to the first node.

    ./dev env && ./dev bench drawn [--rounds 10] [--out FILE] [--check]

The starter `shapes` on two cores, with the service, its processes and the client on them.

    switch    the way without a scratch deployment: the changed graph becomes the next version of a deployment; from the
              request until that serves and its first node has begun
    request   the scratch deployment takes up the changed graph: from the request until its first node has begun, by the
              telemetry socket
    key       the same edits by hand in Chromium, rendered in software on the same cores: from Ctrl+Enter, pressed as
              soon as an edit is made, until the page's canvas shows a node that runs or has run; and until the page has
              sent its first request, has the answer to it, has asked for the run, and has the first frame of a node
"""

import argparse
import json
import os
import shutil
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from _common import spread
from _service import home, is_ready, report, service, when
from playwright.sync_api import Page, expect, sync_playwright
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import connect

from walkgraph.client import Client

RESULTS = Path(__file__).parent / "results" / "drawn.json"
CORES = 2
TASK = "text_to_image"
REQUEST = {"inputs": {"prompt": "a red circle on white"}, "params": {"steps": 4}}
Graph = dict[str, Any]


def main() -> None:
    given = options()
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:CORES])
    figures: dict[str, Any] = {"load of the machine before, processes": os.getloadavg()[0]}
    with home() as folder, service(folder) as found:
        for name, seconds in (
            ("switch", switched(found.client, given.rounds)),
            *((f"request, {edit.__name__}", requested(found.client, given.rounds, edit)) for edit in EDITS),
            *pressed(found.client, given.rounds),
        ):
            figures |= {f"{name}: {key}, s": value for key, value in spread(seconds).items()}
            print(name, *(f"{one:.3f}" for one in seconds))
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


# ── in a browser ────────────────────────────────────────────────────────────────────────────────

FLAGS = "--no-sandbox --disable-gpu --no-first-run --disable-background-networking --disable-sync".split()
WATCH = """() => {
  const w = window;
  w.at_ = null;
  const note = (name) => w.at_ && (w.at_[name] ??= performance.now());
  w.addEventListener('keydown', (event) => {
    if (event.key === 'Enter' && event.ctrlKey) w.at_ = { key: performance.now() };
  }, true);
  const fetched = w.fetch;
  w.fetch = async (asked, ...rest) => {
    const scratch = String(asked).includes('/scratch/');
    if (scratch) note('asked');
    else if (String(asked).endsWith('/api/v1/runs')) note('run asked');
    const answer = await fetched(asked, ...rest);
    if (scratch) note('taken up');
    return answer;
  };
  const Socket = w.WebSocket;
  w.WebSocket = class extends Socket {
    constructor(...given) {
      super(...given);
      this.addEventListener('message', ({ data }) => {
        if (typeof data === 'string' && /"type":\\s*"(activity|began|looping|forward)"/.test(data)) note('frame');
      });
    }
  };
  w.watch_ = (root) => new MutationObserver(() => {
    if (w.at_?.['run asked'] && root.querySelector('[data-activity]:not([data-activity="idle"])')) note('shown');
  }).observe(root, { subtree: true, attributes: true, childList: true });
}"""
"""Notes when the things of interest first happen after the key."""
MARKS = ("asked", "taken up", "run asked", "frame", "shown")


def pressed(client: Client, rounds: int) -> Iterator[tuple[str, list[float]]]:
    """Each kind of edit, and of each what was waited for."""
    expect.set_options(timeout=60_000)
    with drawn(client) as page:
        for edit in (changed_field, added_by_hand):
            seconds = [since_the_key(page, edit, number) for number in range(rounds)]
            for mark in MARKS:
                yield f"key, {edit.__name__}, {mark}", [found[mark] for found in seconds]


@contextmanager
def drawn(client: Client) -> Iterator[Page]:
    """The canvas of components of the starter's graph, which has run once."""
    client.put_document("graph", "drawn", {**client.graph("shapes"), "name": "drawn"})
    with sync_playwright() as playwright:
        path = shutil.which("chromium") or shutil.which("chromium-headless-shell")
        browser = playwright.chromium.launch(executable_path=path, args=FLAGS)
        page = browser.new_context(viewport={"width": 1440, "height": 900}).new_page()
        page.set_default_timeout(60_000)
        page.add_init_script(f"({WATCH})()")
        page.goto(client.studio_address())
        page.goto(f"{client.url}/studio/editor?graph=drawn")
        page.locator(".react-flow").wait_for()
        page.keyboard.press("Control+Enter")
        is_done(page)
        # The form of what was served.
        page.get_by_role("tab", name="Play").click()
        page.get_by_label("Prompt", exact=True).fill(REQUEST["inputs"]["prompt"])
        page.get_by_label("Steps", exact=True).fill(str(REQUEST["params"]["steps"]))
        page.get_by_role("tab", name="Graph").click()
        page.get_by_role("tab", name="Components").click()
        page.locator(".react-flow").evaluate("found => window.watch_(found)")
        page.keyboard.press("Control+Enter")
        is_done(page)
        yield page
        browser.close()


def since_the_key(page: Page, edit: Callable[[Page, int], None], number: int) -> dict[str, float]:
    edit(page, number)
    page.keyboard.press("Control+Enter")
    is_done(page)
    at: dict[str, float] = page.evaluate("() => window.at_")
    return {mark: (at[mark] - at["key"]) / 1000 for mark in MARKS}


def is_done(page: Page) -> None:
    told = page.get_by_text("its results are in Play")
    expect(told).to_be_visible()
    expect(told).to_be_hidden()


def changed_field(page: Page, number: int) -> None:
    node = page.locator('.react-flow__node[data-id="node:combine_cfg"]')
    box = node.bounding_box()
    assert box
    page.mouse.click(box["x"] + box["width"] * 0.7, box["y"] + 6)
    field = page.get_by_role("textbox", name="text_scale")
    field.fill(f"cfg_text_scale + {number + 1}")
    field.press("Enter")


def added_by_hand(page: Page, number: int) -> None:
    page.locator(".react-flow__pane").dblclick(position={"x": 20 + number % 8 * 100, "y": 40 + number // 8 * 70})
    search = page.get_by_role("combobox", name="Add", exact=True)
    search.fill("synthetic.range")
    search.press("Enter")
    expect(search).to_have_count(0)


# ── the socket ──────────────────────────────────────────────────────────────────────────────────


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


if __name__ == "__main__":
    main()
