"""Measures a language model that reads prompts on one rank and answers on another, next to one rank that does both:

    first, second   the first two tokens of a lone request, from when it was sent. The second one is written where the
                    answer is, so that the prompt's cache must be there
    token           between the tokens of 16 answers, while nobody else asks, and while long prompts come

    python benchmarks/prefill_apart.py [--prompts 256 1024 3000] [--out FILE] [--check]
    python benchmarks/prefill_apart.py --served [--config qwen3-8b]

The plain form runs all ranks in this process: real cores, engines and moves of states, with the tiny model. Each rank
has a clock that goes by the processor time of its own work, and a link that carries `--link` bytes a second, so figures
don't depend on the number of processors. `whole` is the same, with caches that leave only when the prompt is read.

`--served` asks the whole server over HTTP, with the placements `llm_one_gpu` and `llm_prefill_apart_two_gpus`, on two
GPUs or, without them, on two CPU ranks.
"""

import argparse
import asyncio
import json
import random
import statistics
import string
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch
from _common import ROOT, Row, show, spread, write
from _service import deployed, home, service
from _virtual_ranks import VirtualRanks, without_collections
from language import NAME, Asker, graph_of

from walkgraph.graph import codec
from walkgraph.graph.document import Graph
from walkgraph.models.llm.presets import LLM
from walkgraph.placement.document import decode
from walkgraph.resources import bundled

RESULTS = ROOT / "benchmarks" / "results" / "prefill_apart.json"
TINY = "qwen3-tiny"
ONE, TWO = "llm_one_gpu", "llm_prefill_apart_two_gpus"
WRITERS, SHORT, LONG = 16, 32, 3000
"""Answers at once, and tokens of their prompts; tokens of prompts that come meanwhile."""


def main() -> None:
    given = options()
    if given.served:
        served(given)
        return
    if given.check:
        given.prompts, given.rounds, given.tokens, given.readers = [300], 1, 12, 1
    ways = {
        "one rank": ranks(ONE, given.link),
        "two ranks": ranks(TWO, given.link),
        "two ranks, whole": ranks(TWO, given.link, parts=False),
    }
    with without_collections():
        alone = [row for prompt in given.prompts for row in lone(ways, prompt, given.rounds)]
        beside = written(ways, given)
    show("a lone request, in processor time of the ranks", alone)
    show(f"{WRITERS} answers, while nobody asks and while prompts of {LONG} tokens come", beside)
    figures = {"config": TINY, "link": given.link, "alone": alone, "beside": beside}
    write(None if given.check else given.out, "cpu", figures)


def options() -> argparse.Namespace:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--prompts", type=int, nargs="+", default=[256, 1024, 3000], help="tokens of lone requests")
    arguments.add_argument("--rounds", type=int, default=5, help="after one that warms up")
    arguments.add_argument("--tokens", type=int, default=150, help="tokens of each of the answers at once")
    arguments.add_argument("--readers", type=int, default=6, help="long prompts that come meanwhile")
    arguments.add_argument("--link", type=float, default=50e6, help="bytes a second from rank to rank")
    arguments.add_argument("--served", action="store_true", help="ask the whole server")
    arguments.add_argument("--config", default="qwen3-8b", help="a shape of random weights, where it is served by GPUs")
    arguments.add_argument("--out", type=Path, default=RESULTS)
    arguments.add_argument("--check", action="store_true", help="run the smallest sizes and write nothing")
    return arguments.parse_args()


# ── all ranks in this process ────────────────────────────────────────────────────────────────────


def ranks(placement: str, link: float, *, parts: bool = True) -> VirtualRanks:
    return VirtualRanks(graph(), decode(on_cpus(placement)), link, parts=parts)


def graph() -> Graph:
    document = json.loads(bundled("graphs")["llm"].read_text())
    document["weights"]["llm"]["source"] = f"random:{TINY}:0"
    return codec.load(document)


def on_cpus(placement: str) -> dict[str, Any]:
    document = json.loads(bundled("placements")[placement].read_text())
    for rank in document["ranks"]:
        rank["device"] = "cpu"
    for group in document["groups"]:
        group["memory"] = "1GiB"
    return document


def asked(way: VirtualRanks, at: float, run: str, prompt: str, tokens: int) -> None:
    """Ask for an answer of so many tokens: those that would end it are left out."""
    ends = torch.tensor([(stop, -100.0) for stop in LLM[TINY].stops])
    params = {"max_tokens": tokens, "temperature": 1.0, "seed": len(run)}
    way.submit(at, run, "complete", params, {"prompt": prompt, "logit_bias": ends})


def text(seed: str, tokens: int) -> str:
    return "".join(random.Random(seed).choices(string.ascii_letters, k=tokens))


