"""How fast tensors and flags go from one process to another, on one host with two GPUs (or on one GPU).

    python benchmarks/gpu_ipc.py --out ipc.json [--devices cuda:0 cuda:1] [--budget 80]

Three ways: tickets by CUDA's IPC, the bytes' way between GPUs; tickets by shared memory, from GPU to host to GPU; and
flags in peer memory within captured graphs, where a round trip is a value sent, waited for, sent back and waited for.
A ticket's time is from `put` to the `Freed` that comes back, through a pipe, with nothing else on either device.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import sys
import time
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "backend"))

from _common import Budget, show, spread, write

from walkgraph.ids import Rank, RunId
from walkgraph.layers.peer import FLAG_BYTES, Halt, PeerBuffer, send, wait
from walkgraph.memory.cuda import CudaMemory
from walkgraph.transports import cuda_ipc, shm
from walkgraph.wire import codec
from walkgraph.wire import messages as m

KIB, MIB = 1 << 10, 1 << 20
SIZES = (KIB, 16 * KIB, 256 * KIB, MIB, 4 * MIB, 16 * MIB, 64 * MIB, 256 * MIB)
FLAG_SIZES = (4, KIB, 64 * KIB, MIB, 8 * MIB, 64 * MIB)
ARENA = 1100 * MIB
TURNS = 10
"""Round trips in a graph."""
HERE, THERE = Rank(0), Rank(1)


class Side:
    """One process: transports, and memory that the other writes."""

    def __init__(self, device: str, rank: Rank) -> None:
        torch.cuda.set_device(device)
        self.device = torch.device(device)
        self.rank, self._memory = rank, CudaMemory(self.device)
        arena = ARENA if rank == HERE else 0
        self.ways: dict[str, Any] = {
            "cuda_ipc": cuda_ipc.Transport(rank, arena, self._memory),
            "shm": shm.Transport(rank, arena or MIB),
        }
        self._own = PeerBuffer(self._memory, FLAG_BYTES + FLAG_SIZES[-1])
        self._halt = Halt(self.device)
        self._count = torch.zeros(1, dtype=torch.int64, device=self.device)

    def told(self) -> tuple[m.Peer, bytes]:
        host: shm.Transport = self.ways["shm"]
        peer = m.Peer(
            address="",
            start=0,
            pid=os.getpid(),
            arena_fd=host.fd,
            arena_bytes=ARENA,
            arena_token=host.token,
            device=self.ways["cuda_ipc"].told(),
        )
        return peer, self._own.handle

    def meet(self, peer: m.Peer, handle: bytes) -> None:
        self._theirs = PeerBuffer(self._memory, self._own.raw.nbytes, handle)
        if self.rank == THERE:
            for way in self.ways.values():
                way.connect(HERE, peer)

    def receive(self, way: str, count: int, pipe: Any) -> None:
        """Take so many tensors to this device, telling of each once it is there."""
        transport, under_way = self.ways[way], deque[m.Ticket]()
        while count or under_way:
            while count and (not under_way or pipe.poll(0)):
                told: Any = codec.between_workers.decode(pipe.recv_bytes())
                count -= 1
                got = transport.get(told.value)
                if got.device != self.device:
                    got.to(self.device)
                under_way.append(told.value)
            if transport.taken(under_way[0]):
                pipe.send_bytes(codec.encode(m.Freed(ticket=under_way.popleft().id)))

    def graph(self, nbytes: int) -> None:
        """Capture `TURNS` round trips of so many bytes; the other must not have begun to play."""
        words = nbytes // 4
        inbox, there = (one.tensor(FLAG_BYTES, (words,), torch.float32) for one in (self._own, self._theirs))
        flag, flag_there, value = self._own.flag(0), self._theirs.flag(0), torch.zeros_like(inbox)

        def turns() -> None:
            for _ in range(TURNS):
                self._count.add_(1)
                if self.rank == HERE:
                    send(value, there, flag_there, self._count, self._halt)
                wait(flag, self._count, self._halt)
                if self.rank == THERE:
                    send(inbox, there, flag_there, self._count, self._halt)

        self._halt.set()
        before = self._count.clone()
        turns()
        torch.cuda.synchronize()
        self._graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self._graph):
            turns()
        torch.cuda.synchronize()
        self._count.copy_(before)
        torch.cuda.synchronize()
        self._halt.clear()

    def play(self, replays: int) -> None:
        for _ in range(replays):
            self._graph.replay()
        torch.cuda.synchronize()
        if self._halt.given_up.item():
            raise RuntimeError("a wait gave up")


def other(device: str, pipe: Any) -> None:
    side = Side(device, THERE)
    while (order := pipe.recv()) is not None:
        name, arguments = order
        if name == "receive":
            way, count = arguments
            side.receive(way, count, pipe)
            continue
        pipe.send(getattr(side, name)(*arguments))


def tickets(side: Side, pipe: Any, way: str, nbytes: int, window: int, count: int) -> list[float]:
    """Seconds of each of `count` tensors, `window` of them under way at a time; or of all together, where several."""
    transport, value = side.ways[way], torch.ones(nbytes, dtype=torch.uint8, device=side.device)
    torch.cuda.synchronize()
    pipe.send(("receive", (way, count)))
    began, each, packed, out, left = time.perf_counter(), list[float](), deque[m.Ticket](), deque[float](), count
    while left or packed or out:
        if left and len(packed) + len(out) < window and (ticket := transport.put(value, THERE)) is not None:
            packed.append(ticket)
            left -= 1
        if packed and transport.there(packed[0].id):
            message = m.Deliver(run=RunId(""), step=0, edge=0, key=(), value=packed.popleft())
            pipe.send_bytes(codec.encode(message))
            out.append(began if window == 1 else 0.0)
        if out and pipe.poll(0):
            freed: Any = codec.between_workers.decode(pipe.recv_bytes())
            transport.free(freed.ticket, THERE)
            out.popleft()
            now = time.perf_counter()
            each.append(now - began)
            began = now if window == 1 else began
    return each if window == 1 else [each[-1] / count]


def transports(side: Side, pipe: Any, budget: Budget) -> Iterator[dict[str, Any]]:
    for nbytes in SIZES:
        row: dict[str, Any] = {"KiB": nbytes // KIB}
        for way in side.ways:
            if not budget.allows(f"{way} of {nbytes} bytes"):
                continue
            count = max(4, min(200, (512 if way == "cuda_ipc" else 128) * MIB // nbytes))
            tickets(side, pipe, way, nbytes, 4, 4)  # touch the arena
            alone = spread(tickets(side, pipe, way, nbytes, 1, count), 1e6)["median"]
            together = tickets(side, pipe, way, nbytes, 4, count)[0]
            row |= {f"{way} alone us": alone, f"{way} four GB/s": nbytes / together / 1e9}
        yield row


def flags(side: Side, pipe: Any, budget: Budget, *, apart: bool) -> Iterator[dict[str, Any]]:
    # Processes on one GPU take turns by slices of milliseconds.
    replays = 20 if apart else 1
    for nbytes in FLAG_SIZES:
        if not budget.allows(f"flags with {nbytes} bytes"):
            continue
        side.graph(nbytes)
        pipe.send(("graph", (nbytes,)))
        pipe.recv()
        each = []
        for _ in range(5):
            pipe.send(("play", (replays,)))
            began = time.perf_counter()
            side.play(replays)
            each.append((time.perf_counter() - began) / replays / TURNS)
            pipe.recv()
        # Launching and waiting is shared by all turns of a play.
        trip = min(each)
        yield {"bytes": nbytes, "round trip us": 1e6 * trip, "one way GB/s": 2 * nbytes / trip / 1e9}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--devices", nargs=2, default=None, help="of the two processes; default: the first two GPUs")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--budget", type=float, default=80.0, help="seconds")
    given = parser.parse_args()
    budget = Budget(given.budget)
    here, there = given.devices or ("cuda:0", f"cuda:{min(1, torch.cuda.device_count() - 1)}")
    context = multiprocessing.get_context("spawn")
    pipe, end = context.Pipe()
    process = context.Process(target=other, args=(there, end), daemon=True)
    process.start()
    side = Side(here, HERE)
    pipe.send(("told", ()))
    side.meet(*pipe.recv())
    pipe.send(("meet", side.told()))
    pipe.recv()
    report: dict[str, Any] = {"devices": [here, there]}
    report["flags"] = list(flags(side, pipe, budget, apart=here != there))
    show(f"flags in peer memory, captured: {here} and {there}", report["flags"])
    report["transports"] = list(transports(side, pipe, budget))
    show(f"tickets, from {here} to {there}", report["transports"])
    report["left_out"] = budget.left_out
    write(given.out, here, report)
    pipe.send(None)
    process.join(10)


if __name__ == "__main__":
    main()
