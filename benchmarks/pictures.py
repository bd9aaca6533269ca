"""Measures drawing, editing and describing pictures through the whole server, from HTTP to the workers and back.

    python benchmarks/pictures.py [--placement bagel_one_gpu] [--cases draw_1024 draw_512 edit_1024 describe cancel]
        [--rounds 2] [--fp8] [--against FOLDER] [--traces FOLDER] [--budget 300] [--out FILE] [--tiny] [--check]

The script starts a service with the plain command in its own home and deploys BAGEL with random weights (`--tiny`, or
without a GPU: the starter, whose pictures have one small size). Times are measured by the client, in seconds from just
before it sends its request:

    draw_1024      1024 by 1024, 50 timesteps, text guidance 4.0 where the flow time is above 0.4
    draw_512       512 by 512, 20 timesteps, the same guidance; `draw_512x4` by four clients at once
    draw_256x8     256 by 256, by eight clients at once
    edit_1024      one picture of 1024 by 1024 and an instruction, 50 timesteps, both guidances throughout
    describe       a picture of 1024 by 1024 to text: the first word, and milliseconds a token after it
    cancel         from the request to stop a `draw_1024` in its middle until its rank has let go of it
    previews       `draw_1024` with a preview of every second step: what it costs beside one without

`step ms` is the time of one step of the denoising loop as the worker reports it, and `busy` the seconds by node.
`pictures` is the number of different pictures from the same seed, and `apart dB` the distance between the two that
differ most. With `--against`, pictures are compared with those in the folder (for example of another placement);
missing ones are written there. With `--traces`, telemetry is `full`, the folder gets the last run of each case for
Perfetto, and its trace is compared with the client's clock: `trace` is its seconds, `parts` the sums of its critical
path by kind.
"""

import argparse
import asyncio
import base64
import io
import json
import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from pathlib import Path
from typing import Any

import httpx
import numpy as np
from _common import ROOT, Budget, Row, show, spread, write
from _runtime import device_name
from _service import deployed, home, service
from PIL import Image

from walkgraph.client import Client
from walkgraph.resources import bundled

RESULTS = ROOT / "benchmarks" / "results" / "pictures.json"
NAME = "bagel"
PROMPT = "A small grey heron stands in a river at dawn, painted in thin washes of blue and ochre, mist over the reeds."
CHANGE = "Turn the picture into a winter evening with snow on the ground and warm light in every window."
QUESTION = "What is in this picture?"


@dataclass
class Got:
    """One request, as its client saw it. Seconds from the request on."""

    run: str = ""
    seconds: float = 0.0
    at: list[float] = field(default_factory=list[float])
    """When each piece of text came, or each preview."""
    picture: bytes = b""
    times: Sequence[Mapping[str, Any]] = ()


def main() -> None:
    given = options()
    device = device_name()
    tiny = given.tiny or given.check or device == "cpu"
    placement = given.placement or ("bagel_one_gpu" if device != "cpu" else None)
    if given.check:
        given.cases, given.rounds = ["draw_512", "describe"], 1
    budget, rows = Budget(given.budget), list[Row]()
    with home() as folder, service(folder, starter=False) as server:
        start = {"service": server.seconds} | deployed(
            server.client, graph_of(tiny=tiny, fp8=given.fp8), placement, NAME
        )
        show("from the command to the service, and from `deploy` to ready by what rank 0 was at, s", [start])
        asker = Asker(server.client.url, (folder / "token").read_text().strip(), tiny=tiny)
        if given.traces:
            given.traces.mkdir(parents=True, exist_ok=True)
            server.client.set_level(NAME, "full")
        for case in given.cases:
            if budget.allows(case):
                rows.append({"case": case, **CASES[case](asker, given.rounds)})
                if given.against and asker.last:
                    rows[-1] = {**rows[-1], "dB to the other": compared(given.against / f"{case}.png", asker.last)}
                if given.traces and asker.run:
                    rows[-1] = {**rows[-1], **traced(server.client, asker, given.traces / f"{case}.json")}
                show(f"{'tiny' if tiny else 'full'} BAGEL, {placement or 'no placement'}", rows[-1:])
    show(f"{'tiny' if tiny else 'full'} BAGEL, {placement or 'no placement'}", rows)
    report = {"tiny": tiny, "placement": placement, "fp8": given.fp8, "start": start, "cases": rows}
    write(None if given.check else given.out, device, report | {"left out": budget.left_out})


