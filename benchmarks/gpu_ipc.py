"""Measures how fast tensors are sent from one process to another, on one host with two GPUs (or on one GPU).

    python benchmarks/gpu_ipc.py --out gpu_ipc.json [--devices cuda:0 cuda:1] [--budget 80]

It compares two transports: CUDA IPC, where bytes go between GPUs, and shared memory, from GPU to host to GPU. The time
of a ticket is from `put` to the returned `Freed`, through a pipe, with both devices otherwise idle.
"""

from __future__ import annotations

import argparse
import multiprocessing
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
from walkgraph.memory.cuda import CudaMemory
from walkgraph.transports import cuda_ipc, shm
from walkgraph.wire import codec
from walkgraph.wire import messages as m

KIB, MIB = 1 << 10, 1 << 20
SIZES = (KIB, 16 * KIB, 256 * KIB, MIB, 4 * MIB, 16 * MIB, 64 * MIB, 256 * MIB)
ARENA = 1100 * MIB
HERE, THERE = Rank(0), Rank(1)


class Side:
    """One process and its transports."""

    def __init__(self, device: str, rank: Rank) -> None:
        torch.cuda.set_device(device)
        self.device = torch.device(device)
        self.rank = rank
        arena = ARENA if rank == HERE else 0
        self.transports: dict[str, Any] = {
            "cuda_ipc": cuda_ipc.Transport(rank, arena, CudaMemory(self.device)),
            "shm": shm.Transport(rank, arena or MIB),
        }

    def handles(self) -> dict[str, bytes]:
        return {name: transport.handle() for name, transport in self.transports.items()}

    def connect(self, handles: dict[str, bytes]) -> None:
        for name, handle in handles.items():
            self.transports[name].connect(HERE, handle)

    def receive(self, way: str, count: int, pipe: Any) -> None:
        """Take so many tensors to this device, telling of each once it is there."""
        transport, under_way = self.transports[way], deque[m.Ticket]()
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
    transport, value = side.transports[way], torch.ones(nbytes, dtype=torch.uint8, device=side.device)
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
        for way in side.transports:
            if not budget.allows(f"{way} of {nbytes} bytes"):
                continue
            count = max(4, min(200, (512 if way == "cuda_ipc" else 128) * MIB // nbytes))
            tickets(side, pipe, way, nbytes, 4, 4)  # touch the arena
            alone = spread(tickets(side, pipe, way, nbytes, 1, count), 1e6)["median"]
            together = tickets(side, pipe, way, nbytes, 4, count)[0]
            row |= {f"{way} alone us": alone, f"{way} four GB/s": nbytes / together / 1e9}
        yield row


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--devices", nargs=2, default=None, help="devices of the two processes; default: the first two GPUs"
    )
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
    pipe.send(("connect", (side.handles(),)))
    pipe.recv()
    report: dict[str, Any] = {"devices": [here, there], "transports": list(transports(side, pipe, budget))}
    show(f"tickets, from {here} to {there}", report["transports"])
    report["left_out"] = budget.left_out
    write(given.out, here, report)
    pipe.send(None)
    process.join(10)


if __name__ == "__main__":
    main()
