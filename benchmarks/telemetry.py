"""Measures the cost of telemetry: runs that decode together at `off`, `summary` and `full`, and next to readers that
take nothing.

    python benchmarks/telemetry.py [--clients 32] [--tokens 1000] [--rounds 8] [--stalled 50]
        [--placement orpheus_one_gpu] [--budget 300] [--out FILE] [--tiny] [--check]

The script starts a service with the plain command in its own home and deploys Orpheus's language model with random
weights (`--tiny`, or without a GPU: the tiny one), for a task that decodes and returns only the last token. One reader,
a process that decodes every frame like an open trace page, is always connected. Each round runs at every level in
rotating order, and only measurements of the same round are compared:

    step       of a run: its seconds from admission to its end, by its tokens; median over the runs
    / off      (the level / off in the same round): median over the rounds, and the least and the greatest

The last table is at `full`, alternately with and without readers that connect and never read: the times between the
starts of launches with all runs, from the trace of one run, and the memory that such a reader costs the service.
"""

import argparse
import asyncio
import json
import statistics
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any

import httpx
from _common import ROOT, Budget, Row, show, write
from _runtime import device_name
from _service import deployed, home, service
from speech import NAME, TEXT, Watch, graph_of
from websockets.sync.client import connect

from walkgraph.client import read_address
from walkgraph.settings import Settings
from walkgraph.telemetry.trace import LAUNCH

RESULTS = ROOT / "benchmarks" / "results" / "telemetry.json"
LEVELS = ("off", "summary", "full")
PAGE = Path(__file__).with_name("_page.py")
MIB = 1 << 20


def main() -> None:
    given = options()
    device = device_name()
    tiny = given.tiny or given.check or device == "cpu"
    placement = given.placement or ("orpheus_one_gpu" if device != "cpu" else None)
    if given.check:
        given.clients, given.tokens, given.rounds, given.stalled = 2, 40, 1, 2
    budget = Budget(given.budget)
    with home() as folder, service(folder, starter=False) as server, ExitStack() as stack:
        deployed(server.client, decoding(tiny=tiny), placement, NAME)
        token = (folder / "token").read_text().strip()
        asker = Asker(server.client.url, token, given.clients, given.tokens)
        control = stack.enter_context(Control(server.client.url, token))
        address = read_address(Settings(home=folder))
        watch = Watch(server.client, Settings(home=folder))
        asker.all()
        with page(server.client.url, token) as told:
            rounds = levels(control, asker, watch, given.rounds, budget)
        rows = [row_of(level, rounds) for level in LEVELS]
        show(f"{'tiny' if tiny else 'full'} Orpheus, {given.clients} runs of {given.tokens} tokens, a page open", rows)
        show("the page", [told])
        beside = stalled(control, asker, address.pid if address else 0, given, budget)
        show(f"level full, {given.stalled} readers that take nothing", [beside])
    report = {"tiny": tiny, "placement": placement, "clients": given.clients, "tokens": given.tokens}
    report |= {"levels": rows, "rounds": rounds, "page": told, "stalled": beside, "left out": budget.left_out}
    write(None if given.check else given.out, device, report)


def options() -> argparse.Namespace:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--clients", type=int, default=32, help="runs that decode together")
    arguments.add_argument("--tokens", type=int, default=1000, help="tokens per run")
    arguments.add_argument("--rounds", type=int, default=8)
    arguments.add_argument("--stalled", type=int, default=50, help="readers that take nothing")
    arguments.add_argument("--placement", help="a bundled placement of `orpheus`; none on a CPU")
    arguments.add_argument("--budget", type=float, default=300.0, help="seconds; later cases are skipped")
    arguments.add_argument("--out", type=Path, default=RESULTS)
    arguments.add_argument("--tiny", action="store_true", help="the tiny models")
    arguments.add_argument("--check", action="store_true", help="run the smallest sizes and write nothing")
    return arguments.parse_args()


def decoding(*, tiny: bool) -> dict[str, Any]:
    """Orpheus with a task that decodes and is not heard: the vocoder takes no part."""
    graph = graph_of(tiny=tiny)
    graph["walks"]["decode"]["edges"].append(["llm.token", "@out.token"])
    speak = graph["tasks"]["speak"]
    steps = {"language": speak["steps"]["language"]}
    graph["tasks"]["decode"] = {**speak, "label": "Decode", "outputs": ["token"], "steps": steps}
    return graph


class Asker:
    """Clients that each ask once, at the same time, over connections made before."""

    def __init__(self, url: str, token: str, clients: int, tokens: int) -> None:
        self._url, self._headers = url, {"Authorization": f"Bearer {token}"}
        self._clients, self._tokens = clients, tokens

    def all(self) -> list[float]:
        """Seconds of a step, run by run."""
        return asyncio.run(self._all())

    async def _all(self) -> list[float]:
        async def one(number: int) -> float:
            async with httpx.AsyncClient(
                base_url=self._url, headers=self._headers, timeout=600, trust_env=False
            ) as client:
                (await client.get("/health/live")).raise_for_status()
                await barrier.wait()
                params = {"max_tokens": self._tokens, "seed": number}
                body = {"inputs": {"text": TEXT.format(number)}, "params": params}
                answer = (await client.post(f"/v1/tasks/{NAME}/decode", json=body)).raise_for_status().json()
                made = max(row["calls"] for row in answer["times"] if row["node"] == "llm")
                return (answer["seconds"] - answer["queued"]) / made

        barrier = asyncio.Barrier(self._clients)
        return await asyncio.gather(*map(one, range(self._clients)))


