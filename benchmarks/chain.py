"""Measures the cost of one more small node in a chain on one rank.

    python benchmarks/chain.py [--device cpu] [--lengths 8 32 128] [--rounds 15] [--no-http] [--out FILE] [--check]

A Walk has a chain of nodes, each of which takes the value of the one before. T is the time of one run, fitted by
T = a + b * K over chains of K nodes; `us/node` is b. `one by one` is b where every node is a call, as for runs that are
watched; otherwise a rank makes one call of up to 16 of them. `run only` is the same for the operators' forwards alone,
called one after another. In one process there are only the worker's core and the engine; over HTTP there is a whole
server.
Times are of the processor, over HTTP of the worker's process; `client` is the client's clock, the shortest of the
rounds. `together`: runs that start at once, whose calls share batches. `--check` is for tests.
"""

import argparse
import importlib
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple

import httpx
import torch
from _common import ROOT, Row, fitted, show, write
from _runtime import InProcess, placed
from _service import home, is_ready, service, when

from walkgraph.abi.calls import Call
from walkgraph.abi.operator import LoadContext
from walkgraph.components import catalogue
from walkgraph.graph import codec

RESULTS = ROOT / "benchmarks" / "results" / "chain.json"
_NUMBERS = count()


class Link(NamedTuple):
    """A component whose output enters the next one."""

    component: str
    takes: str
    gives: str
    modality: str
    params: Mapping[str, Any]


LINKS = {
    "number": Link("numbers.arithmetic", "a", "result", "scalar", {"number": 1}),
    "text": Link("text.trim", "text", "text", "text", {}),
    "tensor": Link(
        "numbers.arithmetic", "a", "result", "tensor", {"number": 1, "type": "tensor", "operation": "maximum"}
    ),
}
START: Mapping[str, Any] = {"number": 1, "text": " a text ", "tensor": torch.zeros(64)}


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--device", default="cpu")
    arguments.add_argument("--lengths", type=int, nargs="+", default=[8, 32, 128])
    arguments.add_argument("--rounds", type=int, default=15)
    arguments.add_argument("--no-http", dest="http", action="store_false")
    arguments.add_argument("--out", type=Path, default=RESULTS)
    arguments.add_argument("--check", action="store_true", help="run the smallest sizes and write nothing")
    given = arguments.parse_args()
    lengths, rounds = ([2, 4], 1) if given.check else (given.lengths, given.rounds)
    rows = [row for kind in LINKS for row in in_process(kind, given.device, lengths, rounds)]
    show("in one process, processor time", rows)
    served = over_http(given.device, lengths, rounds) if given.http else []
    show("over HTTP", served)
    write(None if given.check else given.out, given.device, {"in process": rows, "over http": served})


def document(kind: str, lengths: Sequence[int]) -> dict[str, Any]:
    """A graph with a task for each length."""
    link = LINKS[kind]
    names = [f"n{i}" for i in range(max(lengths))]

    def walk(length: int) -> dict[str, Any]:
        ends = ["@in.value", *(f"{name}.{link.gives}" for name in names[:length])]
        edges = [[end, f"{name}.{link.takes}"] for end, name in zip(ends, names[:length], strict=False)]
        return {"inputs": {"value": link.modality}, "body": names[:length], "edges": [*edges, [ends[-1], "@out.value"]]}

    def task(length: int) -> dict[str, Any]:
        steps = [{"walk": f"w{length}", "with": {"value": "@task.value"}}]
        inputs = {"value": {"modality": link.modality}}
        return {"inputs": inputs, "outputs": ["value"], "steps": steps}

    return {
        "format": "walkgraph/graph@1",
        "name": f"chain_{kind}",
        "nodes": {name: {"component": link.component, "params": dict(link.params)} for name in names},
        "walks": {f"w{length}": walk(length) for length in lengths},
        "tasks": {f"t{length}": task(length) for length in lengths},
    }


def per_node(seconds: Callable[[int], float], lengths: Sequence[int]) -> float:
    """Microseconds of one more node; `seconds(length)` is the time of a chain."""
    _, slope = fitted([(length, seconds(length)) for length in lengths])
    return 1e6 * slope


# ── in one process ──


