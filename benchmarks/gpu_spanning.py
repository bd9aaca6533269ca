"""Measures a denoising loop with one branch on a second GPU, by the engines alone: two processes, no server.

    python benchmarks/gpu_spanning.py --out spanning.json [--devices cuda:0 cuda:1] [--tiny] [--side 64] [--times 20]

The same latents are denoised by one GPU (both branches in one batch), and by two, whose graphs exchange values. Both
results are compared. `a branch` is the loop without guidance, the minimum for each of two GPUs, so the additional time
of `two` is the cost of synchronization. Then several runs take turns, one is stopped in the middle, and everything that
it held must be free. `--tiny` uses a BAGEL with short iterations that are not captured, for lack of a kernel: it only
tests that everything works. So does `--devices cuda:0 cuda:0`, where two processes take turns.
"""

from __future__ import annotations

import argparse
import multiprocessing
import sys
import time
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any
from zlib import crc32

import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "backend"))
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from _common import show, write
from _runtime import bundled_graph
from msgspec import structs

from tests.support.loop_calls import LoopInput, WrittenSend, WrittenUse, written
from walkgraph.abi.calls import Call, StateKey
from walkgraph.components import catalogue
from walkgraph.engine.engine import Engine
from walkgraph.engine.loops.loop_peers import LoopPeers, PeerMemory
from walkgraph.engine.loops.loop_runs import LoopDone
from walkgraph.engine.loops.spec import Channel, LoopCall, LoopOutput
from walkgraph.ids import Rank
from walkgraph.memory.cuda import CudaMemory
from walkgraph.placement.compiler.assemble import assemble
from walkgraph.placement.compiler.assignment import Assignment
from walkgraph.placement.document import Group, Placement, RankDevice
from walkgraph.placement.tables import Plan
from walkgraph.wire import codec
from walkgraph.wire import messages as m
from walkgraph.worker.io.carrier import Carrier
from walkgraph.worker.loops.parts import Parts

MIB = 1 << 20
ROOMS, ARENA = 64 * MIB, 96 * MIB
THERE, BACK = 1, 2
"""Channels: latents to the branch, its velocity back."""
PATIENCE = 240.0


class Member:
    """One process: the engine of a rank, and mail to the other by a pipe."""

    def __init__(self, rank: int, devices: list[str], tiny: bool, pipe: Connection) -> None:
        torch.cuda.set_device(devices[rank])
        self.rank, self.device, self._pipe, self._tiny = Rank(rank), torch.device(devices[rank]), pipe, tiny
        self._carrier = Carrier(self.rank, {"shm": MIB, "cuda_ipc": ARENA}, CudaMemory(self.device))
        self.engine = Engine(planned(devices, tiny), self.rank)
        self.engine.load()
        self.parts = Parts(self.engine.loops, self, self._carrier)  # type: ignore[arg-type]
        room = self._carrier.reserve(ROOMS)
        assert room is not None, "the device shares no memory"
        self.engine.connect_peers(PeerMemory(*room), self.parts)
        self.done: dict[str, LoopDone] = {}

    def told(self) -> m.Peer:
        return self._carrier.peer("", 1)

    def meet(self, peer: m.Peer) -> None:
        self._carrier.connect(Rank(1 - self.rank), peer)

    def urge(self, to: Rank, message: m.BetweenParts) -> None:
        self._pipe.send_bytes(codec.encode(message))

    # ── what it is asked ──

    def fill(self, node: str, key: tuple[str, str], tokens: int) -> None:
        """A context of random tokens."""
        ids = torch.randint(0, 200, (tokens,), generator=torch.Generator().manual_seed(tokens))
        params = {"temperature": 0.0, "top_p": 1.0, "top_k": 0, "time": 0.0, "seed": 0}
        self.engine.add(Call(key[0], node, "w", 0, 0, (), {"ids": ids}, params, {"kv": StateKey(*key)}, 0))
        while not self.engine.idle:
            for event in self.engine.step():
                assert getattr(event, "error", None) is None, event

    def add(self, run: str, kind: str, side: int, times: int) -> None:
        self.engine.add_loop(looped(run, kind, side, times, 16 if self._tiny else 64))

    def drop(self, run: str) -> None:
        self.engine.drop(run)

    def result(self, run: str) -> list[float] | None:
        """Once the loop is over."""
        if run not in self.done:
            return None
        done = self.done.pop(run)
        assert done.error is None, done.error
        return [] if not done.outputs else done.outputs["x"].float().flatten().tolist()

    def launched(self, run: str) -> int:
        """Iterations of a run that is in a slot."""
        return max((one.launched for one in self.engine.loops.groups.runs() if one.call.run == run), default=0)

    def quiet(self) -> bool:
        peers = self.engine.loops.admission.peers
        return self.engine.idle and not (isinstance(peers, LoopPeers) and peers.parts.all)

    def audit(self) -> None:
        self.engine.states.audit()

    # ── a life ──

    def live(self, control: Connection) -> None:
        quiet = True
        while True:
            idle = self.engine.idle
            ready = wait([control, self._pipe], timeout=None if idle else 0.001 if quiet else 0)
            while self._pipe.poll(0):
                message = codec.between_workers.decode(self._pipe.recv_bytes())
                self.parts.take(Rank(1 - self.rank), message)  # type: ignore[arg-type]
            if control in ready:
                name, arguments = control.recv()
                if name == "end":
                    return
                control.send(getattr(self, name)(*arguments))
            quiet = True
            if not self.engine.idle:
                for event in self.engine.step():
                    quiet = False
                    if isinstance(event, LoopDone):
                        self.done[event.call.run] = event


