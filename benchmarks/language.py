"""Measures a language model through the whole server: the first token and those after it, at the client.

    python benchmarks/language.py [--config qwen3-8b] [--prompts 128 2000] [--clients 1 16] [--tokens 100] [--rounds 5]
        [--placement llm_one_gpu] [--budget 150] [--out FILE] [--check]

The script starts a service with the plain command in its own home and deploys the graph `llm` with random weights. A
byte is a token of these, so prompts have exact lengths; none begins like another, so each is read whole. Clients stream
`complete` over server-sent events, each its next request after the last. Times are measured by the client, from just
before it sends a request:

    first token    until the first token's number, which the graph also sends here: a random token's text may be empty
    token          between the arrivals of tokens after the first
"""

import argparse
import asyncio
import json
import random
import string
import time
from collections.abc import Mapping
from itertools import pairwise, product
from pathlib import Path
from typing import Any

import httpx
from _common import ROOT, Budget, Row, show, spread, write
from _runtime import device_name
from _service import deployed, home, service

from walkgraph.resources import bundled

RESULTS = ROOT / "benchmarks" / "results" / "language.json"
NAME = "writer"


def main() -> None:
    given = options()
    device = device_name()
    config = "qwen3-tiny" if given.check or device == "cpu" else given.config
    if given.check:
        given.prompts, given.clients, given.tokens, given.rounds = [40], [2], 6, 1
    budget, rows = Budget(given.budget), list[Row]()
    placement = given.placement if device != "cpu" else None
    with home() as folder, service(folder, starter=False) as server:
        start = {"service": server.seconds} | deployed(server.client, graph_of(config), placement, NAME)
        show("from the command to the service, and from `deploy` to ready by what rank 0 was at, s", [start])
        asker = Asker(server.client.url, (folder / "token").read_text().strip(), given.tokens)
        for prompt, clients in product(given.prompts, given.clients):
            if budget.allows(f"{clients} clients with prompts of {prompt}"):
                rows.append(measured(asker, prompt, clients, given.rounds))
    show(f"{config} at the client, {given.tokens} tokens each", rows)
    report = {"config": config, "placement": placement, "tokens": given.tokens, "start": start, "requests": rows}
    write(None if given.check else given.out, device, report | {"left out": budget.left_out})


def options() -> argparse.Namespace:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--config", default="qwen3-8b", help="a shape of random weights of the family `llm`")
    arguments.add_argument("--placement", default="llm_one_gpu", help="a bundled placement of `llm`; none on a CPU")
    arguments.add_argument("--prompts", type=int, nargs="+", default=[128, 2000], help="tokens of a prompt")
    arguments.add_argument("--clients", type=int, nargs="+", default=[1, 16])
    arguments.add_argument("--tokens", type=int, default=100, help="tokens per answer")
    arguments.add_argument("--rounds", type=int, default=5, help="requests per client, after a warm-up request")
    arguments.add_argument("--budget", type=float, default=150.0, help="seconds; later cases are skipped")
    arguments.add_argument("--out", type=Path, default=RESULTS)
    arguments.add_argument("--check", action="store_true", help="run the smallest sizes and write nothing")
    return arguments.parse_args()


def graph_of(config: str) -> dict[str, Any]:
    """The bundled graph, which also sends the tokens' numbers."""
    graph = json.loads(bundled("graphs")["llm"].read_text())
    graph["weights"]["llm"]["source"] = f"random:{config}:0"
    graph["walks"]["prefill"]["edges"].append(["llm.token", "@out.token"])
    graph["walks"]["decode"]["edges"].append({"from": "llm.token", "to": "@out.token", "each": True})
    graph["tasks"]["complete"]["outputs"] = ["text", "token"]
    return graph


def measured(asker: "Asker", prompt: int, clients: int, rounds: int) -> Row:
    asker.all_of(prompt, clients, 1)
    began = time.perf_counter()
    answers = asker.all_of(prompt, clients, rounds)
    wall = time.perf_counter() - began
    first = spread([at[0] for at in answers], 1e3)
    between = spread([later - sooner for at in answers for sooner, later in pairwise(at[1:])], 1e3)
    row: Row = {"prompt": prompt, "clients": clients, "requests": len(answers)}
    row |= {f"first token {name} ms": first[name] for name in ("median", "p95")}
    row |= {f"token {name} ms": between[name] for name in ("median", "p95") if between}
    return row | {"tokens/s": sum(map(len, answers)) / wall}


class Asker:
    """The clients: a connection each, made before the clock runs."""

    def __init__(self, url: str, token: str, tokens: int) -> None:
        self._url, self._headers, self._tokens = url, {"Authorization": f"Bearer {token}"}, tokens
        self._dice = random.Random(0)

    def all_of(self, prompt: int, clients: int, rounds: int) -> list[list[float]]:
        """The arrivals of each request's tokens, in seconds from the request on."""
        return asyncio.run(self.answers(prompt, clients, rounds))

    async def answers(self, prompt: int, clients: int, rounds: int) -> list[list[float]]:
        async def one() -> list[list[float]]:
            async with httpx.AsyncClient(
                base_url=self._url, headers=self._headers, timeout=600, trust_env=False
            ) as client:
                (await client.get("/health/live")).raise_for_status()
                await barrier.wait()
                return [await self._asked(client, prompt) for _ in range(rounds)]

        barrier = asyncio.Barrier(clients)
        return [at for mine in await asyncio.gather(*(one() for _ in range(clients))) for at in mine]

    async def _asked(self, client: httpx.AsyncClient, prompt: int) -> list[float]:
        text = "".join(self._dice.choices(string.ascii_letters, k=prompt))
        params = {"max_tokens": self._tokens, "seed": self._dice.randrange(1 << 30)}
        body = {"inputs": {"prompt": text}, "params": params, "stream": True}
        at, name = list[float](), ""
        began = time.perf_counter()
        async with client.stream("POST", f"/v1/tasks/{NAME}/complete", json=body) as answer:
            answer.raise_for_status()
            async for line in answer.aiter_lines():
                if line.startswith("event: "):
                    name = line.removeprefix("event: ")
                elif line.startswith("data: "):
                    at += _taken(name, json.loads(line.removeprefix("data: ")), time.perf_counter() - began)
        if not at:
            raise RuntimeError("a request gave no token")
        return at


def _taken(name: str, data: Mapping[str, Any], now: float) -> list[float]:
    """The arrival of a token, if this event has one. Raises RuntimeError for a failed request."""
    if name == "error":
        raise RuntimeError(data["error"]["message"])
    return [now] if name == "output" and data["name"] == "token" else []


if __name__ == "__main__":
    main()
