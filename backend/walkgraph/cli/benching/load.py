"""Generate load, closed (each client sends its next request once it has its answer) or open (requests arrive by the
clock, however long the answers take)."""

from __future__ import annotations

import asyncio
import itertools
import json
import random
import resource
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from walkgraph.cli.benching.wire import Connection, Sample

MOST_OPEN = 1024
"""The most open requests of an open load; further ones wait, and their wait counts."""


@dataclass(frozen=True)
class Level:
    """One load level, a row of the report."""

    concurrency: int | None = None
    rate: float | None = None
    """Requests per second of an open load; None for a closed one."""

    @property
    def name(self) -> str:
        return f"{self.rate:g}/s" if self.rate is not None else str(self.concurrency)


@dataclass(frozen=True)
class Bounds:
    requests: int | None
    seconds: float | None
    """Seconds during which requests are sent; open requests are then waited for."""
    warmup: int
    """Requests of each client before the clock starts; for an open load, in total."""


@dataclass
class Measured:
    level: Level
    samples: list[Sample] = field(default_factory=list[Sample])
    began: float = 0.0
    ended: float = 0.0
    cpu: float = 0.0
    """Share of one core that this client used."""
    interrupted: bool = False


def bodies(request: Mapping[str, Any], first: int = 0) -> Iterator[bytes]:
    """The same request again and again with a new seed each time, counting from `first`, or always with its own seed if
    it has one. The rest of the body, which may be megabytes of pictures, is encoded once."""
    params: Mapping[str, Any] = request["params"]
    rest = json.dumps({**{k: v for k, v in request.items() if k != "params"}, "stream": True}, ensure_ascii=False)
    given = json.dumps({k: v for k, v in params.items() if k != "seed"}, ensure_ascii=False)[1:-1]
    begun = f'{rest[:-1]}, "params": {{{given}{", " if given else ""}"seed": '.encode()
    for number in itertools.count(first):
        yield b"%s%d}}" % (begun, params.get("seed", number))


def run(
    level: Level, connect: Callable[[], Connection], asked: Iterator[bytes], bounds: Bounds, stop: asyncio.Event
) -> asyncio.Task[Measured]:
    """Start one level; setting `stop` ends it, and requests that are still open are abandoned and not counted."""
    return asyncio.get_running_loop().create_task(_Load(level, connect, asked, bounds, stop).run())


class _Load:
    def __init__(
        self,
        level: Level,
        connect: Callable[[], Connection],
        asked: Iterator[bytes],
        bounds: Bounds,
        stop: asyncio.Event,
    ) -> None:
        self._level, self._connect, self._asked, self._bounds, self._stop = level, connect, asked, bounds, stop
        self._measured = Measured(level)
        self._idle: list[Connection] = []
        self._all: list[Connection] = []

    async def run(self) -> Measured:
        try:
            await self._warmed()
            found = self._measured
            used, found.began = _cpu(), time.perf_counter()
            await self._until_stopped(self._closed() if self._level.rate is None else self._open(self._level.rate))
            found.ended = time.perf_counter()
            found.cpu = (_cpu() - used) / max(found.ended - found.began, 1e-9)
            found.interrupted = self._stop.is_set()
            return found
        finally:
            for connection in self._all:
                connection.close()

    async def _warmed(self) -> None:
        """Warm up with the level's concurrency; the samples are discarded."""
        clients = self._level.concurrency or min(self._bounds.warmup, 16)
        rounds = self._bounds.warmup if self._level.rate is None else 1

        async def client() -> None:
            connection = self._taken()
            for _ in range(rounds):
                await connection.ask(next(self._asked), time.perf_counter())
            self._idle.append(connection)

        await self._until_stopped(_all(client() for _ in range(clients if rounds else 0)))

    async def _until_stopped(self, work: Any) -> None:
        doing = asyncio.ensure_future(work)
        stopping = asyncio.ensure_future(self._stop.wait())
        await asyncio.wait([doing, stopping], return_when=asyncio.FIRST_COMPLETED)
        stopping.cancel()
        if not doing.done():
            doing.cancel()
            await asyncio.wait([doing])
        if not doing.cancelled():
            doing.result()

    async def _closed(self) -> None:
        until = None if self._bounds.seconds is None else self._measured.began + self._bounds.seconds
        left = itertools.count() if self._bounds.requests is None else iter(range(self._bounds.requests))

        async def client() -> None:
            connection = self._taken()
            while until is None or time.perf_counter() < until:
                if next(left, None) is None:
                    break
                self._measured.samples.append(await connection.ask(next(self._asked), time.perf_counter()))

        await _all(client() for _ in range(self._level.concurrency or 1))

    async def _open(self, rate: float) -> None:
        """Poisson arrivals, the same sequence every time. Waiting in this client counts as part of the request."""
        gaps = random.Random(0)  # noqa: S311 (arrivals, not secrets)
        room = asyncio.Semaphore(MOST_OPEN)
        due = time.perf_counter()
        until = None if self._bounds.seconds is None else due + self._bounds.seconds
        counted = itertools.count() if self._bounds.requests is None else range(self._bounds.requests)

        async def one(due: float) -> None:
            async with room:
                connection = self._taken()
                self._measured.samples.append(await connection.ask(next(self._asked), due))
                self._idle.append(connection)

        async with asyncio.TaskGroup() as group:
            for _ in counted:
                due += gaps.expovariate(rate)
                if until is not None and due > until:
                    break
                await asyncio.sleep(max(0.0, due - time.perf_counter()))
                group.create_task(one(due))

    def _taken(self) -> Connection:
        if self._idle:
            return self._idle.pop()
        connection = self._connect()
        self._all.append(connection)
        return connection


async def _all(clients: Iterator[Any]) -> None:
    async with asyncio.TaskGroup() as group:
        for client in clients:
            group.create_task(client)


def _cpu() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime
