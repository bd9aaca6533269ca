"""The synthetic components as plain functions on Python numbers: naive twins of their operators."""

from collections.abc import Callable, Mapping
from typing import Any

from walkgraph.abi.calls import Call
from walkgraph.graph.document import Graph
from walkgraph.simulation.rank.states import StateStore


def twins(graph: Graph, states: StateStore) -> dict[str, Callable[[Call], dict[str, Any]]]:
    """Node -> function, for a graph of synthetic components. Their states are kept in `states`."""

    def counter(call: Call) -> dict[str, Any]:
        key = call.states["count"]
        kept = states.read(key)
        count = (kept["count"] if kept else 0) + 1
        states.write(key, {"count": count})
        return {"token": call.inputs.get("token", 0) + 1, "stop": count >= int(call.params["stop_at"])}

    def attend(call: Call) -> dict[str, Any]:
        key = call.states["kv"]
        kept = states.read(key) or {"tokens": [], "position": 0}
        ((name, given),) = call.inputs.items()
        new: list[int] = [given] if isinstance(given, int) else given
        tokens: list[int] = [*kept["tokens"], *new]
        position = kept["position"] + {"ids": len(new), "token": 1, "block": 1, "scratch": 0}[name]
        if name != "scratch":
            states.write(key, {"tokens": tokens, "position": position})
        token = (sum(tokens) + position) % 997
        return {"token": token, "stop": token == call.params["stop_token"]}

    kinds: Mapping[str, Callable[[Call], dict[str, Any]]] = {
        "synthetic.constant": lambda c: {"value": c.params["value"]},
        "synthetic.range": lambda c: {"values": [c.inputs.get("start", 0) + i for i in range(int(c.params["n"]))]},
        "synthetic.add": lambda c: {"sum": c.inputs.get("a", 0) + c.inputs.get("b", 0)},
        "synthetic.sum": lambda c: {"sum": int(sum(c.inputs["values"]))},
        "synthetic.compare": _compare,
        "synthetic.counter": counter,
        "synthetic.attend": attend,
        "synthetic.tokens": lambda c: {"ids": [c.inputs.get("first", 0) + i for i in range(int(c.params["n"]))]},
        "synthetic.delay": lambda c: {"value": c.inputs.get("value", 0)},
        "synthetic.fail": _fail,
        "synthetic.tensor": lambda c: {"items": float(c.inputs.get("value", 0))},
        "synthetic.chunk_sum": lambda c: {"sum": float(sum(c.inputs.get("items", ())))},
    }
    return {name: kinds[node.component] for name, node in graph.nodes.items() if node.component in kinds}


def _compare(call: Call) -> dict[str, Any]:
    return {"value": call.inputs["value"], "reached": call.inputs["value"] >= int(call.params["at"])}


def _fail(call: Call) -> dict[str, Any]:
    if call.inputs["value"] == call.params["at"]:
        raise ValueError("told to fail")
    return {"value": call.inputs["value"]}
