"""Engines of several ranks in one process, for loops whose parts lie on them: a thread each, and mail between them."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

import torch

from walkgraph.engine.engine import Engine
from walkgraph.engine.loops.loop_peers import LoopPeers, PeerMemory
from walkgraph.engine.loops.loop_runs import LoopDone
from walkgraph.engine.loops.spec import LoopCall
from walkgraph.ids import Rank
from walkgraph.wire.spanning import BetweenParts, LaunchedTo

OFFSET = 64
"""The places where inboxes begin in what peers have opened."""
LONGEST = 60.0
"""Seconds for what takes one at most on an idle machine."""


class Node:
    """One rank: an engine in a thread of its own, which takes its mail between two steps."""

    def __init__(self, rank: int, engine: Engine, nbytes: int = 1 << 17) -> None:
        self.rank, self.engine = Rank(rank), engine
        self.arena = torch.zeros(OFFSET + nbytes, dtype=torch.uint8)
        self.peers: dict[Rank, Node] = {}
        self.mail: queue.Queue[Callable[[], object] | None] = queue.Queue()
        self.done: dict[str, LoopDone] = {}
        self.events: list[Any] = []
        self.log: list[tuple[str, Any]] = []
        self.deaf = False
        """Sends nothing."""
        engine.connect_peers(PeerMemory(self.arena[OFFSET:], OFFSET), self)
        self._working = False
        self._thread = threading.Thread(target=self._live, daemon=True)

    # ── what the parts ask for ──

    def address(self, rank: Rank) -> int:
        return self.peers[rank].arena.data_ptr()

    def send(self, to: Rank, word: BetweenParts) -> None:
        if isinstance(word, LaunchedTo):
            self.log.append((word.run, word.upto))
        it = self.peers[to]
        if not self.deaf:
            it.mail.put(lambda: it.engine.loops.receive(self.rank, word))

    # ── a life ──

    def start(self) -> None:
        self._thread.start()

    def end(self) -> None:
        self.mail.put(None)
        self._thread.join(60)
        assert not self._thread.is_alive(), "it waits for ever"

    def do(self, what: Callable[[], object]) -> None:
        """In its thread, between two steps; waits for it."""
        done = threading.Event()
        self.mail.put(lambda: (what(), done.set()))
        assert done.wait(LONGEST), "it waits for ever"

    def add(self, call: LoopCall) -> None:
        self.mail.put(lambda: self.engine.add_loop(call))

    @property
    def busy(self) -> bool:
        return self.mail.unfinished_tasks > 0 or not self.engine.idle or self._working

    @property
    def peers_here(self) -> LoopPeers:
        """Its engine's view of its peers."""
        peers = self.engine.loops.admission.peers
        assert isinstance(peers, LoopPeers)
        return peers

    @property
    def parts(self) -> list[LoopCall]:
        return [part.call for part in self.peers_here.parts.all]

    def came(self, event: Any) -> None:
        """Takes an event of the engine."""

    def _live(self) -> None:
        while True:
            try:
                mail = self.mail.get(block=self.engine.idle, timeout=LONGEST)
            except queue.Empty:
                mail = _nothing
            if mail is None:
                return
            mail()
            self._step()
            if mail is not _nothing:
                self.mail.task_done()

    def _step(self) -> None:
        self._working = True
        if not self.engine.idle:
            for event in self.engine.step():
                self.events.append(event)
                if isinstance(event, LoopDone):
                    self.done[event.call.run] = event
                self.came(event)
        self._working = False


def _nothing() -> None:
    return


def connected(*nodes: Node) -> None:
    for one in nodes:
        one.peers = {other.rank: other for other in nodes if other is not one}
        one.start()


def quiet(nodes: Sequence[Node], *, parts: bool = True) -> bool:
    """All mail taken and nothing to be done; with `parts` nothing held either."""
    end = time.monotonic() + LONGEST
    while time.monotonic() < end:
        for one in nodes:
            one.do(lambda: None)
        # Twice, for who was looked at first may have mail from who was looked at last.
        if not any(one.busy or (parts and one.parts) for one in (*nodes, *nodes)):
            return True
    return False
