"""Plans and calls in small, for tests of the engine and of operators."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

import torch

from walkgraph.abi.calls import Call, StateKey
from walkgraph.engine.calls.memo import Sharing
from walkgraph.engine.engine import Done, Engine
from walkgraph.engine.loops.graphs import LoopGraphs
from walkgraph.ids import Rank
from walkgraph.placement.tables import Alternative, NodePlan, Plan, RankPlan, StatePlan, WeightsPlan

WEIGHTS = "w"


def plan_of(
    nodes: Mapping[str, tuple[str, dict[str, str]]],
    *,
    kv_bytes: int = 1 << 20,
    budget: Mapping[str, int] | None = None,
    params: Mapping[str, dict[str, Any]] | None = None,
    source: str | None = None,
    family: str = "test",
    capacity: str | None = None,
    kept: Mapping[str, Sharing] | None = None,
) -> Plan:
    """`nodes`: name -> (network, slot -> state name). A state is paged where its slot is `kv`."""
    slots = {state: slot for _, used in nodes.values() for slot, state in used.items()}
    states = {name: index for index, name in enumerate(slots)}
    return Plan(
        graph="test",
        digest="",
        nodes=tuple(
            NodePlan(
                index=index,
                name=name,
                component=network,
                network=network,
                weights=WEIGHTS if source else None,
                params=(params or {}).get(name, {}),
                defaults={},
                states={slot: states[state] for slot, state in used.items()},
                cost="compute",
                host=False,
                required=(),
                kept=(kept or {}).get(name, ""),
            )
            for index, (name, (network, used)) in enumerate(nodes.items())
        ),
        weights={WEIGHTS: WeightsPlan(family=family, source=source)} if source else {},
        states=tuple(
            StatePlan(
                index=index,
                name=name,
                kind="paged_kv" if slots[name] == "kv" else "tensor",
                scope="run",
                width="1",
                capacity=capacity,
            )
            for name, index in states.items()
        ),
        walks=(),
        streams=(),
        ranks=(
            RankPlan(
                rank=Rank(0),
                device="cpu",
                nodes=tuple(range(len(nodes))),
                kv_bytes=kv_bytes,
                budget=tuple((budget or {}).items()),
            ),
        ),
        alternatives=(Alternative(index=0, replicas={}, walks=(), ranks=(Rank(0),)),),
    )


def engine_of(plan: Plan, **options: Any) -> Engine:
    engine = Engine(plan, Rank(0), **options)
    engine.load()
    return engine


def call(
    node: str,
    inputs: Mapping[str, Any] | None = None,
    *,
    run: str = "r",
    states: Mapping[str, str] | None = None,
    iteration: tuple[int, ...] = (),
    draws: int = 0,
    priority: int = 0,
    ready_at: float = 0.0,
    **params: Any,
) -> Call:
    return Call(
        run=run,
        node=node,
        walk="walk",
        step=0,
        use=0,
        iteration=iteration,
        inputs=dict(inputs or {}),
        params=params,
        states={slot: StateKey(run, name) for slot, name in (states or {}).items()},
        seed=draws,
        priority=priority,
        ready_at=ready_at,
    )


def serve(engine: Engine, *calls: Call) -> list[Done]:
    """All results, in the order of the calls."""
    for one in calls:
        engine.add(one)
    done: list[Done] = []
    while not engine.idle:
        done += engine.step()
    return sorted(done, key=lambda d: next(i for i, one in enumerate(calls) if one is d.call))


def outputs(engine: Engine, *calls: Call) -> list[dict[str, Any]]:
    done = serve(engine, *calls)
    assert [d.error for d in done] == [None] * len(calls)
    return [d.outputs or {} for d in done]


def ids(*tokens: int) -> torch.Tensor:
    return torch.tensor(tokens)


def graphs_of(engine: Engine) -> list[LoopGraphs]:
    """The CUDA graphs that replay the launches of its batch groups."""
    return [cast("LoopGraphs", group.graphs) for group in engine.loops.groups]
