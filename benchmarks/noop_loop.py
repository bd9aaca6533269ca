"""Measures the cost of the runtime itself: loops of empty steps, on each available device.

    python benchmarks/noop_loop.py [--devices cpu cuda:0] [--budget 60] [--no-http] [--out FILE] [--check]

A batch of runs starts at once; T is the time until all are done, fitted by T = a + b * K over their K steps. `us/step`
is b, and `us/run step` is b divided by the number of runs. `static`: a loop with a fixed count; `until`: one that ends
on a flag; `stepped`: the worker makes each call. In one process there are only the worker's core and the engine; over
HTTP there is a whole server. `walk` is the time that one more Walk adds to a run, including its two calls of the
engine. `--check` is for tests.
"""

import argparse
import asyncio
import statistics
import time
from collections.abc import Callable, Sequence
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple

import httpx
from _common import ROOT, Budget, Row, fitted, show, write
from _runtime import InProcess, bundled_graph, device_name, placed
from _service import home, is_ready, service, when

RESULTS = ROOT / "benchmarks" / "results" / "noop_loop.json"
GRAPH = "synthetic_device"
STEPPED = "synthetic_loops"
"""Over HTTP: its task `spin` has a node that has no step."""


class Sizes(NamedTuple):
    batches: tuple[int, ...] = (1, 16, 64)
    steps: tuple[int, ...] = (100, 400, 1600)
    rounds: int = 5
    fewer: int = 4
    """So much fewer steps where the worker takes each."""


BRIEF = Sizes(batches=(1, 4), steps=(8, 32), rounds=1, fewer=1)
_NUMBERS = count()
Together = Callable[[str, int, int], float]
"""Task, runs, steps -> seconds until all of them are done."""


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    devices = dict.fromkeys(["cpu", device_name()])
    arguments.add_argument("--devices", nargs="+", default=list(devices))
    arguments.add_argument("--budget", type=float, default=60.0, help="seconds; later cases are skipped")
    arguments.add_argument("--no-http", dest="http", action="store_false")
    arguments.add_argument("--out", type=Path, default=RESULTS)
    arguments.add_argument("--check", action="store_true", help="run the smallest sizes and write nothing")
    given = arguments.parse_args()
    sizes, budget = BRIEF if given.check else Sizes(), Budget(given.budget)
    rows: list[Row] = []
    for device in given.devices:
        rows += in_process(device, sizes, budget)
    show("in one process", rows)
    served: list[Row] = []
    for device in given.devices if given.http else []:
        served += over_http(device, sizes, budget)
    show("over HTTP", served)
    report = {"in process": rows, "over http": served, "left out": budget.left_out}
    write(None if given.check else given.out, given.devices[-1], report)


# ── in one process ──


def in_process(device: str, sizes: Sizes, budget: Budget) -> list[Row]:
    graph = bundled_graph(GRAPH)
    fast = InProcess(graph, placed(graph, device))
    slow = InProcess(graph, placed(graph, device, resident=False))
    rows = [
        {"device": device, "loop": kind, **row}
        for kind, here, task in (("static", fast, "static"), ("until", fast, "until"), ("stepped", slow, "static"))
        for row in measured(_locally(here), task, sizes, budget, f"{kind} on {device}", few=kind == "stepped")
    ]
    return rows + [{"device": device, "loop": "walk", **row} for row in walks(_locally(fast), sizes, budget)]


def _locally(here: InProcess) -> Together:
    def together(task: str, runs: int, steps: int) -> float:
        names = [f"r{next(_NUMBERS)}" for _ in range(runs)]
        began = time.perf_counter()
        for name in names:
            here.submit(name, task, params_of(task, steps))
        here.serve()
        seconds = time.perf_counter() - began
        for name in names:
            values = here.taken(name).values
            assert [int(one) for one in values] == _wanted(task, steps), (task, steps, values)
        return seconds

    return together


def params_of(task: str, steps: int) -> dict[str, Any]:
    match task:
        case "static" | "spin":
            return {"times": steps}
        case "until":
            return {"times": 1_000_000, "stop_at": steps}
        case _:
            return {}


