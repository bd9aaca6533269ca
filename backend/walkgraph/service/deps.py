"""Dependencies of routes, as `Annotated` names."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Literal

from fastapi import Depends, Header, Path, Query
from starlette.requests import HTTPConnection

from walkgraph.errors import NotFound
from walkgraph.service.access.access import Codes
from walkgraph.service.access.admission import Admission
from walkgraph.service.access.auditing import Audit
from walkgraph.service.access.callers import caller_of
from walkgraph.service.access.keys import Keyring
from walkgraph.service.approvals.approvals import Approvals
from walkgraph.service.checkpoints import CheckpointFolders
from walkgraph.service.deployments.deployer import Deployer
from walkgraph.service.deployments.deployments import Deployments
from walkgraph.service.deployments.gallery import Gallery
from walkgraph.service.deployments.judging import FindHosts
from walkgraph.service.deployments.task_graphs import TaskGraphs
from walkgraph.service.observe.exporting import SpanExporter
from walkgraph.service.observe.hub import Hub
from walkgraph.service.observe.metrics import Metrics
from walkgraph.service.observe.trace_sink import TraceSink
from walkgraph.service.observe.traces import Traces
from walkgraph.service.runs.glimpses import Thumbnails
from walkgraph.service.runs.idempotency import Keys
from walkgraph.service.runs.runs import Runs
from walkgraph.service.shutdown import Shutdown
from walkgraph.settings import Settings
from walkgraph.store import queries
from walkgraph.store.session import Store


@dataclass(frozen=True, kw_only=True)
class Services:
    settings: Settings
    store: Store
    hosts: FindHosts
    hub: Hub
    runs: Runs
    approvals: Approvals
    idempotency: Keys
    shutdown: Shutdown
    deployments: Deployments
    deployer: Deployer
    traces: Traces
    trace_sink: TraceSink
    metrics: Metrics
    spans: SpanExporter | None
    """Exports traces; None if no endpoint is set."""
    codes: Codes
    keys: Keyring
    audit: Audit
    admission: Admission
    thumbnails: Thumbnails
    gallery: Gallery
    checkpoints: CheckpointFolders
    task_graphs: TaskGraphs


async def _services(connection: HTTPConnection) -> Services:
    # Async, since FastAPI runs plain functions in a thread.
    return connection.app.state.services


ServicesDep = Annotated[Services, Depends(_services)]
Name = Annotated[str, Path(pattern=r"^[A-Za-z][A-Za-z0-9_\-]{0,63}$")]
"""The name of a document, deployment or task."""
AnyRun = Annotated[str, Path(pattern=r"^[0-9a-f]{32}$")]
"""The id of any run; check it with `visible`."""
FrameForm = Annotated[Literal["json", "binary"], Query()]
"""How a socket sends media and tensors: in its messages, or in binary frames after them."""
IfMatch = Annotated[str | None, Header(max_length=80)]


async def visible(services: Services, connection: HTTPConnection, run: str) -> str:
    """The run's id. Raises NotFound if the run is another caller's and this caller may see (or, for a change, end) only
    its own."""
    caller = caller_of(connection)
    changes = connection.scope.get("method", "GET") not in ("GET", "HEAD")
    if caller.ends_all_runs if changes else caller.sees_all_runs:
        return run
    live = services.runs.get(run)
    owner = (live.caller and live.caller.key) if live else (await services.store.read(queries.get_run, run)).caller
    if owner != caller.key:
        raise NotFound(f"there is no run `{run}`; `/api/v1/runs` lists those that are remembered")
    return run


async def _visible(services: ServicesDep, connection: HTTPConnection, run: AnyRun) -> str:
    return await visible(services, connection, run)


async def _other_visible(services: ServicesDep, connection: HTTPConnection, other: AnyRun) -> str:
    return await visible(services, connection, other)


RunName = Annotated[str, Depends(_visible)]
"""The run that a path names as `{run}`; not found if the caller may not see it."""
OtherRunName = Annotated[str, Depends(_other_visible)]
"""The run that a path names as `{other}`, likewise."""


def etag_given(value: str | None) -> str | None:
    """The etag inside an `If-Match` header: `"abc"` or `*`."""
    if value is None:
        return None
    return value.strip().removeprefix("W/").strip('"')


def etag_header(etag: str) -> Mapping[str, str]:
    return {"ETag": f'"{etag}"'}
