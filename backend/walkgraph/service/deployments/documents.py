"""Routes that graphs, placements and blueprints share as stored documents: list, get, put with `If-Match`, delete,
versions."""

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path as FilePath
from typing import Annotated, Any, cast

from fastapi import APIRouter, Body, Path
from fastapi.responses import Response
from starlette.requests import Request

from walkgraph import resources
from walkgraph.service.access.auditing import act, recorded
from walkgraph.service.deps import IfMatch, Name, ServicesDep, etag_given, etag_header
from walkgraph.service.http import limits
from walkgraph.service.http.body import BodyTooLarge, StrictRoute
from walkgraph.service.http.documenting import answer
from walkgraph.service.schemas.answers import Answer
from walkgraph.service.schemas.resources import TagsRequest, VersionRequest
from walkgraph.store import queries, tables
from walkgraph.store.tables import DocumentKind
from walkgraph.wire.answers.documents import Document, Version

_BUNDLED: dict[DocumentKind, Callable[[], dict[str, FilePath]]] = {
    "graph": resources.stored_as_graphs,
    "placement": partial(resources.bundled, "placements"),
}

VersionNumber = Annotated[int, Path(ge=1, le=2**63 - 1)]
_DOCUMENT: dict[int | str, dict[str, Any]] = {
    200: answer("The document, as it was given.", {"application/json": {"type": "object"}})
}


def router(kind: DocumentKind) -> APIRouter:
    """The routes of one kind, under `/api/v1/<kind>s`."""
    found = APIRouter(prefix=f"/api/v1/{kind}s", tags=[f"{kind}s"], route_class=StrictRoute)

    @found.get("")
    async def list_all(services: ServicesDep) -> list[Answer[Document]]:
        return [_shown(row) for row in await services.store.read(queries.list_documents, kind)]

    @found.get("/{name}", response_class=Response, responses=_DOCUMENT)
    async def get(services: ServicesDep, name: Name) -> Response:
        """The document as it was given. Send its `ETag` as `If-Match` to replace it."""
        row = await services.store.read(queries.get_document, kind, name)
        return Response(row.text, headers=etag_header(row.etag), media_type="application/json")

    @found.put("/{name}")
    async def put(
        services: ServicesDep,
        caller: Request,
        response: Response,
        name: Name,
        document: Annotated[dict[str, Any], Body()],
        if_match: IfMatch = None,
    ) -> Answer[Document]:
        """Save a draft, valid or not. To replace one, send its etag in `If-Match`; to create one, send none."""
        text = _text(document)
        attempt = act(caller, f"{kind}.put", name, etag=queries.etag_of(text), over=etag_given(if_match))
        async with services.audit.attempt(attempt):
            row = await services.store.write(
                recorded, attempt.entry("done"), queries.put_document, kind, name, text, etag_given(if_match)
            )
        response.headers.update(etag_header(row.etag))
        return _shown(row)

    @found.patch("/{name}")
    async def patch(services: ServicesDep, name: Name, request: TagsRequest) -> Answer[Document]:
        """Set the tags. The document and its etag don't change. Bundled documents can be tagged too."""
        return _shown(await services.store.write(queries.set_tags, kind, name, request.tags))

    @found.delete("/{name}", status_code=204)
    async def delete(services: ServicesDep, caller: Request, name: Name, if_match: IfMatch = None) -> None:
        """Delete a document. If it replaced a bundled one, the bundled one comes back."""
        path = _BUNDLED[kind]().get(name) if kind in _BUNDLED else None
        original = None if path is None else path.read_text(encoding="utf-8")
        attempt = act(caller, f"{kind}.delete", name, etag=etag_given(if_match))
        async with services.audit.attempt(attempt):
            await services.store.write(
                recorded, attempt.entry("done"), queries.delete_document, kind, name, etag_given(if_match), original
            )

    _add_versions(found, kind)
    # Only the router refers to them.
    _ = (list_all, get, put, patch, delete)
    return found


def _add_versions(found: APIRouter, kind: DocumentKind) -> None:
    @found.get("/{name}/versions")
    async def versions(services: ServicesDep, name: Name) -> list[Answer[Version]]:
        """The kept versions, newest first."""
        return [_version(row) for row in await services.store.read(queries.list_versions, kind, name)]

    @found.post("/{name}/versions", status_code=201)
    async def keep(services: ServicesDep, name: Name, request: VersionRequest) -> Answer[Version]:
        """Keep the current draft as a version."""
        row = await services.store.read(queries.get_document, kind, name)
        return _version(await services.store.write(queries.add_version, kind, name, row.text, request.note))

    @found.get("/{name}/versions/{number}", response_class=Response, responses=_DOCUMENT)
    async def get_version(services: ServicesDep, name: Name, number: VersionNumber) -> Response:
        row = await services.store.read(queries.get_version, kind, name, number)
        return Response(row.text, media_type="application/json")

    _ = (versions, keep, get_version)


def _text(document: Any) -> str:
    """The document as it is stored: as given, without spaces. Raises BodyTooLarge if it is too large."""
    text = json.dumps(document, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    if len(text.encode()) > limits.DOCUMENT_BYTES:
        raise BodyTooLarge(f"a document may have {limits.DOCUMENT_BYTES} bytes")
    return text


def _shown(row: tables.Document) -> Document:
    value = json.loads(row.text)
    description = cast(dict[str, Any], value).get("description") if isinstance(value, dict) else None
    return Document(
        name=row.name,
        etag=row.etag,
        bundled=row.bundled,
        updated_at=row.updated_at,
        description=description if isinstance(description, str) else "",
        tags=json.loads(row.tags),
    )


def _version(row: tables.Version) -> Version:
    return Version(id=row.id or 0, etag=row.etag, note=row.note, created_at=row.created_at)
