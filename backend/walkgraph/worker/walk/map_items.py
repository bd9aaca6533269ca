"""The items of a map on one rank: which are in work, what they have collected, and the order in which they send.

An item begins when fewer than `width` of those before it are open, on any rank with uses in the map. So no rank gets
further ahead of another than that, and what the items hold stays bounded, however many there are. Pure.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any, Generic, Protocol, TypeVar

from walkgraph.placement.tables import EdgePlan, Gather
from walkgraph.worker.tables.walk_tables import MapTable
from walkgraph.worker.walk.cursor import Vector
from walkgraph.worker.walk.edge_values import CollectedParts, LeavingValues
from walkgraph.worker.walk.mailbox import Mailbox

Give = Callable[[EdgePlan, Vector, Any], None]


class ItemWalker(Protocol):
    """A walker of one item."""

    @property
    def over(self) -> bool: ...

    @property
    def mailbox(self) -> Mailbox: ...

    @property
    def leaving(self) -> LeavingValues: ...

    def advance(self) -> bool: ...


W = TypeVar("W", bound=ItemWalker)


class MapItems(Generic[W]):
    def __init__(
        self,
        table: MapTable,
        at: Vector,
        count: int,
        width: int,
        begin: Callable[[Vector, Give], W],
        send: Give,
        done: Callable[[Vector], None],
    ) -> None:
        """`at`: the iteration of the loops around the map. `begin` makes the walker of an item, from its iteration and
        what takes the values that it sends; `send` takes them in the order of the items; `done` tells other ranks of
        an item that is done here."""
        self.at = at
        self.open: dict[int, W] = {}
        """Items in work here."""
        self._table, self._count, self._width = table, count, width
        self._begin, self._send, self._tell = begin, send, done
        self._next = 0
        """The next item to begin."""
        self._unfinished = 0
        """Items before that one which are not done on every rank."""
        self._done: Counter[int] = Counter()
        """Item -> the number of ranks where it is done, until it is on all."""
        self._sending = 0
        """The item that sends; those behind it wait."""
        self._unsent: dict[int, list[tuple[EdgePlan, Vector, Any]]] = defaultdict(list)
        """Item behind it -> what it wants to send."""
        self._early: dict[int, list[Callable[[Mailbox], None]]] = defaultdict(list)
        """Values and verdicts that have come for items that have not begun."""
        self._collected: dict[int, dict[int, list[Any]]] = {edge.index: {} for edge in table.collected}
        """Edge -> item -> its values."""

    @property
    def over(self) -> bool:
        """True once all items are done here."""
        return self._next == self._count and not self.open

    def advance(self) -> bool:
        """Begin items and go on with all that are open; True if anything moved."""
        moved = False
        while self._next < self._count and self._unfinished < self._width:
            self._open(self._next)
            moved = True
        for item, walker in list(self.open.items()):
            moved |= walker.advance()
            if walker.over:
                self._close(item, walker)
                moved = True
        return moved

    @property
    def mailboxes(self) -> Iterable[Mailbox]:
        return [walker.mailbox for walker in self.open.values()]

    def into(self, item: int, give: Callable[[Mailbox], None]) -> None:
        if item in self.open:
            give(self.open[item].mailbox)
        elif self._next <= item < self._count:
            self._early[item].append(give)

    def done_elsewhere(self, item: int) -> None:
        self._done[item] += 1
        if self._done[item] == len(self._table.plan.ranks):
            del self._done[item]
            self._unfinished -= 1

    def outputs(self, gather: Callable[[Sequence[Any], Gather], Any]) -> dict[str, Any]:
        """The outputs of the standing use: what each edge has collected, in the order of the items."""
        found: dict[str, Any] = {}
        for edge in self._table.collected:
            items = self._collected[edge.index]
            values = [value for item in sorted(items) for value in items[item]]
            if edge.leave == "collect":
                found[edge.source.port] = CollectedParts(values)
            elif values or edge.gather == "list":
                found[edge.source.port] = gather(values, edge.gather)
        return found

    def _open(self, item: int) -> None:
        self._next += 1
        self._unfinished += 1
        self.open[item] = self._begin((*self.at, item), partial(self._leave, item))
        for give in self._early.pop(item, ()):
            give(self.open[item].mailbox)

    def _close(self, item: int, walker: W) -> None:
        del self.open[item]
        for edge, items in self._collected.items():
            items[item] = walker.leaving.take(edge)
        self._tell((*self.at, item))
        self.done_elsewhere(item)
        while self._sending < self._next and self._sending not in self.open:
            self._sending += 1
            for edge, key, value in self._unsent.pop(self._sending, ()):
                self._send(edge, key, value)

    def _leave(self, item: int, edge: EdgePlan, key: Vector, value: Any) -> None:
        if item == self._sending:
            self._send(edge, key, value)
        else:
            self._unsent[item].append((edge, key, value))
