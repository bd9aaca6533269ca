"""Groups the runs in loop launches by Walk and loop, as telemetry names them. Consecutive launches mostly have the same
runs, so the groups found for them are kept."""

from collections.abc import Sequence
from typing import NamedTuple

from walkgraph.engine.loops.loop_runs import LoopMember
from walkgraph.ids import RunId


class LaunchColumns(NamedTuple):
    runs: tuple[RunId, ...]
    walks: tuple[str, ...]
    steps: tuple[int, ...]
    outer: tuple[tuple[int, ...], ...]


class LaunchUses(NamedTuple):
    """Names and nodes of the uses in a launch, each once."""

    names: tuple[str, ...]
    nodes: tuple[str, ...]


class LaunchGroup:
    """Members of a launch whose loops have one name, in one Walk."""

    def __init__(self, walk: str, loop: str, members: Sequence[LoopMember]) -> None:
        self.walk, self.loop, self.members = walk, loop, members
        self.spans = members[0].spans
        """True if the loops have parts on other ranks; loops of one body are alike in that."""
        self._columns: LaunchColumns | None = None
        self._uses: dict[tuple[int, ...], LaunchUses] = {}

    def has(self, member: LoopMember) -> bool:
        """True if a member of the launch belongs to this group."""
        return (member.walk, member.loop) == (self.walk, self.loop)

    def uses(self, places: tuple[int, ...]) -> LaunchUses:
        """The uses at these indices of the body."""
        found = self._uses.get(places)
        if found is None:
            first = self.members[0]
            names = tuple(dict.fromkeys([first.names[place] for place in places]))
            found = self._uses[places] = LaunchUses(
                names, tuple(dict.fromkeys([first.nodes[place] for place in places]))
            )
        return found

    @property
    def columns(self) -> LaunchColumns:
        if self._columns is None:
            self._columns = LaunchColumns(
                tuple([RunId(one.key.run) for one in self.members]),
                tuple([one.walk for one in self.members]),
                tuple([one.key.step for one in self.members]),
                tuple([one.key.iteration for one in self.members]),
            )
        return self._columns


class LaunchGroups:
    def __init__(self) -> None:
        self._members: tuple[LoopMember, ...] = ()
        self._found: list[LaunchGroup] = []

    def of(self, members: tuple[LoopMember, ...]) -> Sequence[LaunchGroup]:
        """The groups of a launch: loops of one body may have several names. The same objects as last time if the
        members are the same."""
        if self._members is not members:
            self._members = members
            named: dict[tuple[str, str], list[LoopMember]] = {}
            for member in members:
                named.setdefault((member.walk, member.loop), []).append(member)
            self._found = [LaunchGroup(walk, loop, found) for (walk, loop), found in named.items()]
        return self._found
