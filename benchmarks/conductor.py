"""Measures the processor time of a conductor over many ranks, at a steady number of runs a minute.

    python benchmarks/conductor.py [--hosts 8] [--ranks 8] [--pace 5000] [--seconds 60] [--out FILE]

The conductor is the real process. Ranks are stubs of this process: they load nothing, and answer a run's start after
`--takes` seconds, in which they emit `--outputs` values. Those of the first host are connected by `ipc`, others by TCP
with CURVE, as ranks on other hosts are. A graph has a replica on each host that is one rank, on each host that all its
ranks divide, or on each rank.
"""

import argparse
import asyncio
import heapq
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections import deque
from collections.abc import Iterator
from contextlib import closing, contextmanager
from itertools import count
from pathlib import Path
from typing import Any

import msgspec
import zmq
from _common import show, write

from walkgraph.components import catalogue
from walkgraph.conductor.client import DeploymentProcess
from walkgraph.graph import codec
from walkgraph.ids import Rank, RunId
from walkgraph.placement.compiler.assemble import assemble
from walkgraph.placement.compiler.assignment import Assignment
from walkgraph.placement.document import ALL, Group, Placement, RankDevice
from walkgraph.resources import bundled
from walkgraph.wire import codec as messages
from walkgraph.wire import messages as m
from walkgraph.wire import sockets
from walkgraph.wire.processes import forks
from walkgraph.wire.processes.host_network import HostNetwork, make_keys
from walkgraph.wire.spec import WORKERS_SOCKET, DeploymentSpec, Limits

TICKS = os.sysconf("SC_CLK_TCK")
QUESTION = "How many boats are on the river this evening, and where do they go?"
WORD = " word"


class StubRank:
    def __init__(self, rank: Rank, at: sockets.Socket, replica: bool) -> None:
        self.rank, self.socket = rank, at
        self.reader = sockets.Reader(at, messages.to_worker)
        self._first = replica
        """It is the first of its replica's ranks, which emits the outputs."""

    def say(self, message: m.FromWorker) -> None:
        self.socket.send(messages.encode(message))

    def heard(self, message: m.ToWorker, outputs: int, takes: float) -> Iterator[tuple[float, m.FromWorker]]:
        """Its answers, each with the seconds until it is sent."""
        match message:
            case m.Load():
                yield 0.0, m.Ready(rank=self.rank, seconds=0.0, number=message.number)
                yield 0.0, self._connected(message.peers)
            case m.Peers():
                yield 0.0, self._connected(message.peers)
            case m.Ping():
                yield 0.0, m.Pong(rank=self.rank, number=message.number, at=time.monotonic())
            case m.Start(run=run):
                for number in range(outputs if self._first else 0):
                    after = takes * (number + 1) / (outputs + 1)
                    yield after, m.Emit(rank=self.rank, run=run, name="reply", value=m.Small(value=WORD), iteration=())
                yield takes, m.RankDone(rank=self.rank, run=run, times=())
            case m.Cancel(run=run):
                yield 0.0, m.Released(rank=self.rank, run=run, pages_free=100, pages_total=100)
            case _:
                pass

    def _connected(self, peers: dict[Rank, m.Peer]) -> m.Connected:
        return m.Connected(rank=self.rank, peers={one: peer.start for one, peer in peers.items() if one != self.rank})