def options() -> argparse.Namespace:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--cases", nargs="+", choices=list(CASES), default=list(CASES))
    arguments.add_argument("--rounds", type=int, default=2, help="rounds per case, after a warm-up round")
    arguments.add_argument("--placement", help="a bundled placement of `bagel`; none on a CPU")
    arguments.add_argument("--fp8", action="store_true", help="use float8 for the generation expert's linears")
    arguments.add_argument(
        "--against", type=Path, help="folder of pictures to compare with; they are written if it is missing"
    )
    arguments.add_argument("--traces", type=Path, help="folder for a Perfetto trace of the last run of each case")
    arguments.add_argument("--budget", type=float, default=300.0, help="seconds; later cases are skipped")
    arguments.add_argument("--out", type=Path, default=RESULTS)
    arguments.add_argument("--tiny", action="store_true", help="use the starter instead of BAGEL")
    arguments.add_argument("--check", action="store_true", help="run the smallest sizes and write nothing")
    return arguments.parse_args()


def graph_of(*, tiny: bool, fp8: bool) -> dict[str, Any]:
    graph = json.loads(bundled("graphs")["shapes" if tiny else "bagel"].read_text())
    for node in graph["nodes"].values() if fp8 else ():
        if node["component"] == "bagel.backbone":
            node.setdefault("params", {})["precision"] = "fp8"
    return graph


class Asker:
    """The clients: a connection each."""

    def __init__(self, url: str, token: str, *, tiny: bool) -> None:
        self._url, self._headers = url, {"Authorization": f"Bearer {token}"}
        self.tiny = tiny
        self.last = b""
        """The last picture of a case."""
        self.run, self.seconds = "", 0.0
        """Its last run, and what that took by the client's clock."""

    def picture(self, pixels: int) -> dict[str, str]:
        """A smooth random one, as a client sends it."""
        coarse = np.random.default_rng(0).integers(0, 255, (8, 8, 3), dtype=np.uint8)
        side, buffer = 64 if self.tiny else pixels, io.BytesIO()
        Image.fromarray(coarse).resize((side, side), Image.Resampling.BICUBIC).save(buffer, "JPEG", quality=92)
        return {"mime": "image/jpeg", "data": base64.b64encode(buffer.getvalue()).decode()}

    def ask(self, task: str, body: Mapping[str, Any], clients: int = 1) -> list[Got]:
        return asyncio.run(self._all_of(task, body, clients))

    async def _all_of(self, task: str, body: Mapping[str, Any], clients: int) -> list[Got]:
        async with httpx.AsyncClient(base_url=self._url, headers=self._headers, timeout=600, trust_env=False) as http:
            (await http.get("/health/live")).raise_for_status()
            got = list(await asyncio.gather(*(self._asked(http, task, body) for _ in range(clients))))
            self.last, self.run, self.seconds = got[-1].picture, got[-1].run, got[-1].seconds
            return got

    async def _asked(self, http: httpx.AsyncClient, task: str, body: Mapping[str, Any]) -> Got:
        got, name = Got(), ""
        began = time.perf_counter()
        async with http.stream("POST", f"/v1/tasks/{NAME}/{task}", json={**body, "stream": True}) as answer:
            if answer.is_error:
                raise RuntimeError((await answer.aread()).decode())
            async for line in answer.aiter_lines():
                if line.startswith("event: "):
                    name = line.removeprefix("event: ")
                elif line.startswith("data: "):
                    _take(got, name, json.loads(line.removeprefix("data: ")), time.perf_counter() - began)
        return got

    def cancelled(self, body: Mapping[str, Any], after: float) -> float:
        """Seconds from the request to stop until the run is over and its memory free."""
        return asyncio.run(self._cancelled(body, after))

    async def _cancelled(self, body: Mapping[str, Any], after: float) -> float:
        async with httpx.AsyncClient(base_url=self._url, headers=self._headers, timeout=600, trust_env=False) as http:
            begun = asyncio.Event()
            ended = asyncio.create_task(self._until_ended(http, body, begun))
            await begun.wait()
            await asyncio.sleep(after)
            (listed,) = (await http.get("/api/v1/runs", params={"deployment": NAME, "limit": 1})).json()
            began = time.perf_counter()
            (await http.delete(f"/api/v1/runs/{listed['id']}")).raise_for_status()
            await ended
            return time.perf_counter() - began

    async def _until_ended(self, http: httpx.AsyncClient, body: Mapping[str, Any], begun: asyncio.Event) -> None:
        async with http.stream("POST", f"/v1/tasks/{NAME}/text_to_image", json={**body, "stream": True}) as answer:
            async for _ in answer.aiter_lines():
                begun.set()


def _take(got: Got, name: str, data: Mapping[str, Any], at: float) -> None:
    if name == "error":
        raise RuntimeError(data["error"]["message"])
    if name == "accepted":
        got.run = data["run"]
    if name == "output" and data["name"] == "image":
        got.picture = base64.b64decode(data["value"]["data"])
    elif name == "output":
        got.at.append(at)
    if name == "done":
        got.seconds, got.times = at, data["times"]


