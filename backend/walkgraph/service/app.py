"""The application: routers that are found by file name, one error mapper, one middleware for access."""

from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from functools import cache
from pathlib import Path

import msgspec
import structlog
from fastapi import APIRouter, FastAPI
from starlette.routing import BaseRoute

from walkgraph import plugins, resources
from walkgraph.errors import ErrorInfo
from walkgraph.service.access.access import Access, Codes
from walkgraph.service.access.admission import Admission
from walkgraph.service.access.auditing import Audit
from walkgraph.service.access.keys import Keyring
from walkgraph.service.access.rates import Meter
from walkgraph.service.approvals.approvals import Approvals
from walkgraph.service.calls.task_calls import TaskCalls
from walkgraph.service.checkpoints import CheckpointFolders
from walkgraph.service.deployments.deployer import Deployer
from walkgraph.service.deployments.deployments import Deployments
from walkgraph.service.deployments.gallery import Gallery
from walkgraph.service.deployments.judging import FindHosts, this_machine
from walkgraph.service.deployments.supervisor import Spawn
from walkgraph.service.deployments.task_graphs import TaskGraphs
from walkgraph.service.deployments.versions import Around
from walkgraph.service.deps import Services
from walkgraph.service.http import problems
from walkgraph.service.http.body import StrictRoute
from walkgraph.service.http.documenting import PROBLEMS
from walkgraph.service.http.studio import BinarySockets, Studio
from walkgraph.service.observe.drafts import Drafts
from walkgraph.service.observe.exporting import SpanExporter
from walkgraph.service.observe.hub import Hub
from walkgraph.service.observe.metrics import Metrics
from walkgraph.service.observe.telemetry import Collector, ToHub
from walkgraph.service.observe.trace_sink import TraceSink
from walkgraph.service.observe.traces import Traces
from walkgraph.service.outward.exchange import Outside
from walkgraph.service.outward.serving import OutwardCalls
from walkgraph.service.outward.vault import Vault
from walkgraph.service.runs.glimpses import Thumbnails
from walkgraph.service.runs.idempotency import Keys
from walkgraph.service.runs.runs import LiveRun, Runs
from walkgraph.service.runs.shortcut import Shortcut
from walkgraph.service.shutdown import Shutdown
from walkgraph.settings import Settings
from walkgraph.store import queries
from walkgraph.store.session import Store

_log = structlog.get_logger("walkgraph.service")


def create_app(
    settings: Settings,
    *,
    token: str,
    store: Store,
    spawn: Spawn,
    hosts: FindHosts = this_machine,
    studio: Studio | None = None,
    collector: Collector | None = None,
) -> FastAPI:
    """The control service. `spawn` starts deployment processes, on `hosts`; `studio` is mounted at `/studio`."""
    services = _services(settings, store, spawn, hosts, collector)

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncGenerator[None]:
        async with AsyncExitStack() as stack:
            await _start(services, collector, stack)
            if studio is not None:
                await stack.enter_async_context(studio.lifespan()(app))
            yield

    app = FastAPI(title="Walkgraph", version="1", docs_url=None, redoc_url=None, lifespan=lifespan, routes=_routes()[:])
    app.state.services = services
    problems.install(app)
    app.add_middleware(Shortcut, services=services)
    app.add_middleware(
        Access,
        token=token,
        codes=services.codes,
        admission=services.admission,
        names=(*settings.allowed_hosts, settings.host),
        origins=settings.allowed_origins,
        secure=bool(settings.allowed_origins) and all(o.startswith("https:") for o in settings.allowed_origins),
    )
    if studio is not None:
        app.mount("/studio", BinarySockets(studio.app))
    return app


@cache
def _routes() -> list[BaseRoute]:
    """The routes of all resources. They know no application: FastAPI works out what each takes when it is first looked
    for, and does so once in a process."""
    router = APIRouter(route_class=StrictRoute, responses=PROBLEMS)
    package = f"{__package__}.routes"
    for name in plugins.names(package):
        router.include_router(plugins.load(package, name, "router"))
    return router.routes


