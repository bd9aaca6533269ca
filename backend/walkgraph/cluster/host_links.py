"""The links between the hosts of a cluster: each is measured once, when the later of its hosts has joined."""

import asyncio
import itertools
from collections.abc import Awaitable, Callable, Iterable, Sequence

from walkgraph.cluster.link_meter import Measured

Measure = Callable[[str, str], Awaitable[Measured | None]]
"""Measures the link from one node to another; None if it can't be."""
Pair = tuple[str, str]
"""Two nodes, in the order of their ids."""


class HostLinks:
    """Measures in the background: no host takes part in two measurements at once, which would share its network."""

    def __init__(self, measure: Measure) -> None:
        self._measure = measure
        self._found: dict[Pair, Measured | None] = {}
        """None: it could not be measured, and isn't tried again before one of its hosts joins anew."""
        self._nodes: tuple[str, ...] = ()
        self._measuring: asyncio.Task[None] | None = None

    def keep(self, nodes: Iterable[str]) -> None:
        """These hosts are in the cluster now."""
        self._nodes = tuple(sorted(nodes))
        self._found = {pair: link for pair, link in self._found.items() if {*pair} <= {*self._nodes}}
        if self._open() and (self._measuring is None or self._measuring.done()):
            self._measuring = asyncio.create_task(self._measure_all())

    def link(self, one: str, other: str) -> Measured | None:
        """None where it isn't known, or not yet."""
        return self._found.get((min(one, other), max(one, other)))

    async def measured(self) -> None:
        """Wait until all links of the present hosts were measured."""
        if self._measuring is not None:
            await self._measuring

    def _open(self) -> list[Pair]:
        return [pair for pair in itertools.combinations(self._nodes, 2) if pair not in self._found]

    async def _measure_all(self) -> None:
        while pairs := apart(self._open()):
            links = await asyncio.gather(*(self._measure(*pair) for pair in pairs))
            self._found |= {pair: link for pair, link in zip(pairs, links, strict=True) if {*pair} <= {*self._nodes}}


def apart(pairs: Sequence[Pair]) -> list[Pair]:
    """As many of the pairs as can be measured at once: no node is in two of them."""
    taken, found = set[str](), list[Pair]()
    for pair in pairs:
        if taken.isdisjoint(pair):
            taken.update(pair)
            found.append(pair)
    return found
