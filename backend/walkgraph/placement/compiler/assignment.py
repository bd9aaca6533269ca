"""The rank of every node in every Walk, and of every state: the placement's groups, resolved."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import islice, product

from walkgraph.checkpoints.sharding.experts import ExpertParallel
from walkgraph.graph.blueprints.boxes import JOIN, nodes_around
from walkgraph.graph.document import Choose, Fork, Graph, Map
from walkgraph.graph.structure import ChoiceAt, Entry, MapAt, WalkStructure, structures
from walkgraph.ids import Rank
from walkgraph.placement.document import ALL, Group, Placement

MOST_ALTERNATIVES = 64


@dataclass(frozen=True)
class Assignment:
    """Total: a node that no group places goes to the first rank and is listed in `unplaced`, so that it can still be
    drawn."""

    graph: Graph
    placement: Placement
    replicas: Mapping[int, int] = field(default_factory=dict[int, int])
    """Number of replicas of groups -> the one of them where their nodes are: the first, if it isn't given."""

    @property
    def counts(self) -> tuple[int, ...]:
        """The distinct numbers of replicas of groups that have several."""
        return tuple(sorted({group.replicas for group in self.placement.groups} - {1}))

    @cached_property
    def alternatives(self) -> tuple["Assignment", ...]:
        """The assignment for every choice of replicas, up to the most that there may be: groups with equally many take
        the same one."""
        counts = self.counts
        chosen = islice(product(*map(range, counts)), MOST_ALTERNATIVES)
        return tuple(replace(self, replicas=dict(zip(counts, taken, strict=True))) for taken in chosen)

    def group(self, node: str, walk: str | None) -> tuple[int, Group] | None:
        """The last group that holds the node in this Walk (in any Walk if None), with its position."""
        found: tuple[int, Group] | None = None
        for position, group in enumerate(self.placement.groups):
            if holds(group, node) and (group.walks is None or (walk is not None and walk in group.walks)):
                found = position, group
        return found

    def precision(self, node: str) -> str | None:
        """The number format that the last of its groups that names one gives a node."""
        named = [g.precision for g in self.placement.groups if holds(g, node) and g.precision is not None]
        return named[-1] if named else None

    def rank(self, node: str, walk: str | None = None) -> Rank:
        """The rank of a node in a Walk, or its default rank without one."""
        placed = self.group(node, walk)
        group = placed[1] if placed else self._anywhere(node)
        return self.rank_in(group) if group else self.first

    def rank_in(self, group: Group) -> Rank:
        """The rank of a group's nodes; its first, if it names fewer ranks than replicas."""
        taken = self.replicas.get(group.replicas, 0) * group.width
        return Rank(group.ranks[taken] if taken < len(group.ranks) else group.ranks[0])

    def shards(self, rank: Rank) -> tuple[Rank, ...]:
        """The ranks that hold shards of the same nodes as this one; empty for a rank without shards."""
        for group in self.placement.groups:
            if (width := group.width) > 1 and rank in group.ranks:
                start = group.ranks.index(rank) // width * width
                return tuple(map(Rank, group.ranks[start : start + width]))
        return ()

    @property
    def first(self) -> Rank:
        return Rank(min((r.rank for r in self.placement.ranks), default=0))

    def _anywhere(self, node: str) -> Group | None:
        return next((g for g in self.placement.groups if holds(g, node)), None)

    @cached_property
    def walks(self) -> Mapping[str, WalkStructure]:
        return structures(self.graph)

    @cached_property
    def unplaced(self) -> tuple[tuple[str, str], ...]:
        """(node, Walk) pairs that no group places."""
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
        """The state's ranks in a Walk: those of the nodes bound to it there, or else of a node that is bound to it
        elsewhere. More than one means that the placement splits the state within the Walk."""
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
        """Ranks of a fork's source and target; a state without bound nodes lives with the other one."""
        source, target = self.homes(fork.fork, walk), self.homes(fork.into, walk)
        source, target = source or target, target or source
        return (source[0], target[0]) if source and target else (self.first, self.first)

    def entry_ranks(self, entry: Entry, walk: WalkStructure) -> tuple[Rank, ...]:
        """The ranks on which a use, a fork, a choice or the head of a map has work."""
        if isinstance(entry.item, Fork):
            return tuple(dict.fromkeys(self.fork_homes(entry.item, walk.name)))
        if isinstance(entry.item, Choose | Map):
            return (self.head_rank(entry, walk),)
        return (self.rank(entry.node, walk.name),)

    def head_rank(self, entry: Entry, walk: WalkStructure) -> Rank:
        """A choice is made where its value comes from, or else where its first branch is; so with a map's list."""
        heads = self._heads[walk.name]
        head = heads.at[entry.index]
        ends = (route.source.entry for route in head.routes)
        sources = [end for end in ends if end is not None]
        inside = heads.first_of(head)
        first = sources[0] if sources else inside
        return self.entry_ranks(first, walk)[0] if first is not None else self.first

    @cached_property
    def _heads(self) -> Mapping[str, "_Heads"]:
        """Walk -> its choices and maps."""
        return {name: _Heads(walk) for name, walk in self.walks.items()}

    @cached_property
    def rests(self) -> Mapping[str, Rank]:
        """Session state -> the rank where it waits between requests: that of its first access in the document's
        Walks."""
        found: dict[str, Rank] = {}
        for walk in self.walks:
            for state, rank in self.states_of(walk):
                found.setdefault(state, rank)
        return found

    def states_of(self, walk: str) -> Iterator[tuple[str, Rank]]:
        """(state, rank) for every access in a Walk's body, in body order."""
        for entry in self.walks[walk].entries:
            if isinstance(entry.item, Fork):
                source, target = self.fork_homes(entry.item, walk)
                yield entry.item.fork, source
                yield entry.item.into, target
            elif entry.node in self.graph.nodes:
                states = self.graph.nodes[entry.node].states.values()
                yield from ((state, self.rank(entry.node, walk)) for state in dict.fromkeys(states))


