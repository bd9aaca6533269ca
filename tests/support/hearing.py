"""Receives telemetry of a deployment's processes: the latest gauges, samples of values, and all other events."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import zmq.asyncio

from walkgraph.ids import Rank
from walkgraph.telemetry import events as t


class Hearing:
    def __init__(self, path: Path) -> None:
        """`path`: of its socket; a short one."""
        self.address = f"ipc://{path}"
        self.latest: dict[Rank, t.RankGauge] = {}
        self.samples: list[t.Sample] = []
        self.others: list[t.Any] = []
        self._socket = zmq.asyncio.Context.instance().socket(zmq.PULL)
        self._socket.bind(self.address)
        self._changed = asyncio.Event()
        self._reader = asyncio.create_task(self._read())

    async def all_free(self, ranks: int, seconds: float = 300.0) -> None:
        """Gauges taken from now on say that nothing is held anywhere."""
        since = time.monotonic()
        async with asyncio.timeout(seconds):
            while not (
                len(self.latest) == ranks
                and all(
                    gauge.at > since
                    and gauge.pages_free == gauge.pages_total
                    and gauge.out_tickets == 0
                    and gauge.runs == 0
                    for gauge in self.latest.values()
                )
            ):
                self._changed.clear()
                await self._changed.wait()

    async def _read(self) -> None:
        while True:
            for event in t.decode(await self._socket.recv()).events:
                match event:
                    case t.RankGauge():
                        self.latest[event.rank] = event
                        self._changed.set()
                    case t.Sample():
                        self.samples.append(event)
                    case _:
                        self.others.append(event)

    def close(self) -> None:
        self._reader.cancel()
        self._socket.close(linger=0)
