"""A client for the studio's pages that answers from memory."""

from __future__ import annotations

from typing import Any

from walkgraph.client import ProblemError
from walkgraph.client.calls import Call

ENTRY: dict[str, Any] = {
    "name": "shapes",
    "description": "Draws shapes.",
    "tasks": [{"name": "draw", "label": "Draw"}],
    "modalities_in": ["text"],
    "modalities_out": ["image"],
    "starter": True,
    "deployable": True,
    "why": None,
    "needs_gpu": False,
    "random": False,
    "lacks": None,
    "tags": [],
    "bundled": True,
}
ROW: dict[str, Any] = {
    "name": "shapes",
    "etag": "1",
    "bundled": True,
    "updated_at": 1.0,
    "description": "Draws shapes.",
    "tags": ["mine"],
}


class FakeClient:
    """Keeps what was put; every graph of `names` is deployable."""

    url = "http://127.0.0.1:8421"

    def __init__(self, *names: str, deployed: tuple[str, ...] = ()) -> None:
        self.names = list(names)
        self.deployed = list(deployed)
        self.calls: list[tuple[Any, ...]] = []

    def gallery(self) -> list[dict[str, Any]]:
        return [{**ENTRY, "name": name} for name in self.names]

    def graphs(self) -> list[dict[str, Any]]:
        return [{**ROW, "name": name} for name in self.names]

    def placements(self) -> list[dict[str, Any]]:
        return []

    def versions(self, _kind: str, _name: str) -> list[dict[str, Any]]:
        return [{"id": 1, "etag": "1", "note": "first", "created_at": 1.0}]

    def document(self, _kind: str, name: str) -> tuple[dict[str, Any], str]:
        return {"format": "walkgraph/graph@1", "name": name}, '"1"'

    def deployments(self) -> list[dict[str, Any]]:
        ranks = [{"rank": 0, "device": "cpu", "state": "ready"}]
        shown = {"state": "ready", "reason": None, "ranks": ranks, "scratch": False}
        return [{"id": name, "graph": name, **shown} for name in self.deployed]

    def send(self, call: Call[Any]) -> Any:
        assert call.path == "/v1/models"
        return {"data": [{"id": name, "routes": {"images.edits": ["draw"]}} for name in self.deployed]}

    def deploy(self, name: str) -> dict[str, Any]:
        self.calls.append(("deploy", name))
        if name == "refused":
            raise ProblemError(422, {"detail": "there is no room for it"})
        return {"id": name}

    def undeploy(self, id_: str) -> None:
        self.calls.append(("undeploy", id_))
        self.deployed.remove(id_)

    def checkpoints(self) -> dict[str, Any]:
        bare = {"root": "/models", "parameters": 10, "bytes": 40, "dtypes": {"F32": 2}, "unfit": [], "remarks": []}
        good = {"folder": "good", "title": "BAGEL", "problems": [], "graph": "good", "fits": True, "graphs": []}
        bad = {"folder": "bad", "title": "", "problems": ["`bad` lacks `x`"], "graph": "", "fits": False, "graphs": []}
        one = {"repository": "owner/name", "folder": "name", "bytes": 10**9, "files": ["a"], "note": "", "here": False}
        offered = [{"title": "BAGEL", "graph": "bagel", "published": [one]}]
        return {"roots": ["/models"], "found": [{**bare, **good}, {**bare, **bad}], "offered": offered}

    def checkpoint_documents(self, folder: str) -> dict[str, Any]:
        return {"graph": {"name": folder}, "placements": [{"name": f"{folder}_one_cpu"}]}

    def put_document(self, kind: str, name: str, document: dict[str, Any]) -> dict[str, Any]:
        self.calls.append(("put", kind, name, document))
        if name == "refused":
            raise ProblemError(422, {"detail": "there is no room for it"})
        self.names.append(name)
        return ROW

    def delete_document(self, kind: str, name: str) -> None:
        self.calls.append(("delete", kind, name))

    def tag_document(self, kind: str, name: str, tags: list[str]) -> dict[str, Any]:
        self.calls.append(("tag", kind, name, tags))
        return ROW
