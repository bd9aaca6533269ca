"""The actions of a person in the studio: look, click, type, drag. Nothing here reaches behind the page."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from playwright.sync_api import Download, Locator, Page

from tests.browser.expecting import expect
from tests.support.serving import Service

Point = tuple[float, float]
T = TypeVar("T")
PATIENCE = 240.0
"""Seconds until a test gives up on what is to appear: other tests, a service and a worker use the same cores."""


def empty(page: Page, origin: str) -> None:
    """Show a page of this origin that does nothing."""
    page.goto(f"{origin}/health/live")


class Person:
    def __init__(self, page: Page, running: Service, folder: Path, *, alone: bool = True) -> None:
        self.page = page
        self.running = running
        self.alone = alone
        """No other tests run beside this one: somebody may look at its screenshots."""
        self.expected: list[str] = []
        """Parts of console errors that this test brings about."""
        self._folder = folder
        self._looks = 0
        self._heard: list[tuple[Any, Callable[[Any], object]]] = []

    def look(self, name: str) -> Path:
        """A screenshot, numbered in the order of looking; none beside other tests, whose time it would take."""
        self._looks += 1
        path = self._folder / f"{self._looks:02}_{name}.png"
        if self.alone:
            self.page.screenshot(path=path)
        return path

    def another(self) -> Person:
        """Another tab of the same browser; what it logs counts as this one's."""
        found = Person(self.page.context.new_page(), self.running, self._folder, alone=self.alone)
        found.expected = self.expected
        found._looks = self._looks + 20
        return found

    def hear(self, event: Any, hear: Callable[[Any], object]) -> None:
        """Listen to an event of the page that Playwright reports, until the test ends."""
        self.page.on(event, hear)
        self._heard.append((event, hear))

    def leave(self) -> None:
        """End the page, but not its tab, nor its process: for that, an empty page of the same origin comes."""
        for event, hear in self._heard:
            self.page.remove_listener(event, hear)
        empty(self.page, self.running.told["url"])

    # ── getting somewhere ───────────────────────────────────────────────────────────────────────

    def address(self) -> str:
        """Whose first visitor is logged in."""
        with self.running.client() as client:
            return client.studio_address()

    def log_in(self) -> None:
        """Without a page. The service closes connections that are idle for 15 s: one that Playwright kept from the test
        before may be reset under the request, which is then sent again."""
        answer = self.page.context.request.get(self.address(), max_retries=2)
        assert answer.ok, answer

    def go(self, path: str) -> None:
        self.page.goto(f"{self.running.told['url']}/studio/{path}")

    def open(self, graph: str) -> None:
        """A graph in the editor, drawn."""
        self.go(f"editor?graph={graph}")
        expect(self.page.locator(".wg .react-flow")).to_be_visible()

    def on_card(self, button: str) -> None:
        """Press a button of the start page by its key, `open.GRAPH` or `copy.GRAPH`. While the cards come, the first
        one with such a button may be another graph's."""
        self.page.locator(f".st-key-{button.replace('.', '-')}").get_by_role("button").click()

    def new_graph(self, name: str) -> None:
        """From the start page to an empty canvas."""
        self.go("")
        self.page.get_by_role("button", name="New graph").click()
        self.page.get_by_label("Name", exact=True).fill(name)
        self.page.get_by_role("button", name="Create graph").click()
        expect(self.page.locator(".wg .react-flow")).to_be_visible()

    def new_walk(self, name: str) -> None:
        """An empty Walk, whose canvas opens."""
        self.page.get_by_role("button", name="Add a Walk").click()
        expect(self.page.get_by_text("This Walk has no steps yet.")).to_be_visible()
        # Before, the field is that of the graph.
        expect(self.page.get_by_label("Name", exact=True)).to_have_value(re.compile("^walk"))
        self.enter("Name", name)
        tab = self.page.get_by_role("tab", name=re.compile(f"^{name}"))
        expect(tab).to_have_attribute("aria-selected", "true")

    def tab(self, name: str) -> None:
        self.page.get_by_role("tablist", name="Views").get_by_role("tab", name=name, exact=True).click()

    def canvas(self, name: str) -> None:
        """The canvas of a Walk (by label or name), or Components."""
        tab = self.page.get_by_role("tablist", name="Canvases").get_by_role("tab", name=name, exact=True)
        tab.click()
        expect(tab).to_have_attribute("aria-selected", "true")

    def saved(self) -> None:
        expect(self.page.locator(".wg-saving.saved")).to_be_visible()

    def upload(self, file: Path) -> None:
        """To the library, on the start page."""
        self.go("")
        self.page.get_by_role("button", name="Open a file").click()
        self.page.get_by_test_id("stFileUploaderDropzoneInput").set_input_files(file)
        self.page.get_by_role("button", name="Import").click()

    def keep(self, download: Download) -> Path:
        path = self._folder / download.suggested_filename
        download.save_as(path)
        return path

    def press(self, keys: str) -> None:
        self.page.keyboard.press(keys)

    # ── on the canvas ───────────────────────────────────────────────────────────────────────────

    def node(self, id_: str) -> Locator:
        return self.page.locator(f'.react-flow__node[data-id="{id_}"]')

    def wire(self, from_: str, to: str) -> Locator:
        return self.page.locator(f'.react-flow__edge[aria-label*="{from_}"][aria-label*="{to}"]')

    def halfway(self, from_: str, to: str) -> Point:
        """A point on a wire in the window."""
        x, y = (
            self.wire(from_, to)
            .locator(".wg-line")
            .evaluate(
                """(line) => { const at = line.getPointAtLength(line.getTotalLength() / 2), m = line.getScreenCTM();
            return [at.x * m.a + m.e, at.y * m.d + m.f]; }"""
            )
        )
        return x, y

    def near(self) -> None:
        """From all of it in sight, too far for ports, to close enough."""
        far = self.page.locator(".wg-board.wg-lod")
        expect(far).to_be_visible()
        self.page.get_by_role("button", name="Zoom in").click()
        expect(far).to_have_count(0)

    def port(self, reference: str, side: str) -> Locator:
        """`side`: `source` or `target`."""
        return self.page.locator(f'.react-flow__handle.{side}[data-handleid="{reference}"]')

    def pane(self) -> Locator:
        return self.page.locator(".react-flow__pane")

    def add(self, words: str, at: Point) -> None:
        """Double-click an empty place of the canvas, type, Enter."""
        box = self.box(self.pane())
        self.page.mouse.dblclick(box[0] + at[0], box[1] + at[1])
        search = self.page.get_by_role("combobox", name=re.compile("^Add$|^Where"))
        search.fill(words)
        search.press("Enter")
        expect(search).to_have_count(0)

    def connect(self, from_: str, to: str) -> None:
        self.drag(self.middle(self.port(from_, "source")), self.middle(self.port(to, "target")))

    def drag(self, start: Point, end: Point, steps: int = 8) -> None:
        mouse = self.page.mouse
        mouse.move(*start)
        mouse.down()
        mouse.move(start[0] + 6, start[1] + 6)
        mouse.move(*end, steps=steps)
        mouse.move(end[0], end[1])
        mouse.up()

    def carry(self, what: Locator, onto: Locator) -> None:
        """Drags on the board of ranks while a new plan may move what is there: takes again what slipped away, and drops
        it once the page shows where it goes."""
        while not self.taken(what):
            self.page.mouse.up()
        self.page.mouse.move(*self.middle(onto), steps=8)
        while "target" not in (onto.get_attribute("class") or "").split():
            self.page.mouse.move(*self.resting(onto))
            self.frames()
        self.page.mouse.up()

    def taken(self, what: Locator) -> bool:
        """Press on it and pull: true if it follows."""
        start = self.resting(what)
        self.page.mouse.move(*start)
        self.page.mouse.down()
        self.page.mouse.move(start[0] + 6, start[1] + 6)
        self.frames()
        return self.page.locator(".ghost").count() > 0

    def resting(self, locator: Locator) -> Point:
        """The middle of an element, once it has kept its place for two frames."""
        seen, found = None, self.middle(locator)
        while found != seen:
            self.frames()
            seen, found = found, self.middle(locator)
        return found

    def frames(self) -> None:
        """Wait until the page was drawn with what has happened."""
        self.page.evaluate("() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")

    def sought(self, words: str, key: str) -> Locator:
        """The row of the palette that is its first once the list follows the search."""
        self.page.get_by_placeholder("Search, or").fill(words)
        row = self.page.get_by_role("listbox", name="Palette").get_by_role("option").first
        expect(row).to_have_attribute("data-key", key)
        return row

    def select(self, id_: str) -> None:
        """Click a node's head, right of its fields."""
        box = self.box(self.node(id_))
        self.page.mouse.click(box[0] + box[2] * 0.7, box[1] + 6)
        expect(self.node(id_)).to_have_class(re.compile("selected"))

    def box(self, locator: Locator) -> tuple[float, float, float, float]:
        """x, y, width, height in the window. The page may draw an element anew between the two questions: the one that
        was seen first then has no box."""
        found = None
        while found is None:
            expect(locator.first).to_be_visible()
            found = locator.first.bounding_box()
        return found["x"], found["y"], found["width"], found["height"]

    def middle(self, locator: Locator) -> Point:
        x, y, width, height = self.box(locator)
        return x + width / 2, y + height / 2

    def at(self, spot: Point) -> Point:
        """A spot of the canvas in the window."""
        x, y, _, _ = self.box(self.pane())
        return x + spot[0], y + spot[1]

    def move_to(self, id_: str, spot: Point) -> None:
        """Drag a node by its head to a spot of the canvas."""
        x, y, width, _ = self.box(self.node(id_))
        end = self.at(spot)
        self.drag((x + width * 0.7, y + 6), (end[0] + width * 0.7, end[1] + 6))

    def on_node(self, id_: str, entry: str) -> None:
        """An entry of a node's context menu."""
        x, y, width, _ = self.box(self.node(id_))
        self.page.mouse.click(x + width * 0.7, y + 6, button="right")
        self.page.get_by_role("menuitem", name=entry).first.click()

    def choose(self, question: str, words: str) -> None:
        """Type into the list at the pointer, Enter."""
        search = self.page.get_by_role("combobox", name=question)
        search.fill(words)
        search.press("Enter")
        expect(search).to_have_count(0)

    def in_place(self, label: str, text: str) -> None:
        """Write into a field on the canvas."""
        field = self.page.locator(".react-flow").get_by_label(label)
        field.fill(text)
        field.press("Enter")
        expect(field).to_have_value(text)

    def enter(self, label: str, text: str) -> None:
        """Write into a field of a form."""
        field = self.page.get_by_label(label, exact=True)
        field.fill(text)
        field.press("Enter")

    # ── on ranks ────────────────────────────────────────────────────────────────────────────────

    def place(self, ranks: dict[int, str]) -> None:
        """By hand: everything on rank 0 but these components, each dragged onto its rank; it fits."""
        self.tab("Placement")
        self.look("chosen_by_the_service")
        self.page.get_by_role("button", name="Place by hand").click()
        for _ in ranks:
            self.page.get_by_role("button", name="+ Add a rank").click()
        for rank, node in ranks.items():
            lane = self.page.get_by_role("region", name=re.compile(f"^Rank {rank} on "))
            chip = re.compile(f"^{node},")
            self.carry(self.page.get_by_role("option", name=chip), lane)
            expect(lane.get_by_role("option", name=chip)).to_be_visible()
        toolbar = self.page.get_by_role("toolbar", name="Placement")
        expect(toolbar.get_by_text("fits", exact=True)).to_be_visible()
        self.look("placed")

    # ── what is said ────────────────────────────────────────────────────────────────────────────

    def problems(self) -> Locator:
        return self.page.get_by_role("region", name="Problems")

    def look_away(self) -> None:
        """Into another window: what is open is saved now, not a second after its last edit."""
        self.page.evaluate("() => { dispatchEvent(new Event('blur')); }")

    def stored(self, graph: str, holds: Callable[[dict[str, Any]], object] = bool) -> dict[str, Any]:
        """The draft as the service has it, once this holds of it."""
        with self.running.client() as client:
            return self.until(lambda: client.document("graph", graph)[0], holds)

    def until(self, asked: Callable[[], T], holds: Callable[[T], object]) -> T:
        """The service's answer, once this holds of it: the page shows what it has asked for before it is done.

        Where the answer lacks what is looked at, this doesn't hold yet.
        """

        def held(found: T) -> bool:
            try:
                return bool(holds(found))
            except LookupError:
                return False

        end = time.monotonic() + PATIENCE
        while not held(found := asked()):
            assert time.monotonic() < end, f"still: {found}"
            self.look_away()
            self.page.wait_for_timeout(50)
        return found

    def copied(self, graph: str, name: str) -> dict[str, Any]:
        """A graph of one's own in the library, made from another before anybody looks."""
        with self.running.client() as client:
            client.put_document("graph", name, {**client.document("graph", graph)[0], "name": name})
            return client.document("graph", name)[0]
