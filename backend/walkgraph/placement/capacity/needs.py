"""The memory that each rank of a plan needs, whatever its device has."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache

from walkgraph.checkpoints.sharding.experts import ExpertParallel
from walkgraph.graph.catalogue import Catalogue
from walkgraph.graph.document import Graph
from walkgraph.ids import Rank
from walkgraph.placement.capacity.asked import PAGE, tokens_asked
from walkgraph.placement.compiler.loop_decisions import spanning_ranks
from walkgraph.placement.document import PRECISION
from walkgraph.placement.sizes import MIB, WeightSizes
from walkgraph.placement.tables import EdgePlan, Plan, RankPlan, UsePlan
from walkgraph.placement.transports import Transports, addressable

SMALL_WORKSPACE = 32 * MIB
GPU_MARGIN = 1024 * MIB
"""Bytes for the driver's context, captured graphs and fragmentation."""
CPU_MARGIN = 16 * MIB
ROOM_BYTES = 64 * MIB
"""Bytes of an arena for values that parts of a device loop on several GPUs hand each other."""


@dataclass(frozen=True)
class Need:
    """The memory that one rank needs."""

    rank: RankPlan
    memory: int
    """Bytes that the rank may take."""
    said: bool
    """The rank's groups name this memory."""
    weights: Mapping[str, int]
    """Weight set -> bytes."""
    caches: Mapping[int, int]
    """Paged state -> bytes of a default request."""
    largest: Mapping[int, int]
    """Paged state -> bytes of the largest request."""
    workspace: int
    margin: int
    arenas: Mapping[str, int] = field(default_factory=dict[str, int])
    """Transport -> bytes of GPU memory for tensors that leave by it."""
    loading: Mapping[str, int] = field(default_factory=dict[str, int])
    """Weight set -> bytes before any are converted to eight bits; the caches are made after that."""

    @property
    def arena(self) -> int:
        return sum(self.arenas.values())

    @property
    def fixed(self) -> int:
        return sum(self.weights.values()) + self.arena + self.workspace + self.margin

    @property
    def least(self) -> int:
        return max(self.fixed + sum(self.caches.values()), sum(self.loading.values()) + self.margin)


@dataclass(frozen=True)
class Sent:
    """An edge by which tensors go from GPU to GPU."""

    use: UsePlan
    """The use that it leaves."""
    edge: EdgePlan
    targets: tuple[Rank, ...]
    """The ranks that may read what it carries; all, for a result."""


class RankNeeds:
    """The needs of a plan's ranks. `known`: the sizes of weight sets."""

    def __init__(
        self,
        graph: Graph,
        plan: Plan,
        catalogue: Catalogue,
        known: Mapping[str, WeightSizes],
        transports: Transports,
    ) -> None:
        self._plan, self._catalogue, self._known, self._transports = plan, catalogue, known, transports
        self._demand = {
            "default": tokens_asked(graph, plan, largest=False),
            "largest": tokens_asked(graph, plan, largest=True),
        }
        self._sent, self._spanning = _sent(plan), spanning_ranks(plan)
        self._shards = cache(self._sharded)

    def of(self, rank: RankPlan, memory: int, said: bool) -> Need:
        """`memory`: what the rank may take. `said`: its groups name it."""
        plan, known = self._plan, self._shards(rank.weight_shards, rank.expert_parallel)
        token = _token_bytes(plan, self._catalogue, known, rank)
        caches = {
            # The pool itself needs one page of zeros.
            kind: {
                state: (tokens + PAGE) * token.get(state, 0) for state, tokens in ranks.get(rank.serving, {}).items()
            }
            for kind, ranks in self._demand.items()
        }
        return Need(
            rank=rank,
            memory=memory,
            said=said,
            weights=_weights(plan, known, rank),
            caches=caches["default"],
            largest=caches["largest"],
            workspace=_workspace(plan, known, rank),
            margin=CPU_MARGIN if rank.device == "cpu" else GPU_MARGIN,
            arenas=self.arenas(rank.rank, caches["default"]),
            loading=_weights(plan, known, rank, kept=False),
        )

    def _sharded(self, count: int, how: ExpertParallel | None) -> dict[str, WeightSizes]:
        """Sizes on one of `count` shards, or of all where they can't be divided, which is a problem of its own."""
        return {
            name: sizes if sizes.indivisible(count, how) else sizes.shard(count, how)
            for name, sizes in self._known.items()
        }

    def arenas(self, rank: Rank, caches: Mapping[int, int], beside: Collection[Rank] | None = None) -> dict[str, int]:
        """Transport -> bytes of its GPU for what it sends. `caches`: those of a default request. `beside`: the ranks of
        its host, itself among them, if others of the plan are elsewhere: nothing goes to those from GPU to GPU."""
        sent = self._sent.get(rank, ())
        if beside is not None:
            sent = [one for one in sent if not set(one.targets).isdisjoint({*beside} - {rank})]
        spanning = rank in self._spanning and (beside is None or len(self._spanning & {*beside}) > 1)
        return _arenas(sent, self._transports, caches, spanning=spanning)


