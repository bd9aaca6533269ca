"""The composition root: settings become a store, a service, a studio and a server. Nothing else builds these."""

from __future__ import annotations

import asyncio
import gc
import importlib
import importlib.util
import logging
import os
import socket
import ssl
import sys
from collections.abc import Callable, Collection, Coroutine, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import FrameType
from typing import NoReturn

import anyio.to_thread
import msgspec
import structlog
import uvicorn
from fastapi import FastAPI

from walkgraph import logs
from walkgraph.client import Address
from walkgraph.components import catalogue
from walkgraph.conductor.client import DeploymentProcess
from walkgraph.conductor.fork_server_handle import ForkServerProcess
from walkgraph.errors import Refused, WalkgraphError
from walkgraph.placement.hardware import Hardware
from walkgraph.service.app import create_app
from walkgraph.service.deployments.judging import FindHosts, resolve, this_machine
from walkgraph.service.deps import Services
from walkgraph.service.http import limits, protocols
from walkgraph.service.http.problems import Unprocessable
from walkgraph.service.http.studio import Studio
from walkgraph.service.observe.telemetry import Collector
from walkgraph.settings import Settings, ensure_token, is_loopback, only_one, prepare_home, write_private
from walkgraph.standby import keep, open_or_stand_by
from walkgraph.store import queries
from walkgraph.store.session import Store
from walkgraph.wire.processes.common import one_heap
from walkgraph.wire.processes.host_hardware import ask_hosts

STARTER = "shapes"
"""The graph that the first start deploys."""
ACTOR_SERVER = "walkgraph.cluster.actor_server"
EDITOR = "walkgraph_editor.mount"
CLOSE_SECONDS = 1
"""Seconds that open connections get to end once the runs are drained."""

_log = structlog.get_logger("walkgraph.launch")


@dataclass(frozen=True)
class Started:
    """The facts that a person or a program needs to continue."""

    url: str
    token_file: Path
    studio: str | None = None
    """An address that lets one browser in, once; None if the editor is not installed, or the service stands by."""
    starter: str | None = None
    """The deployment that the first start makes."""
    starter_problem: str | None = None
    """The reason that there is none."""
    behind: str | None = None
    """The service that has the database, where this one stands by."""


def serve(settings: Settings, *, starter: bool, announce: Callable[[Started], None]) -> int:
    """Run the service until it is asked to stop; returns the exit code.

    `starter`: deploy the starter graph if this is the first start. Raises Conflict where this home is being served
    already, Refused where the port is taken.
    """
    one_heap()
    os.umask(0o077)
    protocols.allow_files()
    prepare_home(settings)
    _check_certificate(settings)
    # A plug-in that can't be loaded is reported now, not at the first graph.
    catalogue()
    with only_one(settings), _listen(settings) as listener:
        token = ensure_token(settings)
        logs.configure(settings.log_level, settings.log_format, (token, *settings.secrets()))
        place = _Place(settings, _url(settings, listener), announce)
        try:
            store = open_or_stand_by(settings, listener, place.stand_by)
            if store is None:
                return 0
            with closing(store):
                return _serve(place, store, token, listener, starter=starter)
        finally:
            settings.address_file.unlink(missing_ok=True)


def _serve(place: _Place, store: Store, token: str, listener: socket.socket, *, starter: bool) -> int:
    settings = place.settings
    first = store.read_now(queries.is_new)
    studio = _studio(settings)
    fork_server = _supervisor(settings)
    app = create_app(
        settings,
        token=token,
        store=store,
        spawn=partial(DeploymentProcess.start, fork_server),
        hosts=_hosts(settings, fork_server),
        studio=studio,
        collector=Collector(settings.home / "d"),
    )
    services: Services = app.state.services

    async def begin() -> None:
        logs.reclaim()
        _exempt_from_collections()
        problem = await _deploy_starter(services) if starter and first else None
        place.tell(
            studio=f"{place.url}/studio/?code={services.codes.make()}" if studio else None,
            starter=STARTER if starter and first and problem is None else None,
            starter_problem=problem,
        )

    server = _Server(_configuration(app, settings), services, settings.drain_timeout, begin)
    with asyncio.Runner(loop_factory=server.config.get_loop_factory()) as runner:
        runner.run(_run(server, listener, fork_server, _watch(settings, store)))
        if server.force_exit:
            _leave(settings, 0)
    return 0 if server.started else 1


@dataclass
class _Place:
    """The place where the service is reached, told once: as soon as it serves, or stands by."""

    settings: Settings
    url: str
    announce: Callable[[Started], None]
    _told: bool = False

    def tell(self, **more: str | None) -> None:
        certificate = None if self.settings.tls_cert is None else str(self.settings.tls_cert.absolute())
        address = Address(pid=os.getpid(), url=self.url, certificate=certificate)
        write_private(self.settings.address_file, msgspec.json.encode(address).decode())
        if not self._told:
            self._told = True
            self.announce(Started(url=self.url, token_file=self.settings.token_file, **more))

    def stand_by(self, behind: str) -> None:
        self.tell(behind=behind)


async def _run(
    server: _Server,
    listener: socket.socket,
    fork_server: ForkServerProcess,
    watch: Coroutine[None, None, None] | None,
) -> None:
    watching = asyncio.create_task(watch) if watch is not None else None
    try:
        await server.serve(sockets=[listener])
    finally:
        if watching is not None:
            watching.cancel()
        await fork_server.close()


def _watch(settings: Settings, store: Store) -> Coroutine[None, None, None] | None:
    """Leaves the database to others that stand by, if there may be any."""
    return keep(store, lambda: _leave(settings, 1)) if settings.peer_url is not None else None


