"""Calls about stored documents, graphs and placements, and about what they are made of."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import httpx

from walkgraph.client import shown
from walkgraph.client.calls import Call, delete, described, get, send
from walkgraph.client.shown import Kind


class DocumentCalls:
    @described
    def graphs(self) -> Call[list[shown.Document]]:
        """All stored graphs, without their content."""
        return get("/api/v1/graphs")

    @described
    def graph(self, name: str) -> Call[dict[str, Any]]:
        """The content of a graph."""
        return get("/api/v1/graphs/{name}", name=name)

    @described
    def placements(self) -> Call[list[shown.Document]]:
        """All stored placements, without their content."""
        return get("/api/v1/placements")

    @described
    def placement(self, name: str) -> Call[dict[str, Any]]:
        """The content of a placement."""
        return get("/api/v1/placements/{name}", name=name)

    @described
    def gallery(self) -> Call[list[shown.GalleryEntry]]:
        """Every graph with its tasks, and whether it can be deployed here."""
        return get("/api/v1/gallery")

    @described
    def checkpoints(self) -> Call[shown.Checkpoints]:
        """The folders of weights on the service's machine, and what is published for each family."""
        return get("/api/v1/checkpoints")

    @described
    def checkpoint_documents(self, folder: str) -> Call[shown.MadeDocuments]:
        """The graph and placements that serve a folder; store them with `put_document`."""
        return get("/api/v1/checkpoints/{folder}/documents", folder=folder)

    @described
    def document(self, kind: Kind, name: str) -> Call[tuple[dict[str, Any], str]]:
        """A stored document and its etag."""
        return Call("GET", _route(kind), _tagged, {"name": name})

    @described
    def put_document(self, kind: Kind, name: str, document: Any, etag: str | None = None) -> Call[shown.Document]:
        """Save a draft. Pass the etag of the document that it replaces, none for a new one."""
        headers = {"If-Match": etag} if etag else {}
        return Call("PUT", _route(kind), _json, {"name": name}, body=document, headers=headers)

    @described
    def delete_document(self, kind: Kind, name: str) -> Call[None]:
        """Delete a document; a bundled one returns to its shipped content."""
        return delete(_route(kind), name=name)

    @described
    def tag_document(self, kind: Kind, name: str, tags: Sequence[str]) -> Call[shown.Document]:
        """Set its tags."""
        return send("PATCH", _route(kind), {"tags": list(tags)}, name=name)

    @described
    def versions(self, kind: Kind, name: str) -> Call[list[shown.Version]]:
        """Kept versions, newest first."""
        return get(_route(kind) + "/versions", name=name)

    @described
    def version(self, kind: Kind, name: str, number: int) -> Call[dict[str, Any]]:
        """The content of one version."""
        return get(_route(kind) + "/versions/{number}", name=name, number=str(number))

    @described
    def keep_version(self, kind: Kind, name: str, note: str = "") -> Call[shown.Version]:
        """Keep a document's present content as a version."""
        return send("POST", _route(kind) + "/versions", {"note": note}, name=name)

    @described
    def components(self, *, tasks: bool = False) -> Call[list[shown.Component]]:
        """All components that a graph may use. `tasks`: and the tasks that its nodes may call."""
        return get("/api/v1/components", {"tasks": "true" if tasks else None})

    @described
    def component(self, name: str) -> Call[shown.Component]:
        """One component."""
        return get("/api/v1/components/{name}", name=name)

    @described
    def schema(self, kind: Kind) -> Call[dict[str, Any]]:
        """The published JSON Schema of a document."""
        return get(f"/schemas/{kind}-v1.json")


_ROUTES: Mapping[str, str] = {kind: f"/api/v1/{kind}s/{{name}}" for kind in ("graph", "placement", "blueprint")}


def _route(kind: Kind) -> str:
    if kind not in _ROUTES:
        raise TypeError(f"`kind` is `graph`, `placement` or `blueprint`, not {kind!r}")
    return _ROUTES[kind]


def _json(answer: httpx.Response) -> Any:
    return answer.json()


def _tagged(answer: httpx.Response) -> tuple[dict[str, Any], str]:
    return answer.json(), answer.headers["etag"]