def lone(ways: dict[str, VirtualRanks], prompt: int, rounds: int) -> list[dict[str, Any]]:
    """One request after the other, the ways in turn. The first round warms up."""
    found: dict[str, list[tuple[float, float]]] = {name: [] for name in ways}
    answers: dict[str, list[list[Any]]] = {name: [] for name in ways}
    for number in range(rounds + 1):
        for name, way in ways.items():
            run, began = f"{prompt}.{number}", way.now
            asked(way, began, run, text(run, prompt), 4)
            way.run()
            first, second = (at - began for at in way.told[run][:2])
            found[name] += [(first, second)] if number else []
            answers[name].append(way.values[run])
            way.forget(run)
    if any(one != answers["one rank"] for one in answers.values()):
        raise RuntimeError("two ranks answer otherwise than one")
    rows: list[dict[str, Any]] = []
    for name, times in found.items():
        first, second = (spread(one, 1e3)["median"] for one in zip(*times, strict=True))
        rows.append({"prompt": prompt, "ranks": name, "first ms": first, "second ms": second})
    for row in rows:
        row |= {f"{token} of one": row[f"{token} ms"] / rows[0][f"{token} ms"] for token in ("first", "second")}
    return rows


def written(ways: dict[str, VirtualRanks], given: argparse.Namespace) -> list[dict[str, Any]]:
    """The times between tokens of all answers, alone and beside long prompts. The ways and the cases take turns, as the
    machine has other work too; the first round warms up."""
    found: dict[tuple[str, bool], list[float]] = {(name, beside): [] for name in ways for beside in (False, True)}
    for number in range(given.rounds + 1):
        for name, way in ways.items():
            alone = at_once(way, f"{number} alone", given.tokens, 0, 0.0)
            # Spread over the time that the answers take alone.
            pause = statistics.mean(alone) * given.tokens / (given.readers + 1)
            beside = at_once(way, f"{number} beside", given.tokens, given.readers, pause)
            found[name, False] += alone if number else []
            found[name, True] += beside if number else []
    rows: list[dict[str, Any]] = []
    for name in ways:
        row: dict[str, Any] = {"ranks": name}
        for case, between in (("alone", found[name, False]), ("beside", found[name, True])):
            row |= {f"{case} mean ms": 1e3 * statistics.mean(between), f"{case} p95 ms": spread(between, 1e3)["p95"]}
            row[f"{case} longest ms"] = 1e3 * max(between)
        rows.append(
            row | {f"{one} of alone": row[f"beside {one} ms"] / row[f"alone {one} ms"] for one in ("mean", "p95")}
        )
    return rows


def at_once(way: VirtualRanks, case: str, tokens: int, prompts: int, pause: float) -> list[float]:
    """The times between tokens of all answers, from when all have begun until the first one ends. `pause`: seconds from
    one long prompt to the next."""
    began, runs = way.now, [f"{case} {number}" for number in range(WRITERS)]
    for run in runs:
        asked(way, began, run, text(run, SHORT), tokens)
    reading = [f"{case} reader {number}" for number in range(prompts)]
    for number, run in enumerate(reading, 1):
        asked(way, began + number * pause, run, text(run, LONG), 2)
    way.run()
    since, until = max(way.told[run][1] for run in runs), min(way.told[run][-1] for run in runs)
    at = [[one for one in way.told[run] if since <= one <= until] for run in runs]
    for run in (*runs, *reading):
        way.forget(run)
    return [later - sooner for times in at for sooner, later in pairwise(times)]


# ── the whole server ─────────────────────────────────────────────────────────────────────────────


def served(given: argparse.Namespace) -> None:
    gpus = torch.cuda.device_count() if torch.cuda.is_available() else 0
    config, rows = given.config if gpus > 1 else TINY, list[Row]()
    if given.check:
        given.prompts, given.rounds, given.tokens = [300], 1, 12
    for placement in (ONE, TWO):
        with home() as folder, service(folder, starter=False) as server:
            where = placement if gpus > 1 else on_cpus(placement)
            deployed(server.client, graph_of(config), where, NAME)
            token = (folder / "token").read_text().strip()
            rows += [asked_by_clients(server.client.url, token, placement, given, prompt) for prompt in given.prompts]
    show(f"{config} at the client", rows)
    report = {"config": config, "requests": rows}
    write(
        None if given.check else given.out.with_stem(f"{given.out.stem}_served"),
        "cuda:0" if gpus > 1 else "cpu",
        report,
    )


def asked_by_clients(url: str, token: str, placement: str, given: argparse.Namespace, prompt: int) -> Row:
    writers, readers = Asker(url, token, given.tokens), Asker(url, token, 2)
    readers.all_of(prompt, 1, 1)
    alone = readers.all_of(prompt, 1, given.rounds)
    quiet = writers.all_of(SHORT, WRITERS, 1)

    async def both() -> list[list[float]]:
        asked = writers.answers(SHORT, WRITERS, 2), readers.answers(prompt, 1, given.readers)
        return (await asyncio.gather(*asked))[0]

    beside = asyncio.run(both())
    row: dict[str, Any] = {"placement": placement, "prompt": prompt}
    for name, at in (("first", 0), ("second", 1)):
        row[f"{name} ms"] = spread([times[at] for times in alone], 1e3)["median"]
    for name, answers in (("token", quiet), ("beside", beside)):
        between = spread([later - sooner for at in answers for sooner, later in pairwise(at[1:])], 1e3)
        row |= {f"{name} median ms": between["median"], f"{name} p95 ms": between["p95"]}
    return row | {"p95 of undisturbed": row["beside p95 ms"] / row["token p95 ms"]}


if __name__ == "__main__":
    main()