class Control:
    """The other requests of the page: it sets the level, and fetches traces."""

    def __init__(self, url: str, token: str) -> None:
        headers = {"Authorization": f"Bearer {token}"}
        self._http = httpx.Client(base_url=url, headers=headers, timeout=60, trust_env=False)
        self.url, self.token = url, token

    def __enter__(self) -> "Control":
        return self

    def __exit__(self, *_: object) -> None:
        self._http.close()

    def level(self, level: str) -> None:
        path = f"/api/v1/deployments/{NAME}/watch/level"
        self._http.put(path, json={"level": level}).raise_for_status()

    def trace(self) -> Mapping[str, Any]:
        """The trace of the newest run."""
        newest = self._http.get("/api/v1/runs", params={"deployment": NAME, "limit": 1}).raise_for_status().json()[0]
        return self._http.get(f"/api/v1/runs/{newest['id']}/trace").raise_for_status().json()


@contextmanager
def page(url: str, token: str) -> Iterator[dict[str, Any]]:
    """A reader in a process of its own; once it is closed, what it was told."""
    command = [sys.executable, str(PAGE), url, NAME]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as reader:
        if reader.stdin is None or reader.stdout is None:
            raise RuntimeError("the reader has no pipes")
        reader.stdin.write(token + "\n")
        reader.stdin.flush()
        reader.stdout.readline()
        told: dict[str, Any] = {}
        yield told
        reader.stdin.close()
        told |= json.loads(reader.stdout.read())


def levels(
    control: Control, asker: Asker, watch: Watch, rounds: int, budget: Budget
) -> list[dict[str, dict[str, float]]]:
    """Round -> level -> milliseconds of a step, and seconds that processes worked."""
    found: list[dict[str, dict[str, float]]] = []
    for turn in range(rounds):
        if not budget.allows(f"round {turn + 1}"):
            break
        order = [LEVELS[(turn + k) % len(LEVELS)] for k in range(len(LEVELS))]
        one: dict[str, dict[str, float]] = {}
        for level in order if turn % 2 == 0 else reversed(order):
            control.level(level)
            before = watch.seconds()
            steps = asker.all()
            used = {f"{name} s": seconds - before[name] for name, seconds in watch.seconds().items()}
            one[level] = {"step ms": 1e3 * statistics.median(steps), **used}
        found.append(one)
    return found


def row_of(level: str, rounds: Sequence[Mapping[str, Mapping[str, float]]]) -> Row:
    row: dict[str, Any] = {"level": level}
    for name in rounds[0][level]:
        row[name] = statistics.median(one[level][name] for one in rounds)
    ratios = [one[level]["step ms"] / one["off"]["step ms"] for one in rounds]
    return row | {"/ off": statistics.median(ratios), "least": min(ratios), "greatest": max(ratios)}


def stalled(control: Control, asker: Asker, pid: int, given: argparse.Namespace, budget: Budget) -> Row:
    """p50 and p99 of the times between launches, without and with the readers, in turn."""
    control.level("full")
    without, beside, ratios, grew = [], [], [], 0
    for turn in range(given.rounds):
        if not budget.allows(f"stalled, round {turn + 1}"):
            break
        asker.all()
        alone = launches(control.trace(), given.clients)
        before = resident(pid)
        with ExitStack() as stack:
            for _ in range(given.stalled):
                stack.enter_context(never_reads(control))
            asker.all()
            grew = max(grew, resident(pid) - before)
        together = launches(control.trace(), given.clients)
        without += alone
        beside += together
        ratios.append(at(together, 0.99) / at(alone, 0.99))
    if not ratios:
        return {}
    row: dict[str, Any] = {"p50 ms": 1e3 * at(without, 0.5), "p50 beside ms": 1e3 * at(beside, 0.5)}
    row |= {"p99 ms": 1e3 * at(without, 0.99), "p99 beside ms": 1e3 * at(beside, 0.99)}
    row |= {
        "p99 / alone": at(beside, 0.99) / at(without, 0.99),
        "of rounds, least": min(ratios),
        "greatest": max(ratios),
    }
    return row | {"MiB a reader": grew / given.stalled / MIB}


@contextmanager
def never_reads(control: Control) -> Iterator[None]:
    """A reader whose window is full soon: nothing is taken from its socket but the answer to its greeting."""
    address = f"ws{control.url.removeprefix('http')}/ws/v1/telemetry?deployment={NAME}"
    headers = {"Authorization": f"Bearer {control.token}"}
    socket = connect(address, additional_headers=headers, max_queue=1, max_size=None, close_timeout=0)
    try:
        yield
    finally:
        socket.socket.close()


def launches(trace: Mapping[str, Any], clients: int) -> list[float]:
    """Seconds between the starts of launches that follow each other and have all runs in them."""
    blocks = trace["blocks"]
    rows = zip(blocks["started"], blocks["kind"], blocks["batch"], strict=True)
    made = [(start, batch) for start, kind, batch in sorted(rows) if kind == LAUNCH]
    return [(b - a) / 1e6 for (a, first), (b, second) in pairwise(made) if first == second == clients]


def at(values: Sequence[float], share: float) -> float:
    """The value below which so much of them lies."""
    ordered = sorted(values) or [0.0]
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def resident(pid: int) -> int:
    """Bytes that a process has in memory."""
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * 4096


if __name__ == "__main__":
    main()
