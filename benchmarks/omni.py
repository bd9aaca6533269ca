"""Measures Qwen3-Omni's spoken answers through the whole server, with clients in closed loop.

    python benchmarks/omni.py [--preset qwen3-omni-30b-a3b] [--placement qwen3_omni_one_gpu] [--clients 1 16 32]
        [--fp8] [--tokens 100] [--frames 375] [--requests 6] [--rounds 2] [--seconds 420] [--out FILE] [--check]

The script starts a service with the plain command in its own home and deploys the graph `qwen3_omni` with random
weights. Each request sends three seconds of sound, which no other request sends, and streams the task `chat` over
server-sent events: `--tokens` of text and `--frames` of speech, 12.5 a second. Neither ends by itself: the talker's
`min_frames` is its number of frames, and `frames_per_token` 0. The graph also sends the tokens' numbers, because a
random token's text may be empty. The clients, in up to eight processes, begin at once. Times are the client's, from
just before a request:

    first text     until the first token
    first audio    until the first samples that can be played
    RTF            until the last samples, by the seconds of sound
    audio          seconds of sound of all clients, by the seconds that they took
    token, frame   between the arrivals of tokens, and of pieces of sound, by their number of frames
    underruns      of a player that begins 100 ms after the first samples came, and waits where there are none

`floor` is the least that one GPU could take, doing nothing else: weights, keys and values read once a step at 3.9 TB/s
(experts: those chosen if all are equally likely), or its products at 790 TFLOP/s, for requests that are all at the same
place; of a rate it is the most. `times` is the median over it, `target` what the figure should be. A case that fails
says why, with the end of the service's log, and the others go on. The results are written after each case. `--check`
runs the tiny model with two clients, also on a CPU, and writes nothing.
"""

import argparse
import json
import math
import os
import statistics
import sys
import time
import traceback
from collections import defaultdict
from collections.abc import Mapping, Sequence
from itertools import count, pairwise
from pathlib import Path
from typing import Any

from _clients import together
from _common import READ, ROOT, Budget, Row, show, spread, write
from _runtime import device_name
from _service import home, service
from _speakers import SECONDS, Answer
from engine_step import Case, layer_weights, prompt_flops
from gpu_omni import FULL, PRODUCTS, TINY, audio_work, frame_work
from speech import Watch

from walkgraph.client import Client
from walkgraph.models.qwen3_omni.hearing.config import AUDIO_PRESETS
from walkgraph.models.qwen3_omni.presets import omni_config
from walkgraph.models.qwen3_omni.vocoder.components import NUMBERS
from walkgraph.resources import bundled
from walkgraph.settings import Settings

