"""Measures robots and world models through the whole server, from sockets to the workers and back.

    python benchmarks/robots.py [--cases act act_http act_8 encode rollout_4 rollout_15 rollout_30 rollout_15x8 plan]
        [--rounds 20] [--budget 300] [--out FILE] [--check] [--timeline]

The script starts a service with the plain command in its own home and deploys pi0.5 and V-JEPA 2-AC with random
weights, one after the other (`--check`: tiny models, on any machine, without a results file). Times are measured by the
client, in milliseconds from just before it sends its request until it receives the end, after warm-up rounds:

    act            three cameras of 224 by 224 and a prompt of 200 tokens to 50 actions, ten steps, on a session
    act_http       the same by a POST each
    act_8          eight robots at once, each on a socket of its own
    encode         one frame to its features
    rollout_H      one frame and H actions to H predicted frames; `x8`: by eight clients at once
    plan           CEM: 400 samples, 2 actions each, 10 rounds

`loop ms` is the time of the loop's iterations on the device as the worker reports it, `encoder ms` that of the vision
encoder, and `prefix ms` that of the prefix. `start` has the seconds from `deploy` to ready, by phase of rank 0.
`--timeline` shows where the time went for the fastest of ten more requests per case on a socket.
"""

import argparse
import asyncio
import base64
import io
import json
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import httpx
import numpy as np
from _common import ROOT, Budget, Row, show, spread, write
from _runtime import device_name
from _service import deployed, home, service
from PIL import Image
from websockets.asyncio.client import ClientConnection, connect

from walkgraph.resources import bundled

RESULTS = ROOT / "benchmarks" / "results" / "robots.json"
WARM_UP = 3
LINE = "put the small red block into the drawer on the left, close the drawer, and then move the arm back to where it "
LARGEST = 2**28
"""Bytes of a message: thirty frames of features are 43 MB."""


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
    request: Mapping[str, Any]
    loop: tuple[str, ...] = ()
    """Nodes of its loop."""
    clients: int = 1
    socket: bool = False
    """On a session's socket; otherwise each request is a POST."""


def main() -> None:
    given = options()
    device, budget = device_name(), Budget(given.budget)
    tiny, rounds = given.check, 2 if given.check else given.rounds
    rows: list[Row] = []
    starts: dict[str, Any] = {}
    with home() as folder, service(folder, starter=False) as server:
        token = (folder / "token").read_text().strip()
        for model in (POLICY, WORLD):
            cases = {name: case for name, case in CASES.items() if case.model is model and name in given.cases}
            if not cases:
                continue
            placement = None if device == "cpu" else model.placement
            starts[model.graph] = deployed(server.client, graph_of(model, tiny=tiny), placement, model.graph)
            show(f"{model.graph}: from `deploy` to ready by what rank 0 was at, s", [starts[model.graph]])
            for name, case in cases.items():
                if budget.allows(name):
                    asker = Asker(server.client.url, token, tiny=tiny)
                    rows.append({"case": name, **asyncio.run(asker.measure(case, rounds))})
                    show(f"on {device}", rows[-1:])
                    if given.timeline and case.socket:
                        show(f"{name}, ms from the sending", asyncio.run(asker.timeline(case)))
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
    arguments.add_argument(
        "--timeline", action="store_true", help="print the timeline of one request per case on a socket"
    )
    return arguments.parse_args()


def graph_of(model: Model, *, tiny: bool) -> dict[str, Any]:
    graph = json.loads(bundled("graphs")[model.graph].read_text())
    graph["weights"][model.weights]["source"] = f"random:{model.tiny if tiny else model.full}:0"
    for node in graph["nodes"].values() if tiny and model.tiny_side else ():
        if node["component"] == "media.picture_in":
            node["params"]["size"] = model.tiny_side
    return graph


