"""Links are measured once, and no host takes part in two measurements at once."""

import asyncio
from collections import Counter

from walkgraph.cluster.host_links import HostLinks, apart
from walkgraph.cluster.link_meter import Measured


class Hosts:
    def __init__(self) -> None:
        self.links = HostLinks(self.measure)
        self.asked = Counter[frozenset[str]]()
        self.busy = set[str]()
        self.failing = set[str]()

    async def measure(self, one: str, other: str) -> Measured | None:
        pair = {one, other}
        assert self.busy.isdisjoint(pair), "a host is in two measurements"
        self.busy |= pair
        self.asked[frozenset(pair)] += 1
        await asyncio.sleep(0)
        self.busy -= pair
        return None if self.failing & pair else Measured(float(len(one + other)), 0.5)

    async def keep(self, *nodes: str) -> None:
        self.links.keep(nodes)
        await self.links.measured()


async def test_each_link_is_measured_once() -> None:
    hosts = Hosts()
    await hosts.keep("a", "bb", "ccc", "d", "e")
    await hosts.keep("e", "a", "bb", "ccc", "d")
    assert len(hosts.asked) == 10
    assert set(hosts.asked.values()) == {1}
    assert hosts.links.link("a", "bb") == hosts.links.link("bb", "a") == Measured(3.0, 0.5)
    assert hosts.links.link("a", "a") is None


async def test_a_host_that_joins_anew_is_measured_again() -> None:
    hosts = Hosts()
    await hosts.keep("a", "b", "c")
    await hosts.keep("a", "b")
    assert hosts.links.link("a", "c") is None
    await hosts.keep("a", "b", "c")
    assert hosts.asked == {frozenset("ab"): 1, frozenset("ac"): 2, frozenset("bc"): 2}


async def test_a_link_that_can_not_be_measured_is_not_tried_again() -> None:
    hosts = Hosts()
    hosts.failing.add("b")
    for _ in range(2):
        await hosts.keep("a", "b", "c")
    assert set(hosts.asked.values()) == {1}
    assert hosts.links.link("a", "b") is None
    assert hosts.links.link("a", "c") is not None


async def test_hosts_that_join_or_leave_meanwhile_are_heeded() -> None:
    hosts = Hosts()
    hosts.links.keep(["a", "b"])
    await asyncio.sleep(0)
    hosts.links.keep(["a", "c"])
    await hosts.links.measured()
    assert hosts.links.link("a", "b") is None
    assert hosts.links.link("a", "c") is not None


def test_pairs_are_taken_as_far_as_they_share_no_host() -> None:
    assert apart([("a", "b"), ("a", "c"), ("b", "c"), ("c", "d")]) == [("a", "b"), ("c", "d")]
