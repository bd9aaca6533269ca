"""Where every node is in every Walk, and where every state lives: the placement's groups, resolved."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

from walkgraph.graph.document import Fork, Graph
from walkgraph.graph.structure import WalkStructure, structures
from walkgraph.ids import Rank
from walkgraph.placement.document import ALL, Group, Placement


@dataclass(frozen=True)
class Assignment:
    """Total: a node that no group places is on the first rank (`unplaced` tells), so that it can be drawn anyway."""

    graph: Graph
    placement: Placement

    def group(self, node: str, walk: str | None) -> tuple[int, Group] | None:
        """The last group that holds the node in this Walk (None: in any), with its position."""
        found: tuple[int, Group] | None = None
        for position, group in enumerate(self.placement.groups):
            if (node in group.nodes or ALL in group.nodes) and (
                group.walks is None or (walk is not None and walk in group.walks)
            ):
                found = position, group
        return found

    def rank(self, node: str, walk: str | None = None) -> Rank:
        """Of a node in a Walk; without a Walk, where it is by default."""
        placed = self.group(node, walk)
        group = placed[1] if placed else self._anywhere(node)
        return Rank(group.ranks[0]) if group else self.first

    @property
    def first(self) -> Rank:
        return Rank(min((r.rank for r in self.placement.ranks), default=0))

    def _anywhere(self, node: str) -> Group | None:
        return next((g for g in self.placement.groups if node in g.nodes or ALL in g.nodes), None)

    @cached_property
    def walks(self) -> Mapping[str, WalkStructure]:
        return structures(self.graph)

    @cached_property
    def unplaced(self) -> tuple[tuple[str, str], ...]:
        """(node, Walk) that no group places."""
        pairs = ((e.node, name) for name, walk in self.walks.items() for e in walk.entries if e.node)
        return tuple(pair for pair in dict.fromkeys(pairs) if self.group(*pair) is None)

    @cached_property
    def bound(self) -> Mapping[str, tuple[str, ...]]:
        """State -> the nodes bound to it."""
        found: dict[str, list[str]] = {name: [] for name in self.graph.states}
        for name, node in self.graph.nodes.items():
            for state in dict.fromkeys(node.states.values()):
                found.setdefault(state, []).append(name)
        return {state: tuple(nodes) for state, nodes in found.items()}

    def homes(self, state: str, walk: str) -> tuple[Rank, ...]:
        """The state's rank in a Walk: that of the nodes bound to it there, else where one that is bound to it would be.
        More than one means that the placement splits the state inside the Walk."""
        nodes = self.bound.get(state, ())
        here = {entry.node for entry in self.walks[walk].entries} if walk in self.walks else set[str]()
        used = [node for node in nodes if node in here]
        if used:
            return tuple(dict.fromkeys(self.rank(node, walk) for node in used))
        known = self.used_ranks.get(state, ())
        placed = [rank for node in nodes if (rank := self.rank(node, walk)) in known]
        return tuple(placed[:1]) or known[:1]

    @cached_property
    def used_ranks(self) -> Mapping[str, tuple[Rank, ...]]:
        """State -> the ranks where nodes bound to it are used: only these can hold it."""
        found: dict[str, dict[Rank, None]] = {}
        for name, walk in self.walks.items():
            for entry in walk.entries:
                node = self.graph.nodes.get(entry.node)
                for state in node.states.values() if node else ():
                    found.setdefault(state, {})[self.rank(entry.node, name)] = None
        return {state: tuple(ranks) for state, ranks in found.items()}

    def fork_homes(self, fork: Fork, walk: str) -> tuple[Rank, Rank]:
        """Ranks of a fork's source and target; a state that no node is bound to lives with the other one."""
        source, target = self.homes(fork.fork, walk), self.homes(fork.into, walk)
        source, target = source or target, target or source
        return (source[0], target[0]) if source and target else (self.first, self.first)

    @cached_property
    def rests(self) -> Mapping[str, Rank]:
        """Where a session's state waits between requests: the rank of its first access in the document's Walks."""
        found: dict[str, Rank] = {}
        for walk in self.walks:
            for state, rank in self.states_of(walk):
                found.setdefault(state, rank)
        return found

    def states_of(self, walk: str) -> Iterator[tuple[str, Rank]]:
        """(state, rank) of every access of a Walk's body, in body order."""
        for entry in self.walks[walk].entries:
            if isinstance(entry.item, Fork):
                source, target = self.fork_homes(entry.item, walk)
                yield entry.item.fork, source
                yield entry.item.into, target
            elif entry.node in self.graph.nodes:
                states = self.graph.nodes[entry.node].states.values()
                yield from ((state, self.rank(entry.node, walk)) for state in dict.fromkeys(states))
