"""Measures robots and world models through the whole server, from sockets to the workers and back.

    python benchmarks/robots.py [--cases act act_sdk act_8 encode rollout_15 rollout_15x8 plan ...]
        [--rounds 20] [--budget 300] [--out FILE] [--check] [--timeline]

The script starts a service with the plain command in its own home and deploys pi0.5 and V-JEPA 2-AC with random
weights, one after the other (`--check`: tiny models, on any machine, without a results file). Each client is a process
of its own; all of a case begin together once each has warmed up. Times are measured by the client, in milliseconds from
just before it asks until it has the end:

    act            three cameras of 224 by 224 and a prompt of 200 tokens to 50 actions, ten steps, on a session; all of
                   it JSON
    act_http       the same by a POST each
    act_sdk        the same by the SDK, on a session: pictures and actions as bytes
    act_8          eight robots at once, each on a socket of its own
    encode         one frame to its features, by the SDK: the features as float16, in arrays of NumPy
    rollout_H      one frame and H actions to H predicted frames, the same way; `x8`: by eight clients at once
    *_json         the same by a POST of JSON, answered in JSON: float32 in base64, not made into arrays
    *_stream       the same by the SDK, each frame read as it comes
    plan           CEM by the SDK: 400 samples, 2 actions each, 10 rounds

`loop ms` is the time of the loop's iterations on the device as the worker reports it, `encoder ms` that of the vision
encoder, and `prefix ms` that of the prefix. `client CPU ms` is the processor time of a client's process for a request.
`start` has the seconds from `deploy` to ready, by phase of rank 0. `--timeline` shows where the time went for the
fastest of ten more requests per case.
"""

import argparse
import json
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from _clients import together
from _common import ROOT, Budget, Row, show, spread, write
from _runtime import device_name
from _service import deployed, home, service

from walkgraph.client import Client
from walkgraph.resources import bundled

RESULTS = ROOT / "benchmarks" / "results" / "robots.json"
ASKERS = Path(__file__).with_name("_askers.py")
WARM_UP = 3
LINE = "put the small red block into the drawer on the left, close the drawer, and then move the arm back to where it "
POSE = [0.3, 0.0, 0.4, 0.0, 0.0, 0.0, 0.5]
SMALL_PLAN = {"samples": 8, "rounds": 2, "top": 2}
"""Parameters of a plan by the tiny model."""


class Model(NamedTuple):
    graph: str
    placement: str
    weights: str
    full: str
    tiny: str
    side: int
    """Side of its pictures in pixels."""
    tiny_side: int
    """To which the tiny one's are brought; 0: as those of the full one."""


POLICY = Model("pi05", "pi05_one_gpu", "pi05", "pi05-base", "pi05-tiny", 224, 0)
WORLD = Model("vjepa2_ac", "vjepa2_ac_one_gpu", "vjepa2", "vjepa2-ac-vitg", "vjepa2-ac-tiny", 256, 32)


class Case(NamedTuple):
    model: Model
    task: str
    pictures: tuple[str, ...]
    """Names of the inputs that are pictures."""
    request: Mapping[str, Any]
    """The rest of the request."""
    clients: int = 1
    way: str = "sdk"
    """How its clients ask: one of `_askers.WAYS`."""


def main() -> None:
    given = options()
    device, budget = device_name(), Budget(given.budget)
    tiny, rounds = given.check, 2 if given.check else given.rounds
    rows: list[Row] = []
    starts: dict[str, Any] = {}
    with home() as folder, service(folder, starter=False) as server:
        clients = Clients(server.client, (folder / "token").read_text().strip(), tiny=tiny)
        for model in (POLICY, WORLD):
            cases = {name: case for name, case in CASES.items() if case.model is model and name in given.cases}
            if not cases:
                continue
            placement = None if device == "cpu" else model.placement
            starts[model.graph] = deployed(server.client, graph_of(model, tiny=tiny), placement, model.graph)
            show(f"{model.graph}: from `deploy` to ready by what rank 0 was at, s", [starts[model.graph]])
            for name, case in cases.items():
                if budget.allows(name):
                    rows.append({"case": name, **clients.measure(case, rounds)})
                    show(f"on {device}", rows[-1:])
                    if given.timeline:
                        show(f"{name}, ms from the sending", clients.timeline(case))
            server.client.undeploy(model.graph)
    show(f"robots on {device}", rows)
    report = {"tiny": tiny, "start": starts, "cases": rows, "left out": budget.left_out}
    write(None if given.check else given.out, device, report)


def options() -> argparse.Namespace:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--cases", nargs="+", choices=list(CASES), default=list(CASES))
    arguments.add_argument("--rounds", type=int, default=20)
    arguments.add_argument("--budget", type=float, default=300.0, help="seconds; later cases are skipped")
    arguments.add_argument("--out", type=Path, default=RESULTS)
    arguments.add_argument("--check", action="store_true", help="run tiny models and write nothing")
    arguments.add_argument("--timeline", action="store_true", help="print the timeline of one request per case")
    return arguments.parse_args()


def graph_of(model: Model, *, tiny: bool) -> dict[str, Any]:
    graph = json.loads(bundled("graphs")[model.graph].read_text())
    graph["weights"][model.weights]["source"] = f"random:{model.tiny if tiny else model.full}:0"
    for node in graph["nodes"].values() if tiny and model.tiny_side else ():
        if node["component"] == "media.picture_in":
            node["params"]["size"] = model.tiny_side
    return graph


