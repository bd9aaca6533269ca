"""Calls about graphs and placements: stored documents, checks, plans and drawings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import httpx

from walkgraph.client import shown
from walkgraph.client.calls import Call, delete, described, get, send
from walkgraph.client.shown import Kind, Scalar


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

    @described
    def check(self, document: Any) -> Call[shown.Check]:
        """Check a graph and list every problem."""
        return send("POST", "/api/v1/graphs/check", document)

    @described
    def plan(self, graph: Any, placement: Any | None = None, hardware: str | None = None) -> Call[shown.Plan]:
        """Plan a graph. `hardware`: GPUs that need not exist here, such as `3x141GB`."""
        body = {"graph": graph, "placement": placement, "hardware": hardware}
        return send("POST", "/api/v1/plans", {key: value for key, value in body.items() if value is not None})

    @described
    def python(self, graph: Any) -> Call[str]:
        """A Python program that makes the same graph."""
        return Call("POST", "/api/v1/graphs/python", _program, body={"graph": graph})

    @described
    def simulate(
        self,
        graph: Any,
        task: str,
        params: Mapping[str, Scalar] | None = None,
        inputs: Mapping[str, int] | None = None,
        parts: Sequence[str] = (),
        turns: Sequence[Mapping[str, Any]] = (),
    ) -> Call[shown.Simulation]:
        """Explain a request without running it. `inputs`: the number of values for each. `turns`: those of a
        conversation, as `{"role": "user", "parts": ["text"]}`."""
        more: dict[str, Any] = {"params": dict(params or {}), "inputs": dict(inputs or {}), "parts": list(parts)}
        more |= {"turns": [dict(turn) for turn in turns]} if turns else {}
        return send("POST", "/api/v1/graphs/simulate", {"graph": graph, "task": task, **more})

    @described
    def drawing(self, name: str, walk: str | None = None) -> Call[str]:
        """A drawing of a graph, or of one of its Walks, as Mermaid text."""
        params: dict[str, str | int | float] = {} if walk is None else {"walk": walk}
        return Call("GET", "/api/v1/graphs/{name}/drawing", _text, {"name": name}, params)


_ROUTES: Mapping[str, str] = {kind: f"/api/v1/{kind}s/{{name}}" for kind in ("graph", "placement", "blueprint")}


def _route(kind: Kind) -> str:
    if kind not in _ROUTES:
        raise TypeError(f"`kind` is `graph`, `placement` or `blueprint`, not {kind!r}")
    return _ROUTES[kind]


def _json(answer: httpx.Response) -> Any:
    return answer.json()


def _tagged(answer: httpx.Response) -> tuple[dict[str, Any], str]:
    return answer.json(), answer.headers["etag"]


def _program(answer: httpx.Response) -> str:
    return answer.json()["text"]


def _text(answer: httpx.Response) -> str:
    return answer.text