def traced(client: Client, asker: Asker, file: Path) -> Row:
    file.write_bytes(client.trace_file(asker.run, "perfetto"))
    told, why = client.trace(asker.run)["seconds"], client.why(asker.run)
    return {
        "client s": asker.seconds,
        "trace / client": told / asker.seconds,
        "parts / client": sum(why["shares"].values()) / asker.seconds,
        "shares": why["shares"],
        "says": why["says"],
    }


def draw(pixels: int, steps: int, clients: int = 1, **more: Any) -> Callable[[Asker, int], Row]:
    def measured(asker: Asker, rounds: int) -> Row:
        body = {"inputs": {"prompt": PROMPT}, "params": _size(asker, pixels) | {"steps": steps, "seed": 1} | more}
        asker.ask("text_to_image", body, clients)
        return _row([one for _ in range(rounds) for one in asker.ask("text_to_image", body, clients)], steps - 1)

    return measured


def edit(asker: Asker, rounds: int) -> Row:
    body: dict[str, Any] = {
        "inputs": {"image": asker.picture(1024), "instruction": CHANGE},
        "params": _size(asker, 1024) | {"steps": 50, "seed": 1},
    }
    asker.ask("edit", {**body, "params": {**body["params"], "steps": 4}})
    return _row([one for _ in range(rounds) for one in asker.ask("edit", body)], 49)


def describe(asker: Asker, rounds: int) -> Row:
    tokens = 16 if asker.tiny else 200
    inputs = {"image": asker.picture(1024)} | ({} if asker.tiny else {"prompt": QUESTION})
    body = {"inputs": inputs, "params": {"max_tokens": tokens, "seed": 1}}
    asker.ask("image_to_text", body)
    got = [one for _ in range(rounds) for one in asker.ask("image_to_text", body)]
    per_token = [1e3 * one["busy"] / max(1, one["calls"] - 2) for g in got for one in g.times if one["node"] == "llm"]
    return {
        "s": spread([one.seconds for one in got])["median"],
        "first text s": spread([one.at[0] for one in got if one.at]).get("median"),
        "llm ms a token, prefill shared out": spread(per_token).get("median"),
        "busy": _busy(got[-1]),
    }


def cancel(asker: Asker, rounds: int) -> Row:
    body = {"inputs": {"prompt": PROMPT}, "params": _size(asker, 1024) | {"steps": 50, "seed": 1}}
    return {"s": max(asker.cancelled(body, 0.2 if asker.tiny else 2.0 + 0.07 * i) for i in range(2 * rounds))}


def _size(asker: Asker, pixels: int) -> dict[str, int]:
    return {} if asker.tiny else {"height": pixels, "width": pixels}


def _row(got: Sequence[Got], steps: int) -> Row:
    seconds = spread([one.seconds for one in got])
    busy = _busy(got[-1])
    row: dict[str, Any] = {"s": seconds["median"], "s p95": seconds["p95"]}
    loop = sum(value for name, value in busy.items() if name.startswith("llm") or name == "combine_cfg")
    different = list({one.picture: None for one in got})
    row |= {"step ms": 1e3 * loop / steps, "pictures": len(different), "previews": len(got[-1].at)}
    if len(different) > 1:
        row["apart dB"] = min(decibels(one, two) for one, two in combinations(different, 2))
    return row | {"busy": busy}


def decibels(one: bytes, two: bytes) -> float:
    """Peak signal to noise of two pictures, at most 99."""
    a, b = (np.asarray(Image.open(io.BytesIO(data)), dtype=np.float64) for data in (one, two))
    return 99.0 if (error := float(((a - b) ** 2).mean())) < 1e-5 else 10 * math.log10(255**2 / error)


def compared(file: Path, picture: bytes) -> float | None:
    if file.exists():
        return decibels(file.read_bytes(), picture)
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(picture)
    return None


def _busy(got: Got) -> dict[str, float]:
    found: dict[str, float] = {}
    for one in got.times:
        found[one["node"]] = found.get(one["node"], 0.0) + one["busy"]
    return found


CASES: Mapping[str, Callable[[Asker, int], Row]] = {
    "draw_1024": draw(1024, 50),
    "draw_512": draw(512, 20),
    "draw_512x4": draw(512, 20, clients=4),
    "draw_256x8": draw(256, 20, clients=8),
    "edit_1024": edit,
    "describe": describe,
    "cancel": cancel,
    "previews": draw(1024, 50, preview_every=2),
}


if __name__ == "__main__":
    main()