def _live(rank: int, devices: list[str], tiny: bool, pipe: Connection, control: Connection) -> None:
    Member(rank, devices, tiny, pipe).live(control)


def planned(devices: list[str], tiny: bool) -> Plan:
    graph = bundled_graph("bagel", {"bagel": f"random:{'bagel-tiny' if tiny else 'bagel-7b-mot'}:0"})
    groups = (Group(nodes=("*",), ranks=(0,)), Group(nodes=("llm_cfg_text",), ranks=(1,)))
    ranks = tuple(RankDevice(rank=rank, device=device) for rank, device in enumerate(devices))
    plan = assemble(Assignment(graph, Placement(name="two", groups=groups, ranks=ranks)), catalogue())
    keep = {index for index, node in enumerate(plan.nodes) if node.name in ("llm", "llm_cfg_text", "combine_cfg")}
    kept = [structs.replace(r, nodes=tuple(n for n in r.nodes if n in keep), kv_bytes=2048 * MIB) for r in plan.ranks]
    return structs.replace(plan, ranks=tuple(kept))


def looped(run: str, kind: str, side: int, times: int, channels: int) -> LoopCall:
    """`one`: both branches on one GPU; `alone`: without guidance; `leads` and `follows`: the parts."""
    x = torch.randn(side, side, channels, generator=torch.Generator().manual_seed(crc32(run.encode())))
    at = [1.0 - k / times for k in range(times + 1)]
    pace = {"time": tuple(at[:-1])}
    steps = {"time": tuple(at[:-1]), "next_time": tuple(at[1:])}
    scales = {"text_scale": 4.0, "img_scale": 1.0, "renorm": "global", "renorm_min": 0.0}
    last = {"one": 2, "alone": 1, "leads": 1, "follows": 0}[kind]
    latents = LoopInput("latents", "value", x, carried=(last, "latents"))
    if kind == "follows":
        port = LoopInput("latents", "value", x, channel=Channel(THERE, Rank(0)))
        use = WrittenUse("llm_cfg_text", (port,), {}, pace, {"kv": StateKey(run, "cfg_text")}, 0)
        back = WrittenSend(0, "velocity", Channel(BACK, Rank(0)), None)
        return written(run, "w", 0, 0, "denoise", (), (use,), times, None, (), sends=(back,), leads=False)
    uses = [WrittenUse("llm", (latents,), {}, pace, {"kv": StateKey(run, "main")}, 0)]
    fed = [latents, LoopInput("velocity", "use", use=0, output="velocity")]
    sends: tuple[WrittenSend, ...] = ()
    if kind == "one":
        uses.append(WrittenUse("llm", (latents,), {}, pace, {"kv": StateKey(f"{run} text", "main")}, 0))
        fed.append(LoopInput("velocity_text", "use", use=1, output="velocity"))
    elif kind == "leads":
        fed.append(LoopInput("velocity_text", "channel", channel=Channel(BACK, Rank(1))))
        sends = (WrittenSend(1, "latents", Channel(THERE, Rank(1)), None),)
    uses.append(WrittenUse("combine_cfg", tuple(fed), scales, steps, {}, 0))
    outputs = (LoopOutput("x", last, "latents", "last"),)
    return written(run, "w", 0, 0, "denoise", (), tuple(uses), times, None, outputs, sends=sends)


