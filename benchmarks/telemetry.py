"""What watching costs: runs that decode together with telemetry off, in summary and in full, and beside readers that
take nothing.

    python benchmarks/telemetry.py [--clients 32] [--tokens 400] [--rounds 5] [--stalled 50]
        [--placement orpheus_one_gpu] [--budget 300] [--out FILE] [--tiny] [--check]

A service is started by the plain command in a home of its own, and Orpheus is deployed with random weights (`--tiny`:
of the tiny models, as on a machine without a GPU). One reader, a process that decodes every frame as an open trace page
does, is there all the time. A round runs at every level, in an order that turns, and only what was measured in one
round is compared:

    token      between two frames' arrivals at their client, by a frame's tokens: median over all runs
    run        from its admission to its end, by its tokens: median over all runs
    step       what the worker says that a step took
    / off      median over the rounds of (the level / off in the same round)

Then in full, in turn with and without readers that connect and never read: the times between the starts of a loop's
launches, as the runs' traces tell them, and what a reader that takes nothing costs the service in memory.
"""

import argparse
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
from _common import ROOT, Budget, Row, show, spread, write
from _runtime import device_name
from _service import deployed, home, service
from speech import FRAME, NAME, Asker, Heard, Watch, graph_of
from websockets.sync.client import connect

from walkgraph.client import read_address
from walkgraph.settings import Settings

RESULTS = ROOT / "benchmarks" / "results" / "telemetry.json"
LEVELS = ("off", "summary", "full")
PAGE = Path(__file__).with_name("_page.py")
PAGE_SECONDS = 30.0
MIB = 1 << 20


def main() -> None:
    given = options()
    device = device_name()
    tiny = given.tiny or given.check or device == "cpu"
    placement = given.placement or ("orpheus_one_gpu" if device != "cpu" else None)
    if given.check:
        given.clients, given.tokens, given.rounds, given.stalled = 2, 35, 1, 2
    budget = Budget(given.budget)
    with home() as folder, service(folder, starter=False) as server, ExitStack() as stack:
        deployed(server.client, graph_of(tiny=tiny), placement, NAME)
        token = (folder / "token").read_text().strip()
        asker = Asker(server.client.url, token, given.tokens)
        control = stack.enter_context(Control(server.client.url, token))
        address = read_address(Settings(home=folder))
        watch = Watch(server.client, Settings(home=folder))
        asker.all_of(given.clients, 1)
        with page(server.client.url, token) as told:
            rounds = levels(control, asker, watch, given.clients, given.rounds, budget)
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
    arguments.add_argument("--tokens", type=int, default=400)
    arguments.add_argument("--rounds", type=int, default=5)
    arguments.add_argument("--stalled", type=int, default=50, help="readers that take nothing")
    arguments.add_argument("--placement", help="a bundled one of `orpheus`; none on a CPU")
    arguments.add_argument("--budget", type=float, default=300.0, help="seconds; what comes after is left out")
    arguments.add_argument("--out", type=Path, default=RESULTS)
    arguments.add_argument("--tiny", action="store_true", help="the tiny models")
    arguments.add_argument("--check", action="store_true", help="the least sizes, and nothing is written")
    return arguments.parse_args()


class Control:
    """What the page does besides: it sets the level, and asks for traces."""

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

    def traces(self, count: int) -> list[Mapping[str, Any]]:
        """Of the newest runs."""
        found = self._http.get(f"/api/v1/deployments/{NAME}/traces", params={"limit": count}).raise_for_status().json()
        return [self._http.get(f"/api/v1/runs/{row['run']}/trace").raise_for_status().json() for row in found]


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
    control: Control, asker: Asker, watch: Watch, clients: int, rounds: int, budget: Budget
) -> list[dict[str, dict[str, float]]]:
    found: list[dict[str, dict[str, float]]] = []
    for turn in range(rounds):
        if not budget.allows(f"round {turn + 1}"):
            break
        order = [LEVELS[(turn + k) % len(LEVELS)] for k in range(len(LEVELS))]
        one: dict[str, dict[str, float]] = {}
        for level in order if turn % 2 == 0 else reversed(order):
            control.level(level)
            before = watch.seconds()
            heard = asker.all_of(clients, 1)
            used = {name: seconds - before[name] for name, seconds in watch.seconds().items()}
            one[level] = figures(heard, used)
        found.append(one)
    return found


def figures(heard: Sequence[Heard], used: Mapping[str, float]) -> dict[str, float]:
    """Milliseconds, and seconds of processors."""
    arrivals = [(later - sooner) / FRAME for one in heard for sooner, later in pairwise(one.at[1:-2])]
    tokens = [len(one.at) * FRAME for one in heard]
    runs = [(one.at[-1] - one.at[0]) / max(1, count - FRAME) for one, count in zip(heard, tokens, strict=True)]
    steps = [one.step for one in heard if one.step is not None]
    found = {"token ms": arrivals or [0.0], "run ms": runs, "step ms": steps or [0.0]}
    return {name: 1e3 * statistics.median(values) for name, values in found.items()} | {
        f"{name} s": seconds for name, seconds in used.items()
    }


def row_of(level: str, rounds: Sequence[Mapping[str, Mapping[str, float]]]) -> Row:
    row: dict[str, Any] = {"level": level}
    for name in rounds[0][level]:
        row[name] = statistics.median(one[level][name] for one in rounds)
    for name in ("token ms", "run ms", "step ms"):
        ratios = [one[level][name] / one["off"][name] for one in rounds if one["off"][name]]
        row[f"{name.removesuffix(' ms')} / off"] = statistics.median(ratios) if ratios else None
    return row


def stalled(control: Control, asker: Asker, pid: int, given: argparse.Namespace, budget: Budget) -> Row:
    """p50 and p99 of the times between launches, without and with the readers, in turn."""
    control.level("full")
    without, beside, ratios, grew = [], [], [], 0
    for turn in range(given.rounds):
        if not budget.allows(f"stalled, round {turn + 1}"):
            break
        asker.all_of(given.clients, 1)
        alone = launches(control.traces(given.clients))
        before = resident(pid)
        with ExitStack() as stack:
            for _ in range(given.stalled):
                stack.enter_context(never_reads(control))
            asker.all_of(given.clients, 1)
            grew = max(grew, resident(pid) - before)
        together = launches(control.traces(given.clients))
        without += alone
        beside += together
        ratios.append(at(together, 0.99) / at(alone, 0.99))
    row: dict[str, Any] = {"p50 ms": 1e3 * at(without, 0.5), "p50 beside ms": 1e3 * at(beside, 0.5)}
    row |= {"p99 ms": 1e3 * at(without, 0.99), "p99 beside ms": 1e3 * at(beside, 0.99)}
    row |= {"p99 / alone": statistics.median(ratios), "p99 / alone, p5 to p95": list(spread(ratios).values())[1:]}
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


def launches(traces: Sequence[Mapping[str, Any]]) -> list[float]:
    """Seconds between the starts of a run's launches of its loop."""
    found: list[float] = []
    for trace in traces:
        blocks = trace["blocks"]
        starts = [start for kind, start in zip(blocks["kind"], blocks["started"], strict=True) if kind == 1]
        found += [(later - sooner) / 1e6 for sooner, later in pairwise(sorted(starts))]
    return found


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
