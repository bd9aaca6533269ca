"""Random graphs whose tasks call each other, with what each must give: acyclic, at most `MOST_DEEP` deep.

A task writes a cache, calls its tasks, and then writes on in the cache. So it holds pages while it waits, and its
output shows whether the cache came back as it was.
"""

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from walkgraph.graph.checks.called import MOST_DEEP

MOST_TASKS = 9
MOST_CALLS = 3
MOST_ROOM = 22
"""Tokens that a task may write before and after its calls; at 4 a page, twice as many may be more than a pool has."""
FAILING = 0.04
"""Share of tasks with a node that fails."""


@dataclass(frozen=True)
class NestedTask:
    name: str
    graph: str
    own: int
    """Added to its parameter `base`."""
    room: int
    """Tokens that it writes before its calls, and again after them."""
    calls: tuple[int, ...]
    """Numbers of the tasks that it calls."""
    in_row: bool
    """Each call gets the sum so far as its `base`; otherwise the calls run side by side."""
    fails: bool


def random_tasks(chance: random.Random, graphs: Sequence[str]) -> list[NestedTask]:
    """Tasks that call only later ones."""
    count = chance.randint(2, MOST_TASKS)
    found: list[NestedTask] = []
    depths = dict[int, int]()
    for number in reversed(range(count)):
        callable_ = [other for other, depth in depths.items() if depth < MOST_DEEP]
        calls = tuple(chance.choice(callable_) for _ in range(chance.randint(0, MOST_CALLS) if callable_ else 0))
        depths[number] = max((depths[call] + 1 for call in calls), default=0)
        room, fails = chance.randint(1, MOST_ROOM), chance.random() < FAILING
        own, in_row = chance.randrange(100), chance.random() < 0.5
        found.append(NestedTask(f"t{number}", chance.choice(graphs), own, room, calls, in_row, fails))
    return found[::-1]


def documents(tasks: Sequence[NestedTask]) -> dict[str, dict[str, Any]]:
    """Graph -> its document."""
    return {graph: _document(graph, tasks) for graph in dict.fromkeys(task.graph for task in tasks)}


def _document(graph: str, tasks: Sequence[NestedTask]) -> dict[str, Any]:
    mine = [task for task in tasks if task.graph == graph]
    nodes: dict[str, Any] = {"kv": {"component": "synthetic.attend", "states": {"kv": "main"}}}
    walks: dict[str, Any] = {}
    for task in mine:
        walks[task.name] = _walk(task, tasks, nodes)
    return {
        "format": "walkgraph/graph@1",
        "name": graph,
        "states": {"main": {"kind": "paged_kv", "capacity": "2 * room"}},
        "nodes": nodes,
        "walks": walks,
        "tasks": {
            task.name: {
                "outputs": ["sum", "token"],
                "params": {
                    "base": {"type": "integer", "default": 0},
                    "room": {"type": "integer", "default": task.room},
                },
                "steps": [{"walk": task.name, "with": {"base": "@task.base"}}],
            }
            for task in mine
        },
    }


def _walk(task: NestedTask, tasks: Sequence[NestedTask], nodes: dict[str, Any]) -> dict[str, Any]:
    """The task's Walk; adds its nodes."""
    own = {
        "first": {"component": "synthetic.tokens", "params": {"n": "=room"}},
        "own": {"component": "synthetic.constant", "params": {"value": task.own}},
        "sum": {"component": "synthetic.add"},
        "fail": {"component": "synthetic.fail", "params": {"at": task.own}},
        "second": {"component": "synthetic.tokens", "params": {"n": "=room"}},
    }
    if not task.fails:
        del own["fail"]
    own |= {f"call{i}": {"component": f"{tasks[c].graph}/{tasks[c].name}"} for i, c in enumerate(task.calls)}
    own |= {f"add{i}": {"component": "synthetic.add"} for i, _ in enumerate(task.calls)}
    at = {name: f"{task.name}_{name}" for name in own}
    nodes |= {at[name]: node for name, node in own.items()}
    edges = [["@in.base", f"{at['sum']}.a"], [f"{at['own']}.value", f"{at['sum']}.b"]]
    edges += [[f"{at['first']}.ids", "before.ids"]]
    if task.fails:
        edges += [[f"{at['own']}.value", f"{at['fail']}.value"], [f"{at['fail']}.value", "@out.failed"]]
    last, called, added = f"{at['sum']}.sum", list[str](), list[str]()
    for i, _ in enumerate(task.calls):
        call, add = at[f"call{i}"], at[f"add{i}"]
        if task.in_row:
            edges.append([last, f"{call}.base"])
        edges += [[last, f"{add}.a"], [f"{call}.sum", f"{add}.b"]]
        last = f"{add}.sum"
        called, added = [*called, call], [*added, add]
    if task.in_row:
        middle: list[Any] = [item for pair in zip(called, added, strict=True) for item in pair]
    else:
        middle = [*([{"parallel": called}] if called else []), *added]
    edges += [[last, f"{at['second']}.first"], [f"{at['second']}.ids", "after.ids"]]
    edges += [[last, "@out.sum"], ["after.token", "@out.token"]]
    begun = [at["first"], {"use": "kv", "as": "before"}, at["own"], at["sum"], *([at["fail"]] if task.fails else [])]
    body = [*begun, *middle, at["second"], {"use": "kv", "as": "after"}]
    return {"inputs": {"base": "scalar: int"}, "body": body, "edges": edges}


@dataclass(frozen=True)
class Wanted:
    """The expected end of a task: its outputs, or one of some errors."""

    sum: int
    token: int
    errors: frozenset[str]


def wanted(tasks: Sequence[NestedTask], number: int, pages: Mapping[str, int], page: int, base: int = 0) -> Wanted:
    """`pages`: those of each graph's pool, of `page` tokens."""
    task = tasks[number]
    total, errors = base + task.own, set[str]()
    if task.fails:
        errors.add("node_error")
    if -(-2 * task.room // page) > pages[task.graph]:
        errors.add("refused")
    for call in task.calls:
        inner = wanted(tasks, call, pages, page, total if task.in_row else 0)
        total, errors = total + inner.sum, errors | inner.errors
    written = [*range(task.room), *range(total, total + task.room)]
    return Wanted(total, (sum(written) + len(written)) % 997, frozenset(errors))
