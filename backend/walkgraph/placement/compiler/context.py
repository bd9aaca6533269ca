"""Shared inputs for compiling every Walk: indices, ranks, and the transports between ranks."""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from itertools import combinations

from walkgraph.graph.catalogue import Catalogue
from walkgraph.graph.steps import approvals_of, choices_of, handings, kept_results, loops_of, meanings
from walkgraph.graph.structure import Entry
from walkgraph.ids import Rank
from walkgraph.placement.compiler.assignment import Assignment
from walkgraph.placement.host.topology import Topology
from walkgraph.placement.tables import IN_MESSAGE, LOCAL
from walkgraph.placement.transports import Transports, cheapest, declared_transports

INLINE = frozenset({"tokens", "text", "messages", "flag", "scalar", "image", "audio", "video", "bytes"})
"""Modalities that travel inside a message: small values, and encoded media, which are bytes and not tensors."""


@dataclass(frozen=True)
class Context:
    """Shared inputs for compiling every Walk."""

    assignment: Assignment
    catalogue: Catalogue
    transports: Transports = field(default_factory=declared_transports)
    topologies: Mapping[str, Topology] = field(default_factory=dict[str, Topology])
    """Host -> its topology, where it is known. The first is the host that plans."""

    @cached_property
    def node_index(self) -> Mapping[str, int]:
        return {name: i for i, name in enumerate(self.assignment.graph.nodes)}

    @cached_property
    def state_index(self) -> Mapping[str, int]:
        return {name: i for i, name in enumerate(self.assignment.graph.states)}

    @cached_property
    def stream_index(self) -> Mapping[str, int]:
        return {stream.name: i for i, stream in enumerate(self.assignment.graph.streams)}

    def numeric(self, component: str, param: str) -> bool:
        """True if a component's parameter is known to be a number or a boolean."""
        found = self.catalogue.get(component)
        declared = found.params.get(param) if found else None
        return declared is not None and declared.type != "string"

    @cached_property
    def _devices(self) -> Mapping[Rank, str]:
        return {Rank(r.rank): r.device for r in self.assignment.placement.ranks}

    def transport(self, source: Rank, targets: Collection[Rank], modality: str | None, *, host: bool = False) -> str:
        """The transport of a value from a rank to others; one for all of them. `host`: one of its ends runs on the CPU
        anyway."""
        others = [target for target in targets if target != source]
        if not others:
            return LOCAL
        if modality in INLINE:
            return IN_MESSAGE
        ranks = {source, *others}
        return cheapest(self.transports, on_device=not host and self.joined(ranks), apart=self.apart(ranks))

    def host(self, rank: Rank) -> str:
        """The host of a rank; empty for the one that plans."""
        named = self.assignment.placement.host(rank)
        return "" if named is None or named == next(iter(self.topologies), None) else named

    def apart(self, ranks: Collection[Rank]) -> bool:
        """True if the ranks are on several hosts."""
        return len({self.host(rank) for rank in ranks}) > 1

    def joined(self, ranks: Collection[Rank]) -> bool:
        """True if the ranks are on GPUs of one host, none of which is known not to read another's memory."""
        devices = {self._devices.get(rank, "cpu") for rank in ranks}
        if "cpu" in devices or self.apart(ranks):
            return False
        home = next(iter(self.topologies), "")
        topology = self.topologies.get(self.host(next(iter(ranks))) or home, Topology())
        return all(topology.reads(*pair) for pair in combinations(devices, 2))

    def on_device(self, transport: str) -> bool:
        return transport in self.transports and self.transports[transport].on_device

    def on_host(self, node: str) -> bool:
        """True if a node runs on the CPU whatever its rank's device is."""
        named = self.assignment.graph.nodes.get(node)
        component = self.catalogue.get(named.component) if named is not None else None
        return component is not None and component.host

    def reasons(self, node: str) -> Mapping[str, tuple[str, ...]]:
        """Flag of a node that may end a loop -> flags that say why (`Component.reasons`)."""
        named = self.assignment.graph.nodes.get(node)
        component = self.catalogue.get(named.component) if named is not None else None
        return component.reasons if component is not None else {}

    @cached_property
    def chosen(self) -> frozenset[tuple[str, str]]:
        """(Walk, result) by which a task chooses steps, or ends a loop of them, or that is kept while a person is
        asked."""
        found: set[tuple[str, str]] = set()
        for task in self.assignment.graph.tasks.values():
            for choice in choices_of(task):
                found.update(meanings(task, choice.step.choose, choice.loops))
            for approval in approvals_of(task):
                for kept in kept_results(task, approval):
                    found.update(meanings(task, kept, approval.at.loops))
        return self.endings | found

    @cached_property
    def endings(self) -> frozenset[tuple[str, str]]:
        """(Walk, result) that ends a loop of a task's steps."""
        tasks = self.assignment.graph.tasks.values()
        untils = ((task, loop.step.until) for task in tasks for loop in loops_of(task) if loop.step.until is not None)
        return frozenset(found for task, until in untils for found in meanings(task, until, ()))

    @cached_property
    def result_readers(self) -> Mapping[str, frozenset[Rank]]:
        """Walk -> ranks of the uses that read its results in later steps of a task."""
        found: dict[str, set[Rank]] = {}
        for task in self.assignment.graph.tasks.values():
            for at, name, producer, _ in handings(task):
                found.setdefault(producer, set()).update(self.input_ranks(at.step.walk, name))
        return {walk: frozenset(ranks) for walk, ranks in found.items()}

    @cached_property
    def read_on_host(self) -> frozenset[tuple[str, str]]:
        """(Walk, result) that the CPU reads in a later step of a task: a node there, a choice, or the head of a map."""
        return frozenset(
            (producer, result)
            for task in self.assignment.graph.tasks.values()
            for at, name, producer, result in handings(task)
            if any(not entry.node or self.on_host(entry.node) for entry in self._input_readers(at.step.walk, name))
        )

    def input_ranks(self, walk: str, name: str) -> frozenset[Rank]:
        """Ranks of the uses that read a Walk's input."""
        structure = self.assignment.walks.get(walk)
        return frozenset(
            rank
            for entry in self._input_readers(walk, name)
            if structure is not None
            for rank in self.assignment.entry_ranks(entry, structure)
        )

    def _input_readers(self, walk: str, name: str) -> Iterator[Entry]:
        """The entries that read a Walk's input."""
        structure = self.assignment.walks.get(walk)
        for route in structure.taken if structure is not None else ():
            if route.source.kind == "in" and route.source.name == name and route.target.entry is not None:
                yield route.target.entry

    @cached_property
    def consumers(self) -> Mapping[str, frozenset[Rank]]:
        """Stream -> ranks of the uses that read it."""
        found: dict[str, set[Rank]] = {}
        for name, walk in self.assignment.walks.items():
            for route in walk.routes:
                if route.source.kind == "stream" and route.target.entry is not None:
                    rank = self.assignment.rank(route.target.entry.node, name)
                    found.setdefault(route.source.name, set()).add(rank)
        return {stream: frozenset(ranks) for stream, ranks in found.items()}
