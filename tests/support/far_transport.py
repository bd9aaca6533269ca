"""A process with a NIXL transport, told what to do by lines of JSON: `python -m tests.support.far_transport RANK`."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import msgspec
import torch

from tests.support.far_process import FarProcess
from tests.support.namespaces import Host
from walkgraph.errors import WalkgraphError
from walkgraph.ids import Rank
from walkgraph.transports.nixl import Transport
from walkgraph.wire.values import Ticket

ROOM = 256 << 20


class FarTransport(FarProcess):
    """The process with a transport, from outside."""


@contextmanager
def far_transport(host: Host, rank: int) -> Iterator[FarTransport]:
    command = host.command(sys.executable, "-m", "tests.support.far_transport", str(rank))
    environment = {**os.environ, "UCX_TLS": "tcp,self", "UCX_NET_DEVICES": host.device}
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment)
    try:
        yield FarTransport(process)
    finally:
        process.kill()
        process.communicate()


def answer(transport: Transport, what: str, *given: Any) -> Any:
    match what, given:
        case "handle", ():
            return transport.handle().hex()
        case "connect", (rank, handle):
            return transport.connect(Rank(rank), bytes.fromhex(handle))
        case "disconnect", (rank,):
            return transport.disconnect(Rank(rank))
        case "put", (nbytes, value, to):
            ticket = transport.put(torch.full((nbytes,), value, dtype=torch.uint8), Rank(to))
            return msgspec.msgpack.encode(ticket).hex()
        case "get", (ticket, seconds):
            return got(transport, msgspec.msgpack.decode(bytes.fromhex(ticket), type=Ticket), seconds)
        case _:
            raise ValueError(what)


def got(transport: Transport, ticket: Ticket, seconds: float) -> list[int] | None:
    """The least and the largest byte of a tensor; None if it isn't here within so many seconds."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        tensor = transport.get(ticket)
        if tensor is not None:
            return [int(tensor.min()), int(tensor.max())]
        time.sleep(transport.check_after or 0.0)
    return None


def main() -> None:
    transport = Transport(Rank(int(sys.argv[1])), ROOM)
    for line in sys.stdin:
        try:
            told = answer(transport, *json.loads(line))
        except WalkgraphError as error:
            told = error.info().code
        print(json.dumps(told), flush=True)


if __name__ == "__main__":
    main()
