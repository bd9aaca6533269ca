"""Measures a control message between a rank and its conductor, there and back: on one host, and between two hosts.

    python benchmarks/control_messages.py --out control_messages.json [--rounds 15]

The two processes are in network namespaces of their own, if that is allowed, which a pair of virtual devices joins;
otherwise on two addresses of this machine. One socket of the conductor takes both kinds of connections, as a
deployment's does: `ipc://`, and TCP with CURVE. Rounds of both kinds alternate, as the machine may do other work. Times
are medians of the quickest round; processor times are the rank's, of all rounds.
"""

import argparse
import json
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "backend"))

import msgspec
from _common import show, write

from tests.support.namespaces import allowed, two_hosts
from walkgraph.ids import RunId
from walkgraph.wire import codec, sockets
from walkgraph.wire import messages as m
from walkgraph.wire.processes.host_network import HostNetwork, make_keys

SIZES = (16, 4096)
"""Bytes of text in a message; larger tensors don't travel in messages."""
IPC, TCP = b"0.1", b"1.2"


def cpu() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def answer(folder: Path, network: HostNetwork) -> None:
    """The conductor's end: sends back what comes, until it is told to stop."""
    context = sockets.context(None, network.keys)
    desk = sockets.router(context, sockets.address(folder, "workers"))
    print(sockets.listen(desk, network.address("")), flush=True)
    reader = sockets.Reader(desk, codec.to_conductor, frames=2)
    while desk.poll():
        for sender, message in reader.drain():
            if isinstance(message, m.Stop):
                return
            desk.send_multipart([sender, codec.encode(message)])


class Rank:
    """The rank's end, with a connection of each kind."""

    def __init__(self, folder: Path, network: HostNetwork, port: int) -> None:
        context = sockets.context(None, network.keys)
        at = {IPC: sockets.address(folder, "workers"), TCP: network.endpoint("", port)}
        self._sockets = {name: sockets.dealer(context, address, name) for name, address in at.items()}

    def seconds(self, kind: bytes, nbytes: int, count: int) -> float:
        """The median time of a message and its answer."""
        socket, took = self._sockets[kind], list[float]()
        reader = sockets.Reader(socket, codec.to_conductor)
        for _ in range(count):
            began = time.perf_counter()
            socket.send(codec.encode(m.Abort(run=RunId("x" * nbytes))))
            while not list(reader.drain()):
                socket.poll()
            took.append(time.perf_counter() - began)
        return statistics.median(took)

    def stop(self) -> None:
        self._sockets[IPC].send(codec.encode(m.Stop()))


def measure(folder: Path, network: HostNetwork, port: int, rounds: int, sizes: Sequence[int]) -> list[dict[str, Any]]:
    rank, rows = Rank(folder, network, port), list[dict[str, Any]]()
    for nbytes in sizes:
        best, used = dict.fromkeys((IPC, TCP), float("inf")), dict.fromkeys((IPC, TCP), 0.0)
        for _ in range(rounds):
            for kind in (IPC, TCP):
                before = cpu()
                best[kind] = min(best[kind], rank.seconds(kind, nbytes, 200))
                used[kind] += cpu() - before
        row: dict[str, Any] = {"bytes": nbytes}
        row |= {f"{name} us": 1e6 * best[kind] for name, kind in (("ipc", IPC), ("tcp", TCP))}
        row |= {"tcp of ipc": best[TCP] / best[IPC], "CPU of ipc": used[TCP] / used[IPC]}
        rows.append(row)
    rank.stop()
    return rows


@contextmanager
def hosts() -> Iterator[tuple[list[str], list[str], dict[str, str]]]:
    """The beginnings of commands on two hosts, and the hosts' addresses."""
    if allowed():
        with two_hosts() as (here, there):
            yield here.command(), there.command(), {"": here.address, "there": there.address}
    else:
        yield [], [], {"": "127.0.0.1", "there": "127.0.0.2"}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--check", action="store_true", help="one round of the smallest size, and nothing is written")
    parser.add_argument("--end", choices=("conductor", "rank"), help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.end is not None:
        folder, network, *rest = json.loads(sys.stdin.readline())
        known = msgspec.convert(network, HostNetwork)
        if given.end == "conductor":
            answer(Path(folder), known)
        else:
            print(json.dumps(measure(Path(folder), known, *rest)))
        return
    sizes, rounds = (SIZES[:1], 1) if given.check else (SIZES, given.rounds)
    with tempfile.TemporaryDirectory(prefix="wg") as folder, hosts() as (here, there, addresses):
        network = msgspec.to_builtins(HostNetwork(addresses, make_keys()))
        conductor, rank = (
            subprocess.Popen(
                [*before, sys.executable, str(Path(__file__)), "--end", end],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
            for before, end in ((here, "conductor"), (there, "rank"))
        )
        port = int(told(conductor, folder, network))
        rows = json.loads(told(rank, folder, network, port, rounds, sizes))
        for process in (conductor, rank):
            process.communicate(timeout=60)
    show("a control message to the conductor and back", rows)
    write(None if given.check else given.out, "cpu", {"rounds": rounds, "namespaces": bool(here), "sizes": rows})


def told(process: "subprocess.Popen[str]", *given: Any) -> str:
    assert process.stdin is not None
    assert process.stdout is not None
    print(json.dumps(given), file=process.stdin, flush=True)
    return process.stdout.readline()


if __name__ == "__main__":
    main()