def picture(side: int, seed: int) -> dict[str, str]:
    """A smooth random one, as a robot's camera sends it."""
    coarse = np.random.default_rng(seed).integers(0, 255, (8, 8, 3), dtype=np.uint8)
    buffer = io.BytesIO()
    Image.fromarray(coarse).resize((side, side), Image.Resampling.BICUBIC).save(buffer, "JPEG", quality=92)
    return {"mime": "image/jpeg", "data": base64.b64encode(buffer.getvalue()).decode()}


class Asker:
    """The clients of one case."""

    def __init__(self, url: str, token: str, *, tiny: bool) -> None:
        self._url, self._headers, self._tiny = url, {"Authorization": f"Bearer {token}"}, tiny

    async def measure(self, case: Case, rounds: int) -> Row:
        body = self._body(case)
        measured = await (self._sockets if case.socket else self._posts)(case, body, rounds)
        kept = [one for told in measured for one in told[WARM_UP:]]
        row: dict[str, Any] = {f"{key} ms": value for key, value in spread([s for s, _ in kept], 1e3).items()}
        for name, nodes in (("loop ms", case.loop), ("encoder ms", ("vision", "encoder")), ("prefix ms", ("prefix",))):
            busy = [sum(one["busy"] for one in times if one["node"] in nodes) for _, times in kept]
            if any(busy):
                row[name] = spread(busy, 1e3)["median"]
        return row | {"requests": len(kept)}

    async def timeline(self, case: Case) -> list[Row]:
        """When a request's client was told what, and when its calls and launches were taken, handed to the device,
        begun and over there."""
        async with httpx.AsyncClient(base_url=self._url, headers=self._headers, timeout=60, trust_env=False) as http:
            level = f"/api/v1/deployments/{case.model.graph}/watch/level"
            (await http.put(level, json={"level": "full"})).raise_for_status()
            told: list[list[tuple[str, float, str]]] = []
            async with connect(
                self._address(case), additional_headers=self._headers, max_size=LARGEST, proxy=None
            ) as socket:
                await socket.recv()
                for _ in range(10):
                    told.append([one async for one in _events(socket, self._body(case))])
            await asyncio.sleep(1)
            best = min(told, key=lambda events: events[-1][1] - events[0][1])
            answer = (await http.get(f"/api/v1/runs/{best[-1][2]}/trace")).raise_for_status()
            (await http.put(level, json={"level": "summary"})).raise_for_status()
        return _lines(best, answer.json())

    def _address(self, case: Case) -> str:
        return f"ws{self._url.removeprefix('http')}/ws/v1/sessions/{case.model.graph}/{case.task}"

    def _body(self, case: Case) -> dict[str, Any]:
        body = json.loads(json.dumps(case.request))
        for number, (name, value) in enumerate(body["inputs"].items()):
            if value == "picture":
                body["inputs"][name] = picture(case.model.side, number)
        if self._tiny and case.task == "plan":
            body["params"] |= {"samples": 8, "rounds": 2, "top": 2}
        return body

    async def _sockets(self, case: Case, body: Mapping[str, Any], rounds: int) -> "Sequence[Sequence[Timed]]":
        async def robot() -> Sequence[Timed]:
            address = self._address(case)
            async with connect(address, additional_headers=self._headers, max_size=LARGEST, proxy=None) as socket:
                await socket.recv()
                return await self._repeated(lambda: _observed(socket, body), rounds)

        return await asyncio.gather(*(robot() for _ in range(case.clients)))

    async def _posts(self, case: Case, body: Mapping[str, Any], rounds: int) -> "Sequence[Sequence[Timed]]":
        path = f"/v1/tasks/{case.model.graph}/{case.task}"
        async with httpx.AsyncClient(base_url=self._url, headers=self._headers, timeout=600, trust_env=False) as http:
            (await http.get("/health/live")).raise_for_status()

            async def client() -> Sequence[Timed]:
                return await self._repeated(lambda: _posted(http, path, body), rounds)

            return await asyncio.gather(*(client() for _ in range(case.clients)))

    async def _repeated(self, once: "Callable[[], Awaitable[Any]]", rounds: int) -> "Sequence[Timed]":
        found: list[Timed] = []
        for _ in range(WARM_UP + rounds):
            began = time.perf_counter()
            times = await once()
            found.append((time.perf_counter() - began, times))
        return found


