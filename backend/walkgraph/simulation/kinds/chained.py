"""Scenarios with chains of small nodes, which a rank makes as one call while nobody watches.

    loop: a ──> b ──> ... ──> last ──> @out.o, each iteration; the last one's value enters the next iteration

A node may fail at one of its values, or give NaN in its place, so that a chain ends in the middle. An observer of every
value, on this or another rank, may follow the last node.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import isnan, nan
from typing import Any

from walkgraph.graph import codec
from walkgraph.graph.catalogue import Catalogue
from walkgraph.placement.compiler.assemble import assemble
from walkgraph.placement.compiler.assignment import Assignment
from walkgraph.simulation.reference.random_walks import CATALOGUE, SeededDraw, mix
from walkgraph.simulation.reference.reference_walk import Function
from walkgraph.simulation.scenarios import Scenario, ScenarioRequest, fixed, placed
from walkgraph.worker.walk.cursor import Vector

CHAINED = 24
KINDS = ("test.small", "test.edited", "test.failing", "test.failing_edited")
COMPONENTS: Catalogue = {name: replace(CATALOGUE["test.mix"], name=name, cost="launch") for name in KINDS}


@dataclass(frozen=True)
class _Chain:
    """The drawn properties of a scenario."""

    nodes: Sequence[str]
    fails: str | None
    """A node that fails at some of its values."""
    numberless: bool
    """It gives NaN in place of these values."""
    observed: bool
    """The node `z` reads what the last one gives."""
    edited: str
    """A node that another component was chosen for, which computes something else; empty for none."""


def chained(count: int = CHAINED) -> list[Scenario]:
    """Half of them are others in which a node was edited."""
    return [chained_scenario(seed // 2, edited=bool(seed % 2)) for seed in range(count)]


def chained_scenario(seed: int, *, edited: bool = False) -> Scenario:
    draw, ranks = SeededDraw(seed), 1 + seed % 2
    nodes = "abcde"[: draw.integer(2, 5)]
    fails, observed, numberless = draw.one(nodes) if draw.integer(0, 2) == 0 else None, draw.flag(), draw.flag()
    chain = _Chain(nodes, fails, numberless, observed, nodes[0] if edited else "")
    graph = codec.load(_document(chain))
    plan = assemble(Assignment(graph, placed({"z": ranks - 1} if chain.observed else {}, ranks)), COMPONENTS)
    kinds = {node: f"edited {node}" if node == chain.edited else node for node in (*nodes, "z")}
    fault = numberless_at if chain.numberless else failing
    functions = {node: fault(kind) if node == chain.fails else mix(kind) for node, kind in kinds.items()}
    requests = [_request(chain, functions, x, n) for x, n in ((5, 1), (6, 3), (7, 6), (8, 12))]
    name = f"chained {seed}{' edited' if edited else ''}/{ranks}"
    return Scenario(name, graph, plan, fixed(functions), requests)


def failing(name: str) -> Function:
    whole = mix(name)

    def call(inputs: dict[str, Any], at: Vector) -> Mapping[str, Any]:
        found = whole(inputs, at)
        if found["out"] % 5 == 0:
            raise ValueError("told to fail")
        return found

    return call


def numberless_at(name: str) -> Function:
    """Gives NaN where `failing` fails."""
    whole = mix(name)

    def call(inputs: dict[str, Any], at: Vector) -> Mapping[str, Any]:
        found = whole(inputs, at)
        return {**found, "out": nan} if found["out"] % 5 == 0 else found

    return call


def _kind(chain: _Chain, node: str) -> str:
    if node == chain.fails:
        return "test.failing_edited" if node == chain.edited else "test.failing"
    return "test.edited" if node == chain.edited else "test.small"


def _document(chain: _Chain) -> dict[str, Any]:
    names = [*chain.nodes, *(["z"] if chain.observed else [])]
    first, last = chain.nodes[0], chain.nodes[-1]
    edges: list[Any] = [["@in.x", f"{first}.a"], [f"{last}.out", f"{first}.a"]]
    edges += [[f"{one}.out", f"{after}.a"] for one, after in zip(chain.nodes, chain.nodes[1:], strict=False)]
    edges += [{"from": f"{last}.out", "to": "@out.o", "each": True}]
    if chain.observed:
        edges += [[f"{last}.out", "z.a"], {"from": "z.out", "to": "@out.z", "each": True}]
    walk = {"inputs": {"x": "scalar"}, "body": [{"loop": "l", "times": "n", "body": names}], "edges": edges}
    outputs = ["o", "z"] if chain.observed else ["o"]
    return {
        "format": "walkgraph/graph@1",
        "name": "chained",
        "nodes": {name: {"component": _kind(chain, name)} for name in names},
        "walks": {"w": walk},
        "tasks": {
            "t": {
                "inputs": {"x": {"modality": "scalar"}},
                "outputs": outputs,
                "params": {"n": {"type": "integer", "default": 2}},
                "steps": [{"walk": "w", "with": {"x": "@task.x"}}],
            }
        },
    }


def _request(chain: _Chain, functions: Mapping[str, Function], x: int, n: int) -> ScenarioRequest:
    given: list[int] = []
    seen: list[int] = []
    value, fails = x, False
    for i in range(n):
        try:
            for node in chain.nodes:
                value = functions[node]({"a": value}, (i,))["out"]
                if isnan(value):
                    raise ValueError("no number")
        except ValueError:
            fails = True
            break
        given.append(value)
        if chain.observed:
            seen.append(functions["z"]({"a": value}, (i,))["out"])
    outputs = {name: found for name, found in (("o", given), ("z", seen)) if found}
    fault = ("numeric_error" if chain.numberless else "node_error", chain.fails) if chain.fails and fails else None
    return ScenarioRequest("t", {"n": n}, outputs, {"x": x}, fails=fails, fault=fault)
