"""Measures speech through the whole server, from HTTP to the workers and back, with clients in closed loop.

    python benchmarks/speech.py [--concurrency 1 4 8 16 32] [--tokens 400] [--rounds 2] [--placement orpheus_one_gpu]
        [--routes native pcm mp3] [--engine FILE_OF_ENGINE_STEP] [--budget 150] [--out FILE] [--tiny] [--check]

The script starts a service with the plain command in its own home and deploys Orpheus with random weights (`--tiny`, or
without a GPU: the tiny models). Times are measured by the client, from just before it sends its request:

    route          `native`: the task's own events, sound in WAV pieces as base64; others: bytes of that format, as
                   OpenAI's clients get them from `POST /v1/audio/speech`
    first audio    until the first samples that can be played
    RTF            until the last samples, by the seconds of audio
    underruns      of a player that begins 100 ms after the first samples came, and waits where there are none
    token          between two frames' arrivals, by a frame's tokens; `over engine`: that by the engine's own step
    step           what the worker says that a step of a run took
    worker, ...    share of a core that rank 0's main thread used; likewise the conductor's and the service's
"""

import argparse
import asyncio
import base64
import json
import os
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from itertools import count, pairwise, product
from pathlib import Path
from typing import Any

import httpx
from _common import ROOT, Budget, Row, show, spread, write
from _heard import RATE, WAV_HEAD, Heard
from _runtime import device_name
from _service import conductor_of, deployed, home, service

from walkgraph.client import Client, read_address
from walkgraph.resources import bundled
from walkgraph.settings import Settings