def _services(
    settings: Settings, store: Store, spawn: Spawn, hosts: FindHosts, collector: Collector | None
) -> Services:
    """Wires the services: each gets its dependencies in its constructor, none later."""
    hub, shutdown, deployments = Hub(), Shutdown(), Deployments()
    keys, audit = Keyring(store), Audit(store, settings.audit_days)
    meter = Meter(settings.token_requests_per_minute, settings.token_concurrent_runs)
    admission = Admission(keys, audit, meter, shutdown, settings.drain_timeout)
    spans = SpanExporter(settings.otlp_endpoint, settings.otlp_header_fields()) if settings.otlp_endpoint else None
    metrics = Metrics(deployments, hub, admission.refused, lambda: collector.rejected if collector else 0, spans)
    runs = Runs(store, metrics.heard)
    address = collector.address if collector else None
    drafts = Drafts(runs, deployments)
    graphs = TaskGraphs(store, deployments.graphs)
    calls = TaskCalls(deployments.serving, keys.holds)
    outward = OutwardCalls(Outside(settings.callable_servers(), Vault(settings.secrets_folder)))
    approvals = Approvals(store, runs, deployments, keys, hub, shutdown)

    def run_ended(run: LiveRun) -> None:
        calls.ended(run)
        outward.ended(run)
        deployments.run_ended(run)

    hold = approvals.hold
    around = Around(
        settings, spawn, runs, hub, shutdown, deployments.plans, run_ended, calls, outward, hold, graphs, hosts, address
    )
    trace_sink = TraceSink(store, drafts, settings.kept_traces, spans.offer if spans else None)
    return Services(
        settings=settings,
        store=store,
        hosts=hosts,
        hub=hub,
        runs=runs,
        approvals=approvals,
        idempotency=Keys(),
        shutdown=shutdown,
        deployments=deployments,
        deployer=Deployer(store, deployments, around),
        traces=Traces(store, runs, deployments, drafts, trace_sink),
        trace_sink=trace_sink,
        metrics=metrics,
        spans=spans,
        codes=Codes(),
        keys=keys,
        audit=audit,
        admission=admission,
        thumbnails=Thumbnails(),
        gallery=Gallery(settings),
        checkpoints=CheckpointFolders(settings.checkpoint_roots),
        task_graphs=graphs,
    )


async def _start(services: Services, collector: Collector | None, stack: AsyncExitStack) -> None:
    """Starts the services. They close in reverse order."""
    await _bring_up_to_date(services.store)
    await services.keys.start()
    stack.push_async_callback(services.keys.close)
    services.audit.start()
    stack.push_async_callback(services.audit.close)
    services.runs.start()
    stack.push_async_callback(services.runs.close)
    await services.approvals.start()
    stack.push_async_callback(services.approvals.close)
    if services.spans is not None:
        services.spans.start()
        stack.push_async_callback(services.spans.close)
    services.trace_sink.start()
    stack.push_async_callback(services.trace_sink.close)
    if collector is not None:
        stack.push_async_callback(collector.close)
        sinks = (ToHub(services.hub), services.trace_sink, services.metrics)
        collector.start(services.deployments.telemetry_of, sinks)
    stack.push_async_callback(services.deployer.close, 0.0)
    await services.deployer.start()


async def _bring_up_to_date(store: Store) -> None:
    """Updates the bundled documents to this package's, and ends runs that a killed service left unfinished."""
    graphs = {name: _text(path) for name, path in resources.stored_as_graphs().items()}
    placements = {name: _text(path) for name, path in resources.bundled("placements").items()}
    await store.write(queries.seed_bundled, "graph", graphs, dict.fromkeys(resources.bundled("examples"), ("example",)))
    await store.write(queries.seed_bundled, "placement", placements)
    lost = ErrorInfo(code="shutting_down", message="the service ended before this run did; try again", retryable=True)
    ended = await store.write(queries.end_lost_runs, msgspec.json.encode(lost).decode())
    if ended:
        _log.info("runs ended with the service", count=ended)


def _text(path: Path) -> str:
    return path.read_text(encoding="utf-8")
