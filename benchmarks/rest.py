"""Measures the cost of a request: an empty task over REST, and streamed values, on two cores shared with the client.

    python benchmarks/rest.py [--connections 64] [--seconds 10] [--streams 32] [--tokens 1000] [--out FILE] [--check]

The script starts a service with the plain command in its own home, with the default telemetry level. The service, its
conductor, its worker and the client share two cores. The client is a process that sends the same bytes over persistent
connections. CPU is the CPU time of each process with all its threads.

    asked     one call of a component that does nothing, so many connections: answers a second, and times at the client
    streams   a loop that gives a value an iteration, as server-sent events. The loop is paced by products of matrices,
              tried out before, towards 100 values a second for each client, as one batch of a model on a device would
              give them; what the worker computes meanwhile is not the service's. `share` is scaled to 100 values a
              second for each: CPU of a process for one value, by all of them
"""

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from _common import ROOT, Row, show, spread, write
from _service import home, is_ready, processes_of, service, when

RESULTS = ROOT / "benchmarks" / "results" / "rest.json"
LOAD = Path(__file__).with_name("_load.py")
CORES = 2
NAME = "nothing"
PACE = 100
"""Values a second for each client."""
SIDE = 8
"""Size of the matrices that pace a loop; small enough for one thread."""
MOST_WORK = 10_000
GRAPH: Mapping[str, Any] = {
    "format": "walkgraph/graph@1",
    "name": NAME,
    "nodes": {
        "add": {"component": "synthetic.add"},
        "tick": {"component": "synthetic.delay", "params": {"work": "=work", "side": SIDE}},
    },
    "walks": {
        "pass": {
            "inputs": {"value": "scalar: int"},
            "body": ["add"],
            "edges": [["@in.value", "add.a"], ["add.sum", "@out.value"]],
        },
        "tell": {
            "body": [{"loop": "steps", "times": "times", "body": ["tick"]}],
            "edges": [["@loop.index", "tick.value"], {"from": "tick.value", "to": "@out.value", "each": True}],
        },
    },
    "tasks": {
        "pass": {
            "outputs": ["value"],
            "params": {"value": {"type": "integer", "default": 7}},
            "steps": [{"walk": "pass", "with": {"value": "@task.value"}}],
        },
        "tell": {
            "outputs": ["value"],
            "params": {
                "times": {"type": "integer", "default": 100, "min": 1, "max": 1000000},
                "work": {"type": "integer", "default": 0, "min": 0, "max": 1000000},
            },
            "steps": [{"walk": "tell"}],
        },
    },
}


class Loaded(NamedTuple):
    times: list[float]
    seconds: float
    used: dict[str, float]
    """CPU seconds by process."""


def main() -> None:
    given = options()
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:CORES])
    with home() as folder, service(folder, starter=False) as server:
        server.client.deploy(GRAPH, None, NAME)
        when(server.client, NAME, is_ready)
        here = Here(folder, server.client.url)
        here.load("pass", {}, given.connections, given.seconds / 4)
        rows = [asked(here, given.connections, given.seconds)]
        show("asked: a task of nothing", rows)
        full, paced = streamed(here, given.streams, given.tokens)
        show(f"streams: at full speed, and paced towards {PACE} a second each", [full, paced])
    write(None if given.check else given.out, "cpu", {"cores": CORES, "asked": rows, "streams": [full, paced]})


def options() -> argparse.Namespace:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--connections", type=int, default=64)
    arguments.add_argument("--seconds", type=float, default=10.0)
    arguments.add_argument("--streams", type=int, default=32)
    arguments.add_argument("--tokens", type=int, default=1000, help="values per stream")
    arguments.add_argument("--out", type=Path, default=RESULTS)
    arguments.add_argument("--check", action="store_true", help="run the smallest sizes and write nothing")
    given = arguments.parse_args()
    if given.check:
        given.connections, given.seconds, given.streams, given.tokens = 4, 0.4, 2, 20
    return given


def asked(here: "Here", connections: int, seconds: float) -> Row:
    found = here.load("pass", {}, connections, seconds)
    count = len(found.times)
    row = {"connections": connections, "a second": count / found.seconds}
    row |= {f"{name} ms": value for name, value in spread(found.times, 1e3).items()}
    row["p99 ms"] = 1e3 * sorted(found.times)[int(0.99 * (count - 1))]
    used = {f"{name} us": 1e6 * seconds / count for name, seconds in found.used.items()}
    return {**row, **used, "all us": sum(used.values())}


def streamed(here: "Here", streams: int, tokens: int) -> tuple[Row, Row]:
    """At full speed, and with work between the values that makes them come at the pace."""
    tried = 100
    free, slow = (_told(here, streams, tokens, work)[1] for work in (0, tried))
    work = min(MOST_WORK, round(tried * max(0.0, 1 / PACE - free) / max(1e-6, slow - free)))
    return _told(here, streams, tokens, 0)[0], _told(here, streams, tokens, work)[0]


def _told(here: "Here", streams: int, tokens: int, work: int) -> tuple[Row, float]:
    """Its row, and seconds from a value to the next."""
    found = here.load("tell", {"times": tokens, "work": work}, streams, 0, stream=True)
    count = len(found.times)
    assert count == streams * (tokens - 1), (count, streams, tokens)
    row: dict[str, Any] = {"streams": streams, "work": work, "values a second": count / found.seconds}
    row |= {f"apart {name} ms": value for name, value in spread(found.times, 1e3).items()}
    row |= {f"{name} us": 1e6 * seconds / count for name, seconds in found.used.items()}
    row |= {f"{name} share": PACE * streams * seconds / count for name, seconds in found.used.items()}
    return row, sum(found.times) / count


class Here:
    """The service of this benchmark and its processes."""

    def __init__(self, folder: Path, url: str) -> None:
        self._url, self._token = urlsplit(url), (folder / "token").read_text().strip()
        self._processes = processes_of(folder)

    def load(
        self, task: str, params: Mapping[str, Any], connections: int, seconds: float, *, stream: bool = False
    ) -> Loaded:
        orders = {
            "host": self._url.hostname,
            "port": self._url.port,
            "request": self._request(task, {"params": params, "stream": stream}),
            "connections": connections,
            "seconds": seconds,
            "stream": stream,
        }
        before = {name: _used(pid) for name, pid in self._processes.items()}
        mine = os.times()
        words = [sys.executable, str(LOAD)]
        done = subprocess.run(words, input=json.dumps(orders), capture_output=True, text=True, check=True)
        used = {name: _used(pid) - before[name] for name, pid in self._processes.items()}
        after = os.times()
        used["client"] = sum(after[2:4]) - sum(mine[2:4])
        found = json.loads(done.stdout)
        assert not found["refused"], found["refused"]
        return Loaded(found["times"], found["seconds"], used)

    def _request(self, task: str, body: Mapping[str, Any]) -> str:
        text = json.dumps(body)
        return (
            f"POST /v1/tasks/{NAME}/{task} HTTP/1.1\r\nHost: {self._url.netloc}\r\nAuthorization: Bearer {self._token}"
            f"\r\nContent-Type: application/json\r\nContent-Length: {len(text)}\r\n\r\n{text}"
        )


def _used(pid: int) -> float:
    """Seconds of a core."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


if __name__ == "__main__":
    main()
