"""The synthetic components as plain functions on Python numbers: naive twins of their operators."""

from collections.abc import Callable, Mapping
from typing import Any

from walkgraph.abi.calls import Call
from walkgraph.placement.tables import FromInput, Itinerary, Plan, StepPlan


def functions(graph: Any) -> dict[str, Callable[[Call], dict[str, Any]]]:
    """Node -> function, for a graph of synthetic components; counters keep their states in a dict of this call."""
    counts: dict[Any, int] = {}

    def counter(call: Call) -> dict[str, Any]:
        key = call.states["count"]
        counts[key] = counts.get(key, 0) + 1
        return {"token": call.inputs.get("token", 0) + 1, "stop": counts[key] >= call.params["stop_at"]}

    kinds: Mapping[str, Callable[[Call], dict[str, Any]]] = {
        "synthetic.constant": lambda c: {"value": c.params["value"]},
        "synthetic.range": lambda c: {"values": [c.inputs.get("start", 0) + i for i in range(int(c.params["n"]))]},
        "synthetic.add": lambda c: {"sum": c.inputs.get("a", 0) + c.inputs.get("b", 0)},
        "synthetic.sum": lambda c: {"sum": int(sum(c.inputs["values"]))},
        "synthetic.compare": lambda c: {
            "value": c.inputs["value"],
            "reached": c.inputs["value"] >= c.params["at"],
        },
        "synthetic.counter": counter,
        "synthetic.delay": lambda c: {"value": c.inputs.get("value", 0)},
        "synthetic.fail": _fail,
        "synthetic.tensor": lambda c: {"items": float(c.inputs.get("value", 0))},
        "synthetic.chunk_sum": lambda c: {"sum": float(sum(c.inputs.get("items", ())))},
    }
    return {name: kinds[node.component] for name, node in graph.nodes.items() if node.component in kinds}


def _fail(call: Call) -> dict[str, Any]:
    if call.inputs["value"] == call.params["at"]:
        raise ValueError("told to fail")
    return {"value": call.inputs["value"]}


def one_walk(plan: Plan, walk: str) -> Itinerary:
    """A run of one Walk, its inputs under their own names."""
    return lanes(plan, [(walk, False)])


def lanes(plan: Plan, walks: list[tuple[str, bool]]) -> Itinerary:
    """One step a lane; the flag says `per: chunk`. All streams are in use."""
    steps: list[StepPlan] = []
    for lane, (name, chunked) in enumerate(walks):
        walk = next(w for w in plan.walks if w.name == name and w.chunked == chunked)
        bindings = {n: FromInput(n) for n in walk.inputs}
        steps.append(StepPlan(index=lane, walk=walk.index, partition=lane, bindings=bindings))
    ranks = tuple(r.rank for r in plan.ranks)
    read = {e.source.index for step in steps for e in plan.walks[step.walk].edges if e.source.kind == "stream"}
    return Itinerary(steps=tuple(steps), outputs=(), ranks=ranks, streams=tuple(sorted(read)))
