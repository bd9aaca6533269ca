"""Measures a worker's CPU time for spoken answers of Qwen3-Omni without the computation: microseconds a token and a
frame, by number of clients.

    python benchmarks/spoken_host.py [--clients 1 16 32] [--tokens 100] [--frames 375] [--rounds 3] [--level summary]
        [--profile FILE] [--out FILE] [--check]

The worker's loop, core, engine, links and telemetry are the real ones, with the tiny model on a CPU. What a GPU would
replay (steps of loops, chunks of the vocoder) is run a few times, which are left out, and then does
nothing. `frame`: CPU time of the worker's thread while all clients have their text and wait for speech, by the frames
that leave meanwhile; `token`: the time before that, less that of its frames, by the tokens. What is read before
the first sound (questions, which are computed here) counts in neither. `operations`: calls of torch's operators in the
same times. Figures are the least of the rounds. `--profile` writes cProfile's statistics of the worker.
"""

import argparse
import cProfile
import gc
import json
import tempfile
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import torch
import zmq
from _common import ROOT, Row, show, write
from _runtime import RANK, placed
from gpu_omni import TINY
from omni import CHUNK, FIRST, graph_of
from torch.utils._python_dispatch import TorchDispatchMode

from walkgraph.engine.device.capture import Capturer, Work
from walkgraph.engine.engine import Engine
from walkgraph.graph import codec as graph_codec
from walkgraph.graph.document import Graph
from walkgraph.ids import RunId
from walkgraph.placement.itinerary import expand
from walkgraph.placement.request import fill_params, name_inputs, task_of
from walkgraph.placement.tables import Plan
from walkgraph.telemetry.emit import Buffered
from walkgraph.wire import codec, sockets
from walkgraph.wire import messages as m
from walkgraph.wire.watching import Level
from walkgraph.worker.core import Core
from walkgraph.worker.io.carrier import Carrier
from walkgraph.worker.io.links import Links
from walkgraph.worker.io.peers import on_this_host
from walkgraph.worker.io.values import pack
from walkgraph.worker.loop import WorkerLoop
from walkgraph.worker.plan_variants import Variants

RESULTS = ROOT / "benchmarks" / "results" / "spoken_host.json"
IDENTITY = b"0.1"
KV_BYTES = 64 << 20


class Operations(TorchDispatchMode):
    """Counts the calls of torch's operators."""

    def __init__(self) -> None:
        super().__init__()
        self.count = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.count += 1
        return func(*args, **(kwargs or {}))


OPERATIONS = Operations()


class Replays(Capturer):
    """Stands for recorded graphs. While it is `skipping`, each is run once more, and then replays nothing: what it
    gives stays the same."""

    def __init__(self, device: torch.device, *, beside: bool) -> None:
        super().__init__(device, enabled=False)
        # Steps beside loops are captured only where this is set. Those of loops would be timed, on a GPU.
        self.enabled, self.skipping = beside, False
        self.seconds, self.operations = 0.0, 0
        """CPU time and torch's operators of what was run."""
        self._known: set[int] = set()

    def __call__(self, work: Work, what: str, runs: int = 2) -> Work:
        work()
        return partial(self._replay, work)

    def skip(self, *, on: bool) -> None:
        self.skipping = on
        self._known.clear()

    def _replay(self, work: Work) -> None:
        if id(work) in self._known:
            return
        began, before = time.thread_time(), OPERATIONS.count
        work()
        self.seconds += time.thread_time() - began
        self.operations += OPERATIONS.count - before
        if self.skipping:
            self._known.add(id(work))


@dataclass
class Answered:
    """Bytes that have come for the clients so far."""

    audio: Counter[str] = field(default_factory=Counter[str])
    """Run -> pieces of sound."""
    tokens: Counter[str] = field(default_factory=Counter[str])
    done: set[str] = field(default_factory=set[str])

    @property
    def frames(self) -> int:
        return sum(FIRST + CHUNK * (pieces - 1) for pieces in self.audio.values())

    def take(self, message: m.FromWorker) -> None:
        match message:
            case m.Emit(run=run, name="audio"):
                self.audio[run] += 1
            case m.Emit(run=run, name="token"):
                self.tokens[run] += 1
            case m.RankDone(run=run):
                self.done.add(run)
            case m.RankFailed():
                raise RuntimeError(f"run {message.run}: {message.error}")
            case _:
                pass


