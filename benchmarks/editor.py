"""Measures the editor in Chromium, rendered in software: how smoothly large graphs are dragged, opened and checked.

    ./dev env && ./dev bench editor

It uses a page of the real service; only the telemetry socket is answered by this script, at a set rate. Prints a table
and writes it to `benchmarks/results/editor.json`. `--headed` shows the window.
"""

import argparse
import asyncio
import itertools
import json
import re
import shutil
import statistics
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from _service import home, is_ready, report, service, when
from playwright.async_api import Browser, Locator, Page, WebSocket, WebSocketRoute, async_playwright

from walkgraph.client import Client

RESULTS = Path(__file__).parent / "results" / "editor.json"
FLAGS = "--no-sandbox --disable-gpu --no-first-run --disable-background-networking --disable-sync".split()
DRAG_SECONDS = 4.0
FRAMES = """() => { const w = window; w.frames_ = []; let last = performance.now(); w.counting_ = true;
  const step = (now) => { w.frames_.push(now - last); last = now; if (w.counting_) requestAnimationFrame(step); };
  requestAnimationFrame(step); }"""


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--rounds", type=int, default=5)
    arguments.add_argument("--headed", action="store_true")
    arguments.add_argument("--out", type=Path, default=RESULTS)
    given = arguments.parse_args()
    with home() as folder, service(folder) as found:
        for nodes in (100, 300, 1000):
            found.client.put_document("graph", f"chain{nodes}", chain(nodes))
        for nodes in (100, 300):
            found.client.deploy(f"chain{nodes}")
            when(found.client, f"chain{nodes}", is_ready)
        figures = asyncio.run(measure(found.client, given.rounds, headless=not given.headed))
    report("./dev bench editor", figures, given.out)


