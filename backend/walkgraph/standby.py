"""Standing by: a service passes connections on to the one that has its database, and takes over once that is
gone. And the watch of the one that has it.
"""

from __future__ import annotations

import asyncio
import signal
import socket
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import NoReturn, Protocol
from urllib.parse import urlsplit

import anyio.to_thread
import structlog

from walkgraph.settings import Settings
from walkgraph.store.ownership import SILENT_SECONDS, Taken
from walkgraph.store.session import Store, StoreBusy

TRY_SECONDS = 1.0
"""So often a service that stands by asks for the database."""
KEEP_SECONDS = 2.0
"""So often a service looks whether it still has its database."""
HELD_SECONDS = SILENT_SECONDS / 2
"""After so long without an answer to that, another one may soon get it."""
_PIECE = 256 * 1024
_PORTS = {"http": 80, "https": 443}

_log = structlog.get_logger("walkgraph.standby")


def open_or_stand_by(settings: Settings, listener: socket.socket, announce: Callable[[str], None]) -> Store | None:
    """Open the database of `settings`. While another service has it, connections of the listener go there: `announce`
    is called with its address, once. Returns None if the service is asked to stop meanwhile. Raises as `Store.open`."""
    try:
        return Store.open(settings.database, settings.peer_url)
    except Taken as taken:
        if settings.peer_url is None or taken.address is None:
            raise
        return asyncio.run(_stand_by(settings, listener, taken.address, announce))


async def _stand_by(
    settings: Settings, listener: socket.socket, address: str, announce: Callable[[str], None]
) -> Store | None:
    relay, stopped, loop = Relay(address), asyncio.Event(), asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stopped.set)
    # Connections that come after its end wait in the listener's queue for the service.
    server = await asyncio.start_server(relay.serve, sock=listener.dup())
    async with server:
        _log.info("stands by", behind=address)
        announce(address)
        while not stopped.is_set():
            try:
                store = await anyio.to_thread.run_sync(Store.open, settings.database, settings.peer_url, TRY_SECONDS)
            except Taken as taken:
                relay.address = taken.address or relay.address
            except StoreBusy as error:
                _log.warning("can't ask for the database", reason=str(error))
                with suppress(TimeoutError):
                    await asyncio.wait_for(stopped.wait(), TRY_SECONDS)
            else:
                _log.info("takes over", after=relay.address)
                return store
    return None


@dataclass
class Relay:
    """Passes connections on, byte by byte, so that whatever they speak, TLS too, is between their ends."""

    address: str
    """The address to which new connections go."""

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        parts = urlsplit(self.address)
        try:
            there = await asyncio.open_connection(parts.hostname, parts.port or _PORTS[parts.scheme])
        except OSError:
            writer.close()
            return
        ways = asyncio.gather(_pass_on(reader, there[1]), _pass_on(there[0], writer))
        try:
            with suppress(OSError):
                await ways
        finally:
            ways.cancel()
            for end in (writer, there[1]):
                end.close()


async def _pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while piece := await reader.read(_PIECE):
        writer.write(piece)
        await writer.drain()
    if writer.can_write_eof():
        writer.write_eof()


class Kept(Protocol):
    def keep(self) -> bool:
        """As that of `Store`."""
        ...


async def keep(
    store: Kept, leave: Callable[[], NoReturn], every: float = KEEP_SECONDS, held: float = HELD_SECONDS
) -> None:
    """Leave as soon as another service has, or may soon have, the database. Looks `every` so many seconds, and takes
    the database for `held` that long without an answer."""
    confirmed = time.monotonic()
    while True:
        try:
            async with asyncio.timeout(held):
                if await anyio.to_thread.run_sync(store.keep, abandon_on_cancel=True):
                    confirmed = time.monotonic()
        except TimeoutError:
            pass
        except Taken:
            _log.error("another service has taken over")
            leave()
        if time.monotonic() - confirmed > held:
            _log.error("the database can't be reached, and another service may take over")
            leave()
        await asyncio.sleep(every)