class Stubs:
    """All ranks, on a thread, and what a conductor takes for the server that starts them."""

    def __init__(self, folder: Path, network: HostNetwork, ranks: int, args: argparse.Namespace) -> None:
        self._path, self._directory, self._network, self._args = folder / "forks", folder / "d", network, args
        self._width = ranks
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._listener.bind(str(self._path))
        self._listener.listen()
        self._watched = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
        """Stands for the processes of the ranks; the conductor kills it at its end."""
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()

    async def running(self) -> Path:
        return self._path

    def close(self) -> None:
        self._stop.set()
        self._thread.join()
        self._listener.close()
        self._watched.kill()
        self._watched.communicate()

    def _serve(self) -> None:
        contexts = {False: sockets.context(None), True: sockets.context(None, self._network.keys)}
        stubs = dict[Any, StubRank]()
        conductor, _ = self._listener.accept()
        try:
            with conductor:
                self._answer(conductor, contexts, stubs)
        finally:
            for context in contexts.values():
                sockets.end(context)

    def _answer(
        self, conductor: socket.socket, contexts: dict[bool, sockets.Context], stubs: dict[Any, StubRank]
    ) -> None:
        """Answer what the conductor and its ranks are told, until the end of either. `stubs`: by their sockets, which
        end with their contexts."""
        numbers, later = count(), list[tuple[float, int, StubRank, m.FromWorker]]()
        poller = zmq.Poller()
        poller.register(conductor, zmq.POLLIN)
        while not self._stop.is_set():
            wait = 100.0 if not later else max(0.0, 1e3 * (later[0][0] - time.monotonic()))
            for ready, _ in poller.poll(min(100.0, wait)):
                if ready == conductor.fileno():
                    asked = forks.receive_order(conductor)
                    if asked is None:
                        return
                    if isinstance(asked[0], forks.Kill):
                        forks.send(conductor, forks.Exited(asked[0].rank, asked[0].start, -signal.SIGKILL))
                    elif isinstance(asked[0], forks.Fork):
                        made = self._fork(conductor, asked[0], asked[1], contexts)
                        stubs[made.socket] = made
                        poller.register(made.socket, zmq.POLLIN)
                    continue
                stub, now = stubs[ready], time.monotonic()
                for _, message in stub.reader.drain():
                    for after, answer in stub.heard(message, self._args.outputs, self._args.takes):
                        heapq.heappush(later, (now + after, next(numbers), stub, answer))
            while later and later[0][0] <= time.monotonic():
                _, _, stub, answer = heapq.heappop(later)
                stub.say(answer)

    def _fork(
        self, conductor: socket.socket, order: forks.Fork, files: list[int], contexts: dict[bool, sockets.Context]
    ) -> StubRank:
        for file in files:
            os.close(file)
        rank = Rank(order.rank)
        at = sockets.address(self._directory, WORKERS_SOCKET)
        if order.ports is not None:
            at = self._network.endpoint("", order.ports.workers)
        # The conductor of ranks on its own host watches their processes.
        file = os.pidfd_open(self._watched.pid)
        forks.send(
            conductor, forks.Forked(order.rank, order.start, self._watched.pid), *([] if order.ports else [file])
        )
        os.close(file)
        identity = f"{order.rank}.{order.start}".encode()
        stub = StubRank(rank, sockets.dealer(contexts[order.ports is not None], at, identity), rank % self._width == 0)
        stub.say(m.Hello(rank=rank, peer=m.Peer(address="", start=order.start)))
        return stub