RESULTS = ROOT / "benchmarks" / "results" / "omni.json"
SPEAKERS = Path(__file__).with_name("_speakers.py")
PROCESSES = max(1, min(8, (os.cpu_count() or 1) // 2))
"""The most processes that the clients share: one of all 32 would answer for its own time."""
NAME = "omni"
SPOKEN = 12.5
"""Frames of speech in a second."""
FIRST, CHUNK = 5, 10
"""Frames of the first piece of sound, and of the others."""
CONTEXT = 512
VOCODER = {FULL: 5.112e9}
"""Operations of the vocoder for a frame, as `gpu_code2wav` counts them."""
TARGETS: Mapping[tuple[int, str], float] = {
    (1, "first text ms"): 40.0,
    (1, "first audio ms"): 80.0,
    (16, "first audio ms"): 250.0,
    (32, "first audio ms"): 500.0,
    (1, "RTF"): 0.04,
    (32, "RTF"): 0.16,
    (16, "audio s/s"): 120.0,
    (32, "audio s/s"): 200.0,
}
READY = 60.0
LOGGED = 60
"""Lines of the service's log that are shown after a failure."""
_NUMBERS = count()


def main() -> None:
    given = options()
    device = device_name()
    bench = Bench(given, device)
    with home() as folder, service(folder, starter=False, WALKGRAPH_START_TIMEOUT="1500") as server:
        try:
            bench.start(server.client, server.seconds)
            token = (folder / "token").read_text().strip()
            watch = Watch(server.client, Settings(home=folder), NAME)
            asker = Asker(server.client.url, token, bench.params, given.limit)
            for clients in given.clients:
                if bench.budget.allows(f"{clients} clients"):
                    bench.case(asker, watch, clients)
        except Exception as error:  # noqa: BLE001  what was measured before is kept, and the log says more
            bench.broke("start", error)
        if bench.failed:
            told(server.client, folder)
    if bench.failed:
        sys.exit(1)


def options() -> argparse.Namespace:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--preset", default=FULL, help="a shape of random weights; the tiny one on a CPU")
    arguments.add_argument("--placement", default="qwen3_omni_one_gpu", help="a bundled placement; none on a CPU")
    arguments.add_argument("--clients", type=int, nargs="+", default=[1, 16, 32])
    arguments.add_argument("--fp8", action="store_true", help="the thinker's experts in eight bits, for 80 GB")
    arguments.add_argument("--tokens", type=int, default=100, help="tokens of an answer")
    arguments.add_argument("--frames", type=int, default=375, help="frames of its speech")
    arguments.add_argument("--requests", type=int, default=6, help="the fewest requests of a case")
    arguments.add_argument("--rounds", type=int, default=2, help="the fewest requests per client, after a short one")
    arguments.add_argument("--seconds", type=float, default=420.0, help="what begins later is left out")
    arguments.add_argument("--limit", type=float, default=300.0, help="seconds that the requests of a case may take")
    arguments.add_argument("--out", type=Path, default=RESULTS)
    arguments.add_argument("--check", action="store_true", help="run the tiny model and write nothing")
    given = arguments.parse_args()
    if given.check:
        given.preset, given.clients, given.tokens, given.frames = TINY, [2], 8, 15
        given.requests, given.rounds, given.out = 2, 1, None
    return given


class Bench:
    """The measurements so far; they are written anew after each case."""

    def __init__(self, given: argparse.Namespace, device: str) -> None:
        self._given, self._device = given, device
        self._preset = given.preset if device != "cpu" else TINY
        self._placement = given.placement if device != "cpu" and not given.check else None
        self.budget = Budget(given.seconds)
        self.failed: dict[str, str] = {}
        self._rows: list[Row] = []
        self._nodes: list[Row] = []
        self._start: dict[str, float] = {}

    @property
    def params(self) -> dict[str, Any]:
        return {"max_tokens": self._given.tokens, "max_frames": self._given.frames, "context": CONTEXT}

    def start(self, client: Client, seconds: float) -> None:
        graph = graph_of(self._preset, self._given.frames, fp8=self._given.fp8)
        self._start = {"service": seconds} | deployed(client, graph, self._placement)
        show("from the command to the service, and from `deploy` to ready by what rank 0 was at, s", [self._start])
        full = self._preset == FULL
        self._add([figure(0, "ready s", [self._start["ready"]], None, READY if full else None)])

    def case(self, asker: "Asker", watch: Watch, clients: int) -> None:
        name, began = f"{clients} clients", time.perf_counter()
        try:
            say(f"{name}: a short request each")
            asker.all_of(clients, 1, {"max_tokens": min(8, self._given.tokens), "max_frames": FIRST})
            rounds = max(self._given.rounds, math.ceil(self._given.requests / clients))
            say(f"{name}: {rounds} requests each")
            before, since = watch.seconds(), time.perf_counter()
            answers, wall = asker.all_of(clients, rounds, {})
            say(f"{len(answers)} requests are answered")
            spent = time.perf_counter() - since
            shares = {who: (used - before[who]) / spent for who, used in watch.seconds().items()}
        except Exception as error:  # noqa: BLE001  one case's failure must not cost the others
            self.broke(name, error)
            return
        floor = Floor(self._preset, clients, answers[0].read, self._given.tokens, self._given.frames)
        rows = figures(clients, answers, wall, floor, targets=self._preset == FULL)
        self._nodes += nodes(clients, answers)
        show(f"{name}, {len(answers)} requests ({time.perf_counter() - began:.0f} s in all)", rows)
        show("medians of a request by node", [row for row in self._nodes if row["clients"] == clients])
        show("share of a core", [shares])
        short = [one for one in answers if one.sound < 0.99 * self._given.frames / SPOKEN - 0.03]
        if short:
            say(f"{name}: {len(short)} answers ended early, the shortest after {min(one.sound for one in short):.2f} s")
        self._add([*rows, {"clients": clients, "figure": "ended early", "median": len(short)}])

    def broke(self, name: str, error: BaseException) -> None:
        self.failed[name] = f"{type(error).__name__}: {error}"[:2000]
        say(f"{name} failed")
        traceback.print_exception(error)
        self._add([])

    def _add(self, rows: Sequence[Row]) -> None:
        self._rows += rows
        given = self._given
        report = {
            "preset": self._preset,
            "placement": self._placement,
            "fp8": given.fp8,
            "tokens": given.tokens,
            "frames": given.frames,
            "start": self._start,
            "figures": self._rows,
            "nodes": self._nodes,
            "failed": self.failed,
            "left out": self.budget.left_out,
        }
        write(given.out, self._device, report)


# ── the deployment ──


def graph_of(preset: str, frames: int, *, fp8: bool) -> dict[str, Any]:
    """The bundled graph, whose speech has so many frames, and which also sends the tokens' numbers."""
    graph = json.loads(bundled("graphs")["qwen3_omni"].read_text())
    graph["weights"]["omni"]["source"] = f"random:{preset}:0"
    graph["nodes"]["talker"]["params"] |= {"min_frames": frames, "frames_per_token": 0}
    if fp8:
        graph["nodes"]["thinker"]["params"]["precision"] = "fp8"
    graph["walks"]["begin_answer"]["edges"].append(["thinker.token", "@out.token"])
    graph["walks"]["decode"]["edges"].append({"from": "thinker.token", "to": "@out.token", "each": True})
    graph["tasks"] = {"chat": {**graph["tasks"]["chat"], "outputs": ["text", "audio", "token"]}}
    return graph


def deployed(client: Client, graph: Mapping[str, Any], placement: str | None) -> dict[str, float]:
    """Deploy, and say what the ranks are at: seconds until ready, and in each phase of rank 0 on the way there.

    Raises RuntimeError when a rank fails for the first time."""
    began = since = time.perf_counter()
    client.deploy(graph, json.loads(bundled("placements")[placement].read_text()) if placement else None, NAME)
    seconds: dict[str, float] = {}
    phase, shown = "process", 0.0
    for found in client.follow_deployment(NAME):
        now, ranks = time.perf_counter(), found["ranks"]
        entered = next(iter(ranks), {}).get("phase") or phase
        at = ", ".join(f"rank {r['rank']} {r['state']} {r['phase']} {100 * (r['fraction'] or 0):.0f} %" for r in ranks)
        if entered != phase or now - shown > 5:
            say(f"{now - began:6.1f} s  {found['state']}: {at}")
            shown = now
        faults = [str(rank["reason"]) for rank in ranks if rank.get("reason")]
        if found["state"] in ("failed", "stopped") or faults or any(rank["restarts"] for rank in ranks):
            raise RuntimeError(f"`{NAME}` is {found['state']}: {found['reason']} {faults}")
        if entered != phase or found["state"] == "ready":
            seconds[phase] = seconds.get(phase, 0.0) + now - since
            phase, since = entered, now
        if found["state"] == "ready":
            break
    return {**seconds, "ready": time.perf_counter() - began}


def told(client: Client, folder: Path) -> None:
    """Print what the service says about a failure."""
    log = folder / "service.log"
    lines = log.read_text(errors="replace").splitlines() if log.exists() else []
    print(f"\nthe last {LOGGED} of {len(lines)} lines of the service's log:", *lines[-LOGGED:], sep="\n", flush=True)
    try:
        print(json.dumps(client.deployment(NAME), indent=1), flush=True)
    except Exception as error:  # noqa: BLE001  the service may be gone, and that is then the news
        print(f"the deployment can't be read: {error}", flush=True)


def say(what: str) -> None:
    print(what, flush=True)


# ── the clients ──


class Asker:
    """The clients, in processes that begin together."""

    def __init__(self, url: str, token: str, params: Mapping[str, Any], limit: float) -> None:
        self._orders = {"url": url, "token": token, "path": f"/v1/tasks/{NAME}/chat", "limit": limit}
        self._params = params

    def all_of(self, clients: int, rounds: int, params: Mapping[str, Any]) -> tuple[list[Answer], float]:
        """The answers, and the seconds that they took in all. Raises RuntimeError for a request that failed."""
        numbers = [[next(_NUMBERS) for _ in range(rounds)] for _ in range(clients)]
        count, orders = min(clients, PROCESSES), {**self._orders, "params": {**self._params, **params}}
        told = together(SPEAKERS, [{**orders, "numbers": numbers[at::count]} for at in range(count)])
        if failed := [what for one in told for what in one.get("failed", ())]:
            raise RuntimeError("; ".join(failed))
        answers = [Answer(**answer) for one in told for answer in one["answers"]]
        return answers, max(one["ended"] for one in told) - min(one["began"] for one in told)


# ── the figures ──


class Floor:
    """Seconds that one GPU needs at least, by part, for so many requests at the same place."""

    def __init__(self, preset: str, batch: int, read: int, tokens: int, frames: int) -> None:
        config, audio = omni_config(preset), AUDIO_PRESETS[preset]
        if config.talker is None:
            raise ValueError(f"`{preset}` has no talker")
        llm, speaker = config.thinker.llm, config.talker.stack
        nbytes, flops = audio_work(audio, SECONDS, 2)
        head, kept = llm.vocab * llm.width, 2 * llm.layers * llm.kv_heads * llm.head_dim
        question = least(nbytes, batch * flops) + least(
            2.0 * (layer_weights(llm, batch * read) + head), prompt_flops(llm, Case(batch, read))
        )
        self.token = least(
            2.0 * (layer_weights(llm, batch) + head + batch * (read + tokens / 2) * kept),
            2.0 * batch * (layer_weights(llm, 1) + head),
        )
        self.frame = least(*frame_work(config.talker, batch))
        listened = least(2.0 * layer_weights(speaker, batch * read), prompt_flops(speaker, Case(batch, read)))
        self._vocoder, self._a_frame = 2.0 * NUMBERS[preset], batch * VOCODER.get(preset, 0.0)
        self.first_text = question
        self.first_audio = question + listened + (FIRST - 1) * self.token + FIRST * self.frame + self._chunk(FIRST)
        chunks = math.ceil((frames - FIRST) / CHUNK) * self._chunk(CHUNK) + self._chunk(FIRST)
        self.whole = question + listened + (tokens - 1) * self.token + frames * self.frame + chunks

    def _chunk(self, frames: int) -> float:
        return least(self._vocoder, frames * self._a_frame)


def least(nbytes: float, flops: float) -> float:
    return max(nbytes / READ, flops / PRODUCTS)


def figure(clients: int, name: str, values: Sequence[float], floor: float | None, target: float | None = None) -> Row:
    """`floor`: the least median; of a rate the most."""
    found = spread(values)
    row: dict[str, Any] = {"clients": clients or None, "figure": name, "median": found.get("median")}
    row |= {"p95": found.get("p95"), "most": max(values, default=None)}
    row |= {"floor": floor, "times": found["median"] / floor if floor and found else None, "target": target}
    return {key: value for key, value in row.items() if value is not None}


def figures(clients: int, answers: Sequence[Answer], wall: float, floor: Floor, *, targets: bool) -> list[Row]:
    seconds = answers[0].sound
    stalls = [stall for one in answers for stall in one.stalls()]
    found: dict[str, tuple[Sequence[float], float | None]] = {
        "first text ms": ([1e3 * one.tokens[0] for one in answers], 1e3 * floor.first_text),
        "first audio ms": ([1e3 * one.at[0] for one in answers], 1e3 * floor.first_audio),
        "RTF": ([one.at[-1] / one.sound for one in answers], floor.whole / seconds),
        "audio s/s": ([sum(one.sound for one in answers) / wall], clients * seconds / floor.whole),
        "token ms": ([1e3 * (b - a) for one in answers for a, b in pairwise(one.tokens)], 1e3 * floor.token),
        "frame ms": ([ms for one in answers if (ms := frame_ms(one))], 1e3 * floor.frame),
        "whole answer s": ([one.at[-1] for one in answers], floor.whole),
        "tokens": ([float(len(one.tokens)) for one in answers], None),
        "underruns": ([float(len(stalls))], None),
        "stalled s": ([sum(stalls)], None),
    }
    asked = TARGETS if targets else {}
    return [figure(clients, name, *values, asked.get((clients, name))) for name, values in found.items()]


def frame_ms(answer: Answer) -> float:
    """Milliseconds of a frame from the first piece of sound to the last; 0 if there is one piece."""
    frames = SPOKEN * sum(answer.audio[1:])
    return 1e3 * (answer.at[-1] - answer.at[0]) / frames if frames else 0.0


def nodes(clients: int, answers: Sequence[Answer]) -> list[Row]:
    """The workers' times of a request, by node: calls, seconds at work, seconds of waiting."""
    sums: dict[str, list[dict[str, float]]] = defaultdict(lambda: [defaultdict(float) for _ in answers])
    for at, answer in enumerate(answers):
        for one in answer.times:
            for name in ("calls", "busy", "queued"):
                sums[one["node"]][at][name] += one[name]
    rows: list[Row] = []
    for node, each in sums.items():
        middle = {name: statistics.median(one[name] for one in each) for name in ("calls", "busy", "queued")}
        times = {f"{name} ms": 1e3 * middle[name] for name in ("busy", "queued")}
        per_call = 1e3 * middle["busy"] / (middle["calls"] or 1.0)
        rows.append({"clients": clients, "node": node, "calls": middle["calls"], **times, "ms a call": per_call})
    return sorted(rows, key=lambda row: -row["busy ms"])


if __name__ == "__main__":
    main()