def _exempt_from_collections() -> None:
    """Full collections need not scan the objects of the start, which takes a third of a second on a slow core. Nor does
    this start: one object in a hundred is garbage."""
    gc.freeze()
    gc.enable()


def _leave(settings: Settings, code: int) -> NoReturn:
    """Exit now, without waiting for tasks and threads in progress. The kernel ends the deployments' processes with this
    one, and the store holds what was acknowledged, as after any death."""
    settings.address_file.unlink(missing_ok=True)
    # Reports the log lines that were left out.
    logging.shutdown()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


class _Server(uvicorn.Server):
    """Drains before it stops: the first signal stops accepting runs, the second one ends everything."""

    def __init__(
        self,
        config: uvicorn.Config,
        services: Services,
        drain_seconds: float,
        begin: Callable[[], Coroutine[None, None, None]],
    ) -> None:
        super().__init__(config)
        self._services = services
        self._drain_seconds = drain_seconds
        self._begin = begin
        self._loop: asyncio.AbstractEventLoop | None = None
        self._draining: asyncio.Task[None] | None = None

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        self._loop = asyncio.get_running_loop()
        await super().startup(sockets)
        if self.started:
            await self._begin()

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        if self._services.shutdown.begun or self._loop is None:
            self.should_exit = self.force_exit = True
            return
        self._services.shutdown.begin()
        self._loop.call_soon_threadsafe(self._drain)

    def _drain(self) -> None:
        _log.info("draining", runs=len(self._services.runs.unfinished), seconds=self._drain_seconds)
        self._draining = asyncio.create_task(self._drained())

    async def _drained(self) -> None:
        try:
            await self._services.deployer.drain(self._drain_seconds)
            self._services.approvals.leave()
        finally:
            self.should_exit = True


def _supervisor(settings: Settings) -> ForkServerProcess:
    """Makes the server that starts the workers. Raises Refused if it isn't installed."""
    folder = settings.home / "d"
    if settings.backend == "local":
        return ForkServerProcess(folder)
    if importlib.util.find_spec("ray") is None:
        raise Refused("`ray` is not installed; run `pip install 'walkgraph[ray]'`, or use the backend `local`")
    return actor_server(folder, settings)


def actor_server(folder: Path, settings: Settings) -> ForkServerProcess:
    """The server that has workers started in the settings' Ray cluster. `folder`: that of its socket and its log."""
    return ForkServerProcess(folder, ACTOR_SERVER, ("--address", settings.ray_address))


def _hosts(settings: Settings, server: ForkServerProcess) -> FindHosts:
    return this_machine if settings.backend == "local" else partial(_cluster, server, settings.checkpoint_roots)


async def _cluster(server: ForkServerProcess, roots: Sequence[Path], without: Collection[str] = ()) -> Hardware:
    """The hosts of the cluster, once its actor server runs. Raises HostsUnknown, OSError."""
    return await anyio.to_thread.run_sync(ask_hosts, await server.running(), roots, without)


def _configuration(app: FastAPI, settings: Settings) -> uvicorn.Config:
    return uvicorn.Config(
        app,
        ws=protocols.WebSockets,
        http=protocols.Http,
        ws_max_size=limits.WS_FRAME_BYTES,
        ws_per_message_deflate=False,
        ws_ping_interval=limits.WS_PING_SECONDS,
        ws_ping_timeout=limits.WS_PONG_SECONDS,
        timeout_keep_alive=15,
        timeout_graceful_shutdown=CLOSE_SECONDS,
        server_header=False,
        proxy_headers=bool(settings.trusted_proxies),
        forwarded_allow_ips=list(settings.trusted_proxies),
        ssl_certfile=settings.tls_cert,
        ssl_keyfile=settings.tls_key,
        access_log=False,
        log_config=None,
    )


async def _deploy_starter(services: Services) -> str | None:
    """Deploy the starter; returns the reason if it can't be deployed."""
    try:
        graph = await resolve(services.store, "graph", STARTER)
        await services.deployer.create(STARTER, STARTER, graph.value, "default", None)
    except WalkgraphError as error:
        reasons = [fault.message for fault in error.faults] if isinstance(error, Unprocessable) else []
        return "; ".join(reasons) or str(error)
    return None


def _studio(settings: Settings) -> Studio | None:
    """The editor, or None: it is a separate distribution that may not be installed."""
    if not settings.studio or importlib.util.find_spec(EDITOR.partition(".")[0]) is None:
        return None
    found: Studio = importlib.import_module(EDITOR).studio(settings)
    return found


def _check_certificate(settings: Settings) -> None:
    """Raises Refused if the service can't use the certificate."""
    if settings.tls_cert is None or settings.tls_key is None:
        return
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    try:
        context.load_cert_chain(settings.tls_cert, settings.tls_key, lambda: "")
    except (OSError, ValueError):
        raise Refused(
            f"`{settings.tls_cert}` and `{settings.tls_key}` must be a PEM certificate and its key, without a "
            "passphrase, that this user can read"
        ) from None


def _listen(settings: Settings) -> socket.socket:
    """Bind before anything else starts, so that a taken port is reported at once."""
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((settings.host.strip("[]"), settings.port))
    except OSError:
        listener.close()
        raise Refused(
            f"port {settings.port} of {settings.host} can't be used; choose another one with `--port`, or 0 for any"
        ) from None
    return listener


def _url(settings: Settings, listener: socket.socket) -> str:
    """The URL for clients on this machine."""
    host = settings.host if is_loopback(settings.host) else "127.0.0.1"
    host = f"[{host.strip('[]')}]" if ":" in host else host
    scheme = "http" if settings.tls_cert is None else "https"
    return f"{scheme}://{host}:{listener.getsockname()[1]}"
