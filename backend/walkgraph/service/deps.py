"""What routes are given: the services of this app, as `Annotated` names."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Literal

from fastapi import Depends, Header, Path, Query
from starlette.requests import HTTPConnection

from walkgraph.service.access import Codes
from walkgraph.service.admission import Admission
from walkgraph.service.auditing import Audit
from walkgraph.service.deployments import Deployments
from walkgraph.service.exporting import SpanExporter
from walkgraph.service.gallery import Gallery
from walkgraph.service.hub import Hub
from walkgraph.service.idempotency import Keys
from walkgraph.service.keys import Keyring
from walkgraph.service.metrics import Metrics
from walkgraph.service.runs import Runs
from walkgraph.service.traces import Traces
from walkgraph.settings import Settings
from walkgraph.store.session import Store


@dataclass(frozen=True, kw_only=True)
class Services:
    settings: Settings
    store: Store
    hub: Hub
    runs: Runs
    idempotency: Keys
    deployments: Deployments
    traces: Traces
    metrics: Metrics
    spans: SpanExporter | None
    """Where traces are sent to, if anywhere."""
    codes: Codes
    keys: Keyring
    audit: Audit
    admission: Admission
    gallery: Gallery


def _services(connection: HTTPConnection) -> Services:
    return connection.app.state.services


ServicesDep = Annotated[Services, Depends(_services)]
Name = Annotated[str, Path(pattern=r"^[A-Za-z][A-Za-z0-9_\-]{0,63}$")]
"""Of a document, deployment or task."""
RunName = Annotated[str, Path(pattern=r"^[0-9a-f]{32}$")]
FrameForm = Annotated[Literal["json", "binary"], Query()]
"""How a socket tells media and tensors: in its messages, or in frames after them."""
IfMatch = Annotated[str | None, Header(max_length=80)]


def etag_given(value: str | None) -> str | None:
    """The etag inside an `If-Match` header: `"abc"` or `*`."""
    if value is None:
        return None
    return value.strip().removeprefix("W/").strip('"')


def etag_header(etag: str) -> Mapping[str, str]:
    return {"ETag": f'"{etag}"'}
