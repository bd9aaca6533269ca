"""Measures how soon what is drawn runs: from the request that Ctrl+Enter sends to the first node that runs.

    ./dev env && ./dev bench drawn [--rounds 10] [--out FILE] [--check]

The starter `shapes` on two cores, with the service, its processes and the client on them.

    switch    the way without a scratch deployment: the changed graph becomes the next version of a deployment; from the
              request until that serves and its first node has begun
    request   the scratch deployment takes up the changed graph: from the request until its first node has begun, by the
              telemetry socket
"""

import argparse
import json
import os
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from _common import spread
from _service import home, is_ready, report, service, when
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import connect

from walkgraph.client import Client

RESULTS = Path(__file__).parent / "results" / "drawn.json"
CORES = 2
TASK = "text_to_image"
REQUEST = {"inputs": {"prompt": "a red circle on white"}, "params": {"steps": 4}}
Graph = dict[str, Any]


def main() -> None:
    given = options()
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:CORES])
    figures: dict[str, Any] = {"load of the machine before, processes": os.getloadavg()[0]}
    with home() as folder, service(folder) as found:
        for name, seconds in (
            ("switch", switched(found.client, given.rounds)),
            *((f"request, {edit.__name__}", requested(found.client, given.rounds, edit)) for edit in EDITS),
        ):
            figures |= {f"{name}: {key}, s": value for key, value in spread(seconds).items()}
            print(name, *(f"{one:.3f}" for one in seconds))
    report("./dev bench drawn", figures, None if given.check else given.out)


def options() -> argparse.Namespace:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--rounds", type=int, default=10)
    arguments.add_argument("--out", type=Path, default=RESULTS)
    arguments.add_argument("--check", action="store_true", help="run one round and write nothing")
    given = arguments.parse_args()
    given.rounds = 1 if given.check else given.rounds
    return given


# ── edits ───────────────────────────────────────────────────────────────────────────────────────


def parameter(graph: Graph, number: int) -> None:
    graph["nodes"]["combine_cfg"]["params"]["text_scale"] = f"=cfg_text_scale + {number}"


def added_node(graph: Graph, number: int) -> None:
    """One that the Walk of the task uses."""
    graph["nodes"][f"extra{number}"] = {"component": "synthetic.range"}
    graph["walks"]["prefill_text"]["body"].append(f"extra{number}")


def edge(graph: Graph, number: int) -> None:
    """A wire that comes and goes."""
    if number % 2:
        edges = graph["walks"]["prefill_text"]["edges"]
        edges.remove(["tokenizer.ids", "llm_cfg_img.ids"])
        edges.insert(0, ["tokenizer.ids", "llm_cfg_img.ids"])


EDITS: tuple[Callable[[Graph, int], None], ...] = (parameter, added_node, edge)


# ── measured ────────────────────────────────────────────────────────────────────────────────────


def switched(client: Client, rounds: int) -> list[float]:
    seconds: list[float] = []
    for number in range(rounds):
        graph = client.graph("shapes")
        parameter(graph, number)
        with Begins(client, "shapes") as begins:
            began = time.perf_counter()
            client.replace("shapes", graph)
            when(client, "shapes", lambda found: found["next"] is None)
            client.run("shapes", TASK, REQUEST)
            seconds.append(begins.first() - began)
    return seconds


def requested(client: Client, rounds: int, edit: Callable[[Graph, int], None]) -> list[float]:
    seconds: list[float] = []
    client.serve_scratch("page", client.graph("shapes"))
    when(client, "page", is_ready)
    client.run("page", TASK, REQUEST)
    for number in range(1, rounds + 1):
        graph = client.graph("shapes")
        edit(graph, number)
        with Begins(client, "page") as begins:
            began = time.perf_counter()
            client.serve_scratch("page", graph)
            client.run("page", TASK, REQUEST)
            seconds.append(begins.first() - began)
    client.end_scratch("page")
    return seconds


class Begins:
    """Notes when a deployment's next node begins, by the telemetry socket."""

    def __init__(self, client: Client, deployment: str) -> None:
        address = f"ws{client.url.removeprefix('http')}/ws/v1/telemetry?deployment={deployment}"
        headers = {"Authorization": f"Bearer {client.token}"}
        self._socket = connect(address, additional_headers=headers, max_size=None)
        self._seen = threading.Event()
        self._at = 0.0
        self._thread = threading.Thread(target=self._read, daemon=True)

    def __enter__(self) -> "Begins":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()
        self._thread.join()

    def first(self) -> float:
        if not self._seen.wait(60):
            raise RuntimeError("no node has begun")
        return self._at

    def _read(self) -> None:
        try:
            for text in self._socket:
                if not self._seen.is_set() and _tells_of_a_node(json.loads(text)):
                    self._at = time.perf_counter()
                    self._seen.set()
        except ConnectionClosed:
            return


def _tells_of_a_node(frame: Mapping[str, Any]) -> bool:
    return any(event.get("type") in ("activity", "began", "looping", "forward") for event in frame.get("events", ()))


if __name__ == "__main__":
    main()
