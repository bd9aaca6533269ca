"""Loads what a rank needs: operators with their weights, and the pools of its caches."""

from collections.abc import Callable, Collection, Hashable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import torch

from walkgraph import plugins
from walkgraph.abi.calls import Call, Scalar, StateKey
from walkgraph.abi.operator import PRECISION, Capture, Operator
from walkgraph.abi.states import CacheShape
from walkgraph.adapters.adapting import Network, adapted
from walkgraph.checkpoints.sharding.experts import ExpertParallel
from walkgraph.collectives.base import WHOLE, Shard
from walkgraph.engine.kv.pool import Pool, page_bytes
from walkgraph.engine.loops.body import Loaded
from walkgraph.engine.weights import Weights
from walkgraph.errors import Refused
from walkgraph.ids import Rank
from walkgraph.placement.tables import NodePlan, Plan, RankPlan, WeightsPlan
from walkgraph.settings import listed_plugins
from walkgraph.wire.fault_points import FaultPoints

Progress = Callable[[str, float], None]
"""Takes what is going on, and the share done, 0 to 1."""
WARM_UP = "@warm-up"
"""The run, and the Walk, of warm-up calls. No Walk of a document can have this name."""
_UNUSED_PAGES = 16
"""Pages of a pool that no task uses on this rank."""


def rank_plan(plan: Plan, rank: Rank) -> RankPlan:
    found = next((here for here in plan.ranks if here.rank == rank), None)
    if found is None:
        raise Refused(f"the plan of `{plan.graph}` has no rank {rank}; have {[here.rank for here in plan.ranks]}")
    return found


def nodes_here(plan: Plan, here: RankPlan) -> list[NodePlan]:
    """The nodes with an operator on this rank."""
    return [node for node in plan.nodes if node.index in set(here.nodes) and not node.task]


class KeptOperators:
    """The operators of a rank, which stay loaded from plan to plan."""

    def __init__(self) -> None:
        self._weights: dict[Hashable, Weights] = {}
        self._operators: dict[Hashable, Operator] = {}
        self._numbers: dict[Hashable, int] = {}
        """Operator -> the number of its load."""
        self._loads = 0

    def keep_only(self, weights: Collection[Hashable], operators: Collection[Hashable]) -> None:
        """Drop what the next plan doesn't have: it may need the memory."""
        self._weights = {key: found for key, found in self._weights.items() if key in weights}
        self._operators = {key: found for key, found in self._operators.items() if key in operators}

    def weights(self, key: Hashable, make: Callable[[], Weights]) -> Weights:
        """The weights of this key; made where there are none."""
        if key not in self._weights:
            self._weights[key] = make()
        return self._weights[key]

    def operator(self, key: Hashable) -> Operator | None:
        return self._operators.get(key)

    def add(self, key: Hashable, operator: Operator) -> None:
        self._operators[key] = operator
        self._loads += 1
        self._numbers[key] = self._loads

    def number(self, key: Hashable) -> int:
        """Tells one load of an operator from the next, which may read other files."""
        return self._numbers[key]


class _Wanted(NamedTuple):
    """The operator that a node needs."""

    node: NodePlan
    network: Network
    named: WeightsPlan | None
    device: torch.device
    options: dict[str, Scalar]
    shard: Shard
    """The rank's place in its group where that divides weights."""
    sequence: Shard
    """The same where it divides the tokens of blocks."""
    expert_parallel: ExpertParallel | None
    precision: str = "bf16"
    """Number format of its weight set."""

    @property
    def weights_key(self) -> Hashable:
        places = self.shard, self.sequence, self.expert_parallel
        return self.node.weights, self.named, self.device, *places, self.precision

    @property
    def key(self) -> Hashable:
        return self.node.network, self.weights_key, tuple(sorted(self.options.items()))

    def content(self, load: int) -> str:
        """`Loaded.content` for the load of this number. Without weights, an operator of this package is always the
        same."""
        own = self.named is None and self.node.network.startswith(f"{plugins.MODELS}.")
        return repr((self.node.network, str(self.device), sorted(self.options.items()), 0 if own else load))


def load_operators(
    plan: Plan,
    here: RankPlan,
    roots: Sequence[Path],
    progress: Progress,
    capture: Callable[[torch.device], Capture | None] = lambda device: None,
    kept: KeptOperators | None = None,
    shard: Shard = WHOLE,
) -> dict[str, Loaded]:
    """Load the operator of each node. Nodes with the same network, weights, device and options share one. Operators
    that are `kept` are not loaded again, and those that the plan doesn't have, or that are of another shard, are
    dropped."""
    kept = kept or KeptOperators()
    wanted = _agreed([_wanted(plan, here, node, shard) for node in nodes_here(plan, here)])
    kept.keep_only({one.weights_key for one in wanted}, {one.key for one in wanted})
    sets = {
        one.weights_key: kept.weights(
            one.weights_key,
            partial(Weights, one.named, roots, one.device, one.precision, one.shard, one.sequence, one.expert_parallel),
        )
        for one in wanted
    }
    total = sum(weights.bytes for weights in sets.values()) or 1
    read = 0
    found: dict[str, Loaded] = {}
    loaded: dict[Hashable, Loaded] = {}
    for one in wanted:
        weights = sets[one.weights_key]

        def count(nbytes: int, what: str = f"weights of `{one.node.name}`") -> None:
            nonlocal read
            read += nbytes
            progress(what, min(1.0, read / total))

        if one.key not in loaded:
            operator = kept.operator(one.key)
            warm = operator is not None
            if operator is None:
                operator = one.network.load(weights.context(one.options, count, capture(weights.device)))
                kept.add(one.key, operator)
            content = one.content(kept.number(one.key))
            loaded[one.key] = Loaded(operator, weights.device, len(loaded), warm, content)
        found[one.node.name] = loaded[one.key]
    progress("weights", 1.0)
    return found


