"""The mailbox of a walker takes values on edges, and the verdicts on loops, choices and maps.

What is for an item of a map goes on to the mailbox of that item, once it begins. Pure.
"""

from collections.abc import Callable, Iterable
from typing import Any, Protocol

from walkgraph.placement.tables import EdgePlan
from walkgraph.worker.tables.walk_tables import WalkTable
from walkgraph.worker.walk.cursor import Vector
from walkgraph.worker.walk.edge_values import ArrivedValues
from walkgraph.worker.walk.progress import Progress


class RunningMap(Protocol):
    """A map whose items are in work."""

    @property
    def at(self) -> Vector:
        """The iteration of the loops around the map."""
        ...

    @property
    def mailboxes(self) -> "Iterable[Mailbox]":
        """The mailboxes of the items in work."""
        ...

    def into(self, item: int, give: "Callable[[Mailbox], None]") -> None:
        """Give an item what has come for it: at once, when it begins, or never if it is done."""
        ...

    def done_elsewhere(self, item: int) -> None:
        """Note that an item is done on another rank."""
        ...


class Mailbox:
    def __init__(
        self, table: WalkTable, progress: Progress, around: "Mailbox | None" = None, item: Vector = ()
    ) -> None:
        """For an item of a map, `around` is the mailbox of the walker outside, and `item` the iteration of the map and
        the loops around it."""
        self.arrived = ArrivedValues()
        self.awake: set[int] = set(table.uses)
        """Uses that may be able to go on."""
        self._table, self._progress, self._around, self._item = table, progress, around, item
        self._maps: dict[int, RunningMap] = {}
        """Standing use -> the map that runs."""
        self._early: dict[tuple[int, Vector], list[Callable[[RunningMap], None]]] = {}
        """(standing use, iteration) -> what has come for a map that has not begun."""

    def feed(self, edge: int, key: Vector, value: Any) -> None:
        """Take a value that came over an edge to a use of this rank."""
        plan = self._table.plan.edges[edge]
        standing = self._table.inside.uses.get(plan.target.use)
        if standing is None or plan.common <= len(self._table.uses[standing].plan.loops):
            self.arrived.put(edge, key, value)
            self._wake(plan.target.use)
        else:
            self._into(standing, key, lambda item: item.feed(edge, key, value))

    def feed_input(self, name: str, value: Any) -> None:
        for edge in self._table.readers.get(name, ()):
            self.feed(edge.index, (), value)

    def judge(self, loop: int, key: Vector, stop: bool, *, closing: bool = False) -> None:
        """Take a verdict: whether an iteration of a loop was the last. `closing`: the chunk of this iteration of the
        loop `chunk` has no new items."""
        standing = self._table.inside.loops.get(loop)
        if standing is not None:
            self._into(standing, key, lambda item: item.judge(loop, key, stop, closing=closing))
            return
        self._progress.verdicts.judge(loop, key, stop, closing=closing)
        self._rouse(loop)

    def choose(self, choice: int, key: Vector, branch: int) -> None:
        """Take the verdict of a choice."""
        standing = self._table.inside.choices.get(choice)
        if standing is not None:
            self._into(standing, key, lambda item: item.choose(choice, key, branch))
            return
        self._progress.verdicts.choose(choice, key, branch)
        self.awake.update(self._table.branches[choice])

    def count(self, loop: int, key: Vector, items: int) -> None:
        """Take the number of a map's items."""
        standing = self._table.inside.loops.get(loop)
        if standing is not None:
            self._into(standing, key, lambda item: item.count(loop, key, items))
            return
        self._progress.verdicts.count(loop, key, items)
        self.awake.update(self._table.loops[loop].uses)

    def item_done(self, loop: int, key: Vector) -> None:
        """Note that an item of a map is done on another rank."""
        standing = self._table.inside.loops.get(loop)
        if standing is not None:
            self._into(standing, key, lambda item: item.item_done(loop, key))
            return
        for use in self._table.loops[loop].uses:
            self._to_map(use, key[:-1], lambda items: items.done_elsewhere(key[-1]))

    def store(self, edge: EdgePlan) -> ArrivedValues:
        """The place of the values of an edge into a use of the walker."""
        if self._around is not None and edge.common < len(self._item):
            return self._around.store(edge)
        return self.arrived

    # ── maps ──

    def begin(self, standing: int, items: RunningMap) -> None:
        """Give a map that begins what has come for it."""
        self._maps[standing] = items
        for take in self._early.pop((standing, items.at), ()):
            take(items)

    def end(self, standing: int) -> None:
        """Note that a map is over."""
        del self._maps[standing]

    def _into(self, standing: int, key: Vector, give: "Callable[[Mailbox], None]") -> None:
        """Give the item that a key names what has come for it."""
        depth = len(self._table.uses[standing].plan.loops)
        self._to_map(standing, key[:depth], lambda items: items.into(key[depth], give))

    def _to_map(self, standing: int, at: Vector, take: Callable[[RunningMap], None]) -> None:
        """Tell the map that runs in an iteration: now, once it begins, or not at all if it is over."""
        items = self._maps.get(standing)
        if items is not None and items.at == at:
            take(items)
            return
        state, now = self._progress.state[standing], self._progress.at[standing]
        passed = state == "ended" or (now is not None and (at < now or (at == now and state != "waiting")))
        if not passed:
            self._early.setdefault((standing, at), []).append(take)

    def _wake(self, use: int) -> None:
        """Let a use go on, in whichever items."""
        standing = self._table.inside.uses.get(use)
        self.awake.add(use if standing is None else standing)
        if standing in self._maps:
            for mailbox in self._maps[standing].mailboxes:
                mailbox._wake(use)

    def _rouse(self, loop: int) -> None:
        """Let the uses in a loop go on, in whichever items."""
        self.awake.update(self._table.loops[loop].uses)
        for items in self._maps.values():
            for mailbox in items.mailboxes:
                mailbox._rouse(loop)
