"""Ten times a deployment's capacity: admitted runs are as fast as before, and the others are told to retry.

The clients need processor time too, on the same cores. So the capacity is measured beside as many requests, from the
same clients, to a socket that refuses all of them with the bytes of the service's own refusal: what is lost of it under
overload is lost by the service.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.safety.plugin import Figure, Scale
from tests.support.asking import Address, Answer, KeptConnections, address_of, ask, connected, head, quantile, request
from tests.support.sampling import processor_seconds
from tests.support.serving import Service, service

GRAPH = "synthetic_states"
TASK = f"/v1/tasks/{GRAPH}/write"
RUN = {"stream": True, "params": {"prompt": 50, "times": 60}}
ADMITTED = 2
"""`queue_limit`, by which an operator trades waiting for refusals: the runs at once that keep this device busy. In 256
places a run would wait for as long as all before it take."""
TIMES = 10


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    with service(tmp_path_factory.mktemp("load") / "home", studio="false", queue_limit=str(ADMITTED)) as found:
        found.up("--no-deploy")
        with found.client() as client:
            client.deploy(GRAPH)
        found.wait_ready(GRAPH)
        yield found


async def closed(address: Address, width: int, seconds: float) -> list[Answer]:
    """So many clients, each of which asks anew once it is answered."""
    answers: list[Answer] = []
    until = time.perf_counter() + seconds

    async def client() -> None:
        while time.perf_counter() < until:
            answers.append(await ask(address, "POST", TASK, RUN))

    await asyncio.gather(*(client() for _ in range(width)))
    return [answer for answer in answers if answer.served]


async def opened(address: Address, rate: float, seconds: float) -> list[Answer]:
    """So many requests a second, whatever becomes of them."""
    began, answers = time.perf_counter(), list[asyncio.Task[Answer]]()
    clients = KeptConnections(address)
    while (now := time.perf_counter() - began) < seconds:
        while len(answers) < now * rate:
            answers.append(asyncio.create_task(clients.ask("POST", TASK, RUN)))
        await asyncio.sleep(0.001)
    found = await asyncio.gather(*answers)
    clients.close()
    return found


async def refusal_of(address: Address) -> bytes:
    """The bytes with which the service refuses a run while all places are taken."""
    async with contextlib.AsyncExitStack() as stack:
        for _ in range(ADMITTED):
            reader, writer = await stack.enter_async_context(connected(address))
            writer.write(request(address, "POST", TASK, {"stream": True, "params": {"prompt": 50, "times": 5000}}))
            assert (await head(reader))[0] == 200
        reader, writer = await stack.enter_async_context(connected(address))
        writer.write(request(address, "POST", TASK, RUN))
        told = await reader.read()
    assert told.startswith(b"HTTP/1.1 503"), told
    return told.replace(b"connection: close\r\n", b"")


async def refused_by_a_socket(refusal: bytes, rate: float, seconds: float) -> None:
    """As `opened`, to a socket that refuses all."""

    async def refuse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.closing(writer), contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                await reader.readuntil(b"\r\n\r\n")
                await reader.readexactly(len(json.dumps(RUN)))
                writer.write(refusal)

    async with await asyncio.start_server(refuse, "127.0.0.1", 0) as server:
        port: int = server.sockets[0].getsockname()[1]
        await opened(Address("127.0.0.1", port, "none"), rate, seconds)


def rate_of(served: list[Answer]) -> float:
    return len(served) / (max(one.ended for one in served) - min(one.began for one in served))


def resident(found: Service) -> float:
    """Megabytes."""
    assert found.process is not None
    return int(Path(f"/proc/{found.process.pid}/statm").read_text().split()[1]) * 4096 / 1e6


@pytest.mark.safety("R7")
async def test_ten_times_the_capacity_is_offered(running: Service, scale: Scale, figure: Figure) -> None:
    assert running.process is not None
    process = running.process.pid
    address = address_of(running)
    await closed(address, 1, scale(0.2, 2.0))
    alone = await closed(address, 1, scale(1.0, 10.0))
    undisturbed = rate_of(await closed(address, ADMITTED, scale(1.0, 10.0)))
    rate, refusal = TIMES * undisturbed, await refusal_of(address)
    beside = asyncio.create_task(refused_by_a_socket(refusal, rate, scale(1.2, 21.0)))
    spent = processor_seconds(process)
    counted = await closed(address, ADMITTED, scale(1.0, 20.0))
    of_a_run = (processor_seconds(process) - spent) / len(counted)
    capacity = rate_of(counted)
    await beside
    before, spent, spent_here = resident(running), processor_seconds(process), time.process_time()
    answers = await opened(address, rate, scale(3.0, 60.0))
    spent, spent_here = processor_seconds(process) - spent, time.process_time() - spent_here
    grown = resident(running) - before
    after = await closed(address, 1, scale(1.0, 5.0))

    served = [answer for answer in answers if answer.served]
    assert served, "some are served"
    assert {answer.status for answer in answers} <= {200, 429, 503}
    for answer in answers:
        if answer.status != 200:
            assert 1 <= int(answer.headers["retry-after"]) <= 30
            told = json.loads(answer.body)
            assert (told["code"], told["retryable"]) == ("overloaded", True)
        else:
            assert answer.served, "what is admitted is served"
    assert after, "it serves on"
    unloaded = quantile([answer.to_first for answer in alone], 0.99)
    figure("capacity of the idle machine", undisturbed, "runs/s")
    figure("capacity beside clients that a socket refuses", capacity, "runs/s")
    figure("offered", len(answers), "runs")
    refused = Counter(answer.status for answer in answers)[503]
    figure("refused", refused, "runs")
    figure("processor time of a refusal, service", 1000 * (spent - of_a_run * len(served)) / refused, "ms", at_most=1)
    figure("processor time of a request, clients", 1000 * spent_here / len(answers), "ms")
    figure("goodput of capacity", 100 * rate_of(served) / capacity, "%", at_least=95)
    to_first = quantile([answer.to_first for answer in served], 0.99)
    figure("time to first output, admitted p99", 1000 * to_first, "ms")
    figure("of that unloaded", to_first / unloaded, "times", at_most=2)
    figure("memory", grown, "MB", at_most=200)
    last = quantile([answer.to_first for answer in after], 0.99)
    figure("p99 within 5 s after, of that unloaded", last / unloaded, "times", at_most=2)