def placed(hosts: int, ranks: int, width: int) -> Placement:
    """`width`: ranks that divide a replica."""
    numbers = tuple(range(hosts * ranks))
    group = Group(nodes=(ALL,), ranks=numbers, replicas=len(numbers) // width, tensor_parallel=width)
    return Placement(
        name="paced", groups=(group,), ranks=tuple(RankDevice(rank=rank, device="cpu") for rank in numbers)
    )


def seconds_of(pid: int) -> float:
    """Processor seconds of a process."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


class Client:
    """Submits runs at a steady pace."""

    def __init__(self) -> None:
        self.ready, self.idle = asyncio.Event(), asyncio.Event()
        self.begun: dict[str, float] = {}
        self.took = deque[float]()
        self.outputs = 0

    def take(self, message: m.FromConductor) -> None:
        match message:
            case m.Status(state="ready"):
                self.ready.set()
            case m.Finished(run=run, error=None):
                self.took.append(time.monotonic() - self.begun.pop(run))
                if not self.begun:
                    self.idle.set()
            case m.Output():
                self.outputs += 1
            case m.Rejected() | m.Finished():
                raise SystemExit(f"{message}")
            case _:
                pass

    async def submit(self, process: DeploymentProcess, pace: float, seconds: float, numbers: Iterator[int]) -> None:
        began = time.monotonic()
        for place in range(int(seconds * pace / 60)):
            await asyncio.sleep(max(0.0, began + 60 * place / pace - time.monotonic()))
            run = RunId(f"run{next(numbers)}")
            self.begun[run] = time.monotonic()
            self.idle.clear()
            turn = m.Turn(role="user", parts=(m.Part(modality="text", value=m.Small(value=f"{run}: {QUESTION}")),))
            inputs: dict[str, tuple[m.Value, ...]] = {"messages": (m.Conversation(turns=(turn,)),)}
            process.send(m.Submit(run=run, task="chat", params={"max_tokens": 64}, inputs=inputs))


@contextmanager
def stubs(network: HostNetwork, width: int, args: argparse.Namespace) -> Iterator[tuple[Path, Stubs]]:
    with (
        tempfile.TemporaryDirectory(prefix="wg") as folder,
        closing(Stubs(Path(folder), network, width, args)) as made,
    ):
        yield Path(folder) / "d", made


async def measured(width: int, args: argparse.Namespace) -> dict[str, Any]:
    graph = codec.load(bundled("graphs")["llm"].read_bytes())
    plan = assemble(Assignment(graph, placed(args.hosts, args.ranks, width)), catalogue())
    names = ["", *(f"host{number}" for number in range(1, args.hosts))]
    ranks = tuple(msgspec.structs.replace(one, host=names[one.rank // args.ranks]) for one in plan.ranks)
    network = HostNetwork({name: f"127.0.0.{1 + place}" for place, name in enumerate(names)}, make_keys())
    spec = DeploymentSpec(
        name="paced",
        graph=codec.dump(graph),
        plan=msgspec.structs.replace(plan, ranks=ranks),
        network=network if args.hosts > 1 else None,
        limits=Limits(queue=100_000),
    )
    client, numbers = Client(), count()
    with stubs(network, width, args) as (directory, servers):
        process = await DeploymentProcess.start(servers, directory, spec, client.take, lambda code: None)
        try:
            await client.ready.wait()
            await client.submit(process, args.pace, min(5.0, args.seconds), numbers)
            begun, before, runs = time.monotonic(), seconds_of(process.pid), len(client.took)
            await client.submit(process, args.pace, args.seconds, numbers)
            took, used, runs = time.monotonic() - begun, seconds_of(process.pid) - before, len(client.took) - runs
            await client.idle.wait()
        finally:
            await process.stop(0)
    return {
        "hosts": args.hosts,
        "ranks": args.hosts * args.ranks,
        "ranks of a run": width,
        "outputs of a run": args.outputs,
        "runs a minute": 60 * runs / took,
        "share of a core": used / took,
        "us a run": 1e6 * used / runs,
        "median s": sorted(client.took)[len(client.took) // 2],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--hosts", type=int, default=8)
    parser.add_argument("--ranks", type=int, default=8, help="of each host")
    parser.add_argument("--pace", type=float, default=5000.0, help="runs a minute")
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--takes", type=float, default=0.5, help="seconds of a run on its ranks")
    parser.add_argument("--outputs", type=int, nargs="+", default=[1, 20], help="of a run")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--check", action="store_true", help="a few runs, and nothing is written")
    args = parser.parse_args()
    if args.check:
        args.hosts, args.ranks, args.seconds, args.takes, args.outputs = 2, 2, 1.0, 0.1, [1]
    rows = [
        asyncio.run(measured(width, argparse.Namespace(**{**vars(args), "outputs": outputs})))
        for width in ((args.ranks,) if args.check else (1, args.ranks))
        for outputs in args.outputs
    ]
    show("conductor", rows)
    if not args.check:
        write(args.out, "cpu", {"conductor": rows})


if __name__ == "__main__":
    main()
