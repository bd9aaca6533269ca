"""The engine of one rank: schedule, run, settle. Everything that a rank computes goes through `step`.

It knows calls and states, not runs' ways: which call comes next, and where values go, is the worker's.
"""

import time
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from walkgraph import plugins
from walkgraph.engine.paged_attention import Contexts
from walkgraph.engine.pages import PAGE
from walkgraph.engine.parts import Done, Parts
from walkgraph.engine.pool import Pool, page_bytes
from walkgraph.engine.runner import Runner, is_memory
from walkgraph.engine.schedule import Schedule
from walkgraph.engine.states import StateTable
from walkgraph.engine.weights import Weights
from walkgraph.errors import InvalidInput, Refused, RunFailed
from walkgraph.ids import Rank
from walkgraph.networks.base import CacheShape, Call, Operator, Scalar, StateKey
from walkgraph.placement.itinerary import state_tokens
from walkgraph.placement.tables import NodePlan, Plan, RankPlan

_WARM_UP = "warm-up"
_UNUSED_PAGES = 16
"""Of a pool that no task uses on this rank."""


class PoolInfo(NamedTuple):
    states: tuple[str, ...]
    """Those that share it."""
    pages: int
    page_tokens: int
    page_bytes: int


@dataclass(frozen=True, slots=True)
class _Loaded:
    """An operator on this rank; nodes and views share it."""

    operator: Operator
    device: torch.device
    index: int


