"""Calls about blueprints: the library, and what makes and copies them in a graph."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import httpx

from walkgraph.client import shown
from walkgraph.client.calls import Call, described, get, send


class BlueprintCalls:
    @described
    def blueprints(self) -> Call[list[shown.Document]]:
        """All blueprints of the library, without their content."""
        return get("/api/v1/blueprints")

    @described
    def blueprint(self, name: str) -> Call[dict[str, Any]]:
        """The content of a blueprint of the library."""
        return get("/api/v1/blueprints/{name}", name=name)

    @described
    def pack(self, graph: Any, walk: str, items: Sequence[str], name: str) -> Call[dict[str, Any]]:
        """The graph with these items of a Walk (`/body/0`) as a blueprint, and a node in their place."""
        body = {"graph": graph, "walk": walk, "items": list(items), "name": name}
        return Call("POST", "/api/v1/blueprints/pack", _graph, body=body)

    @described
    def unpack(self, graph: Any, node: str) -> Call[dict[str, Any]]:
        """The graph with a copy of its blueprint in the place of a node."""
        return Call("POST", "/api/v1/blueprints/unpack", _graph, body={"graph": graph, "node": node})

    @described
    def take(self, graph: Any, blueprint: Any, replaces: str | None = None) -> Call[dict[str, Any]]:
        """The graph with a copy of a blueprint: a name in the library, or a document. `replaces`: the blueprint of the
        graph to update; its wires stay where they still fit."""
        body = {"graph": graph, "blueprint": blueprint, **({"replaces": replaces} if replaces else {})}
        return Call("POST", "/api/v1/blueprints/take", _graph, body=body)

    @described
    def entry(self, graph: Any, *, blueprint: str | None = None, walk: str | None = None) -> Call[dict[str, Any]]:
        """A blueprint of a graph, or one of its Walks, as a document for the library or a file."""
        body = {"graph": graph, "blueprint": blueprint, "walk": walk}
        given = {key: value for key, value in body.items() if value is not None}
        return send("POST", "/api/v1/blueprints/entry", given)


def _graph(answer: httpx.Response) -> dict[str, Any]:
    return answer.json()["graph"]
