"""The shards of a rank are loaded together and end together."""

from __future__ import annotations

from msgspec.structs import replace

from tests.support.deployment import plan_named
from walkgraph.conductor.events import Command, Died, Kill, Spawn, ToRank
from walkgraph.conductor.ranks import Ranks
from walkgraph.ids import Rank
from walkgraph.placement.tables import Plan
from walkgraph.wire import messages as m
from walkgraph.wire.spec import Limits

ZERO, ONE, TWO = map(Rank, (0, 1, 2))
POOLS = (m.PoolSize(states=("main",), pages=8, page_tokens=16, page_bytes=64),)


def planned() -> Plan:
    """Ranks 0 and 2 are shards; rank 1 has none."""
    _, plan = plan_named("synthetic_states")
    first, other = plan.ranks
    shards = (ZERO, TWO)
    return replace(plan, ranks=(replace(first, shards=shards), other, replace(first, rank=TWO, shards=shards)))


class Group:
    def __init__(self) -> None:
        self.ranks = Ranks(planned(), Limits())
        self.starts: dict[Rank, int] = {}
        self.take(self.ranks.begin(0.0))

    def take(self, commands: list[Command]) -> list[Command]:
        """Workers that are to be started are there at once."""
        for command in commands:
            if isinstance(command, Spawn):
                self.starts[command.rank] = command.start
                self.ranks.spawned(command.rank, command.start, 100 + command.start, 0.0)
        return commands

    def hello(self, rank: Rank) -> dict[Rank, m.Load]:
        """The orders to load that follow."""
        peer = m.Peer(address=f"{rank}", start=self.starts[rank])
        return loads(self.ranks.heard(rank, m.Hello(rank=rank, peer=peer), 0.0))

    def load(self, rank: Rank) -> None:
        self.ranks.heard(rank, m.Ready(rank=rank, seconds=1.0, pools=POOLS), 0.0)

    def die(self, rank: Rank) -> list[Rank]:
        """The ranks that are killed because of it."""
        commands = self.ranks.died(Died(rank, self.starts[rank], -9), 1.0)
        assert commands is not None
        return [command.rank for command in commands if isinstance(command, Kill)]


def loads(commands: list[Command]) -> dict[Rank, m.Load]:
    return {c.rank: c.message for c in commands if isinstance(c, ToRank) and isinstance(c.message, m.Load)}


def loaded() -> Group:
    group = Group()
    for rank in (ZERO, ONE, TWO):
        group.hello(rank)
        group.load(rank)
    return group


def test_shards_are_told_what_to_load_once_all_are_there() -> None:
    group = Group()
    assert group.hello(TWO) == {}
    assert set(group.hello(ONE)) == {ONE}, "a rank without shards waits for nobody"
    told = group.hello(ZERO)
    assert set(told) == {ZERO, TWO}
    for load in told.values():
        assert load.shards == {ZERO: group.starts[ZERO], TWO: group.starts[TWO]}
        assert set(load.peers) == {ZERO, ONE}, "nothing is sent to a shard that repeats another"


def test_a_shard_that_repeats_another_is_ready_without_peers() -> None:
    group = loaded()
    for rank, other in ((ZERO, ONE), (ONE, ZERO)):
        group.ranks.heard(rank, m.Connected(rank=rank, peers={other: group.starts[other]}), 0.0)
    assert all(map(group.ranks.ready, (ZERO, ONE, TWO)))


def test_a_shard_takes_the_others_with_it() -> None:
    for lost, other in ((ZERO, TWO), (TWO, ZERO)):
        group = loaded()
        assert group.die(lost) == [other]
        assert group.ranks.died(Died(lost, group.starts[lost], -9), 1.0) is None, "once"
        assert not group.die(other)
        assert {rank for rank in (ZERO, ONE, TWO) if group.ranks.loaded(rank)} == {ONE}


def test_the_next_start_of_a_shard_is_not_introduced_to_one_that_is_being_killed() -> None:
    group = loaded()
    assert group.die(TWO) == [ZERO]
    group.take(group.ranks.tick(10.0))
    assert group.hello(TWO) == {}, "rank 0 hasn't died yet"
    assert group.die(ZERO) == [], "what was not loaded with it stays"
    group.take(group.ranks.tick(20.0))
    assert set(group.hello(ZERO)) == {ZERO, TWO}