def sent_on_device(plan: Plan) -> Iterator[Sent]:
    """All edges by which tensors go from GPU to GPU."""
    every = tuple(rank.rank for rank in plan.ranks)
    for walk in plan.walks:
        for edge in walk.edges:
            if not edge.on_device:
                continue
            use, targets = walk.uses[edge.source.use], every
            if edge.target.kind == "use":
                targets = (walk.uses[edge.target.use].rank,)
            elif edge.target.kind == "stream":
                targets = plan.streams[edge.target.index].consumers
            yield Sent(use, edge, targets)


def _sent(plan: Plan) -> dict[Rank, list[Sent]]:
    found: dict[Rank, list[Sent]] = {}
    for sent in sent_on_device(plan):
        found.setdefault(sent.use.rank, []).append(sent)
    return found


def _arenas(
    sent: Sequence[Sent], transports: Transports, caches: Mapping[int, int], *, spanning: bool
) -> dict[str, int]:
    """Transport -> bytes, as the transports declare them; more where a default request's state is larger that is sent
    in one piece. `spanning`: the rank has a part of a loop that spans several GPUs."""
    found: dict[str, int] = {}
    for one in sent:
        use, edge = one.use, one.edge
        state = caches.get(use.states[0], 0) if use.op == "export" and not edge.parts else 0
        found[edge.transport] = max(found.get(edge.transport, transports[edge.transport].arena_bytes), state)
    if spanning:
        name = addressable(transports)
        found[name] = found.get(name, transports[name].arena_bytes) + ROOM_BYTES
    return found


def _itemsize(rank: RankPlan) -> int:
    return 4 if rank.device == "cpu" else 2


def _weights(plan: Plan, known: Mapping[str, WeightSizes], rank: RankPlan, *, kept: bool = True) -> dict[str, int]:
    """Weight set -> bytes. A part counts once, however many nodes of the rank read it. `kept`: as they are kept, not as
    they are read before they are converted to eight bits; four bits are converted tensor by tensor."""
    parts: dict[str, set[str]] = {}
    formats: dict[tuple[str, str], str] = {}
    for index in rank.nodes:
        node = plan.nodes[index]
        sizes = known.get(node.weights or "")
        if sizes is not None and node.weights is not None:
            loaded = sizes.components.get(node.component, ())
            parts.setdefault(node.weights, set()).update(loaded)
            precision = str(node.params.get(PRECISION, "bf16"))
            if kept or precision == "int4":
                formats |= {(node.weights, part): precision for part in loaded if precision != "bf16"}
    return {
        name: sum(known[name].part_bytes(part, _itemsize(rank), formats.get((name, part), "bf16")) for part in names)
        for name, names in parts.items()
        if names
    }


def _workspace(plan: Plan, known: Mapping[str, WeightSizes], rank: RankPlan) -> int:
    """Bytes of the component with the largest workspace, as one batch runs at a time."""
    largest = SMALL_WORKSPACE if rank.nodes else 0
    for index in rank.nodes:
        sizes = known.get(plan.nodes[index].weights or "")
        if sizes is not None:
            largest = max(largest, sizes.workspace.get(plan.nodes[index].component, 0) * _itemsize(rank))
    return largest


def _token_bytes(plan: Plan, catalogue: Catalogue, known: Mapping[str, WeightSizes], rank: RankPlan) -> dict[int, int]:
    """Paged state -> bytes of one token, summed over the nodes bound to it."""
    found: dict[int, int] = {}
    for node in plan.nodes:
        component, sizes = catalogue.get(node.component), known.get(node.weights or "")
        for use in component.states if component else ():
            if use.kind == "paged_kv" and use.slot in node.states:
                size = sizes.caches.get(node.component, 0) * _itemsize(rank) if sizes else use.token_bytes
                state = node.states[use.slot]
                found[state] = max(found.get(state, 0), size)
    return found