RESULTS = ROOT / "benchmarks" / "results" / "speech.json"
NAME = "voice"
FRAME = 7
NATIVE = "native"
BYTES = {"pcm": 2 * RATE, "mp3": 96_000 // 8}
"""A second of sound, by OpenAI's name of the format."""
TEXT = "Number {} on our list today is a small grey heron, who stands in the river every morning and says nothing."
"""About 128 tokens with those of the turn, where a byte is one."""
_NUMBERS = count()


def main() -> None:
    given = options()
    device = device_name()
    tiny = given.tiny or given.check or device == "cpu"
    placement = given.placement or ("orpheus_one_gpu" if device != "cpu" else None)
    if given.check:
        given.concurrency, given.tokens, given.rounds, given.routes = [2], 35, 1, [NATIVE, *BYTES]
    budget, engine = Budget(given.budget), engine_steps(given.engine)
    rows: list[Row] = []
    with home() as folder, service(folder, starter=False) as server:
        start = {"service": server.seconds} | deployed(server.client, graph_of(tiny=tiny), placement, NAME)
        show("from the command to the service, and from `deploy` to ready by what rank 0 was at, s", [start])
        asker = Asker(server.client.url, (folder / "token").read_text().strip(), given.tokens)
        watch = Watch(server.client, Settings(home=folder))
        asker.all_of(1, 1, NATIVE)
        for clients, route in product(given.concurrency, given.routes):
            if budget.allows(f"concurrency {clients}, {route}"):
                rows.append(measured(asker, watch, clients, given.rounds, engine.get(clients), route))
    show(f"{'tiny' if tiny else 'full'} Orpheus, {placement or 'no placement'}, {given.tokens} tokens each", rows)
    report = {"tiny": tiny, "placement": placement, "tokens": given.tokens, "start": start, "speech": rows}
    write(None if given.check else given.out, device, report | {"left out": budget.left_out})


def options() -> argparse.Namespace:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--concurrency", type=int, nargs="+", default=[1, 4, 8, 16, 32])
    arguments.add_argument("--tokens", type=int, default=400, help="codes per request; 82 make one second")
    arguments.add_argument("--rounds", type=int, default=2, help="requests per client, after a warm-up request")
    arguments.add_argument("--routes", nargs="+", default=[NATIVE], choices=[NATIVE, *BYTES])
    arguments.add_argument("--placement", help="a bundled placement of `orpheus`; none on a CPU")
    arguments.add_argument("--engine", type=Path, help="results of engine_step.py on this machine")
    arguments.add_argument("--budget", type=float, default=150.0, help="seconds; later cases are skipped")
    arguments.add_argument("--out", type=Path, default=RESULTS)
    arguments.add_argument("--tiny", action="store_true", help="the tiny models")
    arguments.add_argument("--check", action="store_true", help="run the smallest sizes and write nothing")
    return arguments.parse_args()


def engine_steps(file: Path | None) -> dict[int, float]:
    """Batch -> seconds of a step by the engine alone, with a prompt as short as here."""
    steps = json.loads(file.read_text())["steps"] if file else []
    return {row["batch"]: row["median ms"] / 1e3 for row in steps if row["penalty"] and row["prompt"] <= 256}


def graph_of(*, tiny: bool) -> dict[str, Any]:
    graph = json.loads(bundled("graphs")["orpheus"].read_text())
    if tiny:
        graph["weights"]["orpheus"]["source"] = "random:orpheus-tiny:0"
        graph["weights"]["snac"]["source"] = "random:snac-tiny:0"
    return graph


def measured(asker: "Asker", watch: "Watch", clients: int, rounds: int, engine: float | None, route: str) -> Row:
    asker.all_of(clients, 1, route)
    before, began = watch.seconds(), time.perf_counter()
    heard = asker.all_of(clients, rounds, route)
    wall = time.perf_counter() - began
    used = watch.seconds()
    firsts = [one.at[0] for one in heard]
    # Bytes of a stream may arrive two pieces at once; events are one piece each.
    whole = heard if route == NATIVE else ()
    tokens = [(later - sooner) / FRAME for one in whole for sooner, later in pairwise(one.at[1:-2])]
    stalls = [stall for one in heard for stall in one.stalls()]
    first, rtf, token = (spread(v) for v in (firsts, [one.at[-1] / one.sound for one in heard], tokens))
    steps = spread([one.step for one in heard if one.step is not None], 1e3)
    row: dict[str, Any] = {
        "clients": clients,
        "route": route,
        "first audio ms": 1e3 * first["median"],
        "p95 ms": 1e3 * first["p95"],
    }
    row |= {"RTF": rtf["median"], "RTF p95": rtf["p95"], "audio s/s": sum(one.sound for one in heard) / wall}
    row |= {"underruns": len(stalls), "stalled s": sum(stalls), "step ms": steps.get("median")}
    if token:
        row |= {"token ms": 1e3 * token["median"], "token p95": 1e3 * token["p95"]}
    if token and engine is not None:
        row["over engine"] = token["median"] / engine
    short = sum(1 for one in heard if one.sound < 0.99 * max(other.sound for other in heard))
    row |= {name: (used[name] - before[name]) / wall for name in used}
    return row | ({"ended early": short} if short else {})


Ask = Callable[[httpx.AsyncClient], Awaitable[Heard]]
"""One request."""


class Asker:
    """The clients: a connection each, made before the clock runs."""

    def __init__(self, url: str, token: str, tokens: int) -> None:
        self._url, self._headers, self._tokens = url, {"Authorization": f"Bearer {token}"}, tokens

    def all_of(self, clients: int, rounds: int, route: str) -> list[Heard]:
        return asyncio.run(
            self._all_of(clients, rounds, self._asked if route == NATIVE else partial(self._said, route))
        )

    async def _all_of(self, clients: int, rounds: int, ask: Ask) -> list[Heard]:
        async def one() -> list[Heard]:
            async with httpx.AsyncClient(
                base_url=self._url, headers=self._headers, timeout=600, trust_env=False
            ) as client:
                (await client.get("/health/live")).raise_for_status()
                await barrier.wait()
                return [await ask(client) for _ in range(rounds)]

        barrier = asyncio.Barrier(clients)
        return [heard for mine in await asyncio.gather(*(one() for _ in range(clients))) for heard in mine]

    async def _asked(self, client: httpx.AsyncClient) -> Heard:
        number = next(_NUMBERS)
        params = {"max_tokens": self._tokens, "seed": number}
        body = {"inputs": {"text": TEXT.format(number)}, "params": params, "stream": True}
        heard, name = Heard(), ""
        began = time.perf_counter()
        async with client.stream("POST", f"/v1/tasks/{NAME}/speak", json=body) as answer:
            answer.raise_for_status()
            async for line in answer.aiter_lines():
                if line.startswith("event: "):
                    name = line.removeprefix("event: ")
                elif line.startswith("data: "):
                    _take(heard, name, json.loads(line.removeprefix("data: ")), time.perf_counter() - began)
        if not heard.at:
            raise RuntimeError("a request gave no sound")
        return heard

    async def _said(self, form: str, client: httpx.AsyncClient) -> Heard:
        """As OpenAI's clients ask."""
        number = next(_NUMBERS)
        body = {"model": NAME, "input": TEXT.format(number), "response_format": form}
        heard = Heard()
        began = time.perf_counter()
        asked = {**body, "max_tokens": self._tokens, "seed": number}
        async with client.stream("POST", "/v1/audio/speech", json=asked) as answer:
            answer.raise_for_status()
            async for piece in answer.aiter_raw():
                heard.at.append(time.perf_counter() - began)
                heard.audio.append(len(piece) / BYTES[form])
        heard.seconds = time.perf_counter() - began
        return heard


def _take(heard: Heard, name: str, data: Mapping[str, Any], at: float) -> None:
    if name == "error":
        raise RuntimeError(data["error"]["message"])
    if name == "output":
        samples = (len(base64.b64decode(data["value"]["data"])) - WAV_HEAD) // 2
        if samples > 0:
            heard.at.append(at)
            heard.audio.append(samples / RATE)
    if name == "done":
        heard.seconds = at
        llm = [one for one in data["times"] if one["node"] == "llm"]
        heard.step = sum(one["busy"] for one in llm) / max(1, sum(one["calls"] for one in llm))


class Watch:
    """Processor seconds of the main threads that a run passes through."""

    def __init__(self, client: Client, settings: Settings, deployment: str = NAME) -> None:
        worker = client.deployment(deployment)["ranks"][0]["pid"]
        address = read_address(settings)
        assert address is not None
        self._pids = {"worker": worker, "conductor": conductor_of(address.pid), "service": address.pid}

    def seconds(self) -> dict[str, float]:
        return {name: sum(map(int, _fields(pid)[11:13])) / os.sysconf("SC_CLK_TCK") for name, pid in self._pids.items()}


def _fields(pid: int) -> Sequence[str]:
    """The fields of the main thread's stat, from its state on."""
    return Path(f"/proc/{pid}/task/{pid}/stat").read_text().rpartition(")")[2].split()


if __name__ == "__main__":
    main()
