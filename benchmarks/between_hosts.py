"""Measures how fast tensors are sent between two processes by NIXL, beside a bare copy by the same library.

    UCX_TLS=tcp,self python benchmarks/between_hosts.py --out between_hosts.json [--rounds 9]

The bare copy reads registered memory into registered memory by a request that is made once. An edge puts a tensor into
the sender's arena, sends its ticket through a pipe, reads it into memory of its own and sends the `Freed` back. Rounds
of all kinds alternate, as the machine may do other work; rates are those of the quickest rounds, processor times (of
both processes) those of all rounds together.
"""

import argparse
import multiprocessing
import sys
import time
from collections import deque
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "backend"))

from _common import show, write
from _other_host import HERE, THERE, BareAgent, cpu, serve

from walkgraph.transports.nixl import Transport
from walkgraph.wire import codec
from walkgraph.wire import messages as m

MIB = 1 << 20
SIZES = (MIB // 16, MIB, 16 * MIB)
PAUSE = 1e-4


class Reader:
    def __init__(self, room: int, pipe: Any) -> None:
        self._transport, self._bare, self._pipe = Transport(HERE, MIB), BareAgent("bare reader", room), pipe
        handle, description, self._address = pipe.recv()
        self._transport.connect(THERE, handle)
        self._peer = self._bare.agent.loadRemoteMD(description).decode()

    def bare(self, nbytes: int, count: int) -> float:
        """Bytes a second of copies, one after the other."""
        agent, request = self._bare.agent, self._bare.request(self._peer, self._address, nbytes)
        began = time.perf_counter()
        for _ in range(count):
            state = agent.postXferReq(request, b"")
            while state == self._bare.nixl.NIXL_IN_PROG:
                time.sleep(PAUSE)
                state = agent.getXferStatus(request)
        took = time.perf_counter() - began
        agent.releaseXferReq(request)
        return nbytes * count / took

    def edge(self, nbytes: int, count: int, window: int) -> float:
        """Bytes a second of tensors."""
        self._pipe.send((nbytes, window, count))
        left, coming, began = count, deque[m.Ticket](), time.perf_counter()
        while left:
            if self._pipe.poll(self._transport.check_after if coming else None):
                message: Any = codec.between_workers.decode(self._pipe.recv_bytes())
                coming.append(message.value)
            for _ in range(len(coming)):
                ticket = coming.popleft()
                if self._transport.get(ticket) is None:
                    coming.append(ticket)
                    continue
                self._pipe.send_bytes(codec.encode(m.Freed(ticket=ticket.id)))
                left -= 1
        took = time.perf_counter() - began
        self._pipe.recv()
        return nbytes * count / took

    def used(self) -> float:
        """Processor time of both processes."""
        self._pipe.send((0, 1, 0))
        return self._pipe.recv() + cpu()


def row(reader: Reader, nbytes: int, count: int, rounds: int) -> dict[str, Any]:
    kinds: dict[str, Callable[[], float]] = {
        "bare": partial(reader.bare, nbytes, count),
        "edge": partial(reader.edge, nbytes, count, 1),
        "four": partial(reader.edge, nbytes, count, 4),
    }
    rates, used = dict.fromkeys(kinds, 0.0), dict.fromkeys(kinds, 0.0)
    for turn in range(rounds + 1):
        for name, run in kinds.items():
            before = reader.used()
            rate = run()
            if turn:  # The first one touches the memory.
                rates[name] = max(rates[name], rate)
                used[name] += reader.used() - before
    found: dict[str, Any] = {"KiB": nbytes // 1024}
    found |= {f"{name} GB/s": rate / 1e9 for name, rate in rates.items()}
    found |= {f"{name} of bare": rates[name] / rates["bare"] for name in ("edge", "four")}
    return found | {f"{name} CPU ms": 1e3 * spent / (rounds * count) for name, spent in used.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--check", action="store_true", help="the smallest size, and nothing is written")
    given = parser.parse_args()
    sizes, rounds = ((SIZES[0],), 1) if given.check else (SIZES, given.rounds)
    room = 6 * sizes[-1]
    context = multiprocessing.get_context("spawn")
    pipe, end = context.Pipe()
    process = context.Process(target=serve, args=(room, end), daemon=True)
    process.start()
    reader = Reader(room, pipe)
    rows = [row(reader, nbytes, max(4, min(64, 64 * MIB // nbytes)), rounds) for nbytes in sizes]
    show("tensors between two processes by NIXL, one or four at a time", rows)
    write(None if given.check else given.out, "cpu", {"rounds": rounds, "sizes": rows})
    pipe.send(None)
    process.join(60)


if __name__ == "__main__":
    main()
