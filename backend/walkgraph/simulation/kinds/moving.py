"""Scenarios whose state moves from rank to rank between Walks, in parts while it grows.

    read0, write0, read1, ...: `read` appends tokens call by call, on one rank; `write` goes on from them on another

The state may be a session's, and returns to where it rests then.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from walkgraph.components import catalogue
from walkgraph.graph import codec
from walkgraph.placement.compiler.assemble import assemble
from walkgraph.placement.compiler.assignment import Assignment
from walkgraph.placement.document import Group, Placement, RankDevice
from walkgraph.simulation.reference.random_walks import SeededDraw
from walkgraph.simulation.reference.synthetic import twins
from walkgraph.simulation.scenarios import Scenario, ScenarioRequest

MOVING = 24
PAGES = 64
"""Pages per rank: fewer than many runs need together."""
PRIME = 997


@dataclass(frozen=True)
class _Moving:
    """The drawn properties of a scenario."""

    rounds: int
    keeps: bool
    """The state is a session's."""
    resident: bool
    """`write` runs on the device."""
    words: int
    """The rank of what makes the tokens."""
    way: tuple[int, int]
    """Ranks of `read` and of `write`."""


def moving(count: int = MOVING) -> list[Scenario]:
    return [moving_scenario(seed) for seed in range(count)]


def moving_scenario(seed: int) -> Scenario:
    draw, ranks = SeededDraw(seed), 2 + seed % 2
    drawn = _Moving(
        rounds=draw.integer(1, 3),
        keeps=draw.flag(),
        resident=draw.flag(),
        words=draw.integer(0, ranks - 1),
        way=draw.one(((0, 1), (1, 0), (0, ranks - 1))),
    )
    graph = codec.load(_document(drawn))
    groups = (
        Group(nodes=("*",), ranks=(drawn.words,)),
        Group(nodes=("main",), ranks=drawn.way[:1], walks=("read",)),
        Group(nodes=("main",), ranks=drawn.way[1:], walks=("write",)),
    )
    devices = tuple(RankDevice(rank=rank, device="cpu") for rank in range(ranks))
    placement = Placement(name="moving", groups=groups, ranks=devices)
    plan = assemble(Assignment(graph, placement), catalogue(), resident=drawn.resident)
    requests = [_request(drawn, *of) for of in ((3, 2, 1, 2), (2, 5, 7, 3), (6, 3, 4, 1), (1, 1, 9, 4))]
    return Scenario(f"moving {seed}/{ranks}", graph, plan, lambda states: twins(graph, states), requests, pages=PAGES)


def _document(drawn: _Moving) -> dict[str, Any]:
    steps: list[Any] = []
    for _ in range(drawn.rounds):
        steps += [
            {"walk": "read", "with": {"first": "@task.first"}},
            {"walk": "write", "with": {"token": "read.token"}},
        ]
    return {
        "format": "walkgraph/graph@1",
        "name": "moving",
        "states": {"main": {"kind": "paged_kv", "capacity": "room", "scope": "session" if drawn.keeps else "run"}},
        "nodes": {
            "words": {"component": "synthetic.tokens", "params": {"n": "=n"}},
            "main": {"component": "synthetic.attend", "states": {"kv": "main"}},
        },
        "walks": {"read": _READ, "write": _WRITE},
        "tasks": {
            "t": {
                "outputs": ["token"],
                "params": {
                    name: {"type": "integer", "default": 1} for name in ("first", "n", "calls", "times", "room")
                },
                "steps": steps,
                **({"session": {}} if drawn.keeps else {}),
            }
        },
    }


_READ: dict[str, Any] = {
    "inputs": {"first": "scalar: int"},
    "body": [{"loop": "calls", "times": "calls", "body": ["words", "main"]}],
    "edges": [["@in.first", "words.first"], ["words.ids", "main.ids"]],
    "results": {"token": "main.token"},
}
_WRITE: dict[str, Any] = {
    "inputs": {"token": "tokens: int[1]"},
    "body": [{"loop": "tokens", "times": "times", "body": ["main"]}],
    "edges": [
        ["@in.token", "main.token"],
        ["main.token", "main.token"],
        {"from": "main.token", "to": "@out.token", "each": True},
    ],
}


def _request(
    drawn: _Moving, calls: int, n: int, first: int, times: int, kept: Sequence[int] = (), more: int = 2
) -> ScenarioRequest:
    """`kept`: what its session holds."""
    tokens, found = [*kept], list[int]()
    for _ in range(drawn.rounds):
        for _ in range(calls):
            tokens += range(first, first + n)
        token = _next(tokens)
        for _ in range(times):
            tokens.append(token)
            token = _next(tokens)
            found.append(token)
    grown = drawn.rounds * (calls * n + times)
    following = None
    if drawn.keeps and more:
        following = _request(drawn, calls, n, first, times, tokens, more - 1)
    # The same for all runs of a session, so that none waits for what others keep.
    params = {"first": first, "n": n, "calls": calls, "times": times, "room": 3 * grown}
    return ScenarioRequest("t", params, {"token": found}, session=drawn.keeps, following=following)


def _next(tokens: Sequence[int]) -> int:
    return (sum(tokens) + len(tokens)) % PRIME