def make_pools(
    plan: Plan, here: RankPlan, loaded: Mapping[str, Loaded], faults: FaultPoints | None = None
) -> dict[str, Pool]:
    """Make one pool for each cache shape, sized by the lines of the plan's budget for its states; returns paged state
    -> pool. If no state has a line, every state counts for the same number of pages; if only some have, a pool without
    one gets the pages that a warm-up needs."""
    kinds = _cache_kinds(plan, here, loaded)
    lines = dict(here.budget)
    given = {name: lines.get(f"kv {name}", 0) for name in kinds}
    if not any(given.values()):
        given = {name: page_bytes(shape) for name, (shape, _) in kinds.items()}
    total = sum(given.values())
    pools: dict[tuple[CacheShape, torch.device], Pool] = {}
    for kind in dict.fromkeys(kinds.values()):
        part = sum(given[name] for name, other in kinds.items() if other == kind)
        room = here.kv_bytes * part // total // page_bytes(kind[0])
        pages = room - 1 if part else _UNUSED_PAGES  # one more holds zeros
        if pages < 1:
            raise Refused(f"rank {here.rank} has {here.kv_bytes} bytes for caches, too few for a page each")
        pools[kind] = Pool(kind[0], pages, kind[1], faults)
    return {name: pools[kind] for name, kind in kinds.items()}


def is_expression(value: Scalar) -> bool:
    return isinstance(value, str) and value.startswith("=")


def _cache_kinds(
    plan: Plan, here: RankPlan, loaded: Mapping[str, Loaded]
) -> dict[str, tuple[CacheShape, torch.device]]:
    """Paged state -> shape and device of its cache."""
    names = {state.index: state.name for state in plan.states}
    kinds: dict[str, tuple[CacheShape, torch.device]] = {}
    for node in nodes_here(plan, here):
        operator, device = loaded[node.name].operator, loaded[node.name].device
        for slot, shape in operator.caches().items():
            if slot not in node.states:
                continue
            name = names[node.states[slot]]
            if kinds.setdefault(name, (shape, device)) != (shape, device):
                raise Refused(f"state `{name}` is used by nodes whose caches differ; give `{node.name}` its own")
    return kinds


def _network(name: str) -> Network:
    module, _, attribute = name.partition(":")
    own = f"{plugins.MODELS}."
    if module.startswith(own):
        return plugins.load(plugins.MODELS, module.removeprefix(own), attribute)
    plugins.require_listed(listed_plugins(), module)
    return adapted(module, attribute)


def _device(node: NodePlan, here: RankPlan) -> torch.device:
    return torch.device("cpu" if node.host else here.device)


def _wanted(plan: Plan, here: RankPlan, node: NodePlan, shard: Shard) -> _Wanted:
    network = _network(node.network)
    named = plan.weights[node.weights] if node.weights else None
    places = (WHOLE, shard) if here.sequence_parallel else (shard, WHOLE)
    return _Wanted(node, network, named, _device(node, here), _options(node, network), *places, here.expert_parallel)


def _agreed(wanted: Sequence[_Wanted]) -> list[_Wanted]:
    """The operators with the precision of their weight sets. Raises `Refused` if operators of one set choose different
    ones."""
    chosen: dict[Hashable, str] = {}
    for one in wanted:
        if PRECISION in one.network.options:
            own = str(one.options.get(PRECISION, one.precision))
            there = chosen.setdefault(one.weights_key, own)
            if there != own:
                raise Refused(f"nodes that share weights on a rank must have one `{PRECISION}`, not {there} and {own}")
    return [one._replace(precision=chosen.get(one.weights_key, one.precision)) for one in wanted]


def _options(node: NodePlan, network: Network) -> dict[str, Scalar]:
    """The node's parameters that `load` reads. Raises `Refused` if one of them is an expression."""
    chosen: dict[str, Any] = {name: node.params[name] for name in network.options if name in node.params}
    for name, value in chosen.items():
        if is_expression(value):
            raise Refused(f"`{node.name}`: parameter `{name}` is read when the node is loaded; make it a literal")
    return chosen


def example_calls(plan: Plan, node: NodePlan, operator: Operator) -> Iterator[Call]:
    """The operator's examples as calls of the node, to be executed one after the other."""
    names = {state.index: state.name for state in plan.states}
    literal = {k: v for k, v in node.params.items() if not is_expression(v)}
    for number, example in enumerate(operator.examples()):
        yield Call(
            run=WARM_UP,
            node=node.name,
            walk=WARM_UP,
            step=0,
            use=0,
            iteration=(number,),
            inputs=dict(example.inputs),
            params={**literal, **example.params},
            states={slot: StateKey(WARM_UP, names[index]) for slot, index in node.states.items()},
            seed=0,
            name=node.name,
        )