class Two:
    """Both processes, as the script drives them."""

    def __init__(self, devices: list[str], tiny: bool) -> None:
        context = multiprocessing.get_context("spawn")
        ends = context.Pipe()
        self._controls: list[Connection] = []
        self._processes = []
        for rank in (0, 1):
            mine, theirs = context.Pipe()
            process = context.Process(target=_live, args=(rank, devices, tiny, ends[rank], theirs), daemon=True)
            process.start()
            self._controls.append(mine)
            self._processes.append(process)
        told = [self.ask(rank, "told") for rank in (0, 1)]
        for rank in (0, 1):
            self.ask(rank, "meet", told[1 - rank])

    def ask(self, rank: int, name: str, *arguments: Any) -> Any:
        self._controls[rank].send((name, arguments))
        assert self._controls[rank].poll(PATIENCE), f"rank {rank} doesn't answer to `{name}`"
        return self._controls[rank].recv()

    def filled(self, run: str) -> None:
        self.ask(0, "fill", "llm", (run, "main"), 40)
        self.ask(0, "fill", "llm", (f"{run} text", "main"), 23)
        self.ask(1, "fill", "llm_cfg_text", (run, "cfg_text"), 23)

    def begin(self, run: str, kind: str, side: int, times: int) -> None:
        if kind == "two":
            self.ask(1, "add", run, "follows", side, times)
        self.ask(0, "add", run, "leads" if kind == "two" else kind, side, times)

    def wait(self, run: str) -> list[float]:
        until = time.monotonic() + PATIENCE
        while time.monotonic() < until:
            if (found := self.ask(0, "result", run)) is not None:
                return found
        raise TimeoutError(f"`{run}` doesn't end")

    def quiet(self) -> None:
        until = time.monotonic() + PATIENCE
        while not (self.ask(0, "quiet") and self.ask(1, "quiet")):
            assert time.monotonic() < until, "something is held"

    def timed(self, run: str, kind: str, side: int, times: int) -> tuple[float, list[float]]:
        """Seconds of an iteration, from two runs of different lengths, and what the longer one gave."""
        seconds: list[float] = []
        found: list[float] = []
        # The first of each length makes its graphs.
        for count in (times // 2, times) * 2:
            self.quiet()
            began = time.perf_counter()
            self.begin(run, kind, side, count)
            found = self.wait(run)
            seconds.append(time.perf_counter() - began)
            for rank in (0, 1):
                self.ask(rank, "audit")
        return (seconds[3] - seconds[2]) / (times - times // 2), found

    def end(self) -> None:
        for control in self._controls:
            control.send(("end", ()))
        for process in self._processes:
            process.join(20)
            process.kill()


def main() -> None:
    given = options()
    two = Two(given.devices, given.tiny)
    side = given.side or (8 if given.tiny else 64)
    try:
        rows, answers = [], dict[str, list[float]]()
        two.filled("a")
        for kind in ("alone", "one", "two"):
            seconds, answers[kind] = two.timed("a", kind, side, given.times)
            rows.append({"by": {"alone": "a branch", "one": "one GPU", "two": "two GPUs"}[kind], "ms": 1e3 * seconds})
        apart = max(abs(a - b) for a, b in zip(answers["one"], answers["two"], strict=True))
        largest = max(map(abs, answers["one"]))
        price = 1e3 * (rows[2]["ms"] - rows[0]["ms"])
        show(f"an iteration of {side} by {side} latents", rows)
        print(
            f"keeping step: {price:.1f} us an iteration; "
            f"answers differ by {apart:.3g}, the largest number is {largest:.3g}"
        )
        assert apart <= 0.05 * largest, "the answers differ by more than rounding"
        turns = in_turn(two, side, given.times)
        stopped = stopped_in_the_middle(two, side, given.times)
        print(f"three runs in turn: {turns:.3f} s; a stopped one is gone after {1e3 * stopped:.1f} ms")
        report = {"iterations": rows, "price us": price, "apart": apart, "in turn s": turns, "stopped s": stopped}
        write(given.out, given.devices[0], report | {"tiny": given.tiny, "side": side})
    finally:
        two.end()


def in_turn(two: Two, side: int, times: int) -> float:
    """Seconds of three runs at once; each gives what it gives alone."""
    runs = ("b", "c", "d")
    for run in runs:
        two.filled(run)
    alone = {run: two.timed(run, "two", side, times)[1] for run in runs}
    two.quiet()
    began = time.perf_counter()
    for run in runs:
        two.begin(run, "two", side, times)
    found = {run: two.wait(run) for run in runs}
    seconds = time.perf_counter() - began
    assert found == alone, "a run beside others gave something else"
    return seconds


def stopped_in_the_middle(two: Two, side: int, times: int) -> float:
    """Seconds until nothing of a run is left on either rank; the next run is as it was."""
    _, before = two.timed("b", "two", side, times)
    two.filled("e")
    two.begin("e", "two", side, 100 * times)
    two.begin("b", "two", side, times)
    until = time.monotonic() + PATIENCE
    while two.ask(0, "launched", "e") < 3:
        assert time.monotonic() < until, "a run doesn't begin"
    began = time.perf_counter()
    for rank in (1, 0):
        two.ask(rank, "drop", "e")
    stopped = time.perf_counter() - began
    assert two.wait("b") == before
    two.quiet()
    return stopped


def options() -> argparse.Namespace:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--devices", nargs=2, default=["cuda:0", "cuda:1"])
    arguments.add_argument("--tiny", action="store_true")
    arguments.add_argument("--side", type=int, help="side of the latents; 64 is 1024 pixels")
    arguments.add_argument("--times", type=int, default=20)
    arguments.add_argument("--out", type=Path)
    return arguments.parse_args()


if __name__ == "__main__":
    main()