def chain(nodes: int) -> dict[str, Any]:
    """One Walk of `nodes` uses in rows of thirty, each fed by the one before."""
    names = [f"n{index}" for index in range(nodes)]
    at = {name: [(index % 30) * 260, (index // 30) * 170] for index, name in enumerate(names)}
    return {
        "format": "walkgraph/graph@1",
        "name": f"chain{nodes}",
        "nodes": {"source": {"component": "synthetic.constant"}}
        | {name: {"component": "synthetic.add"} for name in names},
        "walks": {
            "go": {
                "body": ["source", *names],
                "edges": [["source.value", "n0.a"]]
                + [[f"{before}.sum", f"{after}.a"] for before, after in itertools.pairwise(names)]
                + [[f"{names[-1]}.sum", "@out.sum"]],
            }
        },
        "tasks": {"go": {"outputs": ["sum"], "steps": [{"walk": "go"}]}},
        "layout": {"walks": {"go": {"at": at | {"source": [-260, 0], "@out": [30 * 260, 0]}}}},
    }


async def measure(client: Client, rounds: int, *, headless: bool) -> dict[str, float]:
    figures: dict[str, float] = {}
    async with async_playwright() as playwright:
        path = shutil.which("chromium") or shutil.which("chromium-headless-shell")
        browser = await playwright.chromium.launch(executable_path=path, args=FLAGS, headless=headless)
        for nodes, rate in ((300, 200), (1000, 0)):
            async with studio(browser, client) as page:
                seconds = await opened(page, client, f"chain{nodes}")
                figures[f"{nodes} nodes: address to canvas, s"] = seconds
                figures |= await dragged(page, nodes, rate)
        async with studio(browser, client) as page:
            await opened(page, client, "chain100")
            figures |= await judged(page, rounds)
        async with studio(browser, client) as page:
            await opened(page, client, "chain100")
            figures |= await badges(page, rounds)
        await browser.close()
    return figures


@asynccontextmanager
async def studio(browser: Browser, client: Client) -> AsyncIterator[Page]:
    """A logged-in page whose telemetry comes from `page.feed`."""
    context = await browser.new_context(viewport={"width": 1440, "height": 900})
    page = await context.new_page()
    sockets: list[WebSocketRoute] = []
    await page.route_web_socket(re.compile("/ws/v1/telemetry"), lambda route: _welcome(route, sockets))
    page.sockets_ = sockets  # type: ignore[attr-defined]
    page.reruns_ = 0  # type: ignore[attr-defined]
    page.on("websocket", lambda socket: _count(page, socket))
    await page.goto(client.studio_address())
    try:
        yield page
    finally:
        await context.close()


def _welcome(route: WebSocketRoute, sockets: list[WebSocketRoute]) -> None:
    sockets.append(route)
    route.send(json.dumps({"type": "welcome", "boot": "b", "seq": 0}))


def _count(page: Any, socket: WebSocket) -> None:
    def sent(_frame: Any) -> None:
        page.reruns_ += 1

    if "_stcore" in socket.url:
        socket.on("framesent", sent)


async def opened(page: Page, client: Client, name: str) -> float:
    """From the address to the canvas with its nodes, in s."""
    began = time.perf_counter()
    await page.goto(f"{client.url}/studio/editor?graph={name}")
    await page.locator(".react-flow__node").nth(20).wait_for(timeout=60_000)
    seconds = time.perf_counter() - began
    await page.wait_for_timeout(1500)
    return seconds


async def head(page: Page) -> tuple[Locator, float, float]:
    """A node in the middle of the canvas, and a place on its head."""
    nodes = page.locator('.react-flow__node[data-id^="use:n"]')
    for index, node in enumerate(await nodes.all()):
        box = await node.bounding_box()
        if box and 400 < box["x"] < 900 and 250 < box["y"] < 700:
            return nodes.nth(index), box["x"] + box["width"] * 0.6, box["y"] + min(6, box["height"] / 3)
    raise RuntimeError("no node is in sight")


async def dragged(page: Any, nodes: int, rate: int) -> dict[str, float]:
    """Frames per second while a node is dragged in circles and `rate` telemetry messages come each second."""
    reruns = page.reruns_
    feed = asyncio.create_task(_feed(page, nodes, rate))
    node, x, y = await head(page)
    name, place = await node.get_attribute("data-id"), await node.bounding_box()
    await page.mouse.move(x, y)
    await page.mouse.down()
    await page.mouse.move(x + 8, y + 8)
    await page.evaluate(FRAMES)
    end, step = time.perf_counter() + DRAG_SECONDS, 0
    while time.perf_counter() < end:
        step += 1
        await page.mouse.move(x + (step % 40) * 3, y + (step % 25) * 4)
    times = await page.evaluate("() => { window.counting_ = false; return window.frames_; }")
    await page.mouse.up()
    feed.cancel()
    if place == await page.locator(f'.react-flow__node[data-id="{name}"]').bounding_box():
        raise RuntimeError("the node did not move")
    label = f"{nodes} nodes, {rate} messages/s"
    slowest = sorted(times)[-max(1, len(times) // 20) :]
    return {
        f"{label}: drag, frames/s": 1000 / statistics.mean(times[1:]),
        f"{label}: slowest twentieth, frames/s": 1000 / statistics.mean(slowest),
        f"{label}: Streamlit messages": page.reruns_ - reruns,
    }


async def _feed(page: Any, nodes: int, rate: int) -> None:
    """Activity of all nodes in turn."""
    seq = 0
    while rate:
        for _ in range(max(1, rate // 50)):
            seq += 1
            page.sockets_[-1].send(json.dumps(_frame(seq, f"n{seq % nodes}", page.url)))
        await asyncio.sleep(0.02)


def _frame(seq: int, node: str, url: str) -> dict[str, Any]:
    now = time.monotonic()
    event = {"type": "activity", "run": "r", "rank": 0, "node": node, "walk": "go", "iteration": [seq], "calls": 3}
    times = {"busy": 0.004, "queued": 0.001, "launched": now, "finished": now, "batch": 2}
    packet = {"type": "events", "source": "rank 0.1", "first": seq, "dropped": 0, "wall": time.time() - now}
    deployment = url.partition("graph=")[2].partition("&")[0]
    return {**packet, "events": [event | times], "deployment": deployment, "seq": seq}


async def judged(page: Page, rounds: int) -> dict[str, float]:
    """From an edit (a needed edge is deleted and brought back) to the problem count that follows it, in ms."""
    await page.evaluate(
        """() => { const w = window; w.seen_ = []; const root = [...document.querySelectorAll('*')]
        .map((e) => e.shadowRoot).find((r) => r && r.querySelector('.wg'));
        w.root_ = root; const count = () => root.querySelector('[data-problems]')?.getAttribute('data-problems');
        let last = count(); w.pressed_ = 0;
        window.addEventListener('keydown', () => { w.pressed_ = performance.now(); }, true);
        new MutationObserver(() => { const now = count(); if (now !== last) { last = now;
        w.seen_.push(performance.now() - w.pressed_); } })
        .observe(root, { subtree: true, attributes: true, childList: true, characterData: true }); }"""
    )
    _, x, y = await head(page)
    await page.mouse.click(x, y)
    for key in ["Delete", "Control+z"] * rounds:
        await page.keyboard.press(key)
        await page.wait_for_timeout(700)
    seen = await page.evaluate("() => window.seen_")
    return {
        "100 nodes: edit to problems, ms (median)": statistics.median(seen),
        "100 nodes: edit to problems, ms (slowest)": max(seen),
        "100 nodes: edits answered": len(seen),
    }


async def badges(page: Any, rounds: int) -> dict[str, float]:
    """From a frame that makes a node run to its badge, in ms, this process's clock to the page's answer."""
    found: list[float] = []
    for index in range(rounds):
        node = f"n{index + 2}"
        badge = page.locator(f'.react-flow__node[data-id="use:{node}"] [data-activity]:not([data-activity="idle"])')
        began = time.perf_counter()
        page.sockets_[-1].send(json.dumps(_frame(index + 1, node, page.url)))
        await badge.wait_for(state="attached")
        found.append((time.perf_counter() - began) * 1000)
    return {"frame to badge, ms (median)": statistics.median(found)}


if __name__ == "__main__":
    main()