def expert_parallel(placement: Placement, rank: Rank) -> ExpertParallel | None:
    """The way in which a rank with shards holds whole experts; None if it holds a part of each, or has no shards.
    Groups on the same ranks hold them alike."""
    here = [group for group in placement.groups if group.tensor_parallel > 1 and rank in group.ranks]
    spread = [group.redundant_experts for group in here if group.expert_parallel]
    return ExpertParallel(max(spread)) if spread else None


def sequence_parallel(placement: Placement, rank: Rank) -> bool:
    """True if the shards of a rank have whole weights, and divide tokens."""
    return any(group.sequence_parallel > 1 and rank in group.ranks for group in placement.groups)


def holds(group: Group, node: str) -> bool:
    """True if a group names a node, all nodes, or a node around it: one that stands for the blueprint it is in."""
    named = group.nodes
    return node in named or ALL in named or (JOIN in node and any(outer in named for outer in nodes_around(node)))


class _Heads:
    """The choices and maps of a Walk, each with the first entry inside. Found in one pass: there may be thousands."""

    def __init__(self, walk: WalkStructure) -> None:
        self.at: dict[int, ChoiceAt | MapAt] = {one.entry.index: one for one in (*walk.choices, *walk.maps)}
        """Entry -> choice or map."""
        self._in_choice: dict[int, Entry] = {}
        self._in_loop: dict[int, Entry] = {}
        for entry in walk.entries:
            for choice, _ in entry.cases:
                self._in_choice.setdefault(choice, entry)
            for loop in entry.loop_indices:
                self._in_loop.setdefault(loop, entry)

    def first_of(self, head: ChoiceAt | MapAt) -> Entry | None:
        """The first entry in a branch of a choice, or in the body of a map."""
        return self._in_choice.get(head.index) if isinstance(head, ChoiceAt) else self._in_loop.get(head.loop)