Timed = tuple[float, Any]
"""Seconds of a request, and its nodes' times."""


async def _observed(socket: ClientConnection, body: Mapping[str, Any]) -> Any:
    await socket.send(json.dumps(body))
    while True:
        event = json.loads(await socket.recv())
        if event["event"] == "error":
            raise RuntimeError(event["error"]["message"])
        if event["event"] == "done":
            return event["times"]


async def _events(socket: ClientConnection, body: Mapping[str, Any]) -> AsyncIterator[tuple[str, float, str]]:
    """The client's actions and events, in seconds since 1970, and the run."""
    yield "client: sends", time.time(), ""
    await socket.send(json.dumps(body))
    name = ""
    while name != "done":
        event = json.loads(await socket.recv())
        name = event["event"]
        yield f"client: {name}", time.time(), event["run"]


def _lines(told: Sequence[tuple[str, float, str]], trace: Mapping[str, Any]) -> list[Row]:
    """In the order of time. The trace's times are microseconds."""
    began, blocks, lanes = told[0][1], trace["blocks"], trace["lanes"]

    def after(at: int) -> float:
        return 1e3 * (trace["wall"] - began) + at / 1e3

    lines: list[Row] = [{"what": name, "taken": 1e3 * (at - began)} for name, at, _ in told]
    lines += [{"what": f"conductor: {name}", "taken": after(at)} for name, at in trace["phases"].items()]
    lines += [
        {
            "what": f"{lanes[lane]['name']} x {blocks['count'][row]}",
            **{moment: after(blocks[moment][row]) for moment in ("taken", "launched", "started", "finished")},
        }
        for row, lane in enumerate(blocks["lane"])
    ]
    return sorted(lines, key=lambda line: line["taken"])


async def _posted(http: httpx.AsyncClient, path: str, body: Mapping[str, Any]) -> Any:
    answer = await http.post(path, json=body)
    if answer.is_error:
        raise RuntimeError(answer.text)
    return answer.json()["times"]


def _act(clients: int = 1, *, socket: bool = True) -> Case:
    cameras = dict.fromkeys(("base", "left_wrist", "right_wrist"), "picture")
    inputs = {**cameras, "instruction": (LINE * 2)[:143], "state": [0.1 * i for i in range(8)]}
    request = {"inputs": inputs, "params": {"horizon": 50, "steps": 10, "seed": 1}}
    return Case(POLICY, "act", request, ("expert",), clients, socket)


def _rollout(horizon: int, clients: int = 1) -> Case:
    actions = [[0.01, 0.0, -0.01, 0.0, 0.0, 0.0, 0.1]] * horizon
    inputs = {"image": "picture", "actions": actions, "pose": [0.3, 0.0, 0.4, 0.0, 0.0, 0.0, 0.5]}
    return Case(WORLD, "rollout", {"inputs": inputs, "params": {"horizon": horizon}}, ("dream", "move"), clients)


_PLAN = {
    "inputs": {"image": "picture", "goal": "picture", "pose": [0.3, 0.0, 0.4, 0.0, 0.0, 0.0, 0.5]},
    "params": {"samples": 400, "horizon": 2, "rounds": 10, "top": 10, "seed": 1},
}
CASES: Mapping[str, Case] = {
    "act": _act(),
    "act_http": _act(socket=False),
    "act_8": _act(8),
    "encode": Case(WORLD, "encode", {"inputs": {"image": "picture"}}),
    "rollout_4": _rollout(4),
    "rollout_15": _rollout(15),
    "rollout_30": _rollout(30),
    "rollout_15x8": _rollout(15, 8),
    "plan": Case(WORLD, "plan", _PLAN, ("propose", "try", "move", "distance", "refine")),
}


if __name__ == "__main__":
    main()