def in_process(kind: str, device: str, lengths: Sequence[int], rounds: int) -> list[Row]:
    graph = codec.load(document(kind, lengths))
    fused, stepped = (InProcess(graph, placed(graph, device), threads=1, fused=fused) for fused in (True, False))
    value = START[kind].to(device) if isinstance(START[kind], torch.Tensor) else START[kind]

    def together(runs: int) -> Row:
        def taken(here: InProcess) -> Callable[[int], float]:
            times = {length: [_run(here, length, runs, value) for _ in range(rounds + 1)][1:] for length in lengths}
            return lambda length: statistics.median(times[length])

        cost, apart = per_node(taken(fused), lengths), per_node(taken(stepped), lengths)
        row = {"chain": kind, "device": device, "together": runs, "us/node": cost, "us/node of a run": cost / runs}
        return {**row, "one by one": apart / runs}

    alone = per_node(lambda length: _alone(LINKS[kind], length, rounds, value), lengths)
    return [{**together(1), "run only": alone}, together(16)]


def _run(here: InProcess, length: int, runs: int, value: Any) -> float:
    names = [f"r{next(_NUMBERS)}" for _ in range(runs)]
    began = time.process_time()
    for name in names:
        here.submit(name, f"t{length}", {}, {"value": value})
    here.serve()
    seconds = time.process_time() - began
    assert all(len(here.taken(name).values) == 1 for name in names)
    return seconds


def _alone(link: Link, length: int, rounds: int, value: Any) -> float:
    """The forwards alone."""
    declared = catalogue()[link.component]
    params = {**{name: one.default for name, one in declared.params.items()}, **link.params}
    module, _, name = str(declared.network).partition(":")
    cpu = torch.device("cpu")
    context = LoadContext(device=cpu, dtype=torch.float32, folder=None, shared={}, options=params)
    operator = getattr(importlib.import_module(module), name).load(context)
    times: list[float] = []
    for _ in range(rounds):
        began = time.process_time()
        with torch.inference_mode():
            for _ in range(length):
                operator.forward([Call("r", "n0", "w", 0, 0, (), {link.takes: value}, params, {}, 0)], None)
        times.append(time.process_time() - began)
    return statistics.median(times)


# ── over HTTP ──


def over_http(device: str, lengths: Sequence[int], rounds: int) -> list[Row]:
    rows: list[Row] = []
    placement = {
        "format": "walkgraph/placement@1",
        "name": "one",
        "groups": [{"nodes": ["*"], "ranks": [0], "memory": "256MiB" if device == "cpu" else "2GiB"}],
        "ranks": [{"rank": 0, "device": device}],
    }
    with home() as folder, service(folder, starter=False) as server:
        token = (folder / "token").read_text().strip()
        headers = {"Authorization": f"Bearer {token}"}
        with httpx.Client(base_url=server.client.url, headers=headers, timeout=600, trust_env=False) as http:
            for kind in ("number", "text"):
                name = f"chain_{kind}"
                server.client.deploy(document(kind, lengths), placement, name)
                when(server.client, name, is_ready)
                pid = int(server.client.deployment(name)["ranks"][0]["pid"])
                cost: dict[int, float] = {}
                best: dict[int, float] = {}
                for length in lengths:
                    began = _processor(pid)
                    best[length] = min(_asked(http, name, length, START[kind]) for _ in range(rounds))
                    cost[length] = (_processor(pid) - began) / rounds
                times = {"us/node": per_node(cost.__getitem__, lengths), "client": per_node(best.__getitem__, lengths)}
                rows.append({"chain": kind, "device": device, **times})
                server.client.undeploy(name)
    return rows


def _processor(pid: int) -> float:
    """Seconds that a process has used, with all its threads."""
    return sum(int(one.read_text().split()[0]) for one in Path(f"/proc/{pid}/task").glob("*/schedstat")) / 1e9


def _asked(http: httpx.Client, name: str, length: int, value: Any) -> float:
    began = time.perf_counter()
    answer = http.post(f"/v1/tasks/{name}/t{length}", json={"inputs": {"value": value}})
    seconds = time.perf_counter() - began
    if not answer.is_success:
        raise RuntimeError(f"{name} of {length} nodes: {answer.text}")
    assert len(answer.json()["outputs"]["value"]) == 1
    return seconds


if __name__ == "__main__":
    main()
