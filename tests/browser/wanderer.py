"""Makes random gestures on the canvas, and remembers the document after each of them."""

from __future__ import annotations

import json
import random
import re
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from playwright.sync_api import Locator

from tests.browser.expecting import expect
from tests.browser.person import Person, Point

Document = dict[str, Any]
WORDS = [
    "loop",
    "map",
    "parallel",
    "sequence",
    "note",
    "frame",
    "flow.noise",
    "text.tokenizer",
    "media.picture_in",
    "llm",
]
NUDGE = "nudge"
"""Nudges in quick succession are one step of the history."""
WALKS = 14

STILL_MS = 80
SCENE = """async (board, [wanted, stillMs]) => {
  const root = board.getRootNode();
  const shape = () => {
    const boxes = [...board.querySelectorAll(".react-flow__node, .react-flow__handle")].map((element) => {
      const { x, y, width, height } = element.getBoundingClientRect();
      return [x, y, width, height];
    });
    return `${root.querySelectorAll("*").length} ${boxes}`;
  };
  for (let seen = null, since = 0; ; await new Promise(requestAnimationFrame)) {
    const now = shape();
    if (now !== seen) [seen, since] = [now, performance.now()];
    else if (performance.now() - since > stillMs) break;
  }
  const pane = board.querySelector(".react-flow__pane").getBoundingClientRect();
  const hit = (x, y) => {
    const inside = x > pane.left + 4 && x < pane.right - 4 && y > pane.top + 4 && y < pane.bottom - 4;
    return inside ? root.elementFromPoint(x, y) : null;
  };
  const grip = (node) => {
    const box = node.getBoundingClientRect();
    for (const [x, y] of [[0.5, 6], [0.7, 6], [0.3, 6], [0.9, 6], [0.8, box.height - 6], [0.2, box.height - 6]]) {
      const at = [box.left + box.width * x, box.top + y];
      const found = hit(...at);
      const free = !found?.closest("input, button, textarea, .react-flow__handle");
      if (free && found?.closest(".react-flow__node") === node)
        return at;
    }
    return null;
  };
  const nodes = [...board.querySelectorAll(".react-flow__node")].flatMap((node) => {
    const at = grip(node);
    return at ? [{ id: node.dataset.id, at }] : [];
  });
  const seen = wanted === "ports" ? [...board.querySelectorAll(".react-flow__handle")] : [];
  const ports = seen.flatMap((port) => {
    const box = port.getBoundingClientRect();
    const at = [box.left + box.width / 2, box.top + box.height / 2];
    if (hit(...at) !== port) return [];
    const node = port.closest(".react-flow__node").dataset.id;
    return [{ side: port.classList.contains("source") ? "source" : "target", node, at }];
  });
  const spots = [];
  const enough = wanted === "spots" ? Infinity : 1;
  for (let x = pane.left + 40; x < pane.right - 40 && spots.length < enough; x += 90)
    for (let y = pane.top + 30; y < pane.bottom - 60 && spots.length < enough; y += 60)
      if (hit(x, y)?.classList.contains("react-flow__pane")) spots.push([x, y]);
  return { nodes, ports, spots };
}"""
"""Once nothing has moved, come or gone for so long: nodes, and of ports and spots all that are `wanted`; of spots one
at least, where there is one."""
OPEN = """board => [".wg-quick, .wg-menu", ".wg-note textarea"].map(
  what => board.getRootNode().querySelectorAll(what).length > 0)"""


@dataclass(frozen=True)
class Moment:
    document: Document
    done: str
    """The gesture that led to it."""