class Clients:
    """The clients of one case at a time, each in a process of its own."""

    def __init__(self, server: Client, token: str, *, tiny: bool) -> None:
        self._server, self._token, self._tiny = server, token, tiny

    def measure(self, case: Case, rounds: int) -> Row:
        asked = [one for found in self._asked(case, case.clients, rounds) for one in found]
        row: dict[str, Any] = {
            f"{key} ms": value for key, value in spread([one["seconds"] for one in asked], 1e3).items()
        }
        row["client CPU ms"] = spread([one["used"] for one in asked], 1e3)["median"]
        for name, counts in (("loop ms", _in_loop), ("encoder ms", _in_encoder), ("prefix ms", _in_prefix)):
            busy = [sum(node["busy"] for node in one["times"] if counts(node)) for one in asked]
            if any(busy):
                row[name] = spread(busy, 1e3)["median"]
        return row | {"requests": len(asked)}

    def timeline(self, case: Case) -> list[Row]:
        """When a request's client had got to what, and when its calls and launches were taken, handed to the device,
        begun and over there: the fastest of ten requests."""
        self._server.set_level(case.model.graph, "full")
        (asked,) = self._asked(case, 1, 10)
        best = min(asked, key=lambda one: one["seconds"])
        # A run's trace is whole some time after its answer: each process tells its part in its own time.
        time.sleep(1)
        trace = self._server.trace(best["run"])
        self._server.set_level(case.model.graph, "summary")
        return _lines(best["told"], trace)

    def _asked(self, case: Case, clients: int, rounds: int) -> list[list[dict[str, Any]]]:
        """The measurements of each client for each request. They begin together once all have warmed up."""
        return together(ASKERS, [self._orders(case, rounds)] * clients)

    def _orders(self, case: Case, rounds: int) -> dict[str, Any]:
        small = SMALL_PLAN if self._tiny and case.task == "plan" else {}
        return {
            "url": self._server.url,
            "token": self._token,
            "deployment": case.model.graph,
            "task": case.task,
            "way": case.way,
            "side": case.model.side,
            "pictures": case.pictures,
            "request": {**case.request, "params": {**case.request["params"], **small}},
            "warm_up": WARM_UP,
            "rounds": rounds,
        }


def _in_loop(node: Mapping[str, Any]) -> bool:
    """It is a loop on the device, as only they have a Walk."""
    return bool(node["walk"])


def _in_encoder(node: Mapping[str, Any]) -> bool:
    return node["node"] in ("vision", "encoder")


def _in_prefix(node: Mapping[str, Any]) -> bool:
    return node["node"] == "prefix"


def _lines(told: Sequence[tuple[str, float]], trace: Mapping[str, Any]) -> list[Row]:
    """In the order of time. The trace's times are microseconds."""
    began, blocks, lanes = told[0][1], trace["blocks"], trace["lanes"]

    def after(at: int) -> float:
        return 1e3 * (trace["wall"] - began) + at / 1e3

    lines: list[Row] = [{"what": f"client: {name}", "taken": 1e3 * (at - began)} for name, at in told]
    lines += [{"what": f"conductor: {name}", "taken": after(at)} for name, at in trace["phases"].items()]
    lines += [
        {
            "what": f"{lanes[lane]['name']} x {blocks['count'][row]}",
            **{moment: after(blocks[moment][row]) for moment in ("taken", "launched", "started", "finished")},
        }
        for row, lane in enumerate(blocks["lane"])
    ]
    return sorted(lines, key=lambda line: line["taken"])


def _act(way: str = "session", clients: int = 1) -> Case:
    inputs = {"instruction": (LINE * 2)[:143], "state": [0.1 * i for i in range(8)]}
    request = {"inputs": inputs, "params": {"horizon": 50, "steps": 10, "seed": 1}}
    return Case(POLICY, "act", ("base", "left_wrist", "right_wrist"), request, clients, way)


def _encode(way: str = "sdk") -> Case:
    return Case(WORLD, "encode", ("image",), {"inputs": {}, "params": {}, **_wanted(way)}, way=way)


def _rollout(horizon: int, clients: int = 1, way: str = "sdk") -> Case:
    actions = [[0.01, 0.0, -0.01, 0.0, 0.0, 0.0, 0.1]] * horizon
    inputs = {"actions": actions, "pose": POSE}
    request = {"inputs": inputs, "params": {"horizon": horizon}, **_wanted(way)}
    return Case(WORLD, "rollout", ("image",), request, clients, way)


def _wanted(way: str) -> dict[str, Any]:
    """Features as the SDK asks for them; otherwise as they come."""
    return {"outputs": {"features": {"dtype": "float16"}}} if way.startswith("sdk") else {}


_PLAN = {
    "inputs": {"pose": POSE},
    "params": {"samples": 400, "horizon": 2, "rounds": 10, "top": 10, "seed": 1},
}
CASES: Mapping[str, Case] = {
    "act": _act(),
    "act_http": _act("http"),
    "act_sdk": _act("sdk_session"),
    "act_8": _act(clients=8),
    "encode": _encode(),
    "encode_json": _encode("http"),
    "rollout_4": _rollout(4),
    "rollout_15": _rollout(15),
    "rollout_15_json": _rollout(15, way="http"),
    "rollout_15_stream": _rollout(15, way="sdk_stream"),
    "rollout_30": _rollout(30),
    "rollout_15x8": _rollout(15, 8),
    "rollout_15x8_stream": _rollout(15, 8, "sdk_stream"),
    "plan": Case(WORLD, "plan", ("image", "goal"), _PLAN),
}


if __name__ == "__main__":
    main()