class Served:
    """A worker in this process, and the conductor's end of its socket."""

    def __init__(self, graph: Graph, plan: Plan, folder: Path, level: Level) -> None:
        self._graph, self._plan = graph, plan
        self._replays: list[Replays] = []
        engine = Engine(plan, RANK, threads=1, capturer=self._capturer)
        core = Core(plan, RANK, Variants(plan, RANK))
        engine.load()
        for loop in core.loops():
            engine.prepare(loop)
        gc.collect()
        gc.freeze()
        self._context: sockets.Context = zmq.Context()
        self._desk = sockets.router(self._context, sockets.address(folder, "workers"))
        inbox = sockets.pull(self._context, sockets.address(folder, "rank"))
        dealer = sockets.dealer(self._context, sockets.address(folder, "workers"), IDENTITY)
        self._links = Links(RANK, 1, dealer, inbox, on_this_host(self._context), Carrier(RANK, {"shm": 1 << 16}))
        emitter = Buffered("omni", "rank 0", level, lambda packet: True)
        self._loop = WorkerLoop(RANK, core, engine, self._links, emitter)
        dealer.send(codec.encode(m.Pong(rank=RANK, number=0, at=0.0)))
        self._desk.recv_multipart()
        self._seconds = 0.0

    @property
    def seconds(self) -> float:
        """CPU time of the worker's turns, without replays."""
        return self._seconds - sum(one.seconds for one in self._replays)

    @property
    def operations(self) -> int:
        """Torch's operators in the turns that were counted, without those of replays."""
        return OPERATIONS.count - sum(one.operations for one in self._replays)

    def skip(self, *, on: bool) -> None:
        """Skip replays from now on, or make them again."""
        for one in self._replays:
            one.skip(on=on)

    def start(self, run: str, params: Mapping[str, Any]) -> None:
        declared = task_of(self._graph, "chat")
        filled, given = fill_params(declared, params), {"text": [f"What is {run}?"]}
        itinerary = expand(self._graph, self._plan, "chat", filled, given)
        inputs = {one.name: pack(one.value) for one in name_inputs(declared, given, ())}
        self._say(m.Start(run=RunId(run), itinerary=itinerary, params=dict(filled), inputs=inputs))

    def turn(self, answered: Answered, *, counting: bool = False, profile: cProfile.Profile | None = None) -> None:
        """Let the worker take a turn, and read what it says."""
        if profile is not None:
            profile.enable()
        began = time.thread_time()
        if counting:
            with OPERATIONS:
                self._loop.act()
        else:
            self._loop.act()
        self._seconds += time.thread_time() - began
        if profile is not None:
            profile.disable()
        while self._desk.poll(0):
            for message in codec.from_worker.decode_all(self._desk.recv_multipart()[-1]):
                answered.take(message)

    def end(self, runs: Sequence[str]) -> None:
        for run in runs:
            self._say(m.Cancel(run=RunId(run)))
        self.turn(Answered())

    def close(self) -> None:
        self._links.close()
        self._context.destroy(linger=0)

    def _capturer(self, device: torch.device, *, enabled: bool, priority: int) -> Capturer:
        self._replays.append(Replays(device, beside=priority == 0))
        return self._replays[-1]

    def _say(self, message: m.ToWorker) -> None:
        self._desk.send_multipart([IDENTITY, codec.encode(message)])


@dataclass
class Mark:
    """The use so far. The first is made when three quarters of the answers are heard: at random weights, some have no
    sound."""

    seconds: float
    operations: int
    frames: int
    tokens: int