class Engine:
    def __init__(
        self,
        plan: Plan,
        rank: Rank,
        *,
        weights_roots: Sequence[Path] = (),
        threads: int | None = None,
        token_budget: int = 4096,
        prefill_chunk: int = 1024,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`threads`: torch's on this rank's CPU; None leaves its choice. `token_budget`: rows of a batch at most,
        unless one call has more; `prefill_chunk`: rows that a call which can be split has there. Nothing is loaded
        before `load`."""
        if threads is not None:
            torch.set_num_threads(threads)
        self._plan, self._rank, self._roots, self._clock = plan, rank, weights_roots, clock
        self._here = _rank_plan(plan, rank)
        self._schedule = Schedule(budget=token_budget)
        self._parts, self._chunk = Parts(), prefill_chunk
        self._nodes: dict[str, _Loaded] = {}
        self._unready: list[Done] = []
        self._states = StateTable({}, Contexts())
        self._runner = Runner(self._states, rank)

    def load(self, progress: Callable[[str, float], None] = lambda what, done: None) -> None:
        """Operators, then caches, then a warm-up through `step`. `progress`: what is going on, and its share done.

        Raises `Refused`, `NotFound`, `InvalidInput` for what can't be loaded, `RunFailed` for a warm-up that fails.
        """
        plans = [node for node in self._plan.nodes if node.index in set(self._here.nodes)]
        try:
            self._load_operators(plans, progress)
            self._states = StateTable(self._pools(plans), Contexts())
        except Exception as raised:
            if not is_memory(raised):
                raise
            raise Refused(f"rank {self._rank} has too little memory for its nodes; place fewer on it") from raised
        self._runner = Runner(self._states, self._rank)
        self._warm_up(plans, progress)

    def admit(self, run: str, params: Mapping[str, Scalar]) -> None:
        """Hold a run (or the owner of a session's states) to its states' capacities, by the task's parameters: what was
        promised to others stays theirs. A run that was not admitted has no bound but the pools'."""
        most: dict[str, int] = {}
        for state in self._plan.states:
            if state.capacity is not None and state.name in self._states.pools:
                # Where the task lacks a parameter of the expression, it doesn't use the state either.
                with suppress(InvalidInput):
                    most[state.name] = state_tokens(state.name, state.capacity, state.width, params)
        self._states.limit(run, most)

    def add(self, call: Call) -> None:
        """Queue a call that has all it needs. Its tensors may lie on any device."""
        call.ready_at = call.ready_at or self._clock()
        loaded = self._nodes[call.node]
        try:
            parts = [call]
            if loaded.operator.rows(call) > self._chunk:
                parts = loaded.operator.split(call, self._chunk)
            ready = [(one, (loaded.index, loaded.operator.bucket(one)), loaded.operator.rows(one)) for one in parts]
        except Exception as raised:  # noqa: BLE001 (inputs that an operator can't even sort end that run alone)
            self._unready.append(Done(call, None, self._runner.failed(call, raised), 0.0, 0.0, 1))
            return
        if len(parts) > 1:
            self._parts.add(call, parts)
        for one in ready:
            self._schedule.add(*one)

    def step(self) -> list[Done]:
        """Serve one batch; empty when nothing waits."""
        done, self._unready = self._unready, []
        batch = self._schedule.next()
        if batch is None:
            return done
        loaded = self._nodes[batch.calls[0].node]
        started = self._clock()
        results = self._runner.run(loaded.operator, loaded.device, batch.calls)
        for call, result in zip(batch.calls, results, strict=True):
            queued = max(0.0, started - call.ready_at)
            part = Done(call, result.outputs, result.error, result.busy, queued, result.batch)
            whole, rest = self._parts.settle(part)
            self._schedule.remove(rest)
            done += [] if whole is None else [whole]
        return done

    @property
    def idle(self) -> bool:
        return not self._unready and not len(self._schedule)

    def fork(self, source: StateKey, target: StateKey, width: int | None = None) -> None:
        """Copy-on-write; replaces the target. `width`: sequences of the target, where it is wider than the source."""
        self._states.fork(source, target, width)

    def export(self, key: StateKey) -> dict[str, Tensor]:
        """For `import_state` on another rank; empty for a state that holds nothing."""
        with torch.inference_mode():
            return self._states.export(key)

    def import_state(self, key: StateKey, value: Mapping[str, Tensor]) -> None:
        """Raises `OutOfPages` (`out_of_memory`) when there is no room."""
        with torch.inference_mode():
            self._states.import_state(key, value)

    def drop(self, run: str) -> None:
        """Forget a run: its waiting calls and its states."""
        self.cancel(run)
        self._states.drop_run(run)

    def drop_states(self, keys: Iterable[StateKey]) -> None:
        self._states.drop(keys)

    def cancel(self, run: str) -> list[Call]:
        """Take a run's calls out of the queue; its states stay until `drop`."""
        removed = [done.call for done in self._unready if done.call.run == run]
        self._unready = [done for done in self._unready if done.call.run != run]
        return removed + self._parts.forget(self._schedule.cancel(run))

    def pages(self) -> tuple[int, int]:
        """(free, total) of all pools."""
        pools = set(self._states.pools.values())
        return sum(pool.pages.free for pool in pools), sum(pool.pages.total for pool in pools)

    def pools(self) -> list["PoolInfo"]:
        """The paged pools, for whoever promises their pages to runs."""
        states: dict[Pool, list[str]] = {}
        for name, pool in self._states.pools.items():
            states.setdefault(pool, []).append(name)
        return [
            PoolInfo(tuple(names), pool.pages.total, PAGE, page_bytes(pool.shape)) for pool, names in states.items()
        ]

    def audit(self) -> None:
        """The integrity check for idle moments: raises `PageFault` for a page that is lost or held twice."""
        self._states.audit()

    def _load_operators(self, plans: Sequence[NodePlan], progress: Callable[[str, float], None]) -> None:
        sets: dict[tuple[str | None, torch.device], Weights] = {}
        for node in plans:
            sets.setdefault(_weights_key(node, self._here), self._weights(node))
        total = sum(weights.bytes for weights in sets.values()) or 1
        read = 0
        loaded: dict[Hashable, _Loaded] = {}
        for node in plans:
            key = _weights_key(node, self._here)

            def count(nbytes: int, what: str = f"weights of `{node.name}`") -> None:
                nonlocal read
                read += nbytes
                progress(what, min(1.0, read / total))

            network = _network(node.network)
            options = _options(node, network)
            shared = (node.network, *key, tuple(sorted(options.items())))
            if shared not in loaded:
                operator = network.load(sets[key].context(options, count))
                loaded[shared] = _Loaded(operator, sets[key].device, len(loaded))
            self._nodes[node.name] = loaded[shared]
        progress("weights", 1.0)

    def _weights(self, node: NodePlan) -> Weights:
        source = self._plan.weights[node.weights].source if node.weights else None
        return Weights(source, self._roots, _device(node, self._here))

    def _pools(self, plans: Sequence[NodePlan]) -> dict[str, Pool]:
        """Paged state -> its pool: one for each cache shape, with what the plan's budget gives the states that share
        it. States without a line there get an equal part where none has one, else what a warm-up needs."""
        kinds = self._cache_kinds(plans)
        lines = dict(self._here.budget)
        given = {name: lines.get(f"kv {name}", 0) for name in kinds}
        if not any(given.values()):
            given = {name: page_bytes(shape) for name, (shape, _) in kinds.items()}
        total = sum(given.values())
        pools: dict[tuple[CacheShape, torch.device], Pool] = {}
        for kind in dict.fromkeys(kinds.values()):
            part = sum(given[name] for name, other in kinds.items() if other == kind)
            room = self._here.kv_bytes * part // total // page_bytes(kind[0])
            pages = room - 1 if part else _UNUSED_PAGES  # one more holds zeros
            if pages < 1:
                raise Refused(f"rank {self._rank} has {self._here.kv_bytes} bytes for caches, too few for a page each")
            pools[kind] = Pool(kind[0], pages, kind[1])
        return {name: pools[kind] for name, kind in kinds.items()}

    def _cache_kinds(self, plans: Sequence[NodePlan]) -> dict[str, tuple[CacheShape, torch.device]]:
        """Paged state -> shape and device of its cache."""
        names = {state.index: state.name for state in self._plan.states}
        kinds: dict[str, tuple[CacheShape, torch.device]] = {}
        for node in plans:
            loaded = self._nodes[node.name]
            for slot, shape in loaded.operator.caches().items():
                if slot not in node.states:
                    continue
                name = names[node.states[slot]]
                if kinds.setdefault(name, (shape, loaded.device)) != (shape, loaded.device):
                    raise Refused(f"state `{name}` is used by nodes whose caches differ; give `{node.name}` its own")
        return kinds

    def _warm_up(self, plans: Sequence[NodePlan], progress: Callable[[str, float], None]) -> None:
        names = {state.index: state.name for state in self._plan.states}
        first = {self._nodes[node.name].index: node for node in reversed(plans)}
        for done, (_, node) in enumerate(sorted(first.items())):
            progress(f"warm-up of `{node.name}`", done / len(first))
            for number, example in enumerate(self._nodes[node.name].operator.examples()):
                states = {slot: StateKey(_WARM_UP, names[index]) for slot, index in node.states.items()}
                literal = {k: v for k, v in node.params.items() if not _is_expression(v)}
                self.add(
                    Call(
                        run=_WARM_UP,
                        node=node.name,
                        walk=_WARM_UP,
                        step=0,
                        use=0,
                        iteration=(number,),
                        inputs=dict(example.inputs),
                        params={**literal, **example.params},
                        states=states,
                        seed=0,
                    )
                )
                failed = [one.error for one in self.step() if one.error is not None]
                if failed:
                    raise RunFailed(failed[0])
            self.drop(_WARM_UP)
        progress("warm-up", 1.0)


def _rank_plan(plan: Plan, rank: Rank) -> RankPlan:
    found = next((here for here in plan.ranks if here.rank == rank), None)
    if found is None:
        raise Refused(f"the plan of `{plan.graph}` has no rank {rank}; have {[here.rank for here in plan.ranks]}")
    return found


def _network(name: str) -> type[Operator]:
    module, _, attribute = name.partition(":")
    return plugins.load("walkgraph.networks", module, attribute)


def _device(node: NodePlan, here: RankPlan) -> torch.device:
    return torch.device("cpu" if node.host else here.device)


def _weights_key(node: NodePlan, here: RankPlan) -> tuple[str | None, torch.device]:
    return node.weights, _device(node, here)


def _options(node: NodePlan, network: type[Operator]) -> dict[str, Scalar]:
    """What `load` reads of the node's parameters; raises `Refused` for an expression among them."""
    chosen: dict[str, Any] = {name: node.params[name] for name in network.options if name in node.params}
    for name, value in chosen.items():
        if _is_expression(value):
            raise Refused(f"`{node.name}`: parameter `{name}` is read when the node is loaded; make it a literal")
    return chosen


def _is_expression(value: Scalar) -> bool:
    return isinstance(value, str) and value.startswith("=")