def _wanted(task: str, steps: int) -> list[int]:
    if task == "spin":
        return [7]
    return [steps] if task in ("static", "until") else list(range(1, 10 if task == "walks" else 2))


# ── both ──


def measured(together: Together, task: str, sizes: Sizes, budget: Budget, what: str, *, few: bool = False) -> list[Row]:
    """One row for each batch."""
    rows: list[Row] = []
    for runs in sizes.batches:
        if not budget.allows(f"{what} at batch {runs}"):
            continue
        counts = [max(2, n // sizes.fewer) if few else n for n in sizes.steps]
        together(task, runs, counts[0])
        times = {n: statistics.median(together(task, runs, n) for _ in range(sizes.rounds)) for n in counts}
        a, b = fitted(list(times.items()))
        rows.append({"batch": runs, "us/step": 1e6 * b, "us/run step": 1e6 * b / runs, "a, ms": 1e3 * a})
    return rows


def walks(together: Together, sizes: Sizes, budget: Budget) -> list[Row]:
    """The cost of each of eight more Walks."""
    rows: list[Row] = []
    for runs in sizes.batches:
        if not budget.allows(f"walks at batch {runs}"):
            continue
        one, nine = (
            statistics.median(together(task, runs, 1) for _ in range(3 * sizes.rounds)) for task in ("once", "walks")
        )
        rows.append({"batch": runs, "us/step": 1e6 * (nine - one) / 8, "us/run step": 1e6 * (nine - one) / 8 / runs})
    return rows


# ── over HTTP ──


def over_http(device: str, sizes: Sizes, budget: Budget) -> list[Row]:
    if not budget.allows(f"a server on {device}"):
        return []
    rows: list[Row] = []
    with home() as folder, service(folder, starter=False) as server:
        for graph in (GRAPH, STEPPED):
            server.client.deploy(graph, _placement(graph, device), graph)
            when(server.client, graph, is_ready)
        token = (folder / "token").read_text().strip()
        for kind, graph, task in (
            ("static", GRAPH, "static"),
            ("until", GRAPH, "until"),
            ("stepped", STEPPED, "spin"),
        ):
            together = _remotely(server.client.url, token, graph)
            for row in measured(together, task, sizes, budget, f"HTTP {kind} on {device}", few=kind == "stepped"):
                rows.append({"device": device, "loop": kind, **row})
        together = _remotely(server.client.url, token, GRAPH)
        rows += [{"device": device, "loop": "walk", **row} for row in walks(together, sizes, budget)]
    return rows


def _placement(graph: str, device: str) -> dict[str, Any]:
    return {
        "format": "walkgraph/placement@1",
        "name": "one",
        "graph": graph,
        "groups": [{"nodes": ["*"], "ranks": [0], "memory": "256MiB" if device == "cpu" else "2GiB"}],
        "ranks": [{"rank": 0, "device": device}],
    }


def _remotely(url: str, token: str, deployment: str) -> Together:
    headers = {"Authorization": f"Bearer {token}"}

    async def one(client: httpx.AsyncClient, task: str, steps: int) -> None:
        answer = await client.post(f"/v1/tasks/{deployment}/{task}", json={"params": params_of(task, steps)})
        answer.raise_for_status()
        (values,) = answer.json()["outputs"].values()
        assert [_number(value) for value in values] == _wanted(task, steps), (task, steps, values)

    async def all_of(task: str, runs: int, steps: int) -> float:
        limits = httpx.Limits(max_connections=runs)
        async with httpx.AsyncClient(
            base_url=url, headers=headers, timeout=600, limits=limits, trust_env=False
        ) as client:
            await asyncio.gather(*(client.get("/health/live") for _ in range(runs)))
            began = time.perf_counter()
            await asyncio.gather(*(one(client, task, steps) for _ in range(runs)))
            return time.perf_counter() - began

    return lambda task, runs, steps: asyncio.run(all_of(task, runs, steps))


def _number(value: Any) -> int:
    """The number in a JSON output: a number, or a tensor with one."""
    while isinstance(value, dict):
        value = next(value[key] for key in ("value", "values", "data") if key in value)
    return _number(value[0]) if isinstance(value, Sequence) and not isinstance(value, str) else int(value)


if __name__ == "__main__":
    main()