def answered(served: Served, runs: Sequence[str], given: argparse.Namespace, *, counting: bool, profile: Any) -> Row:
    """Let the clients ask together; CPU microseconds, or operations, of a token and a frame."""
    found, marks = Answered(), list[Mark]()
    params = {"max_tokens": given.tokens, "max_frames": given.frames, "context": 512, "temperature": 1.0}
    for seed, run in enumerate(runs):
        served.start(run, {**params, "seed": seed})
    behind = given.tokens // CHUNK + 2
    while len(found.done) < len(runs):
        served.turn(found, counting=counting, profile=profile if len(marks) in (1, 2) else None)
        tokens = sum(found.tokens.values())
        pieces = sorted(found.audio[run] for run in runs)[len(runs) // 4]
        reached = pieces > 0, pieces > behind, any(run in found.audio for run in found.done)
        if len(marks) < len(reached) and reached[len(marks)]:
            served.skip(on=True)
            marks.append(Mark(served.seconds, served.operations, found.frames, tokens))
    served.end(runs)
    served.skip(on=False)
    if len(marks) < 3:
        raise RuntimeError(f"only {len(found.audio)} of {len(runs)} answers had sound; try another number of clients")
    first, read, last = marks

    def costs(of: str, scale: float) -> tuple[float, float]:
        both, speech = getattr(read, of) - getattr(first, of), getattr(last, of) - getattr(read, of)
        frame = speech / (last.frames - read.frames)
        return scale * (both - frame * (read.frames - first.frames)) / (read.tokens - first.tokens), scale * frame

    token, frame = costs("operations", 1.0) if counting else costs("seconds", 1e6)
    return {"token": token, "frame": frame}


def measured(served: Served, clients: int, given: argparse.Namespace, profile: Any) -> Row:
    def asked(number: int, **how: Any) -> Row:
        return answered(served, [f"{clients} {number} {client}" for client in range(clients)], given, **how)

    rows = [asked(number, counting=False, profile=profile) for number in range(given.rounds)]
    counted = asked(given.rounds, counting=True, profile=None) if given.operations else {}
    found: dict[str, Any] = {"clients": clients}
    for name in ("token", "frame"):
        found[f"us a {name}"] = min(row[name] for row in rows)
    found["us a second of speech"] = (
        12.5 * found["us a frame"] + found["us a token"] * given.tokens / given.frames * 12.5
    )
    return found | {f"operations a {name}": value for name, value in counted.items()}


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--clients", type=int, nargs="+", default=[1, 16, 32])
    arguments.add_argument("--tokens", type=int, default=100, help="tokens of an answer")
    arguments.add_argument("--frames", type=int, default=375, help="frames of its speech")
    arguments.add_argument("--rounds", type=int, default=3)
    arguments.add_argument("--level", default="summary", help="level of telemetry")
    arguments.add_argument("--operations", action="store_true", help="count torch's operators in one more round")
    arguments.add_argument("--profile", type=Path)
    arguments.add_argument("--out", type=Path, default=RESULTS)
    arguments.add_argument("--check", action="store_true", help="run the smallest sizes and write nothing")
    given = arguments.parse_args()
    if given.check:
        given.clients, given.tokens, given.frames, given.rounds = [2], 12, 55, 1
    document = graph_of(TINY, given.frames, fp8=False)
    # Random weights may end an answer at any token.
    del document["walks"]["decode"]["body"][0]["until"]
    graph = graph_codec.load(json.dumps(document).encode())
    profile = cProfile.Profile(time.thread_time) if given.profile else None
    with tempfile.TemporaryDirectory() as folder:
        served = Served(graph, placed(graph, "cpu", kv_bytes=KV_BYTES), Path(folder), given.level)
        try:
            rows = [measured(served, clients, given, profile) for clients in given.clients]
        finally:
            served.close()
    show("a worker's CPU time beside the computation", rows)
    if profile is not None:
        profile.dump_stats(given.profile)
    write(None if given.check else given.out, "cpu", {"level": given.level, "rows": rows})


if __name__ == "__main__":
    main()