class Wanderer:
    def __init__(self, person: Person, seed: int) -> None:
        self.person = person
        self.page = person.page
        self.done: Counter[str] = Counter()
        """Gestures that changed the document, by name."""
        self.story: list[str] = []
        """The actions so far, in order."""
        self._random = random.Random(seed)
        self._count = 0
        self._gestures: dict[str, tuple[int, Callable[[], object]]] = {
            "add": (5, self._add),
            "connect": (5, self._connect),
            "drag": (5, self._drag),
            NUDGE: (4, self._nudge),
            "delete": (3, self._delete),
            "undo": (5, lambda: self._keys("Control+z")),
            "redo": (3, lambda: self._keys("Control+Shift+z")),
            "wrap": (2, lambda: self._on_one("Control+g")),
            "mute": (2, lambda: self._on_one(self._random.choice(["Control+m", "Control+b"]))),
            "rename": (3, self._rename),
            "parameter": (3, self._parameter),
            "paste": (2, self._paste),
            "write": (2, self._write),
            "walk": (1, self._walk),
            "switch": (3, self._switch),
            "open": (2, lambda: self._on_one("o", "loop:", "map:", "parallel:", "sequence:")),
            "enter": (1, lambda: self._on_one("Shift+Enter", "loop:", "map:", "sequence:")),
        }
        self.read_along()
        self._history = [Moment(self.shown(), "")]
        self._at = 0

    def read_along(self) -> None:
        """Bring up the Code panel, on a page that was just loaded."""
        self.page.get_by_role("tab", name="Code", exact=True).click()

    @property
    def document(self) -> Document:
        """The document that the page must show now."""
        return self._history[self._at].document

    def shown(self) -> Document:
        """The document that the page shows, read from its Code panel."""
        return json.loads(self.page.locator(".wg-code .wg-source").text_content() or "")

    def wander(self) -> str:
        """One gesture, and whether the document became what it had to. The gesture's name."""
        names = list(self._gestures)
        name = self._random.choices(names, [self._gestures[name][0] for name in names])[0]
        self._count += 1
        self.story.append(name)
        self._tidy_up()
        self._gestures[name][1]()
        self._tidy_up()
        self._judge(name, self.shown())
        return name

    def retrace(self) -> None:
        """Undo the last edit and do it again, each exactly."""
        for name, keys in (("undo", "Control+z"), ("redo", "Control+Shift+z")):
            self._keys(keys)
            self._judge(name, self.shown())

    def back_and_forth(self) -> None:
        """Undo everything, and do it again."""
        end = self._history[-1].document
        for keys, words in ((("Control+z"), "Nothing to undo"), (("Control+Shift+z"), "Nothing to redo")):
            for _ in range(len(self._history)):
                self._keys(keys)
            expect(self.page.get_by_role("button", name=words)).to_be_visible()
            assert self.shown() == (self._history[0].document if "undo" in words else end)
        self._at = len(self._history) - 1

    # ── what must have come of it ───────────────────────────────────────────────────────────────

    def _judge(self, name: str, now: Document) -> None:
        if name in ("undo", "redo"):
            self._at = self._travelled(-1 if name == "undo" else 1, now)
        elif now != self.document:
            self._history[self._at + 1 :] = [Moment(now, name)]
            self._at += 1
            self.done[name] += 1

    def _travelled(self, step: int, now: Document) -> int:
        """The place in the history where the page is, after an undo or redo."""
        at = self._at + step
        if not 0 <= at < len(self._history):
            assert now == self.document, "an undo or redo of nothing changed the document"
            return self._at
        while now != self._history[at].document:
            further = at + step
            merged = 0 <= further < len(self._history) and self._history[max(at, further)].done == NUDGE
            assert merged, f"{self.story}: not what it was: {differences(self._history[at].document, now)}"
            at = further
        self.done["undo" if step < 0 else "redo"] += 1
        return at

    def _tidy_up(self) -> None:
        """Close what a gesture left open."""
        asked, written = self.page.locator(".wg-board").evaluate(OPEN)
        if asked:
            self.page.keyboard.press("Escape")
            expect(self.page.locator(".wg-quick, .wg-menu")).to_have_count(0)
        if written:
            for note in self.page.locator(".wg-note textarea").all():
                note.press("Escape")

    # ── gestures ────────────────────────────────────────────────────────────────────────────────

    def _scene(self, wanted: str = "nodes") -> dict[str, list[Any]]:
        """The visible controls; the whole canvas if there are none."""
        board = self.page.locator(".wg-board")
        found = board.evaluate(SCENE, [wanted, STILL_MS])
        if not found["spots"] or not found["nodes"]:
            self._keys("f")
            found = board.evaluate(SCENE, [wanted, STILL_MS])
        return found

    def _keys(self, *keys: str) -> None:
        board = self.page.locator(".wg-board")
        if not board.evaluate("board => board.contains(board.getRootNode().activeElement)"):
            board.focus()
        for key in keys:
            self.page.keyboard.press(key)

    def _one(self, *kinds: str) -> str | None:
        """Click a node."""
        nodes = [node for node in self._scene()["nodes"] if node["id"].startswith(kinds or "")]
        if not nodes:
            return None
        node = self._random.choice(nodes)
        self.page.mouse.click(*node["at"])
        expect(self.person.node(node["id"])).to_have_class(re.compile("selected"))
        return node["id"]

    def _on_one(self, key: str, *kinds: str) -> None:
        if self._one(*kinds):
            self._keys(key)

    def _spot(self) -> Point | None:
        spots = self._scene("spots")["spots"]
        return tuple(self._random.choice(spots)) if spots else None

    def _add(self) -> None:
        spot = self._spot()
        if spot is None:
            return
        self.page.mouse.dblclick(*spot)
        search = self.page.get_by_role("combobox", name="Add", exact=True)
        search.fill(self._random.choice(WORDS))
        search.press("Enter")

    def _connect(self) -> None:
        ports = self._scene("ports")["ports"]
        ends = [[port for port in ports if port["side"] == side] for side in ("source", "target")]
        if all(ends):
            start, end = (self._random.choice(some)["at"] for some in ends)
            self.person.drag(tuple(start), tuple(end))

    def _drag(self) -> None:
        scene = self._scene("spots")
        if scene["nodes"] and scene["spots"]:
            start, end = self._random.choice(scene["nodes"])["at"], self._random.choice(scene["spots"])
            self.person.drag(tuple(start), tuple(end))

    def _nudge(self) -> None:
        if self._one():
            self._keys(self._random.choice(["ArrowLeft", "ArrowRight", "ArrowUp", "ArrowDown"]))

    def _delete(self) -> None:
        if self._one("use:", "node:", "note:", "frame:"):
            self._keys(self._random.choice(["Delete", "Shift+Delete"]))

    def _rename(self) -> None:
        """A node or container in the inspector."""
        if self._one("use:", "node:", "loop:"):
            with self._inspector() as inspector:
                field = inspector.get_by_label("Name", exact=True).last
                field.fill(f"named_{self._count}")
                field.press("Enter")

    def _parameter(self) -> None:
        if self._one("use:", "node:"):
            with self._inspector() as inspector:
                fields = inspector.locator("input[inputmode=decimal]")
                if fields.count():
                    field = fields.nth(self._random.randrange(fields.count()))
                    field.fill(str(self._random.randint(1, 64)))
                    field.press("Enter")

    def _paste(self) -> None:
        if not self._one("use:", "node:"):
            return
        self._keys("Control+c")
        told, refused = self.page.locator(".wg-board > [aria-live]"), self.page.locator(".wg-toast.error")
        refused.evaluate_all("all => all.forEach(toast => toast.querySelector('button').click())")
        expect(refused).to_have_count(0)
        expect(told).to_have_text("Copied")
        self._keys("Control+v")
        expect(told.filter(has_text="Pasted").or_(refused)).to_be_visible()

    def _write(self) -> None:
        """A note."""
        spot = self._spot()
        if spot is None:
            return
        self.page.mouse.click(*spot, button="right")
        self.page.get_by_role("menuitem", name="Add a note").click()
        expect(self.page.locator(".wg-note textarea")).to_be_focused()
        self._judge("note", self.shown())
        self.page.keyboard.type(f"Note {self._count}")
        self.page.keyboard.press("Escape")

    def _walk(self) -> None:
        if len(self._tabs().all()) < WALKS:
            self.page.get_by_role("button", name="Add a Walk", exact=True).click()

    def _switch(self) -> None:
        self._random.choice(self._tabs().all()).click()

    def _tabs(self) -> Locator:
        return self.page.get_by_role("tablist", name="Canvases").get_by_role("tab")

    def _inspector(self) -> Inspector:
        return Inspector(self.person)


def differences(before: Any, after: Any, at: str = "") -> list[str]:
    """The places where two documents differ, and how."""
    if isinstance(before, dict) and isinstance(after, dict):
        keys = [*before, *(key for key in after if key not in before)]
        return [line for key in keys for line in differences(before.get(key), after.get(key), f"{at}/{key}")]
    return [] if before == after else [f"{at}: {before} -> {after}"]


class Inspector:
    """The inspector in front of the code, for a while."""

    def __init__(self, person: Person) -> None:
        self._tabs = person.page.get_by_role("tablist", name="Right panel")
        self._panel = person.page.locator(".wg-inspector")

    def __enter__(self) -> Locator:
        self._tabs.get_by_role("tab", name="Inspector").click()
        return self._panel

    def __exit__(self, *_: object) -> None:
        self._tabs.get_by_role("tab", name="Code", exact=True).click()
